"""A grammar whose language is an automaton's, and the matcher of one output under it.

Made by regex/compile.py and grammar/choices.py; used by the scheduler and by people through the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from palmette.runtime.grammar.automaton.automaton import Automaton, State
from palmette.runtime.grammar.automaton.explain import explain
from palmette.runtime.grammar.automaton.jump import ForcedTokens
from palmette.runtime.grammar.automaton.masks import Masks, write_mask
from palmette.runtime.grammar.closing import AutomatonClosings
from palmette.runtime.grammar.protocol import Explanation, GrammarSource, Mask, TokenSpace, check_count


class AutomatonGrammar:
    """A Grammar."""

    def __init__(self, source: GrammarSource, automaton: Automaton, space: TokenSpace, masks: Masks) -> None:
        self.source = source
        self.automaton = automaton
        self.masks = masks
        self.state_masks = masks.of(automaton)
        self.forced = ForcedTokens(automaton, space, masks.trie)
        self.closings = AutomatonClosings(automaton, space, masks.trie)

    def matcher(self) -> AutomatonMatcher:
        return AutomatonMatcher(self)

    def accepts(self, text: str) -> bool:
        end = self.automaton.walk(self.automaton.start, text.encode(errors="surrogatepass"))
        return end is not None and self.automaton.final(end)

    def explain(self, text: str) -> Explanation:
        return explain(self.automaton, text)


class AutomatonMatcher:
    """A Matcher: a state, and the states before each accepted token."""

    def __init__(self, grammar: AutomatonGrammar) -> None:
        self._grammar = grammar
        self._automaton = grammar.automaton
        self._masks = grammar.masks
        self._state_masks = grammar.state_masks
        self._pieces = grammar.masks.vocabulary.pieces
        self._at: State = grammar.automaton.start
        self._before: list[State] = []
        self._ended = False

    def fill_mask(self, into: Mask) -> None:
        write_mask(self._masks.nothing if self._ended else self._state_masks.at(self._at), into)

    def accept(self, token: int) -> bool:
        if self._ended or not 0 <= token < len(self._pieces):
            return False
        if token in self._masks.vocabulary.eos_ids:
            if not self.may_end:
                return False
            self._ended = True
            self._before.append(self._at)
            return True
        piece = self._pieces[token]
        after = self._automaton.walk(self._at, piece) if piece else None
        if after is None:
            return False
        self._before.append(self._at)
        self._at = after
        return True

    def forced_bytes(self) -> bytes:
        return b"" if self._ended else self._automaton.run(self._at).data

    def forced(self) -> list[int]:
        return [] if self._ended else list(self._grammar.forced.after(self._at))

    def closing(self) -> Sequence[int] | None:
        return () if self._ended else self._grammar.closings.after(self._at)

    def rollback(self, count: int) -> None:
        check_count(count, len(self._before))
        if count:
            self._at = self._before[-count]
            del self._before[-count:]
            self._ended = False

    def copy(self) -> AutomatonMatcher:
        other = AutomatonMatcher(self._grammar)
        other._at, other._before, other._ended = self._at, self._before.copy(), self._ended
        return other

    @property
    def may_end(self) -> bool:
        return not self._ended and self._automaton.final(self._at)

    @property
    def complete(self) -> bool:
        return self.may_end and self._automaton.closed(self._at)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def broken(self) -> None:
        return None
