"""A pattern's tree → a nondeterministic automaton over character classes, built from the back to the front.

Every part is built onto the state that follows it. So equal endings are one state, and looking ahead is exact: what
follows is there already, and is made deterministic and intersected with what is looked for.
"""

from __future__ import annotations

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.dfa import Budget, Moves, determinise
from palmette.runtime.grammar.regex.charset import CharSet
from palmette.runtime.grammar.regex.syntax import Chars, Choice, Look, Node, Repeat, Sequence, Start

FINAL = 0
"""The state in which the text may end."""

Classes = frozenset[int]


class Nfa:
    """States by number: `edges[q]` are (classes, target), `silent[q]` the states that q is at the same time."""

    def __init__(self, members: dict[CharSet, Classes], classes: int, budget: Budget) -> None:
        self.edges: list[tuple[tuple[Classes, int], ...]] = [()]
        self.silent: list[tuple[int, ...]] = [()]
        self._members = members
        self._classes: dict[int, Classes] = {}  # by the identity of a Chars, which the tree keeps alive
        self._all = frozenset(range(classes))
        self._budget = budget
        self._steps: dict[tuple[Classes, int], int] = {}
        self._forks: dict[frozenset[int], int] = {}
        self._open: set[int] = set()  # loops whose body is being built
        self._closures: dict[int, frozenset[int]] = {}

    def build(self, node: Node, then: int) -> int:
        """The state that matches `node` and goes on as `then`."""
        match node:
            case Chars():
                classes = self._classes.get(id(node))
                if classes is None:
                    classes = self._classes[id(node)] = self._members[node.chars]
                return self._step(classes, then)
            case Sequence(items):
                for item in reversed(items):
                    then = self.build(item, then)
                return then
            case Choice(options):
                return self._choice(options, then)
            case Repeat(item, low, high):
                return self._repeat(item, low, high, then)
            case Look():
                return self._look(node, then)
            case Start():
                raise AssertionError("the parser resolves every start")

    def closure(self, state: int) -> frozenset[int]:
        """The states with edges, and FINAL, that `state` is at the same time."""
        known = self._closures.get(state)
        if known is None and not self.silent[state]:
            known = self._closures[state] = frozenset((state,) if self.edges[state] or state == FINAL else ())
        if known is None:
            seen, stack = {state}, [state]
            while stack:
                for other in self.silent[stack.pop()]:
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)
            known = self._closures[state] = frozenset(q for q in seen if self.edges[q] or q == FINAL)
        return known

    def moves(self, states: frozenset[int]) -> Moves:
        """class → the states after it."""
        if len(states) == 1:
            (state,) = states
            edges = self.edges[state]
            if len(edges) == 1:
                targets = self.closure(edges[0][1])
                return dict.fromkeys(edges[0][0], targets) if targets else {}
        self._budget.spend(len(states))
        found: dict[int, list[frozenset[int]]] = {}
        for state in states:
            for classes, target in self.edges[state]:
                targets = self.closure(target)
                if targets:
                    for class_ in classes:
                        found.setdefault(class_, []).append(targets)
        unions: dict[tuple[int, ...], frozenset[int]] = {}
        moves: Moves = {}
        for class_, sets in found.items():
            if len(sets) == 1:
                moves[class_] = sets[0]
                continue
            key = tuple(map(id, sets))
            if key not in unions:
                unions[key] = frozenset().union(*sets)
                self._budget.spend(len(unions[key]))
            moves[class_] = unions[key]
        return moves

    def final(self, states: frozenset[int]) -> bool:
        return FINAL in states

    def _new(self, edges: tuple[tuple[Classes, int], ...] = (), silent: tuple[int, ...] = ()) -> int:
        self._budget.spend(1)
        self.edges.append(edges)
        self.silent.append(silent)
        return len(self.edges) - 1

    def _step(self, classes: Classes, then: int) -> int:
        key = (classes, then)
        if key not in self._steps:
            self._steps[key] = self._new(edges=((classes, then),))
        return self._steps[key]

    def _fork(self, states: frozenset[int]) -> int:
        if len(states) == 1:
            return next(iter(states))
        if states not in self._forks:
            self._forks[states] = self._new(silent=tuple(states))
        return self._forks[states]

    def _choice(self, options: tuple[Node, ...], then: int) -> int:
        """The options as a tree of their first parts, so that a thousand words fork where they differ only."""
        # Children by the identity of their part: parts of one tree that are equal are mostly one object.
        tree: list[dict[int, tuple[Node, int]]] = [{}]
        ends: set[int] = set()
        for option in options:
            at = 0
            for item in option.items if isinstance(option, Sequence) else (option,):
                found = tree[at].get(id(item))
                if found is None:
                    found = tree[at][id(item)] = (item, len(tree))
                    tree.append({})
                at = found[1]
            ends.add(at)
        states = [0] * len(tree)
        for at in range(len(tree) - 1, -1, -1):
            after = [self.build(item, states[child]) for item, child in tree[at].values()]
            if at in ends:
                after.append(then)
            states[at] = after[0] if len(after) == 1 else self._fork(frozenset(after))
        return states[0]

    def _repeat(self, item: Node, low: int, high: int | None, then: int) -> int:
        if high is None:
            loop = self._new()
            self._open.add(loop)
            body = self.build(item, loop)
            self._open.remove(loop)
            self.silent[loop] = (body, then)
            self._closures.clear()
            state = loop
        else:
            state = then
            for _ in range(high - low):
                state = self._fork(frozenset((self.build(item, state), then)))
        for _ in range(low):
            state = self.build(item, state)
        return state

    def _look(self, look: Look, then: int) -> int:
        if self.closure(then) == {FINAL} and not look.negative and look.whole:
            return then  # an anchor at the end of the pattern; its item may be empty
        self._check_closed(look, then)
        after = FINAL
        if not look.whole:
            after = self._new()
            self.edges[after] = ((self._all, after),)
            self.silent[after] = (FINAL,)
        wanted, following = self.build(look.item, after), then
        product = _Product(self, look.negative)
        table = determinise((self.closure(wanted), self.closure(following)), product, self._budget)
        states = [self._new() for _ in table.moves]
        for state, moves, final in zip(states, table.moves, table.finals, strict=True):
            by_target: dict[int, set[int]] = {}
            for class_, target in moves.items():
                by_target.setdefault(target, set()).add(class_)
            self.edges[state] = tuple((frozenset(classes), states[target]) for target, classes in by_target.items())
            self.silent[state] = (FINAL,) if final else ()
        return states[0]

    def _check_closed(self, look: Look, then: int) -> None:
        """Raises GrammarError where what follows is inside a repeat that isn't built yet."""
        seen, stack = {then}, [then]
        while stack:
            state = stack.pop()
            if state in self._open:
                raise GrammarError(
                    f"The regex looks ahead inside a repeat without end, at position {look.position}.",
                    hint="Move the '(?=…)', '(?!…)' or '$' out of the repeat.",
                    param="regex",
                )
            for other in (*self.silent[state], *(target for _, target in self.edges[state])):
                if other not in seen:
                    seen.add(other)
                    stack.append(other)


class _Product:
    """Pairs of state sets: what is looked for, and what follows."""

    def __init__(self, nfa: Nfa, negative: bool) -> None:
        self._nfa = nfa
        self._negative = negative

    def moves(self, pair: tuple[frozenset[int], frozenset[int]]) -> dict[int, tuple[frozenset[int], frozenset[int]]]:
        wanted, following = pair
        left, right = self._nfa.moves(wanted), self._nfa.moves(following)
        if self._negative:
            return {class_: (left.get(class_, frozenset()), states) for class_, states in right.items()}
        return {class_: (left[class_], states) for class_, states in right.items() if class_ in left}

    def final(self, pair: tuple[frozenset[int], frozenset[int]]) -> bool:
        wanted, following = pair
        return FINAL in following and (FINAL in wanted) != self._negative
