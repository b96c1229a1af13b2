"""A matcher that holds the items of arrays apart (`uniqueItems`), around one whose rules can't.

It reads along what is written. A token that completes an item which is there already is barred, and so is one after
which nothing but earlier items could be completed: that is searched along the texts of the earlier items that go on as
the one at hand does. Made by schema/compile.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import thread_time
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.distinct.items import Rests
from palmette.runtime.grammar.distinct.reading import Frame, Reading, canonical_text
from palmette.runtime.grammar.llg.matcher import PATIENCE, SLOW, LlgMatcher
from palmette.runtime.grammar.llg.start import Begun, Start
from palmette.runtime.grammar.llg.tokenizers import closer_of
from palmette.runtime.grammar.protocol import Mask, TokenSpace, check_count, mask_words
from palmette.runtime.grammar.schema.distinct import Node

_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_BLANK = frozenset(b" \t\r\n")
_DELIMITERS = frozenset(b",]")
_NUMERALS = frozenset(b"-0123456789")
_NUMBERS = frozenset(bytes([sign]) for sign in _NUMERALS)
MAX_DIGITS = 6  # tried behind a number: a thousand items don't have them all


class TextTokens:
    """What is asked of a vocabulary: which tokens have a quote in them, what ends a value, or part of a number."""

    def __init__(self, space: TokenSpace) -> None:
        self.pieces = space.vocabulary.pieces
        self.trie = masks_of(space).trie
        self.closer = closer_of(space)
        self.quotes = self._having(b'"')
        self.two_strings = self._mask([piece.count(b'"') > 2 for piece in self.pieces])
        self.delimiters = self._having(b'",{}[]')
        self.numbers = self._having(b"-.eE0123456789")

    def _having(self, signs: bytes) -> Mask:
        return self._mask([any(sign in piece for sign in signs) for piece in self.pieces])

    def _mask(self, wanted: list[bool]) -> Mask:
        bits = np.zeros(32 * mask_words(len(self.pieces)), np.bool_)
        bits[: len(self.pieces)] = wanted
        return np.packbits(bits, bitorder="little").view(np.uint32)


_tokens: WeakKeyDictionary[TokenSpace, TextTokens] = WeakKeyDictionary()


def text_tokens(space: TokenSpace) -> TextTokens:
    found = _tokens.get(space)
    if found is None:
        found = _tokens[space] = TextTokens(space)
    return found


class DistinctMatcher:
    """A Matcher. See the protocol."""

    def __init__(self, inner: LlgMatcher, over_bytes: Start, begun: Begun, root: Node, tokens: TextTokens) -> None:
        """`over_bytes`, `begun`: the same grammar over bytes, at the start of a text, too: a vocabulary's masks leave
        of what is forced one token alone, so that they don't tell which bytes may come."""
        self._inner = inner
        self._over_bytes = over_bytes
        self._begun = begun
        self._tokens = tokens
        self._root = root
        self._text = b""
        self._reading = Reading.start(root)
        self._before: list[tuple[Reading, int]] = []  # reading and length of the text, before each token
        self._stuck: dict[tuple[int, bytes, int], bool] = {}
        self._slow = 0.0  # seconds of slow masks

    @property
    def _ahead(self) -> LLMatcher:
        """Over bytes, behind the text. Where its lexer has come to its bounds another takes its place."""
        if self._begun.matcher.is_error():
            self._begun = self._over_bytes.again(self._begun, list(self._text)) or self._begun
        return self._begun.matcher

    def fill_mask(self, into: Mask) -> None:
        self._inner.fill_mask(into)
        self._bar(into)

    @classmethod
    def fill_many(cls, matchers: Sequence[DistinctMatcher], into: npt.NDArray[np.uint32], rows: Sequence[int]) -> None:
        LlgMatcher.fill_many([matcher._inner for matcher in matchers], into, rows)
        for matcher, row in zip(matchers, rows, strict=True):
            matcher._bar(into[row])

    def _bar(self, into: Mask) -> None:
        """Clears what would repeat an item, or could only end in one."""
        if self._inner.ended or not self._reading.watches:
            return
        started = thread_time()
        if self._slow <= PATIENCE:
            self._bar_repeated(into)
        taken = thread_time() - started
        self._slow += taken if taken > SLOW else 0.0
        if self._slow > PATIENCE:
            into.fill(0)

    def _bar_repeated(self, into: Mask) -> None:
        which = self._enders()
        judged = set(_tokens_of(into[: len(which)] & which))
        if not self._reading.in_string and _open_items(self._reading):
            judged.update(_tokens_of(into[: len(which)] & self._tokens.numbers))
        for frame in _open_items(self._reading):
            if frame.node is None or frame.node.free:
                continue
            judged.update(self._along(frame, into))
        for token in judged:
            if self._after(token) is None:
                into[token >> 5] &= ~np.uint32(1 << (token & 31))

    def _enders(self) -> Mask:
        """The tokens that may complete an item here."""
        if not self._reading.in_string:
            return self._tokens.delimiters
        top = self._reading.frames[-1] if self._reading.frames else None
        free = top is not None and top.begun is not None and top.node is not None and top.node.free
        if top is not None and free and not _rests(top, _item(top, self._text)):
            return self._tokens.two_strings  # the string itself is an item, and none that is there begins so
        return self._tokens.quotes

    def _along(self, frame: Frame, into: Mask) -> Iterator[int]:
        """Tokens that an earlier item goes on with; those of numbers are judged already."""
        item, trie = _item(frame, self._text), self._tokens.trie
        if item[:1] in _NUMBERS:
            return
        waiting: list[tuple[Rests, int]] = [(_rests(frame, item), 0)]
        while waiting:
            rests, node = waiting.pop()
            for byte in set(rests.firsts()):
                if not item and node == 0 and byte in _NUMERALS:
                    continue
                child, after = trie.child(node, byte), rests.after(byte)
                if child is None or after is None:
                    continue
                yield from (token for token in trie.ending_at(child) if _allows(into, token))
                waiting.append((after, child))

    def _after(self, token: int) -> Reading | None:
        """The reading after an allowed token; None where it is barred."""
        piece = self._tokens.pieces[token]
        raw = self._text + piece
        after = self._reading.read(raw, len(self._text), len(raw))
        if after is None:
            return None
        return None if any(self._is_stuck(frame, after, raw, token) for frame in _open_items(after)) else after

    def _is_stuck(self, frame: Frame, after: Reading, raw: bytes, token: int) -> bool:
        """After `token` only earlier items could be completed."""
        item, node = _item(frame, raw), frame.node
        assert node is not None
        assert frame.begun is not None
        number = after.in_scalar and frame is after.frames[-1] and _may_repeat(item, frame)
        if not number and (node.free or (not item and node.many)):
            return False
        rests = _rests(frame, item)
        if not number and not rests:
            return False
        assert frame.items is not None
        key = (frame.begun, item, frame.items.size + len(frame.items.extra))
        if key not in self._stuck:
            ahead, piece = self._ahead, self._tokens.pieces[token]
            taken = ahead.try_consume_tokens(list(piece))
            off = taken < len(piece) or (
                self._another(ahead, item, frame, 0) if number else self._leads_off(ahead, rests, begun=bool(item))
            )
            if taken < len(piece) or ahead.is_error():  # nothing was found out
                ahead.rollback(taken)
                return False
            ahead.rollback(taken)
            self._stuck[key] = not off
        return self._stuck[key]

    def _another(self, ahead: LLMatcher, numeral: bytes, frame: Frame, depth: int) -> bool:
        """`numeral`, or one that begins so, isn't there yet, and may be written."""
        further: list[int] = []
        assert frame.items is not None
        for byte in _bytes_allowed(ahead):
            if byte not in _DELIMITERS:
                further.append(byte)
            elif not frame.items.has(canonical_text(numeral)):
                return True
        for byte in further if depth < MAX_DIGITS else ():
            ahead.try_consume_tokens([byte])
            found = self._another(ahead, numeral + bytes([byte]), frame, depth + 1)
            ahead.rollback(1)
            if found:
                return True
        return False

    def _leads_off(self, ahead: LLMatcher, rests: Rests, *, begun: bool) -> bool:
        """Something can be completed that isn't one of `rests`."""
        further: list[tuple[int, Rests]] = []
        for byte in _bytes_allowed(ahead):
            if not begun and byte in _BLANK:
                further.append((byte, rests))
                continue
            after = rests.after(byte)
            if after is None:
                return True
            if not after.ends:  # else an earlier item is complete
                further.append((byte, after))
        for byte, after in further:
            ahead.try_consume_tokens([byte])
            found = self._leads_off(ahead, after, begun=begun or byte not in _BLANK)
            ahead.rollback(1)
            if found:
                return True
        return False

    def accept(self, token: int) -> bool:
        if not 0 <= token < len(self._tokens.pieces):
            return False
        after: Reading | None = self._reading
        if self._reading.watches and self._tokens.pieces[token]:
            after = self._after(token)
        elif self._tokens.pieces[token]:
            raw = self._text + self._tokens.pieces[token]
            after = self._reading.read(raw, len(self._text), len(raw))
        if after is None or not self._inner.accept(token):
            return False
        ahead, piece = self._ahead, self._tokens.pieces[token]
        self._before.append((self._reading, len(self._text)))
        self._reading = after.settled()
        self._text += piece
        ahead.try_consume_tokens(list(piece))
        return True

    def forced_bytes(self) -> bytes:
        return self._inner.forced_bytes()

    def forced(self) -> list[int]:
        return self._inner.forced()

    def closing(self) -> Sequence[int] | None:
        way = self._inner.closing()
        if way is None or self._keeps_apart(way):
            return way
        for byte in _LETTERS:
            letter, ahead = self._tokens.closer.token(byte), self.copy()
            if self._tokens.pieces[letter] != bytes([byte]) or not ahead.accept(letter):
                continue
            way = ahead._inner.closing()
            if way is not None and ahead._keeps_apart(way):
                return [letter, *way]
        return None

    def _keeps_apart(self, tokens: Iterable[int]) -> bool:
        raw = self._text + b"".join(self._tokens.pieces[token] for token in tokens)
        return self._reading.read(raw, len(self._text), len(raw)) is not None

    def rollback(self, count: int) -> None:
        check_count(count, len(self._before))
        if count:
            self._inner.rollback(count)
            self._reading, length = self._before[-count]
            if len(self._text) > length:
                self._ahead.rollback(len(self._text) - length)
            self._text = self._text[:length]
            del self._before[-count:]
            self._stuck.clear()

    def copy(self) -> DistinctMatcher:
        begun = Begun(self._ahead.deep_copy(), self._begun.age)
        made = DistinctMatcher(self._inner.copy(), self._over_bytes, begun, self._root, self._tokens)
        made._text, made._reading, made._before = self._text, self._reading, self._before.copy()
        made._stuck, made._slow = self._stuck.copy(), self._slow
        return made

    @property
    def may_end(self) -> bool:
        return self._inner.may_end

    @property
    def complete(self) -> bool:
        return self._inner.complete

    @property
    def ended(self) -> bool:
        return self._inner.ended

    @property
    def broken(self) -> GrammarError | None:
        if self._slow <= PATIENCE:
            return self._inner.broken
        return GrammarError(
            f"The items of an array take too long to hold apart: tokens of this text took more than {PATIENCE:g} s.",
            hint="Lower maxItems, or leave uniqueItems out.",
            param="json_schema",
        )


