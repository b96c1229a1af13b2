"""Token masks of automaton states: computed by one walk of the vocabulary's trie, kept within a bound on bytes.

One `Masks` a vocabulary, shared by every grammar over it. Called by matchers, in the scheduler.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.automaton import Automaton, State
from palmette.runtime.grammar.automaton_dfa import DEAD
from palmette.runtime.grammar.protocol import FillsMany, Mask, Matcher, mask_words
from palmette.runtime.grammar.trie import VocabularyTrie, vocabulary_trie
from palmette.runtime.vocabulary import Vocabulary

CACHED_BYTES = 64 << 20


class Masks:
    """The masks of states, the least recently used given up beyond `cached_bytes`."""

    def __init__(self, vocabulary: Vocabulary, *, cached_bytes: int = CACHED_BYTES) -> None:
        self.vocabulary = vocabulary
        self.trie: VocabularyTrie = vocabulary_trie(vocabulary)
        self.words = mask_words(vocabulary.size)
        self._kept: OrderedDict[tuple[Automaton, State], Mask] = OrderedDict()
        self._at_most = max(1, cached_bytes // (4 * self.words))
        self._lock = Lock()
        self.computed = 0
        self._nothing = np.zeros(self.words, np.uint32)
        self._nothing.flags.writeable = False

    @property
    def nothing(self) -> Mask:
        """No token allowed."""
        return self._nothing

    def of(self, automaton: Automaton, at: State) -> Mask:
        """The mask of a state, read-only."""
        key = (automaton, at)
        with self._lock:
            mask = self._kept.get(key)
            if mask is not None:
                self._kept.move_to_end(key)
                return mask
        mask = self._compute(automaton, at)
        with self._lock:
            self._kept[key] = mask
            self.computed += 1
            if len(self._kept) > self._at_most:
                self._kept.popitem(last=False)
        return mask

    def forget(self, automaton: Automaton) -> None:
        """Drops the masks of a grammar that is gone."""
        with self._lock:
            for key in [key for key in self._kept if key[0] is automaton]:
                del self._kept[key]

    def _compute(self, automaton: Automaton, at: State) -> Mask:
        reached = np.zeros(self.trie.nodes, np.bool_)
        _walk(self.trie, automaton, at, reached)
        bits = np.zeros(32 * self.words, np.bool_)
        np.take(reached, self.trie.token_node, out=bits[: self.vocabulary.size])
        if automaton.final(at):
            bits[list(self.vocabulary.eos_ids)] = True
        mask = np.packbits(bits, bitorder="little").view("<u4")
        mask.flags.writeable = False
        return mask


def _walk(trie: VocabularyTrie, automaton: Automaton, at: State, reached: npt.NDArray[np.bool_]) -> None:
    """Marks the trie's nodes (but the root) whose bytes the automaton can read from `at`."""
    step, after, node_of = automaton.alphabet.step, automaton.after, automaton.node_of
    one_node = automaton.alphabet.nodes == 1
    parents = np.zeros(1, np.int32)
    states = np.array([at.state], np.int32)
    nodes = np.array([at.node], np.int32)
    while len(parents):
        firsts = trie.child_starts[parents]
        counts = trie.child_starts[parents + 1] - firsts
        ends = np.cumsum(counts)
        total = int(ends[-1])
        if total == 0:
            return
        if total == int(firsts[-1]) + int(counts[-1]) - int(firsts[0]):
            children = np.arange(firsts[0], firsts[0] + total, dtype=np.int32)
            data = trie.byte[firsts[0] : firsts[0] + total]
        else:
            children = np.arange(total, dtype=np.int32) + np.repeat(firsts - (ends - counts).astype(np.int32), counts)
            data = trie.byte[children]
        codes = step[0][data] if one_node else step[np.repeat(nodes, counts), data]
        states = after[np.repeat(states, counts), codes]
        alive = np.flatnonzero(states != DEAD)
        parents, states = children[alive], states[alive]
        if not one_node:
            nodes = node_of[codes[alive]]
        reached[parents] = True


def fill_masks(matchers: Sequence[Matcher], into: npt.NDArray[np.uint32]) -> None:
    """The masks of a batch in one call: into[i] (uint32[n, words]) from matchers[i]."""
    together: dict[type, list[int]] = {}
    for row, matcher in enumerate(matchers):
        if isinstance(matcher, FillsMany):
            together.setdefault(type(matcher), []).append(row)
        else:
            matcher.fill_mask(into[row])
    for kind, rows in together.items():
        kind.fill_many([matchers[row] for row in rows], into, rows)  # type: ignore[attr-defined]


def write_mask(mask: Mask, into: Mask) -> None:
    """Copies a mask into a row that may be longer (models with more logits than tokens)."""
    if len(into) == len(mask):
        into[:] = mask
    else:
        into[: len(mask)] = mask
        into[len(mask) :] = 0
