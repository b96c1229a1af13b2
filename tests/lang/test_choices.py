"""The three ways to choose, on scores worked out by hand; and appended choices are token ids."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palmette as sgl
from palmette.lang.choices import METHODS, choices_method
from palmette.runtime.messages.branches import ChoiceScores, Tokens
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.tokens import pack


def scores(rows, unconditional=None) -> ChoiceScores:
    return ChoiceScores(
        tokens=tuple(tuple(range(len(row))) for row in rows),
        token_texts=tuple(tuple("t" for _ in row) for row in rows),
        logprobs=tuple(map(tuple, rows)),
        unconditional=tuple(map(tuple, unconditional)) if unconditional else None,
        usage=Usage(),
    )


def test_the_mean_decides_not_the_sum() -> None:
    given_ = scores([[-1.0, -1.0, -1.0], [-1.5]])
    assert sgl.token_length_normalized.decide(given_)[0] == 0


def test_greedy_follows_the_likeliest_token_and_extends_ended_choices_by_their_mean() -> None:
    assert sgl.greedy_token_selection.decide(scores([[-1.0, -0.1], [-0.9, -9.0]]))[0] == 1
    # Same first token; the shorter goes on with its mean -0.5, the longer is worse there.
    assert sgl.greedy_token_selection.decide(scores([[-0.5, -0.7], [-0.5]]))[0] == 1
    assert sgl.greedy_token_selection.decide(scores([[-0.5, -0.3], [-0.5]]))[0] == 0


def test_a_choice_that_is_likely_anyway_gains_less() -> None:
    given_ = scores([[-1.0], [-1.2]], unconditional=[[-1.1], [-5.0]])
    index, details = sgl.unconditional_likelihood_normalized.decide(given_)
    assert index == 1
    assert details["normalized_unconditional_prompt_logprobs"] == pytest.approx([0.1, 3.8])


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_by_object_and_by_name(name: str, backend) -> None:
    assert choices_method(name) is choices_method(METHODS[name]) is METHODS[name]

    @sgl.function
    def program(s):
        s += "a" + sgl.select("x", ["one", "two"], choices_method=METHODS[name])

    assert program.run()["x"] == "one"
    assert "normalized_prompt_logprobs" in program.run().get_meta_info("x")


def test_the_choice_is_appended_as_its_token_ids(backend) -> None:
    @sgl.function
    def program(s):
        s += "a" + sgl.select("x", ["é", "n"]) + sgl.gen("y")

    assert program.run().text() == "aé[2]"
    parts = next(call[1][0] for call in backend.calls if call[0] == "generate")
    assert parts == [], "the runtime has appended it"


def test_a_method_of_ones_own_decides_here_and_appends_the_token_ids(backend) -> None:
    @sgl.function
    def program(s):
        s += (
            "a"
            + sgl.select("x", ["n", "é"], choices_method=sgl.ChoicesMethod("last", lambda _: (1, {})))
            + sgl.gen("y")
        )

    assert program.run().text() == "aé[2]"
    parts = next(call[1][0] for call in backend.calls if call[0] == "generate")
    assert parts == [Tokens(pack("é".encode()[i] for i in range(2)))]


rows = st.lists(st.lists(st.floats(-20, 0), min_size=1, max_size=5), min_size=1, max_size=6)


@given(rows)
def test_every_method_is_blind_to_order_where_there_is_no_tie(table) -> None:
    for method in (sgl.token_length_normalized, sgl.greedy_token_selection):
        index, _ = method.decide(scores(table))
        back, _ = method.decide(scores(table[::-1]))
        means = sorted(sum(row) / len(row) for row in table)
        ties = len({tuple(row) for row in table}) < len(table) or any(a == b for a, b in itertools.pairwise(means))
        if not ties and method is sgl.token_length_normalized:
            assert back == len(table) - 1 - index
        if method is sgl.greedy_token_selection:
            assert table[index][0] == max(row[0] for row in table)
