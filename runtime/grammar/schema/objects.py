"""Objects as rules: their members in order, those that may be left out, and those that are counted.

Called by rules.py.
"""

from __future__ import annotations

from typing import NamedTuple

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.lines import Lines
from palmette.runtime.grammar.schema.reachable import Reachable
from palmette.runtime.grammar.schema.shapes import ObjectShape
from palmette.runtime.grammar.schema.terminals import Terminals

BLOCK = 8  # members of an object whose ways to come first are written out


class _Part(NamedTuple):
    """What may stand between the braces. `again`: any number of times."""

    text: str
    required: bool
    again: bool = False


class ObjectRules:
    def __init__(self, solver: Solver, reachable: Reachable, terminals: Terminals, lines: Lines) -> None:
        self._solver = solver
        self._reachable = reachable
        self._terminals = terminals
        self._lines = lines
        self._comma = terminals.comma

    def ways(self, shape: ObjectShape) -> list[str]:
        """The ways to write an object, braces included."""
        named = [each for each in shape.named if self._reachable.ends(each.goal)]
        members = [
            f"{self._lines.terminal(self._terminals.literal_key(each.name))} {self._lines.name(each.goal)}"
            for each in named
        ]
        extras = [
            f"{self._lines.terminal(self._terminals.key(each, shape.known))} {self._lines.name(each.goal)}"
            for each in shape.classes
            if self._reachable.ends(each.goal)
        ]
        extra = None
        if extras:
            extra = self._lines.fresh("e")
            self._lines.rule(extra, extras)
        required = [each.required for each in named]
        most = shape.most
        if most is not None and extra is None and most >= len(named):
            most = None
        if shape.least > sum(required) or most is not None:
            return [f'"{{" {self._counted(members, required, extra, shape.least, most)}']
        return [f'"{{" {body} "}}"'.replace("  ", " ") for body in self._bodies(members, required, extra)]

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
        name = self._lines.fresh("o")
        self._lines.rule(name, ways)
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
        base = self._lines.fresh("c")
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
                    self._lines.rule(f"{base}_{index}_{count}", options)
        assert (0, 0) in ending, "the shape was found productive"
        return f"{base}_0_0"
