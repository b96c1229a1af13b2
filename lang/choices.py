"""How `select` decides: three methods over the log-probabilities of the choices' tokens.

Pure functions of ChoiceScores; the interpreter makes the scoring call and appends what they chose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.branches import ChoiceScores

Ranking = Callable[[ChoiceScores], tuple[int, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ChoicesMethod:
    """A way to choose. `decide(scores)` gives the index of the choice and what is worth reporting about it."""

    name: str
    decide: Ranking
    unconditional: bool = False  # needs the choices' likelihood without the prompt, too

    def __repr__(self) -> str:
        return self.name


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _best(values: Sequence[float]) -> int:
    """The first index of the largest value."""
    return max(range(len(values)), key=lambda index: (values[index], -index))


def _token_length_normalized(scores: ChoiceScores) -> tuple[int, dict[str, Any]]:
    return _best([_mean(row) for row in scores.logprobs]), {}


def _greedy_token_selection(scores: ChoiceScores) -> tuple[int, dict[str, Any]]:
    """Token by token, only the likeliest choices stay; one that has ended goes on with its mean."""
    longest = max(len(row) for row in scores.logprobs)
    matrix = [list(row) + [_mean(row)] * (longest - len(row)) for row in scores.logprobs]
    remaining = list(range(len(matrix)))
    for column in range(longest):
        top = max(matrix[row][column] for row in remaining)
        remaining = [row for row in remaining if matrix[row][column] == top]
        if len(remaining) == 1:
            break
    return remaining[0], {"greedy_logprob_matrix": matrix}


def _unconditional_likelihood_normalized(scores: ChoiceScores) -> tuple[int, dict[str, Any]]:
    """The mean gain of each token's log-probability over its log-probability without the prompt."""
    assert scores.unconditional is not None, "asked for in the scoring call"
    gains = [
        _mean([given - alone for given, alone in zip(conditional, bare, strict=True)])
        for conditional, bare in zip(scores.logprobs, scores.unconditional, strict=True)
    ]
    bare_rows = [
        list(zip(row, tokens, texts, strict=True))
        for row, tokens, texts in zip(scores.unconditional, scores.tokens, scores.token_texts, strict=True)
    ]
    return _best(gains), {
        "unconditional_token_logprobs": bare_rows,
        "normalized_unconditional_prompt_logprobs": gains,
    }


token_length_normalized = ChoicesMethod("token_length_normalized", _token_length_normalized)
greedy_token_selection = ChoicesMethod("greedy_token_selection", _greedy_token_selection)
unconditional_likelihood_normalized = ChoicesMethod(
    "unconditional_likelihood_normalized", _unconditional_likelihood_normalized, unconditional=True
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
        "normalized_prompt_logprobs": [_mean(row) for row in scores.logprobs],
        "input_token_logprobs": rows,
        "output_token_logprobs": [[] for _ in rows],
    }
