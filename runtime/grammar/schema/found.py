"""Whether a pattern is found in a text that is known: by sets of positions, so that no pattern makes it backtrack.

A set of positions is the bits of an integer: 0 before the first character, len(text) at the end. Read from the back:
from which positions does a node lead to one of these? Look-behinds are read from the front. Work grows with text times
pattern. Called by whoever asks about names and values of a schema.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import ecma
from palmette.runtime.grammar.schema.charsets import CharSet
from palmette.runtime.grammar.schema.shapes import KeyClass

MAX_STEPS = 1_000_000  # of nodes read, for one pattern and text: within a second or so

Positions = int


def finds(node: ecma.Node, text: str) -> bool:
    """Whether the pattern is found in `text`. Raises GrammarError where that takes too long."""
    return _Text(text).found(node)


def within(each: KeyClass, name: str) -> bool:
    """Whether the class's patterns let a property have the name."""
    text = _Text(name)
    return all(text.found(_parsed(pattern)) for pattern in each.patterns) and not any(
        text.found(_parsed(pattern)) for pattern in each.others
    )


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> ecma.Node:
    return ecma.parse(pattern)


class _Text:
    def __init__(self, text: str) -> None:
        self._end = 1 << len(text)
        self._all = 2 * self._end - 1
        places: dict[str, list[int]] = {}
        for position, character in enumerate(text):
            places.setdefault(character, []).append(position)
        self._places = {ord(character): _bits(positions, len(text)) for character, positions in places.items()}
        self._sets: dict[CharSet, Positions] = {}
        self._holding: dict[int, Positions] = {}  # of look-aheads and look-behinds
        self._steps = 0

    def found(self, node: ecma.Node) -> bool:
        self._steps = 0
        self._holding.clear()
        return self._beyond(node, self._all, back=True) != 0

    def _beyond(self, node: ecma.Node, here: Positions, *, back: bool) -> Positions:
        """Where the node may begin so that it ends at one of `here`; or, if not `back`, where it may end that begins
        there."""
        if not here:
            return 0
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise GrammarError(
                "A pattern takes too long to be looked for.", hint="Nest fewer repetitions.", param="json_schema"
            )
        match node:
            case ecma.Chars(chars):
                return (here >> 1) & self._of(chars) if back else (here & self._of(chars)) << 1
            case ecma.Sequence(items):
                for item in reversed(items) if back else items:
                    here = self._beyond(item, here, back=back)
                return here
            case ecma.Choice(options):
                found = 0
                for option in options:
                    found |= self._beyond(option, here, back=back)
                return found
            case ecma.Repeat(item, least, most):
                return self._repeated(item, least, most, here, back=back)
            case ecma.Anchor(start):
                return here & (1 if start else self._end)
            case ecma.LookAhead(item, negative) | ecma.LookBehind(item, negative):
                key = id(node)
                if key not in self._holding:
                    self._holding[key] = self._beyond(item, self._all, back=isinstance(node, ecma.LookAhead))
                return here & (~self._holding[key] if negative else self._holding[key])

    def _repeated(self, item: ecma.Node, least: int, most: int | None, here: Positions, *, back: bool) -> Positions:
        for _ in range(least):
            there = self._beyond(item, here, back=back)
            if there == here:  # the empty text and no more
                break
            here = there
        reached = new = here
        left = None if most is None else most - least
        while new and left != 0:
            new = self._beyond(item, new, back=back) & ~reached
            reached |= new
            left = None if left is None else left - 1
        return reached

    def _of(self, chars: CharSet) -> Positions:
        """Of the characters of a set."""
        found = self._sets.get(chars)
        if found is None:
            lows = [low for low, _ in chars]
            found = 0
            for code, positions in self._places.items():
                at = bisect_right(lows, code) - 1
                if at >= 0 and code <= chars[at][1]:
                    found |= positions
            self._sets[chars] = found
        return found


def _bits(positions: list[int], length: int) -> Positions:
    data = bytearray(length // 8 + 1)
    for position in positions:
        data[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(data, "little")
