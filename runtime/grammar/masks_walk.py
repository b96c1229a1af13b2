"""Which tokens an automaton can read from a state: the vocabulary's trie walked level by level in numpy.

An automaton tells characters apart by their class only, so for a given alphabet most of the trie's nodes are alike:
their quotient, a trie of classes, is a hundredth as large and answers for every state between two characters.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.automaton import Automaton, State
from palmette.runtime.grammar.automaton_alphabet import ROOT, Alphabet
from palmette.runtime.grammar.automaton_dfa import DEAD
from palmette.runtime.grammar.trie import VocabularyTrie

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.intp]


class Quotient(msgspec.Struct, frozen=True):
    """A vocabulary seen through an alphabet: nodes breadth first, 0 the root, each reached by a code of its `step`."""

    codes: Int  # [nodes]
    child_starts: Int  # [nodes + 1]
    token_node: Int  # [V]: where a token ends; 0 for tokens that no text over the alphabet holds


def quotient(trie: VocabularyTrie, alphabet: Alphabet) -> Quotient:
    step = alphabet.step.reshape(-1).astype(np.intp)
    width = alphabet.classes + alphabet.nodes
    where = np.zeros(trie.nodes, np.intp)  # trie node → quotient node; 0 but for the root: no text over the alphabet
    level, ids, ends = (np.zeros(1, np.intp) for _ in range(3))  # trie nodes, their quotient nodes, their UTF-8 nodes
    codes, parents, count = [np.zeros(1, np.intp)], [np.zeros(0, np.intp)], 1
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
    child_counts = np.bincount(np.concatenate(parents), minlength=count)
    starts = 1 + np.concatenate([[0], np.cumsum(child_counts)])
    return Quotient(np.concatenate(codes), starts, where.take(trie.token_node))


def walk_quotient(over: Quotient, after: npt.NDArray[np.int32], state: int) -> Bool:
    """bool[V]: tokens that go on from `state`, between two characters."""
    reached = np.zeros(len(over.codes), np.bool_)
    flat, width = after.reshape(-1), after.shape[1]
    level, states = np.zeros(1, np.intp), np.array([state], np.intp)
    while len(level):
        children, counts = _children(over.child_starts, level)
        states = flat.take(np.repeat(states * width, counts) + over.codes.take(children)).astype(np.intp)
        alive = np.flatnonzero(states)
        level, states = children.take(alive), states.take(alive)
        reached[level] = True
    return reached.take(over.token_node)


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
