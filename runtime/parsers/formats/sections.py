"""Calls between marks of their own, several of them in one section: how DeepSeek and Kimi write them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from palmette.runtime.parsers.cursor import Cursor, Steps


class Section(msgspec.Struct, frozen=True):
    """The four marks."""

    begin: str
    end: str
    call: str
    call_end: str

    def read(self, opened: str, cursor: Cursor, read_call: Callable[[], Steps[None]]) -> Steps[None]:
        """Every call of the section that `opened` begins, or from the call that it begins on to the section's end."""
        if opened == self.begin:
            yield from cursor.space()
            yield from cursor.literal(self.call)
        while True:
            yield from read_call()
            yield from cursor.close(self.call_end)
            yield from cursor.space()
            if not (yield from cursor.skip(self.call)):
                break
        yield from cursor.close(self.end)