def _open_items(reading: Reading) -> list[Frame]:
    """Arrays to look at in which an item is begun, or may begin, and that might come to repeat one."""
    return [frame for frame in reading.frames if frame.begun is not None and frame.items and frame.node is not None]


def _may_repeat(numeral: bytes, frame: Frame) -> bool:
    """The number so far is there already, or is none yet."""
    if numeral[:1] not in _NUMBERS:
        return False
    number = numeral.rstrip(b".eE+-")
    return not number or (frame.items is not None and frame.items.has(canonical_text(number)))


def _item(frame: Frame, raw: bytes) -> bytes:
    return frame.item(raw)


def _rests(frame: Frame, item: bytes) -> Rests:
    """What earlier items that start with `item` go on with."""
    assert frame.items is not None
    return frame.items.rests(item)


def _bytes_allowed(matcher: LLMatcher) -> list[int]:
    """Bytes that may come next, of a matcher over bytes."""
    mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return np.flatnonzero(np.unpackbits(mask[:32], bitorder="little")).tolist()


def _tokens_of(mask: Mask) -> list[int]:
    found: list[int] = []
    for word in np.flatnonzero(mask).tolist():
        bits = int(mask[word])
        while bits:
            found.append(32 * word + (bits & -bits).bit_length() - 1)
            bits &= bits - 1
    return found


def _allows(mask: Mask, token: int) -> bool:
    return bool(mask[token >> 5] >> np.uint32(token & 31) & np.uint32(1))
