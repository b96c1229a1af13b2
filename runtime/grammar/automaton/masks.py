"""Token masks of automaton states: computed by one walk over the vocabulary, kept within a bound on bytes.

One `Masks` a vocabulary, shared by every grammar over it. Called by matchers, in the scheduler.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from threading import Lock

import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.automaton.alphabet import ROOT, Alphabet, Intervals
from palmette.runtime.grammar.automaton.automaton import Automaton, State
from palmette.runtime.grammar.automaton.masks_walk import Quotient, quotient, staying_codes, walk_quotient, walk_trie
from palmette.runtime.grammar.protocol import FillsMany, Mask, Matcher, mask_words
from palmette.runtime.grammar.trie import VocabularyTrie, vocabulary_trie
from palmette.runtime.vocabulary import Vocabulary

CACHED_BYTES = 64 << 20
_OVERHEAD = 400  # bytes that a kept mask takes beside its bits
_QUOTIENTS = 32
_WIDE = 16  # ASCII characters that a state allows, from which on its walk over the whole trie is long


class Masks:
    """The masks of states, the least recently used given up beyond `cached_bytes`."""

    def __init__(self, vocabulary: Vocabulary, *, cached_bytes: int = CACHED_BYTES) -> None:
        self.vocabulary = vocabulary
        self.trie: VocabularyTrie = vocabulary_trie(vocabulary)
        self.words = mask_words(vocabulary.size)
        self.computed = 0
        self._eos = [token for token in vocabulary.eos_ids if token < vocabulary.size]
        self._kept: OrderedDict[tuple[int, State], Mask] = OrderedDict()
        self._at_most = max(1, cached_bytes // (4 * self.words + _OVERHEAD))
        self._quotients: OrderedDict[Intervals, Quotient] = OrderedDict()
        self._lock = Lock()
        self.nothing: Mask = np.zeros(self.words, np.uint32)
        """No token allowed; read-only."""
        self.nothing.flags.writeable = False

    def of(self, automaton: Automaton) -> StateMasks:
        """Prepares the masks of an automaton: a few milliseconds where its states allow much, at compile time."""
        return StateMasks(self, automaton, self._quotient(automaton.alphabet) if _wide(automaton) else None)

    def _quotient(self, alphabet: Alphabet) -> Quotient:
        with self._lock:
            found = self._quotients.get(alphabet.intervals)
        if found is None:
            found = quotient(self.trie, alphabet)
        with self._lock:
            self._quotients[alphabet.intervals] = found
            self._quotients.move_to_end(alphabet.intervals)
            if len(self._quotients) > _QUOTIENTS:
                self._quotients.popitem(last=False)
        return found

    def kept(self, key: tuple[int, State]) -> Mask | None:
        with self._lock:
            mask = self._kept.get(key)
            if mask is not None:
                self._kept.move_to_end(key)
            return mask

    def keep(self, key: tuple[int, State], reached: npt.NDArray[np.bool_], *, may_end: bool) -> Mask:
        """Packs and keeps a mask. `reached[token]`: the token goes on."""
        bits = np.zeros(32 * self.words, np.bool_)
        bits[: self.vocabulary.size] = reached
        if may_end:
            bits[self._eos] = True
        mask: Mask = np.packbits(bits, bitorder="little").view("<u4")
        mask.flags.writeable = False
        with self._lock:
            self.computed += 1
            self._kept[key] = mask
            if len(self._kept) > self._at_most:
                self._kept.popitem(last=False)
        return mask


class StateMasks:
    """The masks of one automaton's states."""

    def __init__(self, masks: Masks, automaton: Automaton, wide: Quotient | None) -> None:
        self._masks = masks
        self._automaton = automaton
        self._wide = wide
        self._staying = staying_codes(automaton.after)

    def at(self, state: State) -> Mask:
        """The mask of a state, read-only: computed at the first call, then looked up."""
        key = (self._automaton.number, state)
        mask = self._masks.kept(key)
        return mask if mask is not None else self.compute(state)

    def compute(self, state: State) -> Mask:
        automaton, trie = self._automaton, self._masks.trie
        if self._wide is not None and state.node == ROOT:
            reached = walk_quotient(self._wide, automaton.after, self._staying, state.state)
        else:
            reached = walk_trie(trie, automaton, state)
        return self._masks.keep((automaton.number, state), reached, may_end=automaton.final(state))


def _wide(automaton: Automaton) -> bool:
    """Some state allows many of ASCII's characters."""
    per_class = np.bincount(automaton.alphabet.step[ROOT, :0x80], minlength=automaton.alphabet.classes)
    return bool(((automaton.dfa.delta != 0) @ per_class).max() >= _WIDE)


def fill_masks(matchers: Sequence[Matcher], into: npt.NDArray[np.uint32]) -> None:
    """The masks of a batch in one call: into[i] (uint32[n, words]) from matchers[i]."""
    together: dict[type[FillsMany], list[int]] = {}
    for row, matcher in enumerate(matchers):
        kind = _fills_many(type(matcher))
        if kind is not None:
            together.setdefault(kind, []).append(row)
        else:
            matcher.fill_mask(into[row])
    for kind, rows in together.items():
        kind.fill_many([matchers[row] for row in rows], into, rows)


@cache
def _fills_many(kind: type) -> type[FillsMany] | None:
    """The class itself, where it can. Asked once: to ask whether a class is of a protocol takes 15 µs."""
    return kind if issubclass(kind, FillsMany) else None


def write_mask(mask: Mask, into: Mask) -> None:
    """Copies a mask into a row that may be longer (models with more logits than tokens)."""
    if len(into) == len(mask):
        into[:] = mask
    else:
        into[: len(mask)] = mask
        into[len(mask) :] = 0
