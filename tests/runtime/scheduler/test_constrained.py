"""Outputs under grammars, through the real core on the hash worker: they match, and disturb nobody."""

from __future__ import annotations

import re

from constrained_harness import (
    COMPILER,
    PATTERNS,
    PIECES,
    SIZE,
    LongestPiece,
    complete,
    constrained,
    finish,
    harness,
    late,
    text,
)
from engine_harness import generate
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.grammar.compile import Compiler
from palmette.runtime.grammar.protocol import GrammarSource
from palmette.runtime.messages.grammar import Constraint, Jump, constraint
from palmette.runtime.messages.replies import Failed, Generated, TokenLogprob
from palmette.runtime.messages.requests import Request


@settings(max_examples=60)
@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(["bytes", "token", "off"]),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from([1, 3, 4, 16]),
)
def test_outputs_match(pattern: str, jump: Jump, seed: int, temperature: float, page_size: int) -> None:
    run = harness(page_size=page_size, pages=240 // page_size)
    run.run(constrained("a", pattern, jump, seed=seed, temperature=temperature))
    if finish(run, "a").reason == "stop":
        assert re.fullmatch(pattern, text(run, "a"))
    else:
        assert len(run.tokens("a")) == 40


@settings(max_examples=40)
@given(st.sampled_from(PATTERNS), st.integers(0, 10_000))
def test_skipping_sole_tokens_changes_no_bit(pattern: str, seed: int) -> None:
    answers = []
    for jump in ("off", "token"):
        run = harness()
        run.run(constrained("a", pattern, jump, seed=seed, temperature=1.5))
        answers.append(run.answer("a"))
    assert answers[0] == answers[1]


@settings(max_examples=40)
@given(st.data())
def test_they_and_others_are_as_alone(data: st.DataObject) -> None:
    """Chunks, pages, retraction and company change neither a constrained output nor its neighbours."""
    requests: list[Request] = []
    for index in range(data.draw(st.integers(2, 6))):
        seed, prompt = data.draw(st.integers(0, 999)), data.draw(st.integers(1, 30))
        if data.draw(st.booleans()):
            pattern, jump = data.draw(st.sampled_from(PATTERNS)), data.draw(st.sampled_from(["bytes", "token", "off"]))
            requests.append(constrained(f"r{index}", pattern, jump, prompt, seed=seed, max_tokens=20))
        else:
            tokens = [1 + i % (SIZE - 1) for i in range(prompt)]
            requests.append(generate(f"r{index}", tokens, seed=seed, max_tokens=data.draw(st.integers(1, 20))))
    page_size = data.draw(st.sampled_from([1, 2, 4]))
    run = harness(
        page_size=page_size,
        pages=data.draw(st.integers(52, 140)) // page_size,
        step_tokens=data.draw(st.sampled_from([4, 16, 64])),
    )
    run.run(*requests)
    for request in requests:
        alone = harness(pages=400, page_size=1, prefix_cache=False, step_tokens=1000)
        alone.run(request)
        assert run.answer(request.id) == alone.answer(request.id)  # type: ignore[union-attr]


def test_forced_tokens_are_not_asked_for() -> None:
    run = harness()
    run.run(constrained("a", "abcdeabcde(a|b)"))
    assert text(run, "a") in ("abcdeabcdea", "abcdeabcdeb")
    sampled = sum(len(plan.logits_at) for plan in run.worker.steps)  # type: ignore[attr-defined]
    assert sampled == 1
    usage = finish(run, "a").usage
    assert usage.completion_tokens == len(run.tokens("a")) > 1
    assert usage.cached_tokens + usage.computed_tokens == usage.prompt_tokens


def test_an_output_without_a_choice_needs_no_step() -> None:
    run = harness()
    run.run(constrained("a", "abcde"))
    assert text(run, "a") == "abcde"
    assert run.worker.steps == []  # type: ignore[attr-defined]


def test_forced_tokens_have_no_logprob() -> None:
    run = harness()
    run.run(constrained("a", "(a|b)-(3|1)-(2|3)", logprobs=True))
    logprobs: list[TokenLogprob] = run.answer("a")[1]
    assert [each.token for each in logprobs] == run.tokens("a")
    assert [each.logprob is None for each in logprobs] == [False, True, False, True, False]


def test_the_token_limit_counts_forced_tokens() -> None:
    run = harness()
    run.run(constrained("a", "abcdeabcdeabcde(a|b)", max_tokens=3))
    assert finish(run, "a").reason == "length"
    assert len(run.tokens("a")) == finish(run, "a").usage.completion_tokens == 3


def test_a_stop_inside_a_forced_run() -> None:
    run = harness()
    run.run(constrained("a", "(a|b)cde-0(1|2)", stop=("-",)))
    assert finish(run, "a").matched == "-"
    assert text(run, "a")[1:] + finish(run, "a").kept_bytes.decode() in ("cde",)


def test_ignoring_the_end_token_does_not_go_beyond_the_grammar() -> None:
    run = harness()
    run.run(constrained("a", "[ab]{1,4}", ignore_eos=True, seed=3))
    assert re.fullmatch("[ab]{1,4}", text(run, "a"))


@settings(max_examples=60)
@given(
    st.sampled_from([*PATTERNS, r"([a-j]+, )*[0-9]{2}", r"[a-j0-9 ]{0,60}-"]),
    st.sampled_from(["bytes", "token", "off"]),
    st.integers(1, 12),
    st.integers(0, 1000),
)
def test_complete_ends_within_the_budget(pattern: str, jump: Jump, tokens: int, seed: int) -> None:
    run = harness()
    run.run(complete("a", pattern, jump=jump, max_tokens=tokens, seed=seed, temperature=2.0))
    way = COMPILER.compile(GrammarSource(kind="regex", text=pattern)).matcher().closing()
    assert way is not None
    assert len(run.tokens("a")) <= tokens
    if len(way) <= tokens:
        assert finish(run, "a").reason == "stop"
    if finish(run, "a").reason == "stop":
        assert re.fullmatch(pattern, text(run, "a"))
    else:
        assert len(run.tokens("a")) == tokens


def test_complete_changes_nothing_where_there_is_room() -> None:
    answers = []
    for make in (complete, constrained):
        run = harness()
        options = {"prompt": 3} if make is constrained else {}
        run.run(make("a", r"[a-j]{3,6}(-[0-9]+)?", max_tokens=40, seed=4, **options))
        answers.append(run.tokens("a"))
    assert answers[0] == answers[1]


def test_what_closes_an_output_has_no_logprob() -> None:
    replaced = 0
    for seed in range(20):
        run = harness()
        run.run(complete("a", "[abcdefghij]{2,30}-1-3-4", max_tokens=9, seed=seed, jump="off", logprobs=True))
        logprobs = run.answer("a")[1]
        assert text(run, "a").endswith("-1-3-4")
        assert [each.token for each in logprobs] == run.tokens("a")
        assert logprobs[0].logprob is not None
        without = [each.logprob is None for each in logprobs]
        assert without == sorted(without)
        replaced += any(without)
    assert replaced


def test_an_end_that_is_reached_needs_no_more_tokens() -> None:
    """At the limit a text that matches is complete, though it could go on; and it isn't left for one that can't end."""
    for seed in range(8):
        run = harness()
        run.run(complete("a", "(ab|cde, )+", max_tokens=2, seed=seed, jump="off", temperature=2.0))
        assert finish(run, "a").reason == "stop"
        assert re.fullmatch("(ab|cde, )+", text(run, "a"))
    run = harness()
    run.run(constrained("a", "(ab)+", max_tokens=2, jump="off", seed=2))
    assert finish(run, "a").reason == "length"


@settings(max_examples=60)
@given(st.sampled_from(["[0-9]", "a.b", "(ab)+c|d", r"[^a-e]{2}", "bc|20"]), st.integers(0, 500), st.integers(0, 4))
def test_stop_patterns(pattern: str, seed: int, min_tokens: int) -> None:
    options = {"max_tokens": 30, "seed": seed, "ignore_eos": True, "temperature": 2.0}
    free = harness()
    free.run(generate("a", [1, 2, 3], **options))
    run = harness()
    run.run(generate("a", [1, 2, 3], stop_regex=(pattern,), min_tokens=min_tokens, **options))
    tokens = run.tokens("a")
    assert tokens == free.tokens("a")[: len(tokens)]
    whole = b"".join(PIECES[token] for token in free.tokens("a")).decode()
    kept = text(run, "a") + finish(run, "a").kept_bytes.decode()
    if finish(run, "a").matched is None:
        assert kept == whole
        return
    assert finish(run, "a").matched == pattern
    assert len(tokens) >= max(1, min_tokens)
    made = b"".join(PIECES[token] for token in tokens).decode()
    found = re.compile(pattern).search(made, len(kept))
    assert found is not None
    assert found.start() == len(kept)
    if min_tokens <= 1:
        before = b"".join(PIECES[token] for token in tokens[:-1]).decode()
        assert not re.search(pattern, before)


def test_stop_patterns_beside_a_grammar_and_strings() -> None:
    run = harness()
    run.run(
        generate(
            "a", [1, 2], max_tokens=40, seed=3, stop=("zz",), stop_regex=("[0-9]-",),
            constraint=constraint(regex="[a-j]{4}[0-9]{3}-[a-j]+"),
        ),
        generate("b", [1, 2], max_tokens=4, stop_regex=("(",)),
        generate("c", [1, 2], max_tokens=4),
    )  # fmt: skip
    assert finish(run, "a").matched == "[0-9]-"
    assert re.fullmatch("[a-j]{4}[0-9]{2}", text(run, "a") + finish(run, "a").kept_bytes.decode())
    failed = run.replies["b"][-1]
    assert isinstance(failed, Failed)
    assert failed.error.param == "stop_regex"
    assert finish(run, "c") is not None


def test_forced_tokens_have_logprobs_where_they_are_asked_for() -> None:
    """The same tokens, the same log-probabilities of those that are drawn in any case, and none that is null."""
    pattern = "20[0-9]{2}-(ab|abc)-[a-j]{3}2026-[0-9]"
    outputs = {}
    for asks in (False, True):
        run = harness(Compiler(LongestPiece()))
        wanted = Constraint(grammar=GrammarSource(kind="regex", text=pattern), forced_logprobs=asks)
        run.run(generate("a", [1, 2, 3], max_tokens=60, logprobs=True, constraint=wanted))
        outputs[asks] = [
            each for reply in run.replies["a"] if isinstance(reply, Generated) for each in reply.logprobs or ()
        ]
    assert [each.token for each in outputs[True]] == [each.token for each in outputs[False]]
    assert any(each.logprob is None for each in outputs[False])
    assert all(each.logprob is not None for each in outputs[True])
    for asked, jumped in zip(outputs[True], outputs[False], strict=True):
        assert jumped.logprob in (None, asked.logprob)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from([*PATTERNS, ""]), st.sampled_from(["bytes", "token", "off"]), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 10_000),
    st.sampled_from([1, 3, 4]),
    st.sampled_from([0, 14, 40]),
)
def test_planning_ahead_changes_no_bit(
    asked: list[tuple[str, Jump, bool]], seed: int, page_size: int, pages: int
) -> None:
    requests = []
    for index, (pattern, jump, whole) in enumerate(asked):
        name, most = f"r{index}", 7 + 9 * index
        if pattern and whole:
            requests.append(complete(name, pattern, jump=jump, max_tokens=most, seed=seed + index))
        elif pattern:
            requests.append(constrained(name, pattern, jump, seed=seed + index, max_tokens=most, temperature=1.0))
        else:
            requests.append(generate(name, [1, 2, 3 + index], max_tokens=most, seed=seed, temperature=1.0))
    size = {"page_size": page_size, "pages": 200 // page_size + pages}
    ahead, plain = late(**size), harness(**size)
    ahead.run(*requests)
    plain.run(*requests)
    for request in requests:
        assert ahead.answer(request.id) == plain.answer(request.id)


def test_an_output_under_a_grammar_has_a_row_in_every_step() -> None:
    requests = [
        constrained("a", "[ab]{20}", "off", seed=1, max_tokens=20),
        generate("b", [1, 2], max_tokens=20, ignore_eos=True),
    ]
    COMPILER.compile(GrammarSource(kind="regex", text="[ab]{20}"))  # else the other runs alone until it is there
    ahead = late()
    ahead.run(*requests)
    assert len(ahead.tokens("a")) >= 10
    assert len(ahead.worker.steps) <= 22
