"""Turns goals into shapes: every way in which all claims of a goal can be met, as a union.

A schema is taken apart as in a tableau: what must hold together goes into one branch, a choice (anyOf, oneOf, if …)
makes several, a denial becomes a choice between the ways to fail. What a branch can't express exactly it refuses, by
type, with the keyword and its path. The union of the branches' shapes is exactly the goal; nothing is approximated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.protocol import TooSlow
from palmette.runtime.grammar.schema import ecma, formats
from palmette.runtime.grammar.schema.branch import Branch, Option, Pending
from palmette.runtime.grammar.schema.denial import Denial
from palmette.runtime.grammar.schema.document import Document, Keywords, Place
from palmette.runtime.grammar.schema.evaluate import Evaluator, canonical
from palmette.runtime.grammar.schema.in_place import Below, no_object, requiring, without
from palmette.runtime.grammar.schema.json_strings import Terminal
from palmette.runtime.grammar.schema.order import PropertyOrder
from palmette.runtime.grammar.schema.overlaps import Overlaps
from palmette.runtime.grammar.schema.shapes import (
    PLAIN,
    ArrayShape,
    Claim,
    Goal,
    ObjectShape,
    Shape,
    StringShape,
    ValueShape,
)

MAX_BRANCHES = 20_000  # of one goal
MAX_GOALS = 30_000
DISJOINT_DEPTH = 4  # levels below two schemas of a oneOf at which they may be seen to exclude one another

_ANNOTATIONS_BESIDE_REF = {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly"}


class Solver:
    """Raises GrammarError for what can't be enforced, unless `best_effort`: then `approximated` lists it.

    `is_empty`: whether a terminal matches nothing. `compares_items`: the matcher remembers items that must differ.
    """

    def __init__(
        self,
        document: Document,
        evaluator: Evaluator,
        *,
        assert_formats: bool,
        best_effort: bool,
        seconds: float,
        is_empty: Callable[[Terminal], bool],
        compares_items: bool = False,
    ) -> None:
        self.document = document
        self.evaluator = evaluator
        self.approximated: list[str] = []
        self._at = ""
        self.assert_formats = assert_formats
        self.compares_items = compares_items
        self._best_effort = best_effort
        self._seconds = seconds
        self._deadline = time.thread_time() + seconds
        self._memo: dict[tuple[frozenset[Claim], frozenset[str]], tuple[Shape, ...]] = {}
        self._possible: dict[tuple[frozenset[Claim], frozenset[str], int], bool] = {}
        self._order = PropertyOrder(document)
        self._overlaps = Overlaps(is_empty)

    def goal(self, *claims: Claim) -> Goal:
        """The goal of `claims`, with plain references followed: goals that mean the same become equal."""
        return Goal.of(self._followed(claim) for claim in claims)

    def simple(self, goal: Goal) -> Goal:
        return self.goal(*goal.claims)

    def _followed(self, claim: Claim) -> Claim:
        passed: list[str] = []
        place = claim.place
        while isinstance(place.schema, dict) and "$ref" in place.schema:
            if self.document.draft > 7 and set(place.schema) - {"$ref"} - _ANNOTATIONS_BESIDE_REF:
                break
            said = self.document.keywords(place)
            if place.path in passed:
                raise self._endless(place)
            passed.append(place.path)
            place = self.document.target(place, "$ref", said.plain["$ref"])
        if place.schema == {}:
            place = self.document.synthesized(place, "~any", True)
        return Claim(place, claim.holds)

    def _endless(self, place: Place) -> GrammarError:
        return GrammarError(
            f"The schema at {place.shown} refers only to itself, so no value is described.",
            hint="Let the reference point to something else.",
            param="json_schema",
        )

    @contextmanager
    def at(self, goal: Goal) -> Iterator[None]:
        """What is refused inside names the goal's place, unless it names one itself."""
        before, self._at = self._at, goal.claims[0].place.shown if goal.claims else self._at
        try:
            yield
        except TooSlow:
            raise
        except GrammarError as error:
            if "#" in error.message or not self._at:
                raise
            raise GrammarError(self._placed(error.message), hint=error.hint, param=error.param) from None
        finally:
            self._at = before

    def _placed(self, message: str) -> str:
        return f"{message.rstrip('.')} (at {self._at})." if self._at else message

    def give_up(self, message: str, hint: str) -> None:
        """What can't be enforced: an error, or noted where best effort is wanted."""
        message = self._placed(message)
        if not self._best_effort:
            raise GrammarError(
                message,
                hint=f"{hint}, or ask for best effort: then it is checked after generation.",
                param="json_schema",
            )
        self.approximated.append(message)

    def check_time(self) -> None:
        if time.thread_time() > self._deadline:
            raise TooSlow(
                f"The schema took more than {self._seconds:g} s to compile.",
                hint="Make it smaller, or its anyOf and oneOf fewer.",
                param="json_schema",
            )

    # Shapes

    def shapes(self, goal: Goal, skipped: frozenset[str] = frozenset()) -> tuple[Shape, ...]:
        """The union that `goal` is. `skipped`: paths whose oneOf is left out (a superset)."""
        found = self._memo.get((goal.key, skipped))
        if found is None:
            if len(self._memo) > MAX_GOALS:
                raise GrammarError(
                    "The schema has too many combinations of subschemas.",
                    hint="Make its anyOf, oneOf and if fewer.",
                    param="json_schema",
                )
            found = tuple(dict.fromkeys(self._expand(goal, skipped)))
            self._memo[goal.key, skipped] = found
        return found

    def strings(self, goal: Goal) -> list[StringShape | ValueShape]:
        """The strings that meet a goal."""
        return [
            shape
            for shape in self.shapes(goal)
            if isinstance(shape, StringShape) or (isinstance(shape, ValueShape) and isinstance(shape.value, str))
        ]

    def listed(self, goal: Goal) -> list[str] | None:
        """The strings that meet a goal, where they come from a list."""
        shapes = self.strings(goal) if goal.claims else None
        if shapes is None or any(isinstance(shape, StringShape) for shape in shapes):
            return None
        return [shape.value for shape in shapes if isinstance(shape, ValueShape)]

    def _expand(self, goal: Goal, skipped: frozenset[str]) -> Iterator[Shape]:
        start = Branch(self.document, pending=[Pending(claim) for claim in goal.claims])
        open_branches = [start]
        count = 0
        while open_branches:
            branch = open_branches.pop()
            count += 1
            self.check_time()
            if count > MAX_BRANCHES:
                raise GrammarError(
                    f"The schema has more than {MAX_BRANCHES:,} combinations at {goal.claims[0].place.shown}.",
                    hint="Make its anyOf, oneOf and if fewer.",
                    param="json_schema",
                )
            while branch.pending and not branch.dead and branch.values is None:
                self._work(branch, branch.pending.pop(0), goal, skipped)
            if branch.dead:
                continue
            if branch.values is not None:
                yield from self._values(branch.values, goal, skipped)
            elif branch.choices:
                if not self._is_plausible(branch, skipped):
                    continue
                open_branches.extend(reversed(list(self._forks(branch))))
            else:
                yield from self._settled(branch, goal)

    def _forks(self, branch: Branch) -> Iterator[Branch]:
        fewest = min(range(len(branch.choices)), key=lambda index: len(branch.choices[index]))
        options = branch.choices.pop(fewest)
        for option in options:
            fork = branch.copy()
            fork.pending.extend(option.pending)
            if option.effect is not None:
                option.effect(fork)
            if not fork.dead:
                yield fork

    def _values(self, values: list[Any], goal: Goal, skipped: frozenset[str]) -> Iterator[Shape]:
        def holds(claim: Claim, value: Any) -> bool:
            if claim.holds:
                return self.evaluator.holds_without(claim.place, value, skipped)
            return not self.evaluator.holds(claim.place, value)

        for value in values:
            if all(holds(claim, value) for claim in goal.claims):
                yield ValueShape(canonical(value), value)

    def _settled(self, branch: Branch, goal: Goal) -> Iterator[Shape]:
        def name_holds(claim: Claim, name: str) -> bool:
            return self.evaluator.holds(claim.place, name) == claim.holds

        for kind, shape in branch.shapes(self._order.of(goal), name_holds, self._overlaps):
            refusal = branch.refused.get(kind)
            if refusal is not None:
                if not self._best_effort:
                    raise refusal
                self.approximated.append(refusal.message)
            yield shape

    # One claim

    def _work(self, branch: Branch, item: Pending, goal: Goal, skipped: frozenset[str]) -> None:
        claim, place = item.claim, item.claim.place
        if claim == PLAIN:
            branch.plain = True
            return
        if isinstance(place.schema, bool):
            if place.schema is not claim.holds:
                branch.types.clear()
            return
        if place.path in item.ancestors:
            raise self._endless(place)
        if (claim, item.scopes) in branch.seen:
            return
        branch.seen.add((claim, item.scopes))
        ancestors = (*item.ancestors, place.path)
        self._check_patterns(place)
        if not claim.holds:
            options = Denial(self.document, place, ancestors, self.assert_formats).options()
            if options:
                branch.choices.append(options)
            else:
                branch.types.clear()
            return
        said = self.document.keywords(place)
        scopes = item.scopes
        if "unevaluatedProperties" in said.one or "unevaluatedItems" in said.one:
            scopes = (*scopes, place.path)
        branch.work_in(said, place, scopes)
        if skipped:
            branch.unevaluated.clear()  # a oneOf left out looks at nothing: a superset must not ask for it
        self._check_format(branch, said, place)
        self._work_in_place(branch, said, place, Below(scopes, ancestors), goal, skipped)

    def _check_patterns(self, place: Place) -> None:
        """Raises GrammarError for a pattern that can't be read, naming its path."""
        said = self.document.keywords(place)
        patterns = [("pattern", said.plain["pattern"])] if "pattern" in said.plain else []
        patterns += [("patternProperties", pattern) for pattern in said.named.get("patternProperties", ())]
        for keyword, pattern in patterns:
            try:
                ecma.parse(pattern)
            except GrammarError as error:
                message = f"{keyword!r} at {place.shown}/{keyword} can't be enforced. {error.message}"
                raise GrammarError(message, hint=error.hint, param="json_schema") from None

    def _check_format(self, branch: Branch, said: Keywords, place: Place) -> None:
        if self.assert_formats and said.plain.get("format") in formats.NOT_REGULAR:
            branch.refuse("string", "format", place, f"{said.plain['format']!r} is not a regular language")

    def _work_in_place(
        self, branch: Branch, said: Keywords, place: Place, below: Below, goal: Goal, skipped: frozenset[str]
    ) -> None:
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in said.plain:
                branch.pending.append(below.claim(self.document.target(place, keyword, said.plain[keyword])))
        branch.pending.extend(below.claim(inner) for inner in said.many.get("allOf", ()))
        if "not" in said.one:
            branch.pending.append(below.denial(said.one["not"]))
        if "anyOf" in said.many:
            branch.choices.append(self._any_of(said.many["anyOf"], below))
        if "oneOf" in said.many and place.path not in skipped:
            branch.choices.append(self._one_of(said.many["oneOf"], place, below, goal, skipped))
        if "if" in said.one and ("then" in said.one or "else" in said.one or below.scopes):
            positive = [below.claim(said.one["if"])] + ([below.claim(said.one["then"])] if "then" in said.one else [])
            negative = [below.denial(said.one["if"])] + ([below.claim(said.one["else"])] if "else" in said.one else [])
            branch.choices.append([Option(tuple(positive)), Option(tuple(negative))])
        for name, needed in said.plain.get("dependentRequired", {}).items():
            branch.choices.append([without(name), requiring(needed)])
        for name, inner in said.named.get("dependentSchemas", {}).items():
            branch.choices.append([without(name), no_object(), requiring([name], below.claim(inner))])

    def _any_of(self, places: list[Place], below: Below) -> list[Option]:
        if not below.scopes:
            return [Option((below.claim(inner),)) for inner in places]
        # Whoever holds has looked at its properties: every set of holders is a way of its own.
        if len(places) > 8:
            raise GrammarError(
                f"An anyOf of {len(places)} under unevaluatedProperties or unevaluatedItems; at most 8.",
                hint="Use additionalProperties in the branches.",
                param="json_schema",
            )
        return [
            Option(tuple(below.claim(inner) for inner in chosen))
            for size in range(1, len(places) + 1)
            for chosen in combinations(places, size)
        ]

    def _one_of(
        self, places: list[Place], place: Place, below: Below, goal: Goal, skipped: frozenset[str]
    ) -> list[Option]:
        """Each branch, and the others denied unless they exclude it anyway."""
        skip = skipped | {place.path}
        alive = [
            inner for inner in places if self._is_possible(self.goal(*goal.claims, Claim(inner)), skip, DISJOINT_DEPTH)
        ]
        apart = {
            (one.path, other.path)
            for one, other in combinations(alive, 2)
            if not self._is_possible(self.goal(*goal.claims, Claim(one), Claim(other)), skip, DISJOINT_DEPTH)
        }
        options = []
        for inner in alive:
            others = [
                below.denial(other)
                for other in alive
                if other is not inner
                and (inner.path, other.path) not in apart
                and (other.path, inner.path) not in apart
            ]
            options.append(Option((below.claim(inner), *others)))
        return options

    # Whether anything meets a goal, as far as can be seen

    def _is_possible(self, goal: Goal, skipped: frozenset[str], depth: int) -> bool:
        """False only where surely no value meets the goal."""
        if goal.never:
            return False
        if depth == 0 or not goal.claims:
            return True
        key = (goal.key, skipped, depth)
        found = self._possible.get(key)
        if found is None:
            self._possible[key] = True  # while it is being worked out
            try:
                found = any(self._shape_possible(shape, skipped, depth) for shape in self.shapes(goal, skipped))
            except GrammarError:
                self.check_time()
                found = True
            self._possible[key] = found
        return found

    def _shape_possible(self, shape: Shape, skipped: frozenset[str], depth: int) -> bool:
        def possible(goal: Goal) -> bool:
            return self._is_possible(self.simple(goal), skipped, depth - 1)

        match shape:
            case ObjectShape(named):
                return all(possible(each.goal) for each in named if each.required)
            case ArrayShape(prefix, rest, least):
                return all(map(possible, prefix[:least])) and (least <= len(prefix) or possible(rest))
            case StringShape():
                return not shape.impossible
        return True

    def _is_plausible(self, branch: Branch, skipped: frozenset[str]) -> bool:
        """False where the branch is an object that requires a property whose claims exclude one another.

        A look ahead: chains of `if` on one property would otherwise be multiplied out.
        """
        if branch.types != {"object"}:
            return True
        for name in branch.required:
            claims = branch.claims_on(name)
            if len(claims) > 1 and not self._is_possible(self.goal(*claims), skipped, 1):
                return False
        return True
