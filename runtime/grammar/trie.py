"""The byte trie of a vocabulary as flat arrays, level by level, so that numpy can walk it against an automaton.

Built once a vocabulary and shared by all grammars over it. Knows nothing of grammars.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.vocabulary import Vocabulary

Int32 = npt.NDArray[np.int32]


class VocabularyTrie(msgspec.Struct, frozen=True):
    """Nodes in breadth-first order, 0 the root; N nodes, V tokens.

    The children of node n are `child_starts[n]` … `child_starts[n + 1]` − 1, by their byte ascending, so the children
    of a run of nodes are a run too. Tokens without bytes (special tokens) are nowhere.
    """

    byte: npt.NDArray[np.uint8]  # [N]: the byte that leads to a node; 0 for the root
    child_starts: Int32  # [N + 1]
    token_node: Int32  # [V]: where a token ends; 0, the root, for tokens without bytes
    token_starts: Int32  # [N + 1]: tokens that end at node n are tokens[token_starts[n]:token_starts[n + 1]]
    tokens: Int32
    depth: int  # the longest token, in bytes

    @property
    def nodes(self) -> int:
        return len(self.byte)

    @property
    def nbytes(self) -> int:
        arrays = (self.byte, self.child_starts, self.token_node, self.token_starts, self.tokens)
        return sum(array.nbytes for array in arrays)

    def child(self, node: int, byte: int) -> int | None:
        start, end = int(self.child_starts[node]), int(self.child_starts[node + 1])
        at = start + int(np.searchsorted(self.byte[start:end], byte))
        return at if at < end and self.byte[at] == byte else None

    def find(self, data: bytes) -> int | None:
        """The node of `data`, if a token starts with it."""
        node: int | None = 0
        for byte in data:
            if node is None:
                return None
            node = self.child(node, byte)
        return node

    def ending_at(self, node: int) -> list[int]:
        """Tokens whose bytes are those of `node`."""
        found: list[int] = self.tokens[self.token_starts[node] : self.token_starts[node + 1]].tolist()
        return found


def vocabulary_trie(vocabulary: Vocabulary) -> VocabularyTrie:
    pieces = vocabulary.pieces
    order = sorted((token for token in range(len(pieces)) if pieces[token]), key=pieces.__getitem__)
    lengths = np.array([len(pieces[token]) for token in order], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    data = np.frombuffer(b"".join([pieces[token] for token in order]), np.uint8)
    node = np.zeros(len(order), np.int64)  # of each token's prefix, as long as the level
    active = np.arange(len(order))
    levels_byte, levels_parent = [np.zeros(1, np.uint8)], []
    count = 1
    for depth in range(int(lengths.max(initial=0))):
        active = active[lengths[active] > depth]
        byte, parent = data[starts[active] + depth], node[active]
        # Sorted, so tokens that share a prefix lie together.
        new = np.ones(len(active), np.bool_)
        new[1:] = (parent[1:] != parent[:-1]) | (byte[1:] != byte[:-1])
        node[active] = count - 1 + np.cumsum(new)
        levels_byte.append(byte[new])
        levels_parent.append(parent[new])
        count += int(new.sum())
    parents = np.concatenate(levels_parent) if levels_parent else np.zeros(0, np.int64)
    child_counts = np.bincount(parents, minlength=count)
    child_starts = 1 + np.concatenate([[0], np.cumsum(child_counts)])
    tokens = np.array(order, np.int32)
    token_node = np.zeros(len(pieces), np.int32)
    token_node[tokens] = node
    by_node = np.argsort(node, kind="stable")
    token_starts = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=count))])
    return VocabularyTrie(
        byte=np.concatenate(levels_byte),
        child_starts=child_starts.astype(np.int32),
        token_node=token_node,
        token_starts=token_starts.astype(np.int32),
        tokens=tokens[by_node],
        depth=int(lengths.max(initial=0)),
    )
