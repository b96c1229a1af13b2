"""How `select` decides: three methods over the log-probabilities of the choices' tokens.

The decisions are those of runtime/messages/choices.py; here are their names, and what is reported of a selection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages import branches as wire
from palmette.runtime.messages import choices as choosing
from palmette.runtime.messages.branches import ChoiceScores

Ranking = Callable[[ChoiceScores], tuple[int, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ChoicesMethod:
    """How `select` decides. `decide(scores)` gives the index of the choice and what is worth reporting about it."""

    name: str
    decide: Ranking
    unconditional: bool = False  # needs the choices' likelihood without the prompt, too
    wire_name: wire.ChoicesMethod | None = None  # of those that the runtime knows, which it decides itself

    def __repr__(self) -> str:
        return self.name


def _by_mean(scores: ChoiceScores) -> tuple[int, dict[str, Any]]:
    """The choice whose tokens have the highest mean log-probability, however many they are. The default."""
    return choosing.token_length_normalized(scores), {}


def _by_greed(scores: ChoiceScores) -> tuple[int, dict[str, Any]]:
    """Token by token only the likeliest choices stay, until one is left; one that has ended goes on with its mean."""
    return choosing.greedy_token_selection(scores), {"greedy_logprob_matrix": choosing.greedy_matrix(scores)}


def _by_gain(scores: ChoiceScores) -> tuple[int, dict[str, Any]]:
    """The choice that gains the most from the prompt, compared with its likelihood without it."""
    assert scores.unconditional is not None, "asked for in the scoring call"
    bare_rows = [
        list(zip(row, tokens, texts, strict=True))
        for row, tokens, texts in zip(scores.unconditional, scores.tokens, scores.token_texts, strict=True)
    ]
    return choosing.unconditional_likelihood_normalized(scores), {
        "unconditional_token_logprobs": bare_rows,
        "normalized_unconditional_prompt_logprobs": choosing.gains(scores),
    }


token_length_normalized = ChoicesMethod("token_length_normalized", _by_mean, wire_name="token_length_normalized")
greedy_token_selection = ChoicesMethod("greedy_token_selection", _by_greed, wire_name="greedy_token_selection")
unconditional_likelihood_normalized = ChoicesMethod(
    "unconditional_likelihood_normalized",
    _by_gain,
    unconditional=True,
    wire_name="unconditional_likelihood_normalized",
)
SAMPLE = "sample"
"""Of gen: not a score of the choices, but one of them drawn token by token."""
METHODS = {
    method.name: method
    for method in (token_length_normalized, greedy_token_selection, unconditional_likelihood_normalized)
}


def choices_method(given: ChoicesMethod | str | None) -> ChoicesMethod:
    """The method itself, or by its name; None is the default. Raises InvalidRequest for another value."""
    if given is None:
        return token_length_normalized
    if isinstance(given, ChoicesMethod):
        return given
    if isinstance(given, str) and given in METHODS:
        return METHODS[given]
    raise InvalidRequest(
        f"choices_method={given!r} is not one of {', '.join(METHODS)}.", param="choices_method"
    )  # fmt: skip


def report(scores: ChoiceScores) -> dict[str, Any]:
    """What `get_meta_info` says of every selection."""
    rows = [
        list(zip(logprobs, tokens, texts, strict=True))
        for logprobs, tokens, texts in zip(scores.logprobs, scores.tokens, scores.token_texts, strict=True)
    ]
    return {
        "normalized_prompt_logprobs": [choosing.mean(row) for row in scores.logprobs],
        "input_token_logprobs": rows,
        "output_token_logprobs": [[] for _ in rows],
    }
