"""Ways to an end for matchers of llguidance, which can't be asked how far they are from one.

A text is written byte by byte on a copy of the matcher: what is forced, then what closes (brackets, quotes), then what
begins the shortest values; elsewhere the nearest place is searched where something closes, and where there is none a
letter is written (a string that is too short yet). No choice leads into a dead end, so the walk can only be longer than
need be, or go round in circles: then it is given up. Called by LlgMatcher.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from palmette.runtime.grammar.closing import spell
from palmette.runtime.grammar.protocol import TokenSpace
from palmette.runtime.grammar.trie import VocabularyTrie

MAX_BYTES = 2_000
MAX_CHOICES = 300
MAX_SEARCH = 200  # places looked at in search of one where something closes
PATIENCE = 64  # letters written in one kind of place, before other characters are tried

_QUOTE = ord('"')
_CLOSERS = tuple(b"}])\">'")
_SHORTEST = tuple(b"0n1tf[{")  # first bytes of short values
_FREE = 64  # allowed bytes, from which on any text may stand there
_LETTERS = tuple(b"aAbB0123456789")
_BLANK = frozenset(b" \t\r\n")
_ESCAPE = ord("\\")

Allowed = npt.NDArray[np.bool_]


class Closer:
    """The search over one vocabulary."""

    def __init__(self, space: TokenSpace, trie: VocabularyTrie) -> None:
        self._space = space
        self._trie = trie
        nodes = [trie.child(0, byte) for byte in range(256)]
        ending = [trie.ending_at(node)[:1] if node is not None else [] for node in nodes]
        self._known = np.array([bool(tokens) for tokens in ending])
        self._tokens = np.array([tokens[0] if tokens else 0 for tokens in ending], np.intp)
        vocabulary = space.vocabulary
        self._specials = [token for token in sorted(vocabulary.special_pieces) if token not in vocabulary.eos_ids]

    def find(self, matcher: LLMatcher) -> list[int] | None:
        """Tokens after which the text may end; None where none were found."""
        trial = matcher.deep_copy()
        taken: list[int] = []
        walk = _Walk(self, trial)
        while not trial.is_accepting():
            step = trial.compute_ff_tokens() or walk.choice()
            if not step or trial.try_consume_tokens(step) != len(step):
                return None
            taken += step
            if len(taken) > MAX_BYTES or walk.choices > MAX_CHOICES:
                return None
        pieces = self._space.vocabulary.pieces
        if not all(pieces[token] for token in taken):
            return taken  # special tokens have no other spelling
        better = spell(b"".join(pieces[token] for token in taken), self._space, self._trie)
        return better if better is not None and closes(matcher, better) else taken

    def allowed(self, matcher: LLMatcher) -> Allowed:
        """bool[256]: bytes that may come next and have a token of their own."""
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        bits = (mask[self._tokens >> 3] >> (self._tokens & 7) & 1).astype(np.bool_)
        allowed: Allowed = bits & self._known
        return allowed

    def specials(self, matcher: LLMatcher) -> list[int]:
        """Special tokens that may come next: tags begin and end with them."""
        mask = matcher.compute_bitmask()
        return [token for token in self._specials if mask[token >> 3] >> (token & 7) & 1]

    def token(self, byte: int) -> int:
        return int(self._tokens[byte])


class _Walk:
    """The choices of one search."""

    def __init__(self, closer: Closer, trial: LLMatcher) -> None:
        self._closer = closer
        self._trial = trial
        self._used: Counter[int] = Counter()
        self._places: Counter[bytes] = Counter()  # where no near end was found
        self._marks: set[int] = set()  # special tokens that were chosen
        self.choices = 0

    def choice(self) -> list[int]:
        """The next tokens; none where no byte may come."""
        self.choices += 1
        special = next((token for token in self._closer.specials(self._trial) if token not in self._marks), None)
        if special is not None:
            self._marks.add(special)
            return [special]
        allowed = self._closer.allowed(self._trial)
        closing = _closing(allowed)
        if closing is not None:
            return self._take([closing])
        if not _is_free(allowed):
            for byte in _SHORTEST:
                if allowed[byte] and self._used[byte] < 2:
                    return self._take([byte])
        place = allowed.tobytes()
        self._places[place] += 1
        near = self._nearest(allowed) if self._places[place] == 1 else None
        if near is not None:
            return self._take(near)
        candidates = _candidates(allowed)
        if self._places[place] <= PATIENCE:
            return self._take([byte for byte in (*_LETTERS, *candidates) if allowed[byte]][:1])
        return self._take([min(candidates, key=lambda byte: self._used[byte])] if candidates else [])

    def _take(self, data: list[int]) -> list[int]:
        self._used.update(data)
        return [self._closer.token(byte) for byte in data]

    def _nearest(self, allowed: Allowed) -> list[int] | None:
        """The fewest bytes to where something closes; places that allow the same bytes are taken to be one."""
        seen = {allowed.tobytes()}
        queue: list[tuple[LLMatcher, Allowed, list[int]]] = [(self._trial, allowed, [])]
        for matcher, here, data in queue:  # grows as it is read
            for byte in _candidates(here):
                ahead = matcher.deep_copy()
                if ahead.try_consume_tokens([self._closer.token(byte)]) != 1:
                    continue
                if ahead.is_accepting():
                    return [*data, byte]
                there = self._closer.allowed(ahead)
                if _closing(there) is not None:
                    return [*data, byte]
                if there.tobytes() not in seen and len(queue) < MAX_SEARCH:
                    seen.add(there.tobytes())
                    queue.append((ahead, there, [*data, byte]))
        return None


def _closing(allowed: Allowed) -> int | None:
    """The byte that closes something here; in free text a quote alone does."""
    if _is_free(allowed):
        return _QUOTE if allowed[_QUOTE] else None
    return next((byte for byte in _CLOSERS if allowed[byte]), None)


def _is_free(allowed: Allowed) -> bool:
    return int(allowed.sum()) >= _FREE


def _candidates(allowed: Allowed) -> list[int]:
    """Some of the allowed bytes: what closes, signs and a few letters, blanks and escapes last."""
    others = [int(byte) for byte in np.flatnonzero(allowed)]
    letters = [byte for byte in _LETTERS if allowed[byte]]
    signs = [byte for byte in others if 0x20 < byte < 0x7F and not chr(byte).isalnum() and byte != _ESCAPE]
    signs.sort(key=lambda byte: byte not in _CLOSERS)
    rest = [byte for byte in others if byte not in letters and byte not in signs]
    rest.sort(key=lambda byte: (byte in _BLANK, byte == _ESCAPE, byte < 0x20, byte))
    return signs + (letters + rest)[:16]


def closes(matcher: LLMatcher, tokens: list[int]) -> bool:
    """The text may end after `tokens`."""
    trial = matcher.deep_copy()
    return trial.try_consume_tokens(tokens) == len(tokens) and bool(trial.is_accepting())
