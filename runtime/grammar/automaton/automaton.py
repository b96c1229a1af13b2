"""The automaton of a regular language over bytes: minimal, without dead ends, single-way runs at hand.

A state is a pair: the state of a deterministic automaton over character classes, and the node in which the bytes of
the current character are read (alphabet.py). So a Unicode class costs its nodes once, not once a state.
Built from a pattern's tree; read by masks, matchers and explanations. Knows nothing of tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.automaton.alphabet import ROOT, Alphabet, classes_to_ranges, split
from palmette.runtime.grammar.automaton.dfa import DEAD, MAX_CELLS, Budget, Dfa, determinise, minimise
from palmette.runtime.grammar.automaton.nfa import FINAL, Nfa
from palmette.runtime.grammar.automaton.words import words_dfa, words_of
from palmette.runtime.grammar.protocol import Limits
from palmette.runtime.grammar.regex.charset import ANYTHING, CharSet
from palmette.runtime.grammar.regex.syntax import Chars, Choice, Look, Node, Repeat, Sequence, Start

Int32 = npt.NDArray[np.int32]


_numbers = itertools.count()

_RUN = 512  # bytes of a run that are looked at together
_RUNS = 1_024  # runs remembered


class State(NamedTuple):
    state: int
    node: int


class Run(NamedTuple):
    """Bytes that have no alternative, and where they lead."""

    data: bytes
    end: State


class Automaton:
    """`after[state, code]` is the next state for each code of the alphabet's `step`; DEAD: nothing goes on there.

    `node_of[code]` is the node after a code. Immutable but for the runs that are remembered.
    """

    def __init__(self, alphabet: Alphabet, dfa: Dfa) -> None:
        self.number = next(_numbers)
        """Its own: what is kept about its states is kept under it, so that it may go before that does."""
        self.alphabet = alphabet
        self.dfa = dfa
        self.start = State(dfa.start, ROOT)
        states, classes, nodes = len(dfa.delta), alphabet.classes, alphabet.nodes
        self.after = np.zeros((states, classes + nodes), np.int32)
        self.after[:, :classes] = dfa.delta
        if nodes > 1:
            goes_on = (dfa.delta != DEAD).astype(np.float32) @ alphabet.reaches.T.astype(np.float32) > 0
            self.after[:, classes:] = np.where(goes_on, np.arange(states, dtype=np.int32)[:, None], DEAD)
        self.node_of = np.concatenate([np.zeros(classes, np.int32), np.arange(nodes, dtype=np.int32)])
        self._step = np.ascontiguousarray(alphabet.step).reshape(-1).data
        self._after = self.after.reshape(-1).data
        self._finals: list[bool] = dfa.finals.tolist()
        self._runs: dict[State, Run] = {}

    @property
    def empty(self) -> bool:
        """No text matches."""
        return self.dfa.start == DEAD

    @property
    def states(self) -> int:
        return len(self.dfa.delta) - 1

    @property
    def nbytes(self) -> int:
        return self.after.nbytes + self.dfa.delta.nbytes + self.alphabet.step.nbytes

    def walk(self, at: State, data: bytes) -> State | None:
        """The state after `data`; None where no text goes on so."""
        state, node = at
        step, after, classes, width = self._step, self._after, self.alphabet.classes, self.after.shape[1]
        for byte in data:
            code = step[node * 256 + byte]
            state = after[state * width + code]
            if state == DEAD:
                return None
            node = code - classes if code >= classes else ROOT
        return State(state, node)

    def final(self, at: State) -> bool:
        """The text may end here."""
        return at.node == ROOT and self._finals[at.state]

    def ways(self, at: State) -> Iterator[int]:
        """The bytes that may come next, ascending."""
        codes = self.alphabet.step[at.node]
        return iter(np.flatnonzero(self.after[at.state, codes] != DEAD).tolist())

    def closed(self, at: State) -> bool:
        """Nothing may come next."""
        return next(self.ways(at), None) is None

    def run(self, at: State) -> Run:
        """The bytes that every text goes on with from here, at most 512 of them; none where it may end."""
        known = self._runs.get(at)
        if known is not None:
            return known
        data, end = bytearray(), at
        while len(data) < _RUN and not self.final(end):
            ways = list(itertools.islice(self.ways(end), 2))
            if len(ways) != 1:
                break
            after = self.walk(end, bytes(ways))
            assert after is not None
            data.append(ways[0])
            end = after
        if len(self._runs) >= _RUNS:
            self._runs.clear()
        run = self._runs[at] = Run(bytes(data), end)
        return run

    def possible(self, at: State) -> CharSet:
        """The characters that may come next; those that can complete the current one where `at` is inside one."""
        live = frozenset(np.flatnonzero(self.dfa.delta[at.state] != DEAD).tolist())
        return classes_to_ranges(self.alphabet.intervals, live)


def automaton(node: Node, limits: Limits) -> Automaton:
    """The automaton of a pattern. Raises TooLarge beyond `limits`, GrammarError for a look-ahead that can't be told."""
    budget = Budget(limits.states, limits.seconds)
    sets: dict[CharSet, None] = {}
    if _gather(node, sets):
        sets[ANYTHING] = None
    alphabet, members = split(sets)
    words = words_of(node, members)
    if words is not None:
        dfa = words_dfa(words, alphabet.classes, budget)
    else:
        nfa = Nfa(members, alphabet.classes, budget)
        start = nfa.closure(nfa.build(node, FINAL))
        dfa = minimise(determinise(start, nfa, budget), alphabet.classes, budget)
    if len(dfa.delta) * (alphabet.classes + alphabet.nodes) > MAX_CELLS:
        raise budget.too_large(f"has {len(dfa.delta):,} states over {alphabet.nodes:,} parts of characters")
    return Automaton(alphabet, dfa)


def _gather(node: Node, sets: dict[CharSet, None]) -> bool:
    """Adds the sets of characters in `node` to `sets`; whether it looks ahead."""
    looks = False
    seen: set[int] = set()
    stack = [node]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        match part:
            case Chars(chars):
                sets[chars] = None
            case Sequence(parts) | Choice(parts):
                stack += parts
            case Repeat(item):
                stack.append(item)
            case Look(item):
                looks = True
                stack.append(item)
            case Start():
                raise AssertionError("the parser resolves every start")
    return looks
