"""How `select` decides: three methods over the log-probabilities of the choices' tokens.

Pure functions of ChoiceScores, used where a selection is decided: beside the branch, or in the language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palmette.runtime.messages.branches import ChoiceScores, ChoicesMethod


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def token_length_normalized(scores: ChoiceScores) -> int:
    """The choice with the highest mean log-probability a token."""
    return _best([mean(row) for row in scores.logprobs])


def greedy_token_selection(scores: ChoiceScores) -> int:
    """Token by token, only the likeliest choices stay; one that has ended goes on with its mean."""
    matrix = greedy_matrix(scores)
    remaining = list(range(len(matrix)))
    for column in range(len(matrix[0])):
        top = max(matrix[row][column] for row in remaining)
        remaining = [row for row in remaining if matrix[row][column] == top]
        if len(remaining) == 1:
            break
    return remaining[0]


def greedy_matrix(scores: ChoiceScores) -> list[list[float]]:
    """Rows of log-probabilities, all as long as the longest: shorter ones go on with their mean."""
    longest = max(len(row) for row in scores.logprobs)
    return [list(row) + [mean(row)] * (longest - len(row)) for row in scores.logprobs]


def unconditional_likelihood_normalized(scores: ChoiceScores) -> int:
    """The choice whose tokens gain most, on average, by what stands before them."""
    return _best(gains(scores))


def gains(scores: ChoiceScores) -> list[float]:
    """The mean gain of each choice's tokens over their log-probability without the prompt."""
    assert scores.unconditional is not None, "asked for in the scoring call"
    return [
        mean([given - alone for given, alone in zip(conditional, bare, strict=True)])
        for conditional, bare in zip(scores.logprobs, scores.unconditional, strict=True)
    ]


DECIDE: dict[ChoicesMethod, Callable[[ChoiceScores], int]] = {
    "token_length_normalized": token_length_normalized,
    "greedy_token_selection": greedy_token_selection,
    "unconditional_likelihood_normalized": unconditional_likelihood_normalized,
}


def _best(values: Sequence[float]) -> int:
    """The first index of the largest value."""
    return max(range(len(values)), key=lambda index: (values[index], -index))
