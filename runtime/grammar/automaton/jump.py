"""Jump-forward: the tokens of text that a grammar leaves no choice about, so that the model needn't be asked.

`forced tokens` are the canonical tokens of forced bytes up to where later bytes could still change them; never does a
token that was emitted change, and what is held back stays forced by the mask. `sole_token` is the stricter form:
only where the mask has one bit. Called by matchers and by the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import numpy as np

from palmette.runtime.grammar.automaton.alphabet import ROOT
from palmette.runtime.grammar.automaton.automaton import Automaton, State
from palmette.runtime.grammar.protocol import Mask, TokenSpace
from palmette.runtime.grammar.trie import VocabularyTrie

_CANDIDATES = 16  # tokens across the end that are tried before one is taken to be possible
_VISITS = 2_000  # trie nodes looked at for them
_KEPT = 1_024  # states whose forced tokens are remembered, per grammar
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


class ForcedTokens:
    """The forced tokens of each state of an automaton, found once.

    The canonical tokens of the run F are cut back to those that every continuation X keeps. A continuation can change
    them in two ways, and both are tried:
    - a token lies across the end of F. For each position q from which the vocabulary has a token that goes beyond F
      the way the automaton does, and that the tokenizer chooses there, only what also starts the tokens of F[:q] stays.
    - what follows changes how the end of F is cut (` +` before a word). Next characters of each sort are appended, and
      only the tokens that all of them start with stay.
    The search is bounded; what it can't decide is held back. If a tokenizer looks further ahead than that, tokens may
    differ from those of the whole text, but they spell the same bytes.
    """

    def __init__(self, automaton: Automaton, space: TokenSpace, trie: VocabularyTrie) -> None:
        self._automaton = automaton
        self._space = space
        self._trie = trie
        self._known: dict[State, tuple[int, ...]] = {}
        self._lock = Lock()

    def after(self, at: State) -> tuple[int, ...]:
        known = self._known.get(at)
        if known is None:
            run = self._automaton.run(at)
            known = tuple(self._stable(run.data, run.end)) if run.data else ()
            with self._lock:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[at] = known
        return known

    def _stable(self, data: bytes, end: State) -> list[int]:
        tokens = self._encode(data)
        if self._automaton.closed(end):
            return tokens
        for start in range(max(0, len(data) - self._trie.depth + 1), len(data)):
            if not tokens:
                return []
            if self._crossed(data, start, end):
                tokens = _shared(tokens, self._encode(data[:start]))
        for more in self._probes(end):
            if not tokens:
                return []
            tokens = _shared(tokens, self._encode(data + more))
        # The probes may be part of the last tokens: only whole tokens of `data` count.
        pieces, length = self._space.vocabulary.pieces, 0
        for count, token in enumerate(tokens):
            length += len(pieces[token])
            if length > len(data):
                return tokens[:count]
        return tokens

    def _encode(self, data: bytes) -> list[int]:
        """Canonical tokens of the whole characters in `data`; only as far as they spell its bytes."""
        text = data.decode(errors="ignore") if _whole_start(data) else ""
        tokens = self._space.encode(text) if text else []
        pieces, at = self._space.vocabulary.pieces, 0
        for count, token in enumerate(tokens):
            piece = pieces[token]
            if not piece or not data.startswith(piece, at):
                return tokens[:count]  # a tokenizer that normalises, or an unknown character
            at += len(piece)
        return tokens

    def _crossed(self, data: bytes, start: int, end: State) -> bool:
        """A token may start at `start` and go beyond the end of `data`."""
        node = self._trie.find(data[start:])
        if node is None:
            return False
        head = data[:start]
        for tried, token in enumerate(self._beyond(node, end)):
            if token is None or tried == _CANDIDATES:
                return True
            piece = self._space.vocabulary.pieces[token]
            whole = head + piece
            if not _whole_end(whole):
                return True
            tokens = self._encode(whole)
            if tokens and tokens[-1] == token and sum(map(self._length, tokens)) == len(whole):
                return True
        return False

    def _length(self, token: int) -> int:
        return len(self._space.vocabulary.pieces[token])

    def _beyond(self, node: int, end: State) -> Iterator[int | None]:
        """Tokens below a trie node that the automaton can read from `end`; None where the search is cut off."""
        trie, stack, visits = self._trie, [(node, end)], 0
        while stack:
            here, at = stack.pop()
            for child in range(int(trie.child_starts[here]), int(trie.child_starts[here + 1])):
                visits += 1
                if visits > _VISITS:
                    yield None
                    return
                after = self._automaton.walk(at, bytes([trie.byte[child]]))
                if after is not None:
                    yield from trie.ending_at(child)[:1]
                    stack.append((child, after))

    def _probes(self, end: State) -> list[bytes]:
        """What may follow: a few next characters of each sort, and some text after them."""
        sorts: dict[str, list[int]] = {}
        for byte in self._automaton.ways(end):
            sorts.setdefault(_sort(byte), []).append(byte)
        picked = {byte for sort in sorts.values() for byte in (sort[0], sort[len(sort) // 2], sort[-1])}
        return [self._any_text(byte, end) for byte in sorted(picked)]

    def _any_text(self, first: int, at: State) -> bytes:
        """`first` and a few bytes that may follow it, letters rather than signs, up to the end of a character."""
        data, byte = bytearray(), first
        while True:
            after = self._automaton.walk(at, bytes([byte]))
            assert after is not None
            data.append(byte)
            at = after
            ways = list(self._automaton.ways(at))
            if not ways or (len(data) > 3 and at.node == ROOT):
                return bytes(data)
            letters = [byte for byte in ways if byte in _LETTERS]
            byte = letters[len(letters) // 2] if letters else ways[0]


def sole_token(mask: Mask) -> int | None:
    """The token of a mask that allows no other; None where there is a choice, or nothing."""
    words = np.flatnonzero(mask)
    if len(words) != 1:
        return None
    word = int(mask[words[0]])
    return int(words[0]) * 32 + word.bit_length() - 1 if word & (word - 1) == 0 else None


def _shared(left: list[int], right: list[int]) -> list[int]:
    """What both start with."""
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return left[:at]
    return left[: len(right)]


def _whole_start(data: bytes) -> bool:
    return not data or data[0] & 0xC0 != 0x80


def _whole_end(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sort(byte: int) -> str:
    character = chr(byte)
    if byte >= 0x80:
        return "beyond ASCII"
    if character.isalpha():
        return "capital" if character.isupper() else "letter"
    if character.isdigit():
        return "digit"
    return "space" if character.isspace() else "sign"
