"""Cached paths, for callers that hold nothing: what is known of their tokens, and of their future.

Log-probabilities are kept beside the nodes (scores.py); pins and hints tell eviction what is to come. Nothing here
leases or moves a page. One for each RadixCache, as its `paths`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from palmette.radix_cache import scores
from palmette.radix_cache.hints import Hint
from palmette.radix_cache.key import reusable_part
from palmette.radix_cache.node import Node
from palmette.radix_cache.tree import RadixTree
from palmette.runtime.messages import tokens
from palmette.runtime.messages.tokens import TOKEN_BYTES


class CachedPaths:
    """The paths of one tree, by their tokens."""

    def __init__(self, tree: RadixTree) -> None:
        self._tree = tree

    def continues_leaf(self, key: bytes, namespace: str) -> bool:
        """Whether `key` goes on where a cached path ends: it has all of a leaf that no lease holds. Nothing is leased,
        touched or split."""
        found = self._end_of(reusable_part(key), namespace)
        if found is None or found[0].children or found[0].leases:
            return False
        leaf, end = found
        return sum(tokens.count(node.key) for node in leaf.path()) == end

    # Log-probabilities of their tokens

    def scored(self, key: bytes, namespace: str, start: int) -> array[float]:
        """The known log-probabilities of `key`'s tokens from position `start` on, float32 as they were kept, up to
        the first that isn't known or isn't cached. Nothing is leased."""
        found = self._end_of(key, namespace)
        return scores.known_along(*found, start) if found is not None else array("f")

    def keep_scores(self, key: bytes, namespace: str, start: int, logprobs: Sequence[float]) -> None:
        """Keeps the log-probabilities of `key`'s tokens from position `start` on, as far as those are cached."""
        found = self._end_of(key, namespace)
        if found is not None:
            scores.keep_along(*found, start, logprobs)

    def beside(self, key: bytes, namespace: str, start: int) -> dict[int, Mapping[int, float]]:
        """By position, from `start` on: the known log-probabilities of tokens that might stand there behind `key`'s."""
        found = self._end_of(key, namespace)
        return scores.beside_along(*found, start) if found is not None else {}

    def keep_beside(self, key: bytes, namespace: str, values: Mapping[int, Mapping[int, float]]) -> None:
        """Keeps the log-probabilities of tokens that might stand behind `key`'s, by position and token, as far as those
        before them are cached."""
        found = self._end_of(key, namespace)
        if found is not None:
            scores.keep_beside_along(*found, values)

    # Their future

    def pin(self, key: bytes, namespace: str, seconds: float) -> int:
        """Asks that the cached prefix of `key` be evicted last, for `seconds` from now; returns the tokens pinned.

        A pin holds nothing: it only moves its pages to the end of the eviction order. The same key again sets the
        time anew; what has been cached beyond it since is covered too. Where all pins together would cover more
        than their share of the pool, those that expire before this one end, soonest first; where that isn't enough
        nothing is pinned, and 0 returned.
        """
        tree, pins = self._tree, self._tree.pins
        tree.expire_pins()
        found = self._end_of(key, namespace, split=True)
        if found is None or seconds <= 0:
            return 0
        node, end = found
        expires = tree.clock() + seconds
        while pins.pages + pins.uncovered(node) > pins.capacity:
            soonest = pins.soonest()
            if soonest is None or pins.expires[soonest] > expires:
                return 0
            tree.unpin(soonest)
        tree.pin(node, expires)
        return end

    def unpin(self, key: bytes, namespace: str) -> bool:
        """Ends the pin on the cached prefix of `key`, where it has one."""
        found = self._end_of(key, namespace)
        pinned = found is not None and found[0] in self._tree.pins.expires
        if found is not None and pinned:
            self._tree.unpin(found[0])
        return pinned

    def hint(self, key: bytes, namespace: str, hint: Hint | None = None, *, priority: int | None = None) -> None:
        """Tells the eviction policy what is known of the cached prefix of `key`. Either part may be left out.

        The hint is the end's own; on the path above, which others may share, it is merged with what they hint.
        """
        found = self._end_of(key, namespace, split=hint is not None and hint.last_use)
        if found is None:
            return
        now, end = self._tree.clock(), found[0]
        for node in end.path():
            if hint is not None:
                node.hint = hint if node is end else hint.merged(node.hint or Hint(), now)
            if priority is not None:
                node.priority = priority if node is end else max(node.priority, priority)
        self._tree.reconsider(end)

    def _end_of(self, key: bytes, namespace: str, *, split: bool = False) -> tuple[Node, int] | None:
        """The node with the last cached token of `key`, and how many of its tokens are cached; None: none at all.

        `split`: pages behind that token are cut off into a node of their own.
        """
        tree = self._tree
        root = tree.roots.get(namespace)
        if root is None:
            return None
        node, at, child, shared = tree.descend(root, key, 0)
        if child is None and (best := tree.best_tail(node, key, at)) is not None:
            child, shared = best
        if child is not None:
            node, at = child, at + shared * TOKEN_BYTES
            covered = -(-shared // tree.page_size)
            if split and covered < len(child.pages):
                node = tree.split(child, covered)
        return None if node is root else (node, at // TOKEN_BYTES)
