"""Hides what looks like a special token in messages while a template renders them.

Each spelling becomes one private-use character that occurs nowhere in the input: one character can't be cut, and
templates that trim, split or escape let it through. Only chat_template.py and turns.py call it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from palmette.runtime.text.json_object import JsonObject

_FIRST, _LAST = 0xF0000, 0xFFFFD  # a private-use plane


class Piece(msgspec.Struct, frozen=True):
    """Part of a rendering. `special`: it may be parsed for special tokens; else it is plain text."""

    text: str
    special: bool


class Spellings:
    """The written forms of a vocabulary's special tokens, and of their beginnings and ends."""

    def __init__(self, special: Iterable[str]) -> None:
        texts = sorted({text for text in special if text}, key=lambda text: (-len(text), text))
        self._pattern = re.compile("(" + "|".join(map(re.escape, texts)) + ")") if texts else None
        self._beginnings = frozenset(text[:cut] for text in texts for cut in range(1, len(text)))
        self._ends = frozenset(text[cut:] for text in texts for cut in range(1, len(text)))
        self._longest = len(texts[0]) if texts else 0

    def within(self, text: str) -> bool:
        return self._pattern is not None and self._pattern.search(text) is not None

    def split(self, text: str) -> list[str]:
        """Text, special token, text, special token … text."""
        return self._pattern.split(text) if self._pattern is not None else [text]

    def replace(self, text: str, by: Callable[[str], str]) -> str:
        return self._pattern.sub(lambda match: by(match[0]), text) if self._pattern is not None else text

    def ends_inside(self, text: str) -> bool:
        """Whether the text ends with a beginning of a special token."""
        return any(text[-length:] in self._beginnings for length in range(1, min(self._longest, len(text) + 1)))

    def begins_inside(self, text: str) -> bool:
        """Whether the text begins with an end of a special token."""
        return any(text[:length] in self._ends for length in range(1, min(self._longest, len(text) + 1)))

    def in_or_beside(self, text: str) -> bool:
        body = text.strip()
        return self.within(body) or self.ends_inside(body) or self.begins_inside(body)


class Disguise:
    """`values` is the input with its spellings hidden; `pieces` and `reveal` undo it in a rendering."""

    def __init__(self, values: Mapping[str, Any], spellings: Spellings) -> None:
        self._spellings = spellings
        self._hidden: dict[str, str] = {}  # private-use character → what it stands for
        self._shown: dict[str, str] = {}  # the other way round
        texts = list(_strings(values))
        used = {character for text in texts for character in text if ord(character) >= _FIRST}
        self._free = (chr(code) for code in range(_FIRST, _LAST) if chr(code) not in used)
        self.values = values
        if any(spellings.in_or_beside(text) for text in texts):
            self.values = {key: self._hide_in(value) for key, value in values.items()}

    def mark(self, text: str) -> str:
        """A private-use character, used nowhere else, that stands for `text`."""
        mark = self._shown.get(text)
        if mark is None:
            mark = self._shown[text] = next(self._free)
            self._hidden[mark] = text
        return mark

    def hides_something_in(self, rendered: str) -> bool:
        return not self._hidden.keys().isdisjoint(rendered)

    def reveal(self, rendered: str) -> str:
        return rendered.translate({ord(mark): text for mark, text in self._hidden.items()})

    def pieces(self, rendered: str) -> tuple[Piece, ...]:
        """Without anything hidden the whole is the template's. Else it is cut at the template's special tokens,
        and what lies between is plain text, in runs as long as they would be encoded anyway."""
        if not self.hides_something_in(rendered):
            return (Piece(rendered, special=True),) if rendered else ()
        parts = self._spellings.split(rendered)
        return tuple(Piece(self.reveal(part), special=bool(at % 2)) for at, part in enumerate(parts) if part)

    def _hide_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._hide(value)
        if isinstance(value, Mapping):
            hidden = {self._hide_in(key): self._hide_in(inner) for key, inner in value.items()}
            if isinstance(value, JsonObject):
                return JsonObject(hidden, self._hide(value.text), verbatim=value.verbatim)
            return hidden
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self._hide_in(inner) for inner in value]
        return value

    def _hide(self, text: str) -> str:
        hidden = self._spellings.replace(text, self.mark)
        body = hidden.strip()
        if not body:
            return hidden
        start = hidden.index(body[0])
        end = start + len(body)
        # The edges too: what begins or ends like a special token could become one beside the template's text.
        first, last = hidden[start], hidden[end - 1]
        if self._spellings.ends_inside(body):
            hidden = hidden[: end - 1] + self.mark(last) + hidden[end:]
        if self._spellings.begins_inside(body):
            hidden = hidden[:start] + self.mark(first) + hidden[start + 1 :]
        return hidden


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if isinstance(value, JsonObject):
            yield value.text
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for inner in value:
            yield from _strings(inner)
