"""Which tokens an automaton can read from a state: the vocabulary's trie walked level by level in numpy.

An automaton tells characters apart by their class only, so for a given alphabet most of the trie's nodes are alike:
their quotient, a trie of classes, is a hundredth as large and answers for every state between two characters.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.automaton.alphabet import ROOT, Alphabet
from palmette.runtime.grammar.automaton.automaton import Automaton, State
from palmette.runtime.grammar.automaton.dfa import DEAD
from palmette.runtime.grammar.trie import VocabularyTrie

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.intp]


UInt64 = npt.NDArray[np.uint64]

_LAST_BIT = 63  # of a set of codes; it stands for all codes from there on


class Quotient(msgspec.Struct, frozen=True):
    """A vocabulary seen through an alphabet: nodes breadth first, 0 the root, each reached by a code of its `step`.

    A node and all below it are `sizes` numbers from `order` on, depth first.
    """

    codes: Int  # [nodes]
    child_starts: Int  # [nodes + 1]
    order: Int  # [nodes]
    sizes: Int  # [nodes]
    below: UInt64  # [nodes]: the set of codes below a node
    token_order: Int  # [V]: the order of the node where a token ends; 0 for tokens that no text over the alphabet holds


def quotient(trie: VocabularyTrie, alphabet: Alphabet) -> Quotient:
    step = alphabet.step.reshape(-1).astype(np.intp)
    width = alphabet.classes + alphabet.nodes
    where = np.zeros(trie.nodes, np.intp)  # trie node → quotient node; 0 but for the root: no text over the alphabet
    level, ids, ends = (np.zeros(1, np.intp) for _ in range(3))  # trie nodes, their quotient nodes, their UTF-8 nodes
    codes, parents, count = [np.zeros(1, np.intp)], [np.zeros(1, np.intp)], 1
    while len(level):
        children, counts = _children(trie.child_starts, level)
        code = step.take(np.repeat(ends * 256, counts) + trie.byte.take(children))
        alive = np.flatnonzero(code)
        level, code = children.take(alive), code.take(alive)
        parent = np.repeat(ids, counts).take(alive)
        keys, found = np.unique(parent * width + code, return_inverse=True)
        ids = found + count
        where[level] = ids
        codes.append(keys % width)
        parents.append(keys // width)
        count += len(keys)
        ends = np.where(code < alphabet.classes, ROOT, code - alphabet.classes)
    child_counts = np.bincount(np.concatenate(parents[1:]), minlength=count)
    starts = 1 + np.concatenate([[0], np.cumsum(child_counts)])
    order, sizes, below = _depth_first(codes, parents, starts)
    return Quotient(np.concatenate(codes), starts, order, sizes, below, order.take(where.take(trie.token_node)))


def _depth_first(codes: list[Int], parents: list[Int], starts: Int) -> tuple[Int, Int, UInt64]:
    """Order, size and codes below of each node; codes and parents come level by level."""
    firsts = np.concatenate([[0], np.cumsum([len(level) for level in codes])])
    order, sizes = np.zeros(firsts[-1], np.intp), np.ones(firsts[-1], np.intp)
    below = np.zeros(firsts[-1], np.uint64)
    for depth in range(len(codes) - 1, 0, -1):
        nodes = slice(firsts[depth], firsts[depth + 1])
        bits = np.uint64(1) << np.minimum(codes[depth], _LAST_BIT).astype(np.uint64)
        np.add.at(sizes, parents[depth], sizes[nodes])
        np.bitwise_or.at(below, parents[depth], below[nodes] | bits)
    for depth in range(1, len(codes)):
        nodes = slice(firsts[depth], firsts[depth + 1])
        before = np.cumsum(sizes[nodes]) - sizes[nodes]
        elder = before.take(starts.take(parents[depth]) - firsts[depth])
        order[nodes] = order.take(parents[depth]) + 1 + before - elder
    return order, sizes, below


def staying_codes(after: npt.NDArray[np.int32]) -> UInt64:
    """uint64[states]: the codes by which a state leads to itself, as a set of bits."""
    stays = after == np.arange(len(after), dtype=np.int32)[:, None]
    rest = stays[:, _LAST_BIT:].all(axis=1) if after.shape[1] > _LAST_BIT else np.zeros(len(after), np.bool_)
    bits = np.uint64(1) << np.arange(min(after.shape[1], _LAST_BIT), dtype=np.uint64)
    low: UInt64 = (stays[:, :_LAST_BIT] * bits).sum(axis=1, dtype=np.uint64)
    return low | (rest.astype(np.uint64) << np.uint64(_LAST_BIT))


def walk_quotient(over: Quotient, after: npt.NDArray[np.int32], staying: UInt64, state: int) -> Bool:
    """bool[V]: tokens that go on from `state`, between two characters.

    Where all that is below a node keeps the state, all of it is reached, and isn't walked.
    """
    flat, width = after.reshape(-1), after.shape[1]
    level, states = np.zeros(1, np.intp), np.array([state], np.intp)
    marks = np.zeros(len(over.codes) + 1, np.intp)
    while len(level):
        children, counts = _children(over.child_starts, level)
        states = flat.take(np.repeat(states * width, counts) + over.codes.take(children)).astype(np.intp)
        alive = np.flatnonzero(states)
        level, states = children.take(alive), states.take(alive)
        leaves = (over.below.take(level) & ~staying.take(states)) != 0
        first = over.order.take(level)
        marks[first] += 1
        np.subtract.at(marks, first + np.where(leaves, 1, over.sizes.take(level)), 1)
        level, states = level[leaves], states[leaves]
    return (np.cumsum(marks) > 0).take(over.token_order)


def walk_trie(trie: VocabularyTrie, automaton: Automaton, at: State) -> Bool:
    """bool[V]: tokens that go on from `at`, which may be inside a character."""
    reached = np.zeros(trie.nodes, np.bool_)
    step, after, node_of = automaton.alphabet.step.reshape(-1), automaton.after.reshape(-1), automaton.node_of
    width = automaton.after.shape[1]
    level, states, nodes = np.zeros(1, np.intp), np.array([at.state]), np.array([at.node])
    while len(level):
        children, counts = _children(trie.child_starts, level)
        codes = step.take(np.repeat(nodes * 256, counts) + trie.byte.take(children))
        states = after.take(np.repeat(states * width, counts) + codes)
        alive = np.flatnonzero(states != DEAD)
        level, states, nodes = children.take(alive), states.take(alive), node_of.take(codes.take(alive))
        reached[level] = True
    return reached.take(trie.token_node)


def _children(starts: npt.NDArray[np.integer], level: Int) -> tuple[Int, Int]:
    """The children of some nodes, in order, and how many each has."""
    firsts = starts.take(level)
    counts = starts.take(level + 1) - firsts
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) + np.repeat(firsts - ends + counts, counts), counts
