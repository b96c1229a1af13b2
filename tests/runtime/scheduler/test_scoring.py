"""The choices of a score as a tree: each of their tokens is scored once, and only what must be is computed."""

from __future__ import annotations

import math

from engine_harness import generate
from hash_harness import HashHarness
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.messages.replies import Scored, TokenLogprob
from palmette.runtime.messages.requests import Score
from palmette.runtime.messages.tokens import pack, unpack
from palmette.runtime.scheduler.scoring import ChoiceTree

choices = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6), min_size=1, max_size=12)


def logprob(path: tuple[int, ...]) -> float:
    return -math.fsum((place + 1) * token for place, token in enumerate(path)) / 7


@settings(max_examples=300)
@given(choices, st.integers(1, 5))
def test_each_token_is_scored_once_and_each_stem_computed_once(drawn: list[list[int]], prefix: int) -> None:
    tree = ChoiceTree(prefix, [pack(each) for each in drawn])
    scored: list[tuple[int, ...]] = []
    computed: list[tuple[int, ...]] = []
    for stem, scoring in tree.stems:
        tokens = unpack(stem)
        computed += [tuple(tokens[:end]) for end in range(scoring.first - prefix, len(tokens) + 1)]
        while not scoring.over:
            before = tuple(tokens[: scoring.next - prefix])
            paths = [(*before, token) for token in scoring.tokens(scoring.next)]
            scored += paths
            scoring.take(scoring.next, [TokenLogprob(path[-1], logprob(path)) for path in paths])
    wanted = {tuple(each[:end]) for each in drawn for end in range(1, len(each) + 1)}
    assert sorted(scored) == sorted(wanted)
    assert sorted(computed) == sorted({path[:-1] for path in wanted}), "those whose logits are wanted"
    assert tree.logprobs() == tuple(
        tuple(logprob(tuple(each[:end])) for end in range(1, len(each) + 1)) for each in drawn
    )
    spent = sum(prefix + len(unpack(stem)) + scoring.spared for stem, scoring in tree.stems)
    assert spent == sum(prefix + len(each) for each in drawn)


@settings(max_examples=40)
@given(
    choices, st.lists(st.integers(5, 9), min_size=1, max_size=9), st.sampled_from([1, 4, 16]), st.integers(1, 9),
    st.booleans(),
)  # fmt: skip
def test_they_are_what_a_prompt_of_each_choice_says(
    drawn: list[list[int]], prefix: list[int], page_size: int, step_tokens: int, enabled: bool
) -> None:
    harness = HashHarness(page_size=page_size, step_tokens=step_tokens, pages=400 // page_size, prefix_cache=enabled)
    score = Score(id="s", prefix=pack(prefix), continuations=tuple(map(pack, drawn)))
    harness.run(score)
    alone = HashHarness(pages=400, page_size=1, prefix_cache=False, step_tokens=100)
    for index, each in enumerate(drawn):
        name = f"r{index}"
        alone.run(generate(name, [*prefix, *each], max_tokens=0, prompt_logprobs_from=len(prefix)))
        finish = alone.replies[name][-1].finish  # type: ignore[union-attr]
        assert tuple(entry.logprob for entry in finish.prompt_logprobs) == harness.answer("s")[index]
    answer = harness.replies["s"][-1]
    assert isinstance(answer, Scored)
    usage = answer.usage
    assert usage.prompt_tokens == sum(len(prefix) + len(each) for each in drawn)
    stems = {tuple(each[:end]) for each in drawn for end in range(1, len(each))}
    if enabled:
        assert usage.computed_tokens == sum(len(plan.tokens) for plan in harness.worker.steps)
        assert usage.cached_tokens + usage.computed_tokens == usage.prompt_tokens
        assert usage.cached_tokens <= usage.reusable_tokens
        assert usage.computed_tokens <= len(prefix) + len(stems) + len(drawn)  # where they part, one is computed again
    else:
        assert usage.cached_tokens == 0
    before = len(harness.worker.steps)
    harness.run(Score(id="again", prefix=pack(prefix), continuations=tuple(map(pack, drawn))))
    assert harness.answer("again") == harness.answer("s")
    assert not enabled or len(harness.worker.steps) == before


def test_choices_of_one_token_take_one_step() -> None:
    """A prompt's last logits say all about them."""
    harness = HashHarness(step_tokens=64)
    harness.run(Score(id="s", prefix=pack([5, 6, 7, 8]), continuations=tuple(pack([token]) for token in (1, 2, 3, 4))))
    assert [len(plan.tokens) for plan in harness.worker.steps] == [4]
    assert [len(plan.logits_at) for plan in harness.worker.steps] == [1]
    harness.run(Score(id="t", prefix=pack([5, 6, 7, 8]), continuations=(pack([9]), pack([1]))))
    assert [len(plan.tokens) for plan in harness.worker.steps] == [4, 1]
    harness.run(Score(id="u", prefix=pack([5, 6, 7, 8]), continuations=(pack([2]), pack([9]), pack([1]))))
    assert len(harness.worker.steps) == 2, "all of them are known"
