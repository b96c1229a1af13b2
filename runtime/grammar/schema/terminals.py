"""Strings, numbers and keys of shapes as terminals of llguidance's Lark dialect.

The lexemes are those of JSON itself (keys with their colon, strings, numbers), the same everywhere: so that no lexeme
is the beginning of another where both may come, and the lexer never has to go back. Called by reachable.py, which asks
whether any text is left, and by those who write rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from palmette.runtime.grammar.schema import ecma, formats, json_strings, multiples, numerals
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.json_strings import Terminal
from palmette.runtime.grammar.schema.shapes import KeyClass, NumberShape, StringShape, ValueShape


@dataclass(frozen=True)
class Layout:
    """The whitespace: after commas and colons or nowhere; never a choice, so never a flood."""

    comma: str = ", "
    colon: str = ": "


COMPACT = Layout(",", ":")


class Terminals:
    """`is_empty` says whether a terminal matches nothing."""

    def __init__(self, solver: Solver, layout: Layout, is_empty: Callable[[Terminal], bool]) -> None:
        self._solver = solver
        self._layout = layout
        self._is_empty = is_empty
        self.comma = json_strings.literal(layout.comma)

    # Strings

    def texts(self, shapes: Iterable[Any]) -> Terminal | None:
        """What may stand between the quotes."""
        given = list(shapes)
        parts = [self.text(shape) for shape in given if isinstance(shape, StringShape)]
        values = [shape.value for shape in given if isinstance(shape, ValueShape) and isinstance(shape.value, str)]
        if values:
            parts.append(json_strings.one_of(values))
        parts = list(dict.fromkeys(parts))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"

    def text(self, shape: StringShape) -> Terminal:
        wanted = [json_strings.pattern(ecma.parse(pattern)) for pattern in shape.patterns]
        wanted += [json_strings.pattern(formats.tree(name)) for name in shape.formats if self._asserted(name)]
        denied = [json_strings.pattern(ecma.parse(pattern)) for pattern in shape.denied_patterns]
        denied += [json_strings.pattern(formats.tree(name)) for name in shape.denied_formats if self._asserted(name)]
        if shape.denied_texts:
            denied.append(json_strings.one_of(shape.denied_texts))
        terms = wanted + [json_strings.complement(terminal) for terminal in denied]
        if shape.least > 0 or shape.most is not None or not terms:
            most = shape.most
            bounded = shape.least > 0 or most is not None
            terms.append(json_strings.length(shape.least, most) if bounded else json_strings.ANY_TEXT)
        return json_strings.intersection(terms)

    def _asserted(self, name: str) -> bool:
        return self._solver.assert_formats and name in formats.PATTERNS

    def text_is_empty(self, shape: StringShape) -> bool:
        if shape.impossible:
            return True
        if shape == StringShape(formats=shape.formats) and len(shape.formats) <= 1:
            return False
        plain = shape == StringShape(shape.least, shape.most, denied_texts=shape.denied_texts)
        if plain and (shape.most != 0 or not shape.denied_texts):
            return False  # more strings than any list denies: as good as, and surely without a list
        return self._is_empty(self.text(shape))

    def number_is_empty(self, shape: NumberShape) -> bool:
        if shape.multiples and shape.integral is not False:
            return multiples.none_inside(shape)
        return shape.integral is False and not shape.interval.free and self._is_empty(self.numbers(shape)[0])

    def numbers(self, shape: Any) -> list[str]:
        if isinstance(shape, ValueShape) and isinstance(shape.value, int | float) and not isinstance(shape.value, bool):
            return [json_strings.literal(numerals.numeral(numerals.decimal(shape.value)))]
        if not isinstance(shape, NumberShape):
            return []
        if shape.multiples:
            return [multiples.rule(shape)]
        interval = shape.interval
        if shape.integral:
            low, high = interval.integers()
            regex = numerals.INTEGER if low is None and high is None else numerals.integer_regex(low, high)
            return [f"/{regex}/"]
        terminal = numerals.number_terminal(interval)
        if shape.plain:
            terminal = f"({terminal} & /{numerals.PLAIN_NUMBER}/)"
        if shape.integral is False:
            return [f"({terminal} & /-?[0-9]+\\.[0-9]*[1-9][0-9]*/)"]
        return [terminal]

    # Keys

    def literal_key(self, name: str) -> Terminal:
        return json_strings.literal(f'"{json_strings.written(name)}"{self._layout.colon}')

    def _key_text(self, each: KeyClass, known: tuple[str, ...]) -> Terminal:
        terms = [json_strings.pattern(ecma.parse(pattern)) for pattern in each.patterns]
        denied = [json_strings.pattern(ecma.parse(pattern)) for pattern in each.others]
        if known:
            denied.append(json_strings.one_of(known))
        terms += [json_strings.complement(terminal) for terminal in denied]
        if each.names.claims:
            names = self.texts(self._solver.strings(each.names))
            terms.append(names if names is not None else json_strings.NOTHING)
        return json_strings.intersection(terms or [json_strings.ANY_TEXT])

    def key(self, each: KeyClass, known: tuple[str, ...]) -> Terminal:
        return f'("\\"" {self._key_text(each, known)} /"{_colon(self._layout.colon)}/)'

    def key_is_empty(self, each: KeyClass, known: tuple[str, ...]) -> bool:
        return self._is_empty(self._key_text(each, known))


def _colon(text: str) -> str:
    return "".join(character if character != " " else "\\x{20}" for character in text)
