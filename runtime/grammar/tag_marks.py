"""The texts of tags in parts: plain text, and the special tokens of a vocabulary that stand in it.

Called by tags.py; knows no grammar.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec


class Special(msgspec.Struct, frozen=True):
    """A special token, as llguidance's Lark names it by its id."""

    token: int
    text: str

    @property
    def symbol(self) -> str:
        return f"<[{self.token}]>"

    def __str__(self) -> str:
        return self.text


Part = str | Special


class Marks:
    """The special tokens of a vocabulary: their texts by id, and those of them that end an output."""

    def __init__(self, special_pieces: Mapping[int, str], eos_ids: Collection[int]) -> None:
        self.special_pieces, self.eos_ids = special_pieces, eos_ids
        self._specials: dict[str, Special] = {}
        for token, text in sorted(special_pieces.items()):
            if text:
                self._specials.setdefault(text, Special(token, text))
        longest_first = sorted(self._specials, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def parts(self, text: str) -> tuple[Part, ...]:
        """`text` cut as a tokenizer cuts it: special tokens first, of several the longest."""
        found: list[Part] = []
        at = 0
        for match in self._found.finditer(text):
            found += [text[at : match.start()], self._specials[match.group()]]
            at = match.end()
        found.append(text[at:])
        return tuple(part for part in found if part != "")

    def ends(self, part: Part) -> bool:
        """It is an EOS token."""
        return isinstance(part, Special) and part.token in self.eos_ids

    def specials(self, texts: Sequence[str]) -> list[Special]:
        """Those of `texts` that are special tokens and end nothing; others are plain text, which needs no leave."""
        found = [self._specials[text] for text in dict.fromkeys(texts) if text in self._specials]
        return [special for special in found if not self.ends(special)]


def reach(parts: Sequence[Part], length: int) -> tuple[Part, ...]:
    """The first `length` characters of `parts`, and more where that ends within a special token."""
    found: list[Part] = []
    for part in parts:
        if length <= 0:
            break
        found.append(part if isinstance(part, Special) else part[:length])
        length -= len(str(part))
    return tuple(found)


def behind(parts: Sequence[Part], reached: Sequence[Part]) -> tuple[Part, ...]:
    """What follows `reached` in `parts`, which start with it."""
    whole, last = parts[len(reached) - 1], reached[-1]
    rest = str(whole)[len(str(last)) :]
    return (*((rest,) if rest else ()), *parts[len(reached) :])
