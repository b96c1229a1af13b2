"""Ways to an end: the tokens of a short text that completes an output, for outputs that must end within a budget.

`AutomatonClosings` finds the text of fewest bytes from a state of an automaton, `spell` its tokens. Their number is
what the budget is compared with: other tokens may spell the text, or a longer text, in fewer, which isn't looked for.
Called by matchers. Must not know budgets or the scheduler.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.automaton.alphabet import DEAD_CLASS, ROOT, Intervals
from palmette.runtime.grammar.automaton.automaton import Automaton, State
from palmette.runtime.grammar.automaton.dfa import DEAD, Dfa
from palmette.runtime.grammar.protocol import TokenSpace
from palmette.runtime.grammar.regex.charset import LAST
from palmette.runtime.grammar.trie import VocabularyTrie

_KEPT = 4_096  # states whose closings are remembered, per grammar
_FAR = np.iinfo(np.int32).max
_LIKED = (("a", "z"), ("A", "Z"), ("0", "9"), (" ", "~"))  # characters that stand for a class, where it has some

Ints = npt.NDArray[np.intp]


def spell(data: bytes, space: TokenSpace, trie: VocabularyTrie) -> list[int] | None:
    """Tokens whose bytes are `data`: the canonical ones where it is text, else the longest from the left.

    Bytes that end a character begun before `data` are spelled on their own. None where no tokens spell it so.
    """
    begin = 0
    while begin < len(data) and data[begin] & 0xC0 == 0x80:
        begin += 1
    head, rest = _longest(data[:begin], trie), data[begin:]
    try:
        tokens: list[int] | None = space.encode(rest.decode()) if rest else []
    except UnicodeDecodeError:
        tokens = None
    pieces = space.vocabulary.pieces
    if tokens is None or b"".join(pieces[token] for token in tokens) != rest:
        tokens = _longest(rest, trie)
    return None if head is None or tokens is None else head + tokens


def _longest(data: bytes, trie: VocabularyTrie) -> list[int] | None:
    tokens: list[int] = []
    at = 0
    while at < len(data):
        node: int | None = 0
        found: tuple[int, int] | None = None
        for end in range(at, len(data)):
            assert node is not None
            node = trie.child(node, data[end])
            if node is None:
                break
            ending = trie.ending_at(node)
            if ending:
                found = (ending[0], end + 1)
        if found is None:
            return None
        tokens.append(found[0])
        at = found[1]
    return tokens


class AutomatonClosings:
    """The closing tokens of each state, found once. Safe from several threads."""

    def __init__(self, automaton: Automaton, space: TokenSpace, trie: VocabularyTrie) -> None:
        self._automaton = automaton
        self._space = space
        self._trie = trie
        self._known: dict[State, tuple[int, ...] | None] = {}
        self._lock = Lock()
        self._letters: dict[int, bytes] = {}
        self._costs: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._left: npt.NDArray[np.int32] | None = None

    def after(self, at: State) -> tuple[int, ...] | None:
        """Tokens from `at` to a state where the text may end; none where it may end there, None if none spell it."""
        with self._lock:
            if at not in self._known:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                tokens = spell(self.text(at), self._space, self._trie)
                self._known[at] = None if tokens is None else tuple(tokens)
            return self._known[at]

    def text(self, at: State) -> bytes:
        """The fewest bytes from `at` to an end."""
        left, dfa = self._distances(), self._automaton.dfa
        data = bytearray()
        if at.node != ROOT:
            data += self._rest_of_character(at, left)
            after = self._automaton.walk(at, bytes(data))
            assert after is not None
            at = after
        state = at.state
        while not dfa.finals[state]:
            row = dfa.delta[state]
            open_classes = np.flatnonzero(row != DEAD)
            best = int(open_classes[np.argmin(self._costs[open_classes] + left[row[open_classes]])])
            data += self._letters[best]
            state = int(row[best])
        return bytes(data)

    def _rest_of_character(self, at: State, left: npt.NDArray[np.int32]) -> bytes:
        ways = [(b"", at)]
        seen = {at}
        ends: list[tuple[int, bytes]] = []
        for data, here in ways:  # grows as it is read
            for byte in self._automaton.ways(here):
                after = self._automaton.walk(here, bytes([byte]))
                assert after is not None
                if after in seen:
                    continue
                seen.add(after)
                longer = data + bytes([byte])
                if after.node == ROOT:
                    ends.append((len(longer) + int(left[after.state]), longer))
                else:
                    ways.append((longer, after))
        return min(ends)[1]

    def _distances(self) -> npt.NDArray[np.int32]:
        if self._left is None:
            alphabet = self._automaton.alphabet
            self._letters = letters(alphabet.intervals)
            self._costs = np.zeros(alphabet.classes, np.int32)
            for class_, letter in self._letters.items():
                self._costs[class_] = len(letter)
            self._left = bytes_to_end(self._automaton.dfa, self._costs)
        return self._left


def letters(intervals: Intervals) -> dict[int, bytes]:
    """A character of each class, in UTF-8: one of the shortest, a letter or digit where there is one."""
    lasts = [first - 1 for first, _ in intervals[1:]] + [LAST]
    picked: dict[int, tuple[int, int]] = {}
    for (first, class_), last in zip(intervals, lasts, strict=True):
        if class_ == DEAD_CLASS:
            continue
        character = (len(_LIKED), first)
        for rank, (low, high) in enumerate(_LIKED):
            if first <= ord(high) and last >= ord(low):
                character = (rank, max(first, ord(low)))
                break
        picked[class_] = min(picked.get(class_, character), character)
    return {class_: chr(character).encode() for class_, (_, character) in picked.items()}


def bytes_to_end(dfa: Dfa, costs: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """int32[states]: the bytes of the shortest text from each state; `costs`: the bytes of each class.

    Shortest paths backwards from the ends, by rings of equal distance (Dial, 1969).
    """
    states, classes = np.nonzero(dfa.delta != DEAD)
    targets = dfa.delta[states, classes]
    order = np.argsort(targets, kind="stable")
    sources, steps = states[order], costs[classes[order]]
    firsts = np.searchsorted(targets[order], np.arange(len(dfa.delta) + 1))
    left = np.full(len(dfa.delta), _FAR, np.int32)
    rings: dict[int, list[Ints]] = {0: [np.flatnonzero(dfa.finals)]}
    far = 0
    while rings:
        reached = np.unique(np.concatenate(rings.pop(far, [np.zeros(0, np.intp)])))
        fresh = reached[left[reached] == _FAR]
        left[fresh] = far
        for state in fresh.tolist():
            before, step = sources[firsts[state] : firsts[state + 1]], steps[firsts[state] : firsts[state + 1]]
            for cost in np.unique(step).tolist():
                rings.setdefault(far + cost, []).append(before[step == cost])
        far += 1
    return left
