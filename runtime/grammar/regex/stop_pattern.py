"""stop_regex: where an output first holds a match of a pattern, found byte by byte with automata alone.

Three automata of a pattern P: of any text and then P, which tells the earliest end; of P backwards, which walks from
that end to the leftmost start; and of whatever P begins with, backwards, which tells how much of an output's end may
still become a match. No step depends on backtracking, so that no pattern can stall the engine. Called by the
scheduler's stops; compiled with the request's grammar. Must not know tokens.
"""

from __future__ import annotations

from time import thread_time

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.alphabet import ROOT
from palmette.runtime.grammar.automaton.automaton import Automaton, automaton
from palmette.runtime.grammar.blueprint import Automata
from palmette.runtime.grammar.protocol import GrammarSource, Limits, TooSlow
from palmette.runtime.grammar.regex.charset import ANYTHING
from palmette.runtime.grammar.regex.parser import parse_tree
from palmette.runtime.grammar.regex.syntax import EMPTY, Chars, Choice, Look, Node, Repeat, Sequence, Start

MAX_HELD = 1_024  # characters, beyond which what is held back is not looked at again

_SECONDS = 2.0
_ANY_TEXT = Repeat(Chars(ANYTHING), 0, None)


class StopPattern:
    """A compiled pattern. Shared between requests."""

    def __init__(self, pattern: str, blueprint: Automata) -> None:
        """`blueprint`: drawn of it."""
        self.pattern = pattern
        self.ends, self.starts, self.begun = blueprint.automata
        self.nbytes = sum(each.nbytes for each in blueprint.automata)


def draw_stop(source: GrammarSource, limits: Limits) -> Automata:
    """Raises GrammarError for what is no pattern, matches the empty text, or looks at what is around it."""
    pattern, begun = source.text, thread_time()
    seconds = min(_SECONDS, limits.seconds)

    def built(tree: Node) -> Automaton:
        return automaton(tree, msgspec.structs.replace(limits, seconds=begun + seconds - thread_time()))

    try:
        tree = parse_tree(pattern)
        backwards = reverse(tree)
        ends, starts = built(Sequence((_ANY_TEXT, tree))), built(backwards)
        found = Automata((ends, starts, built(reverse(beginnings(tree)))))
    except TooSlow as error:
        message = f"The stop_regex {pattern[:200]!r} takes longer than {seconds:g} seconds to compile."
        raise TooSlow(message, hint=error.hint, param="stop_regex") from None
    except GrammarError as error:
        raise GrammarError(error.message, hint=error.hint, param="stop_regex") from None
    if starts.empty:
        raise GrammarError(
            f"No text matches the stop_regex {pattern!r}.",
            hint="Its parts exclude one another: leave it out, or correct it.",
            param="stop_regex",
        )
    if starts.final(starts.start):
        raise GrammarError(
            f"The stop_regex {pattern!r} matches the empty text, so every output would end before it begins.",
            hint="Write '+' in the place of '*'.",
            param="stop_regex",
        )
    return found


class StopWatch:
    """One output under one pattern. `text` is always the whole output so far."""

    def __init__(self, pattern: StopPattern) -> None:
        self.pattern = pattern.pattern
        self._pattern = pattern
        self._at = pattern.ends.start
        self._begin = 0  # of the text behind the last byte that was no UTF-8: no match lies across it
        self._held_from = 0

    def feed(self, text: bytearray, new: int) -> tuple[int, int] | None:
        """Reads text[new:]. Start and end of the leftmost of the matches that end first in there."""
        ends, found = self._pattern.ends, None
        for index in range(new, len(text)):
            byte = bytes(text[index : index + 1])
            after = ends.walk(self._at, byte)
            if after is None:
                self._begin = index
                after = ends.walk(ends.start, byte)
                if after is None:
                    self._begin, after = index + 1, ends.start
            self._at = after
            if found is None and ends.final(after):
                found = index + 1
        if found is None:
            return None
        return found - _reach(self._pattern.starts, text[self._begin : found]), found

    def held(self, text: bytearray) -> int:
        """Bytes at the end of `text` that may turn out to be a match, or its beginning."""
        self._held_from = max(self._held_from, self._begin)
        end = len(text)
        if self._at.node != ROOT:  # inside a character
            while text[end - 1] & 0xC0 == 0x80:
                end -= 1
            end -= 1
        if end - self._held_from <= MAX_HELD:
            # A text that can't be the beginning of a match never will be: later ones can't start before.
            self._held_from = end - _reach(self._pattern.begun, text[self._held_from : end])
        return len(text) - self._held_from


def _reach(backwards: Automaton, text: bytearray) -> int:
    """Bytes of the longest end of `text` that `backwards` reads to a final state; 0 where only the empty one is."""
    at, length, best = backwards.start, 0, 0
    for character in reversed(text.decode()):
        data = character.encode()
        after = backwards.walk(at, data)
        if after is None:
            break
        at = after
        length += len(data)
        if backwards.final(at):
            best = length
    return best


def reverse(node: Node) -> Node:
    """The pattern of the same texts backwards. Raises GrammarError for what looks at the text around it."""
    match node:
        case Chars():
            return node
        case Sequence(items):
            return Sequence(tuple(reverse(item) for item in reversed(items)))
        case Choice(options):
            return Choice(tuple(map(reverse, options)))
        case Repeat(item, low, high):
            return Repeat(reverse(item), low, high)
        case Look(_, _, _, position) | Start(position):
            raise GrammarError(
                f"A stop_regex can't use an anchor or look-ahead, as at position {position}.",
                hint="It is searched for anywhere in the output; write what the output has to hold.",
            )


def beginnings(node: Node) -> Node:
    """The pattern of whatever a match of `node` starts with, the empty text and the match itself among it."""
    match node:
        case Chars():
            return Choice((EMPTY, node))
        case Sequence(items):
            result: Node = EMPTY
            for item in reversed(items):
                result = Choice((beginnings(item), Sequence((item, result))))
            return result
        case Choice(options):
            return Choice((EMPTY, *map(beginnings, options)))
        case Repeat(item, _, high):
            if high == 0:
                return EMPTY
            return Sequence((Repeat(item, 0, None if high is None else high - 1), beginnings(item)))
        case Look() | Start():
            return EMPTY
