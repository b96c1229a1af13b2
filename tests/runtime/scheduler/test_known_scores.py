"""Scores that the cache kept: the same numbers as computed ones, and hardly any tokens for them."""

from __future__ import annotations

import pytest
from engine_harness import generate
from hash_harness import SIZE, HashHarness, alone
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.messages.replies import Generated, Scored, Usage
from palmette.runtime.messages.requests import Generate, Score
from palmette.runtime.messages.tokens import pack

STEM = [1 + i % 20 for i in range(13)]
CHOICES = ([6, 7], [8], [6, 9, 10], [11, 12, 13, 14, 15])


def score(name: str, prefix: list[int] = STEM, choices: tuple[list[int], ...] = CHOICES) -> Score:
    return Score(id=name, prefix=pack(prefix), continuations=tuple(map(pack, choices)))


def computed(harness: HashHarness) -> int:
    return sum(len(plan.tokens) for plan in harness.worker.steps)


def usage(harness: HashHarness, name: str) -> Usage:
    last = harness.replies[name][-1]
    if isinstance(last, Scored):
        return last.usage
    assert isinstance(last, Generated)
    assert last.finish is not None
    return last.finish.usage


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_same_choices_again_are_answered_without_a_step(page_size: int) -> None:
    harness = HashHarness(pages=256 // page_size, page_size=page_size)
    harness.run(score("first"))
    before = computed(harness)
    harness.run(score("again"))
    assert computed(harness) == before
    assert harness.answer("again") == harness.answer("first") == alone(score("x"))
    spent = usage(harness, "again")
    assert spent.cached_tokens == spent.reusable_tokens == spent.prompt_tokens
    assert spent.computed_tokens == 0
    assert harness.core.counters().finished == 2


def test_one_more_choice_costs_its_own_tokens() -> None:
    harness = HashHarness()
    harness.run(score("first"))
    before = computed(harness)
    more = score("more", choices=(*CHOICES, [16, 17, 18]))
    harness.run(more)
    assert computed(harness) - before <= 1 + 3
    assert harness.answer("more") == alone(more)


def test_choices_that_are_scored_at_once_cost_one_token_each_at_most() -> None:
    harness = HashHarness(pages=200, step_tokens=64)
    many = [score(f"s{i}") for i in range(6)]
    harness.run(*many)
    tokens = sum(map(len, CHOICES))
    assert computed(harness) <= len(STEM) + tokens + len(CHOICES) * (len(many) - 1) + tokens
    for each in many:
        assert harness.answer(each.id) == alone(each)


def test_the_log_probabilities_of_a_cached_prompt_are_not_computed_again() -> None:
    harness = HashHarness()
    first = generate("first", STEM, max_tokens=2, prompt_logprobs_from=0)
    harness.run(first)
    before = computed(harness)
    again = generate("again", STEM, max_tokens=2, prompt_logprobs_from=0)
    echo = generate("echo", STEM, max_tokens=0, prompt_logprobs_from=3)
    harness.run(again)
    assert computed(harness) - before == 2, "the prompt's last token, and the first output's"
    harness.run(echo)
    assert computed(harness) - before == 2
    for request in (first, again, echo):
        assert harness.answer(request.id) == alone(request)
    assert usage(harness, "echo").cached_tokens == len(STEM)


def test_the_most_likely_tokens_beside_them_are_computed() -> None:
    harness = HashHarness()
    tops = [generate(name, STEM, max_tokens=1, logprobs=True, top_logprobs=3, prompt_logprobs_from=0) for name in "ab"]
    for request in tops:
        harness.run(request)
        assert harness.answer(request.id) == alone(request)
    plain = generate("plain", STEM, max_tokens=0, prompt_logprobs_from=0)
    before = computed(harness)
    harness.run(plain)
    assert computed(harness) == before, "what they had computed is known all the same"
    assert harness.answer("plain") == alone(plain)


def test_a_prompt_of_which_nothing_is_asked_is_computed() -> None:
    harness = HashHarness()
    one = generate("one", [5], max_tokens=0, prompt_logprobs_from=0)
    harness.run(one)
    assert computed(harness) == 1
    assert harness.answer("one") == alone(one)


def test_an_engine_without_a_cache_keeps_none() -> None:
    harness = HashHarness(prefix_cache=False)
    harness.run(score("first"))
    harness.run(score("again"))
    assert harness.answer("again") == harness.answer("first")
    assert usage(harness, "again").cached_tokens == 0


@st.composite
def rounds(draw: st.DrawFn) -> tuple[dict[str, int], list[list[Generate | Score]]]:
    stems = [draw(st.lists(st.integers(1, SIZE - 1), min_size=2, max_size=14)) for _ in range(2)]
    tail = st.lists(st.integers(1, 4), min_size=1, max_size=4)
    requests: list[list[Generate | Score]] = []
    for index in range(draw(st.integers(2, 6))):
        stem = draw(st.sampled_from(stems))
        prompt = stem[: draw(st.integers(1, len(stem)))]
        request: Generate | Score
        if draw(st.booleans()):
            request = score(f"r{index}", prompt, tuple(draw(st.lists(tail, min_size=1, max_size=3))))
        else:
            tops = draw(st.sampled_from([0, 0, 2]))
            request = generate(
                f"r{index}", prompt + draw(tail), max_tokens=draw(st.integers(0, 4)), logprobs=tops > 0,
                top_logprobs=tops, prompt_logprobs_from=draw(st.integers(0, 6)),
            )  # fmt: skip
        if requests and draw(st.booleans()):
            requests[-1].append(request)
        else:
            requests.append([request])
    page_size = draw(st.sampled_from([1, 4, 16]))
    options = {
        "page_size": page_size,
        "pages": -(-24 // page_size) + draw(st.integers(0, 12)),  # hardly more than one request: much is evicted
        "step_tokens": draw(st.integers(1, 20)),
        "max_running": draw(st.integers(1, 4)),
    }
    return options, requests


@settings(max_examples=100)
@given(rounds())
def test_kept_scores_are_the_computed_ones_bit_by_bit(
    drawn: tuple[dict[str, int], list[list[Generate | Score]]],
) -> None:
    options, requests = drawn
    harness = HashHarness(**options)
    for together in requests:
        harness.run(*together)
        for request in together:
            assert harness.answer(request.id) == alone(request), request
