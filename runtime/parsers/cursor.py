"""A place in a text that is still coming, read by generators that wait where there is too little of it.

A format's reader is written as if the whole text were there: `yield from cursor.literal("{")`. Each wait is one bare
`yield`; parser.py resumes the reader with the next piece. Each character is consumed once and never looked at again, so
reading is linear in the text. What is consumed after `hold` is remembered until `settle` says that it was accounted
for: what turns out to be no call is said as text. Must not know events or formats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
Sink = Callable[[str], None]

SPACE = re.compile(r"\s*")
NAME = re.compile(r"[\w.\-/:@$]*")
LONGEST_NAME = 256


class NotACall(Exception):
    """What was read since the text was held is no call; the cursor stands at what showed it."""


class Ended(Exception):
    """The text has ended where more was needed."""


class Markers:
    """Texts that are looked for. None may lie inside another, so that the first found is the one meant."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(texts))
        assert not any(one in other for one in self.texts for other in self.texts if one is not other), self.texts
        self._pattern = re.compile("|".join(map(re.escape, self.texts))) if self.texts else None
        self._beginnings = frozenset(text[:cut] for text in self.texts for cut in range(1, len(text)))
        self._longest = max(map(len, self.texts), default=0)

    def find(self, text: str, at: int) -> re.Match[str] | None:
        return self._pattern.search(text, at) if self._pattern is not None else None

    def begins_at(self, text: str, at: int) -> int:
        """Where, from `at` on, the end of `text` could be the beginning of a marker; its length where it couldn't."""
        for start in range(max(at, len(text) - self._longest + 1), len(text)):
            if text[start:] in self._beginnings:
                return start
        return len(text)


class Cursor:
    """See the module. Generators that need text raise Ended at its end; those that only look give an empty answer."""

    def __init__(self) -> None:
        self._buffer = ""
        self._at = 0
        self._before = 0  # characters that came before the buffer's
        self._ended = False
        self._holding = False
        self._held: list[str] = []

    # What parser.py does.

    def feed(self, text: str) -> None:
        self._before += self._at
        self._buffer = self._buffer[self._at :] + text
        self._at = 0

    def end(self) -> None:
        self._ended = True

    # Holding.

    def hold(self, text: str = "") -> None:
        """Remember what is consumed from now on, after `text`."""
        self._holding = True
        self._held = [text]

    def settle(self) -> None:
        """What was consumed so far is accounted for."""
        self._held.clear()

    def reopen(self, text: str) -> None:
        """`text`, just consumed and held, is still to be read."""
        self._at -= len(text)
        self._held.clear()

    def release(self) -> str:
        """What was held and not settled; nothing is held from now on."""
        text = "".join(self._held)
        self._held.clear()
        self._holding = False
        return text

    # Without waiting.

    @property
    def window(self) -> tuple[str, int]:
        """A text, and where in it what wasn't consumed begins: no copy, since readers of long texts look often."""
        return self._buffer, self._at

    def rest(self) -> str:
        """Consumes all that is available."""
        return self.take(len(self._buffer) - self._at)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def position(self) -> int:
        """How many characters were consumed, of all that were fed."""
        return self._before + self._at

    @property
    def decided(self) -> int:
        """How many of them were accounted for."""
        return self.position - sum(map(len, self._held))

    def take(self, count: int) -> str:
        """Consumes so many characters of those that are available."""
        text = self._buffer[self._at : self._at + count]
        self._at += count
        if self._holding:
            self._held.append(text)
        return text

    def give_back(self, text: str) -> None:
        """Undoes the last take, or its end; only where nothing is held, or that take was made for `text` alone."""
        self._at -= len(text)
        if self._holding and self._held:
            self._held[-1] = self._held[-1].removesuffix(text)

    # With waiting.

    def more(self, sink: Sink | None = None) -> Steps[None]:
        """Waits for more text. At the end of all text the rest goes to `sink`, and Ended is raised."""
        if self._ended:
            if sink is not None and self._at < len(self._buffer):
                sink(self.rest())
            raise Ended
        yield

    def look(self) -> Steps[str]:
        """The next character, not consumed; "" at the end."""
        while self._at >= len(self._buffer) and not self._ended:
            yield
        return self._buffer[self._at : self._at + 1]

    def peek(self) -> Steps[str]:
        """The next character, not consumed. Raises Ended."""
        character = yield from self.look()
        if not character:
            raise Ended
        return character

    def space(self) -> Steps[None]:
        """Consumes white space, if any."""
        while (character := (yield from self.look())) and character.isspace():
            match = SPACE.match(self._buffer, self._at)
            assert match is not None
            self.take(match.end() - self._at)

    def run(self, pattern: re.Pattern[str] = NAME, longest: int = LONGEST_NAME) -> Steps[str]:
        """Consumes the longest run of characters of a set (a pattern like `[a-z]*`), at least one.

        Raises NotACall for none or more than `longest`, Ended where the text ends in it.
        """
        pieces: list[str] = []
        while True:
            yield from self.peek()
            match = pattern.match(self._buffer, self._at)
            assert match is not None
            pieces.append(self.take(match.end() - self._at))
            if self._at < len(self._buffer) or sum(map(len, pieces)) > longest:
                break
        text = "".join(pieces)
        if not 0 < len(text) <= longest:
            raise NotACall
        return text

    def skip(self, *texts: str) -> Steps[str]:
        """Consumes the first of `texts` that comes next, and returns it; "" where none does."""
        longest = max(map(len, texts))
        while True:
            rest = self._buffer[self._at : self._at + longest]
            for text in texts:
                if rest.startswith(text):
                    return self.take(len(text))
            if self._ended or not any(text.startswith(rest) for text in texts):
                return ""
            yield

    def one_of(self, *texts: str) -> Steps[str]:
        """Consumes the first of `texts` that comes next, and returns it.

        Raises NotACall where something else comes, Ended where the text ends in one.
        """
        found = yield from self.skip(*texts)
        if not found:
            if self._ended and self._cut_off(texts):
                raise Ended
            raise NotACall
        return found

    def _cut_off(self, texts: Iterable[str]) -> bool:
        """The text that is left is the beginning of one of `texts`."""
        return any(text.startswith(self._buffer[self._at : self._at + len(text)]) for text in texts)

    def literal(self, text: str) -> Steps[None]:
        """Consumes `text`. Raises NotACall where something else comes, Ended where the text ends in it."""
        yield from self.one_of(text)

    def close(self, *texts: str) -> Steps[str]:
        """Like skip, for what closes a call: white space before it, and a beginning that the end cut off, go too."""
        yield from self.space()
        found = yield from self.skip(*texts)
        if not found and self._ended and self._cut_off(texts):
            self.rest()
            self.settle()
        elif found:
            self.settle()
        return found

    def until(self, markers: Markers, sink: Sink, longest: int | None = None) -> Steps[str]:
        """Consumes up to and with the first marker, and returns it; the text before it goes to `sink` as it comes.

        What may become a marker is held back. At the end of all text that goes to `sink` too, and Ended is raised.
        Raises NotACall after more than `longest` characters.
        """
        passed = 0
        while True:
            found = markers.find(self._buffer, self._at)
            stop = found.start() if found else markers.begins_at(self._buffer, self._at)
            if stop > self._at:
                passed += stop - self._at
                sink(self.take(stop - self._at))
            if longest is not None and passed > longest:
                raise NotACall
            if found:
                return self.take(found.end() - self._at)
            yield from self.more(sink)
