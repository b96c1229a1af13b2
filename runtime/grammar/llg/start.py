"""Matchers of llguidance at the start of a text, within bounds; and what becomes of the lexer that all of them share.

A lexer grows as texts are followed, and gives up for good at its bounds: who meets that goes on with a lexer of its
own, and the others with a new one. Called by grammars, and by whoever tries rules out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from threading import Lock
from typing import NamedTuple

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.llg.depth import check_depth
from palmette.runtime.grammar.llg.refusals import MAX_GRAMMAR, MAX_ROW_ITEMS, refusal
from palmette.runtime.grammar.llg.tokenizers import byte_tokenizer

VETTED_TEXTS, VETTED_TOKENS = 4, 400  # followed before large rules are taken
STEP_FUEL = 10_000_000  # of the lexer for one mask or token: about 0.2 s
_LIMITS = LLParserLimits(
    max_grammar_size=MAX_GRAMMAR, max_items_in_row=MAX_ROW_ITEMS, step_lexer_fuel=STEP_FUEL, verbose_errors=False
)


def start(tokenizer: LLTokenizer, lark: str, *, kind: str = "grammar", vetted: bool = False) -> LLMatcher:
    """At the start of a text. Raises GrammarError, in our words, for what is found out by the first token, too.

    `vetted`: it was built before, so that it isn't nested too deeply.
    """
    if not vetted:
        check_depth(lark)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0, limits=_LIMITS)
    if matcher.is_error():
        raise refusal(matcher.get_error(), kind)
    walk(matcher, kind, 0, 1)
    return matcher


def vet(blueprint: RuleText, kind: str) -> None:
    """Builds the rules and follows a few texts of theirs. Raises GrammarError for what llguidance refuses, be it on the
    way only."""
    matcher = start(byte_tokenizer(), blueprint.as_text or blueprint.lark, kind=kind)
    for seed in range(VETTED_TEXTS):
        walk(matcher, kind, seed, VETTED_TOKENS)


def walk(matcher: LLMatcher, kind: str, seed: int, tokens: int) -> None:
    """Follows a text that is drawn token by token. Raises GrammarError where that leads to what is refused."""
    chance, trial = Random(seed), matcher.deep_copy()
    for _ in range(tokens):
        if trial.is_stopped():
            break
        mask = np.frombuffer(trial.compute_bitmask(), np.uint8)
        held = np.flatnonzero(mask)
        if trial.is_error() or not len(held):
            break
        at = int(chance.choice(held))
        bits = [bit for bit in range(8) if mask[at] >> bit & 1]
        trial.try_consume_tokens([8 * at + chance.choice(bits)])
    if trial.is_error() and not trial.is_accepting():
        raise refusal(trial.get_error(), kind)


@lru_cache(maxsize=4096)
def is_empty_terminal(terminal: str) -> bool:
    """Whether the terminal matches no text at all."""
    lark = f"start: T\nT: {terminal}"
    matcher = LLMatcher(byte_tokenizer(), LLMatcher.grammar_from_lark(lark), log_level=0)
    if matcher.is_error():
        message = matcher.get_error()
        if "empty" in message or "unsatisfiable" in message.lower():
            return True
        raise refusal(message, "json_schema")
    mask = matcher.compute_bitmask()
    return not matcher.is_accepting() and not any(mask[:32])


class Begun(NamedTuple):
    """`age`: of the lexer that it shares; None where it has one of its own."""

    matcher: LLMatcher
    age: int | None


class Start:
    """Where the outputs of a grammar begin. Safe from several threads."""

    def __init__(self, make: Callable[[], LLMatcher]) -> None:
        """`make`: `start` of the grammar."""
        self._make = make
        self._matcher = make()
        self._age = 0
        self._lock = Lock()

    def begin(self) -> Begun:
        with self._lock:
            return Begun(self._matcher.deep_copy(), self._age)

    def again(self, begun: Begun, tokens: Sequence[int]) -> Begun | None:
        """Behind `tokens`, which were allowed, with a lexer that has room, for one whose lexer has come to its bounds.

        The first that meets them is given a lexer of its own, for it may need more than there is; None where it has
        had that.
        """
        if begun.age is None or "lexer error" not in begun.matcher.get_error():
            return None
        with self._lock:
            if begun.age == self._age:
                self._matcher, self._age = self._make(), self._age + 1
                made = Begun(self._make(), None)
            else:
                made = Begun(self._matcher.deep_copy(), self._age)
        taken = made.matcher.try_consume_tokens(list(tokens))
        return made if taken == len(tokens) else self.again(made, tokens)
