"""JSON read byte by byte as it is written, for arrays whose items must differ.

A reading is a value: what follows from one is another, so that outputs fork and roll back. Called by
matcher.py and for explanations; knows no tokens.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from palmette.runtime.grammar.distinct.items import Items, no_items
from palmette.runtime.grammar.schema.distinct import Node
from palmette.runtime.grammar.schema.evaluate import canonical

QUOTE, BACKSLASH, COMMA, OPEN_OBJECT, OPEN_ARRAY = b'"\\,{['
CLOSE = frozenset(b"}]")
BLANK = frozenset(b" \t\r\n:")
MAX_DEPTH = 100  # of what is open around and in an item that is compared: Python's reader of JSON has an end, too


class Frame(NamedTuple):
    """An open object or array, behind the byte at `opened`. `child`: of the value that comes next in it.

    `spans`: parts of the item at hand (from, to, and the text of all that are equal) that could be written differently.
    In an array: `place` of the item at hand. In one to look at: `begun`, where it begins; `items`, those so far.
    """

    node: Node | None
    is_array: bool
    child: Node | None
    begun: int | None = None
    items: Items | None = None
    place: int = 0
    opened: int = 0
    spans: tuple[tuple[int, int, bytes], ...] = ()

    def item(self, raw: bytes, end: int | None = None) -> bytes:
        """The item at hand as it is compared, up to `end` in what was written."""
        at, parts = self.begun or 0, []
        for start, stop, text in self.spans:
            parts += [raw[at:start], text]
            at = stop
        return b"".join([*parts, raw[at:end]]).lstrip()


class Reading(NamedTuple):
    root: Node
    frames: tuple[Frame, ...] = ()
    in_string: bool = False
    escaped: bool = False
    wants_key: bool = False
    key_from: int | None = None  # where the key at hand begins
    in_scalar: bool = False  # a number, true, false or null

    @staticmethod
    def start(root: Node) -> Reading:
        return Reading(root)

    @property
    def watches(self) -> bool:
        """An array to look at is open, or may begin in what comes next."""
        if not self.frames:
            return True
        return self.frames[-1].node is not None or any(frame.begun is not None for frame in self.frames)

    def read(self, raw: bytes, start: int, end: int) -> Reading | None:
        """After the bytes from `start` to `end` of all that was written; None where an item repeats an earlier one, or
        is nested too deeply to be compared."""
        reading: Reading | None = self
        for at in range(start, end):
            assert reading is not None
            byte = raw[at]
            if reading.in_string:
                if reading.escaped or byte == BACKSLASH:
                    reading = reading._replace(escaped=not reading.escaped)
                elif byte == QUOTE:
                    reading = reading._string_ended(raw, at + 1)
            elif byte == QUOTE:
                key = at if reading.wants_key else None
                reading = reading._replace(in_string=True, key_from=key, wants_key=False)
            elif byte in (OPEN_OBJECT, OPEN_ARRAY):
                reading = reading._opened(byte == OPEN_ARRAY, at + 1)
            elif byte == COMMA or byte in CLOSE:
                reading = reading._delimited(raw, at, closes=byte != COMMA)
            elif byte not in BLANK:
                reading = reading if reading.in_scalar else reading._replace(in_scalar=True)
            if reading is None:
                return None
        return reading

    def _string_ended(self, raw: bytes, end: int) -> Reading | None:
        after = self._replace(in_string=False, key_from=None)
        if self.key_from is None:
            return after._value_ended(raw, end, scalar=False)
        top = self.frames[-1]
        child = None
        if top.node is not None:
            child = top.node.names.get(json.loads(raw[self.key_from : end]), top.node.other)
        return after._with_top(top._replace(child=child))

    def _opened(self, is_array: bool, at: int) -> Reading | None:
        if len(self.frames) >= MAX_DEPTH and any(frame.begun is not None for frame in self.frames):
            return None
        node = self.frames[-1].child if self.frames else self.root
        compared = is_array and node is not None and node.unique
        child = node.item_at(0) if is_array and node is not None else None
        items = no_items() if compared else None
        frame = Frame(node, is_array, child, at if compared else None, items, opened=at - 1)
        return self._replace(frames=(*self.frames, frame), wants_key=not is_array)

    def _delimited(self, raw: bytes, at: int, *, closes: bool) -> Reading | None:
        after: Reading | None = self
        if self.in_scalar:
            after = self._replace(in_scalar=False)._value_ended(raw, at, scalar=True)
        if after is None or not after.frames:
            return after
        top = after.frames[-1]
        if closes:
            after = after._closed(raw, at + 1) if top.node is not None and top.node.loose else after
            return after._replace(frames=after.frames[:-1], wants_key=False)._value_ended(raw, at + 1, scalar=False)
        if not top.is_array:
            return after._replace(wants_key=True)
        if top.node is None:
            return after
        place = top.place + 1
        begun = at + 1 if top.node.unique else None
        return after._with_top(top._replace(begun=begun, place=place, child=top.node.item_at(place), spans=()))

    def _closed(self, raw: bytes, end: int) -> Reading:
        """The value that ends is compared as it would be written if all that are equal were written equally."""
        start = self.frames[-1].opened
        text = _uniform(raw[start:end])
        frames = [
            frame
            if frame.begun is None
            else frame._replace(spans=(*(each for each in frame.spans if each[1] <= start), (start, end, text)))
            for frame in self.frames[:-1]
        ]
        return self._replace(frames=(*frames, self.frames[-1]))

    def _value_ended(self, raw: bytes, end: int, *, scalar: bool) -> Reading | None:
        if not self.frames or self.frames[-1].begun is None:
            return self
        top = self.frames[-1]
        text = top.item(raw, end).rstrip()
        value = canonical_text(text)
        assert top.items is not None
        if top.items.has(value):
            return None
        written = (b"0", b"-0") if text in (b"0", b"-0") else (text,)
        texts = tuple(one + end for one in written for end in (b",", b"]")) if scalar else (text,)
        return self._with_top(top._replace(begun=None, items=top.items.added(value, texts)))

    def settled(self) -> Reading:
        """The same, once what was read is certain: later readings cost less."""
        if not any(frame.items is not None and frame.items.extra for frame in self.frames):
            return self
        frames = [
            frame if frame.items is None else frame._replace(items=frame.items.settled()) for frame in self.frames
        ]
        return self._replace(frames=tuple(frames))

    def _with_top(self, top: Frame) -> Reading:
        return self._replace(frames=(*self.frames[:-1], top))


def _uniform(text: bytes) -> bytes:
    """The same text for values that are equal, with the spaces of the default layout."""
    try:
        return _spaced(json.loads(text)).encode(errors="surrogatepass")
    except ValueError:  # a number with more digits than are turned into one
        return text


def _spaced(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_spaced, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_spaced(name)}: {_spaced(value[name])}' for name in sorted(value))}}}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else canonical(value)


def canonical_text(text: bytes) -> str:
    try:
        return canonical(json.loads(text))
    except ValueError:  # a number with more digits than are turned into one
        return text.decode()
