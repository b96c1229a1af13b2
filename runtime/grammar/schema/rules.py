"""Shapes as rules of llguidance's Lark dialect.

The lexemes are those of JSON itself (brackets, ", ", keys with their colon, strings, numbers, literals), the same
everywhere: so that no lexeme is the beginning of another where both may come, and the lexer never has to go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import ecma, formats, json_strings, multiples, numerals
from palmette.runtime.grammar.schema.arrays import ArrayStates, Distinct, array_states
from palmette.runtime.grammar.schema.distinct import Node, Places
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.json_strings import Terminal, finds
from palmette.runtime.grammar.schema.shapes import (
    ArrayShape,
    Claim,
    Goal,
    KeyClass,
    NamedProperty,
    NumberShape,
    ObjectShape,
    Shape,
    SimpleShape,
    StringShape,
    ValueShape,
)

Settled = ValueShape | SimpleShape | NumberShape | StringShape | ObjectShape | ArrayStates
"""A shape whose array is an automaton."""

MAX_RULES = 60_000
MAX_REPEAT = 100_000
BLOCK = 8  # members of an object whose ways to come first are written out


@dataclass(frozen=True)
class Layout:
    """The whitespace: after commas and colons or nowhere; never a choice, so never a flood."""

    comma: str = ", "
    colon: str = ": "


COMPACT = Layout(",", ":")


class Rules:
    """Collects the rules of one schema. `is_empty` says whether a terminal matches nothing."""

    def __init__(self, solver: Solver, layout: Layout, prefix: str, is_empty: Callable[[Terminal], bool]) -> None:
        self._solver = solver
        self._layout = layout
        self._prefix = prefix
        self._is_empty = is_empty
        self._goals: dict[frozenset[Claim], Goal] = {}
        self._shapes: dict[frozenset[Claim], list[Settled]] = {}
        self._productive: set[frozenset[Claim]] = set()
        self._names: dict[frozenset[Claim], str] = {}
        self._terminals: dict[Terminal, str] = {}
        self._lines: list[str] = []
        self._comma = json_strings.literal(layout.comma)

    def lines(self, root: Goal) -> tuple[str, list[str]]:
        """The name of the root's rule, and all rules and terminals. Raises GrammarError for what nothing meets."""
        root = self._solver.simple(root)
        self._reach(root)
        self._find_productive()
        if root.key not in self._productive:
            raise GrammarError(
                "No value meets the schema.",
                hint="Some of what it requires excludes the rest, or it requires itself without end.",
                param="json_schema",
            )
        for key in list(self._shapes):
            if key in self._productive:
                with self._solver.at(self._goals[key]):
                    self._rule(self._name(self._goals[key]), self._alternatives(key))
        terminals = [f"{name}: {body}" for body, name in self._terminals.items()]
        return self._name(root), [*self._lines, *terminals]

    def places(self, root: Goal) -> Node | None:
        """Where a matcher has to hold items apart; after `lines`. Raises Undecided."""
        return Places(self._shapes, self._solver).root(self._solver.simple(root))

    # What is reachable, and what can come to an end

    def _reach(self, root: Goal) -> None:
        waiting = [root]
        while waiting:
            goal = waiting.pop()
            if goal.key in self._goals or goal.never:
                continue
            self._goals[goal.key] = goal
            if len(self._goals) > MAX_RULES // 4:
                raise GrammarError("The schema comes to too many rules.", hint="Make it smaller.", param="json_schema")
            with self._solver.at(goal):
                shapes = [self._simplified(shape) for shape in self._solver.shapes(goal)]
            self._shapes[goal.key] = [shape for shape in dict.fromkeys(shapes) if shape is not None]
            for shape in self._shapes[goal.key]:
                waiting.extend(_children(shape))

    def _simplified(self, shape: Shape) -> Settled | None:
        """The shape with its children's references followed and what is hopeless left out; None if it is hopeless."""
        simple = self._solver.simple
        match shape:
            case StringShape():
                return None if self._text_is_empty(shape) else shape
            case NumberShape():
                return None if self._number_is_empty(shape) else shape
            case ArrayShape():
                return array_states(shape, self._solver)
            case ObjectShape():
                classes = [
                    KeyClass(each.patterns, each.others, simple(each.names), simple(each.goal))
                    for each in shape.classes
                    if not each.goal.never
                ]
                named = [NamedProperty(each.name, each.required, simple(each.goal)) for each in shape.named]
                if any(each.required and each.goal.never for each in named):
                    return None
                return self._object_simplified(shape, [each for each in named if not each.goal.never], classes)
        return shape

    def _object_simplified(
        self, shape: ObjectShape, named: list[NamedProperty], classes: list[KeyClass]
    ) -> ObjectShape:
        known = dict.fromkeys(shape.known)
        kept: list[KeyClass] = []
        for each in classes:
            texts = self._finite_texts(each.names)
            if texts is None:
                kept.append(each)
                continue
            for text in texts:  # names from a list are named properties
                inside = all(finds(ecma.parse(pattern), text) for pattern in each.patterns)
                if text not in known and inside and not any(finds(ecma.parse(p), text) for p in each.others):
                    named.append(NamedProperty(text, False, each.goal))
        keys = [each for each in kept if not self._is_empty(self._key_text(each, shape.known))]
        return ObjectShape(tuple(named), shape.known, tuple(keys), shape.least, shape.most)

    def _finite_texts(self, names: Goal) -> list[str] | None:
        if not names.claims:
            return None
        shapes = self._name_shapes(names)
        if all(isinstance(shape, ValueShape) for shape in shapes):
            return [shape.value for shape in shapes if isinstance(shape, ValueShape)]
        return None

    def _name_shapes(self, names: Goal) -> list[StringShape | ValueShape]:
        return [
            shape
            for shape in self._solver.shapes(names)
            if isinstance(shape, StringShape) or (isinstance(shape, ValueShape) and isinstance(shape.value, str))
        ]

    def _find_productive(self) -> None:
        changed = True
        while changed:
            changed = False
            for key, shapes in self._shapes.items():
                if key not in self._productive and any(map(self._is_productive, shapes)):
                    self._productive.add(key)
                    changed = True

    def _ends(self, goal: Goal) -> bool:
        return goal.key in self._productive

    def _is_productive(self, shape: Settled) -> bool:
        match shape:
            case ObjectShape(named, _, classes, least, most):
                if not all(self._ends(each.goal) for each in named if each.required):
                    return False
                ending = sum(self._ends(each.goal) for each in named)
                required = sum(each.required for each in named)
                open_ended = any(self._ends(each.goal) for each in classes)
                return (most is None or required <= most) and (open_ended or ending >= least)
            case ArrayStates():
                return shape.ends(self._ends)
        return True

    # Rules

    def _name(self, goal: Goal) -> str:
        return self._names.setdefault(goal.key, f"{self._prefix}{len(self._names)}")

    def _rule(self, name: str, alternatives: Iterable[str]) -> None:
        self._solver.check_time()
        if len(self._lines) > MAX_RULES:
            raise GrammarError(
                f"The schema comes to more than {MAX_RULES:,} rules.", hint="Make it smaller.", param="json_schema"
            )
        self._lines.append(f"{name}: {' | '.join(dict.fromkeys(alternatives))}")

    def _fresh(self, kind: str) -> str:
        return f"{self._prefix}{kind}_{len(self._lines)}_{len(self._names)}"

    def _terminal(self, body: Terminal) -> str:
        return self._terminals.setdefault(body, f"{self._prefix.upper()}T{len(self._terminals)}")

    def _alternatives(self, key: frozenset[Claim]) -> list[str]:
        shapes = [shape for shape in self._shapes[key] if self._is_productive(shape)]
        out: list[str] = []
        texts = self._texts(shapes)
        if texts is not None:
            out.append(self._terminal(f'("\\"" {texts} "\\"")'))
        numbers = [part for shape in shapes for part in self._number(shape)]
        rules = [part for part in numbers if part.startswith("%")]
        terminals = list(dict.fromkeys(part for part in numbers if not part.startswith("%")))
        if terminals:
            out.append(self._terminal(terminals[0] if len(terminals) == 1 else f"({' | '.join(terminals)})"))
        for part in dict.fromkeys(rules):
            name = self._fresh("n")
            self._rule(name, [part])
            out.append(name)
        for shape in shapes:
            match shape:
                case SimpleShape(text):
                    out.append(f'"{text}"')
                case ValueShape(_, value) if isinstance(value, list | dict | bool) or value is None:
                    out.append(self._value(value))
                case ArrayStates():
                    out.append(self._array(shape))
                case ObjectShape():
                    out.extend(self._object(shape))
        return out

    def _value(self, value: Any) -> str:
        if isinstance(value, list):
            return " ".join(['"["', *self._joined([self._value(item) for item in value]), '"]"'])
        if isinstance(value, dict):
            items = [f"{self._literal_key(name)} {self._value(inner)}" for name, inner in value.items()]
            return " ".join(['"{"', *self._joined(items), '"}"'])
        if isinstance(value, str):
            return self._terminal(json_strings.literal(f'"{json_strings.written(value)}"'))
        if isinstance(value, bool) or value is None:
            return {True: '"true"', False: '"false"', None: '"null"'}[value]
        return self._terminal(json_strings.literal(numerals.numeral(numerals.decimal(value))))

    def _joined(self, items: list[str]) -> list[str]:
        return [part for index, item in enumerate(items) for part in ([self._comma] if index else []) + [item]]

    # Strings and numbers

    def _texts(self, shapes: Iterable[Any]) -> Terminal | None:
        """What may stand between the quotes."""
        given = list(shapes)
        parts = [self._text(shape) for shape in given if isinstance(shape, StringShape)]
        values = [shape.value for shape in given if isinstance(shape, ValueShape) and isinstance(shape.value, str)]
        if values:
            parts.append(json_strings.one_of(values))
        parts = list(dict.fromkeys(parts))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"

    def _text(self, shape: StringShape) -> Terminal:
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

    def _text_is_empty(self, shape: StringShape) -> bool:
        if shape.impossible:
            return True
        if shape == StringShape(formats=shape.formats) and len(shape.formats) <= 1:
            return False
        plain = shape == StringShape(shape.least, shape.most, denied_texts=shape.denied_texts)
        if plain and (shape.most != 0 or not shape.denied_texts):
            return False  # more strings than any list denies: as good as, and surely without a list
        return self._is_empty(self._text(shape))

    def _number_is_empty(self, shape: NumberShape) -> bool:
        if shape.multiples and shape.integral is not False:
            return multiples.none_inside(shape)
        return shape.integral is False and not shape.interval.free and self._is_empty(self._number(shape)[0])

    def _number(self, shape: Any) -> list[str]:
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
        if shape.integral is False:
            return [f"({terminal} & /-?[0-9]+\\.[0-9]*[1-9][0-9]*/)"]
        return [terminal]

    # Objects

    def _literal_key(self, name: str) -> str:
        return self._terminal(json_strings.literal(f'"{json_strings.written(name)}"{self._layout.colon}'))

    def _key_text(self, each: KeyClass, known: tuple[str, ...]) -> Terminal:
        terms = [json_strings.pattern(ecma.parse(pattern)) for pattern in each.patterns]
        denied = [json_strings.pattern(ecma.parse(pattern)) for pattern in each.others]
        if known:
            denied.append(json_strings.one_of(known))
        terms += [json_strings.complement(terminal) for terminal in denied]
        if each.names.claims:
            names = self._texts(self._name_shapes(each.names))
            terms.append(names if names is not None else "/[^\\x{0}-\\x{10FFFF}]/")
        return json_strings.intersection(terms or [json_strings.ANY_TEXT])

    def _object(self, shape: ObjectShape) -> list[str]:
        named = [each for each in shape.named if self._ends(each.goal)]
        members = [f"{self._literal_key(each.name)} {self._name(each.goal)}" for each in named]
        extras = [
            f"{self._terminal(self._key_body(each, shape.known))} {self._name(each.goal)}"
            for each in shape.classes
            if self._ends(each.goal)
        ]
        extra = None
        if extras:
            extra = self._fresh("e")
            self._rule(extra, extras)
        required = [each.required for each in named]
        most = shape.most
        if most is not None and extra is None and most >= len(named):
            most = None
        if shape.least > sum(required) or most is not None:
            return [f'"{{" {self._counted(members, required, extra, shape.least, most)}']
        return [f'"{{" {body} "}}"'.replace("  ", " ") for body in self._bodies(members, required, extra)]

    def _key_body(self, each: KeyClass, known: tuple[str, ...]) -> Terminal:
        return f'("\\"" {self._key_text(each, known)} /"{_colon(self._layout.colon)}/)'

    def _bodies(self, members: list[str], required: list[bool], extra: str | None) -> list[str]:
        """The ways to fill the braces."""
        parts = [_Part(member, needed) for member, needed in zip(members, required, strict=True)]
        if extra:
            parts.append(_Part(extra, False, again=True))
        bodies = self._block(parts) if len(parts) <= BLOCK else [self._span(parts)]
        return bodies if any(required) else [*bodies, ""]

    def _span(self, parts: list[_Part]) -> str:
        """A rule of the ways to write some of `parts` in order, all that are required among them.

        Halved down to blocks, it is as deep as the logarithm, and at a place where any part may come llguidance keeps
        little more than one item for each.
        """
        if len(parts) <= BLOCK:
            ways = self._block(parts)
        else:
            half = len(parts) // 2
            left, right = self._span(parts[:half]), self._span(parts[half:])
            after = f"{self._comma} {right}"
            ways = [f"{left} {after if any(part.required for part in parts[half:]) else f'({after})?'}"]
            if not any(part.required for part in parts[:half]):
                ways.append(right)
        name = self._fresh("o")
        self._rule(name, ways)
        return name

    def _block(self, parts: list[_Part]) -> list[str]:
        """As `_span`, by which part comes first."""
        tails = [""]
        for part in reversed(parts):
            again = f"({self._comma} {part.text})*"
            after = f"{self._comma} {part.text}" if part.required else f"({self._comma} {part.text})?"
            tails.append(f"{again if part.again else after} {tails[-1]}".rstrip())
        ways: list[str] = []
        for index, part in enumerate(parts):
            behind = tails[len(parts) - index if part.again else len(parts) - index - 1]
            ways.append(f"{part.text} {behind}".rstrip())
            if part.required:
                break
        return ways

    def _counted(
        self, members: list[str], required: list[bool], extra: str | None, least: int, most: int | None
    ) -> str:
        """Rules that count the members; the first of them."""
        if extra and least - sum(required) >= 2:
            self._solver.give_up(
                f"'minProperties' {least} can't be enforced: additional properties' names could be the same.",
                "Name the properties, or require them",
            )
        cap = most if most is not None else least
        if len(members) * (cap + 1) > 20_000:
            raise GrammarError(
                "Too many properties are counted by minProperties or maxProperties.",
                hint="Use smaller counts, or fewer properties.",
                param="json_schema",
            )
        base = self._fresh("c")
        ending: set[tuple[int, int]] = set()  # (members passed, members written) from which the end can be reached

        def to(index: int, count: int) -> str | None:
            return f"{base}_{index}_{count}" if (index, count) in ending else None

        for index in range(len(members), -1, -1):
            for count in range(cap, -1, -1):
                comma = [self._comma] if count else []
                full = most is not None and count >= most
                after = min(count + 1, cap)
                options = []
                if index < len(members):
                    if not full and (target := to(index + 1, after)):
                        options.append(" ".join([*comma, members[index], target]))
                    if not required[index] and (target := to(index + 1, count)):
                        options.append(target)
                else:
                    if count >= least:
                        options.append('"}"')
                    target = to(index, after) or (f"{base}_{index}_{count}" if count >= least else None)
                    if extra and not full and target:
                        options.append(" ".join([*comma, extra, target]))
                if options:
                    ending.add((index, count))
                    self._rule(f"{base}_{index}_{count}", options)
        assert (0, 0) in ending, "the shape was found productive"
        return f"{base}_0_0"

    # Arrays

    def _array(self, states: ArrayStates) -> str:
        if states.plain is not None:
            return self._plain_array(states)
        if states.unique is not None:
            return self._distinct(states.unique)
        base = self._fresh("a")
        ending = states.ending(self._ends)
        for number in sorted(ending):
            options = ['"]"'] if number in states.accepting else []
            for goal, target in states.moves[number]:
                if self._ends(goal) and target in ending:
                    comma = [] if number == 0 else [self._comma]
                    options.append(" ".join([*comma, self._name(goal), f"{base}_{target}"]))
            self._rule(f"{base}_{number}", options)
        return f'"[" {base}_0'

    def _distinct(self, distinct: Distinct) -> str:
        """A rule whose parameter has a bit for each value that was used."""
        base = self._fresh("u")
        names = [self._name(goal) for goal in distinct.values]
        most = len(names) if distinct.most is None else min(distinct.most, len(names))
        more = [
            f"{self._comma} {name} {base}::set_bit({bit}) %if and(bit_clear({bit}), bit_count_lt(_, {most}))"
            for bit, name in enumerate(names)
        ]
        self._rule(f"{base}::_", [f'"]" %if bit_count_ge(_, {distinct.least})', *more])
        first = [f"{name} {base}::{1 << bit:#x}" for bit, name in enumerate(names)]
        return f'"[" ({" | ".join([*first, *([] if distinct.least else [chr(34) + "]" + chr(34)])])})'

    def _plain_array(self, states: ArrayStates) -> str:
        assert states.plain is not None
        prefix, rest, least, most = states.plain
        limit = next((index for index, goal in enumerate(prefix) if not self._ends(goal)), None)
        if limit is None and not self._ends(rest):
            limit = len(prefix)
        if limit is not None:
            most = limit if most is None else min(most, limit)
            prefix = prefix[:limit]
        items = [self._name(goal) for goal in prefix]
        text = ""
        if most is None or most > len(items):
            low = max(0, least - len(items))
            high = None if most is None else most - len(items)
            item = self._name(rest)
            if items:
                text = f"({self._comma} {item}){_times(low, high)}"
            else:
                again = None if high is None else high - 1
                more = "" if again == 0 else f"({self._comma} {item}){_times(max(0, low - 1), again)}"
                some = f"{item} {more}".rstrip()
                return f'"[" {some} "]"' if low else f'"[" ({some})? "]"'
        elif most is not None:
            items = items[:most]
        for index in range(len(items) - 1, -1, -1):
            member = f"{self._comma if index else ''} {items[index]} {text}".strip()
            text = member if index < least else f"({member})?"
        return f'"[" {text} "]"'


class _Part(NamedTuple):
    """What may stand between the braces. `again`: any number of times."""

    text: str
    required: bool
    again: bool = False


def _times(low: int, high: int | None) -> str:
    if max(low, high or 0) > MAX_REPEAT:
        raise GrammarError(
            f"minItems and maxItems are at most {MAX_REPEAT:,} here.", hint="Use smaller counts.", param="json_schema"
        )
    if (low, high) == (0, None):
        return "*"
    assert high != 0, "nothing is written out as nothing"
    return f"{{{low},{'' if high is None else high}}}"


def _colon(text: str) -> str:
    return "".join(character if character != " " else "\\x{20}" for character in text)


def _children(shape: Settled) -> list[Goal]:
    match shape:
        case ObjectShape(named, _, classes):
            return [each.goal for each in named] + [each.goal for each in classes]
        case ArrayStates():
            return shape.goals()
    return []
