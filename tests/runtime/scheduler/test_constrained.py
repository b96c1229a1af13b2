"""Outputs under grammars, through the real core on the hash worker: they match, and disturb nobody."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from engine_harness import Harness, generate
from hash_worker import HashWorker
from hypothesis import given, settings
from hypothesis import strategies as st
from late_harness import LateHarness

from palmette.runtime.grammar import compile as grammar_compile
from palmette.runtime.grammar.compile import Compiler
from palmette.runtime.grammar.compiling.drawing import Drawer
from palmette.runtime.grammar.llg import matcher as llg
from palmette.runtime.grammar.protocol import Grammar, GrammarSource, Limits, Matcher, TokenSpace
from palmette.runtime.messages.grammar import Constraint, Jump, constraint
from palmette.runtime.messages.replies import Failed, Generated, TokenLogprob
from palmette.runtime.messages.requests import Abort, Request
from palmette.runtime.vocabulary import Vocabulary

PIECES = (
    b"",
    *(bytes([each]) for each in b"abcdefghij0123456789-, "),
    b"ab",
    b"abc",
    b"bc",
    b"cde",
    b"20",
    b"2026",
    b"-0",
)
SIZE = len(PIECES)
VOCABULARY = Vocabulary(PIECES, {0: "<eos>"}, (0,))


class LongestPiece:
    """The canonical tokens are the longest pieces from the left."""

    vocabulary = VOCABULARY

    def encode(self, text: str) -> list[int]:
        data, tokens = text.encode(), []
        while data:
            fits = [token for token, piece in enumerate(PIECES) if piece and data.startswith(piece)]
            if not fits:
                break
            tokens.append(max(fits, key=lambda token: len(PIECES[token])))
            data = data[len(PIECES[tokens[-1]]) :]
        return tokens


def make_worker(pages: int, page_size: int, *, slots: int, context: int) -> HashWorker:
    return HashWorker(pages, page_size, slots=slots, context=context, vocabulary=SIZE)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(LongestPiece())


def harness(compiler: Compiler, **options: Any) -> Harness:
    return Harness(make_worker, VOCABULARY, compiler=compiler, **options)


def constrained(name: str, pattern: str, jump: Jump = "bytes", prompt: int = 5, **options: Any) -> Request:
    wanted = constraint(regex=pattern, jump=jump)
    return generate(
        name, [1 + i % (SIZE - 1) for i in range(prompt)], constraint=wanted, **{"max_tokens": 40, **options}
    )


def text(run: Harness, name: str) -> str:
    last = run.replies[name][-1]
    assert isinstance(last, Generated), last
    assert last.finish is not None
    return b"".join(PIECES[token] for token in run.tokens(name)[: last.finish.kept_tokens]).decode()


def finish(run: Harness, name: str) -> Any:
    return run.replies[name][-1].finish  # type: ignore[union-attr]


PATTERNS = (
    r"2026-0[1-9]-[0-9]{2}",
    r"(abc, )*abcde",
    r"[a-j]{3,6}(-[0-9]+)?",
    r"(ab|abc|bcd){2,5}",
    r"a+",
    r"abcdeabcde",
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PATTERNS),
    st.sampled_from(["bytes", "token", "off"]),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from([1, 3, 4, 16]),
)
def test_outputs_match(pattern: str, jump: Jump, seed: int, temperature: float, page_size: int) -> None:
    run = harness(COMPILER, page_size=page_size, pages=240 // page_size)
    run.run(constrained("a", pattern, jump, seed=seed, temperature=temperature))
    if finish(run, "a").reason == "stop":
        assert re.fullmatch(pattern, text(run, "a"))
    else:
        assert len(run.tokens("a")) == 40


COMPILER = Compiler(LongestPiece())


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PATTERNS), st.integers(0, 10_000))
def test_skipping_sole_tokens_changes_no_bit(pattern: str, seed: int) -> None:
    answers = []
    for jump in ("off", "token"):
        run = harness(COMPILER)
        run.run(constrained("a", pattern, jump, seed=seed, temperature=1.5))
        answers.append(run.answer("a"))
    assert answers[0] == answers[1]


@settings(max_examples=40, deadline=None)
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
        COMPILER,
        page_size=page_size,
        pages=data.draw(st.integers(52, 140)) // page_size,
        step_tokens=data.draw(st.sampled_from([4, 16, 64])),
    )
    run.run(*requests)
    for request in requests:
        alone = harness(COMPILER, pages=400, page_size=1, prefix_cache=False, step_tokens=1000)
        alone.run(request)
        assert run.answer(request.id) == alone.answer(request.id)  # type: ignore[union-attr]


def test_forced_tokens_are_not_asked_for(compiler: Compiler) -> None:
    run = harness(compiler)
    run.run(constrained("a", "abcdeabcde(a|b)"))
    assert text(run, "a") in ("abcdeabcdea", "abcdeabcdeb")
    sampled = sum(len(plan.logits_at) for plan in run.worker.steps)  # type: ignore[attr-defined]
    assert sampled == 1
    usage = finish(run, "a").usage
    assert usage.completion_tokens == len(run.tokens("a")) > 1
    assert usage.cached_tokens + usage.computed_tokens == usage.prompt_tokens


def test_an_output_without_a_choice_needs_no_step(compiler: Compiler) -> None:
    run = harness(compiler)
    run.run(constrained("a", "abcde"))
    assert text(run, "a") == "abcde"
    assert run.worker.steps == []  # type: ignore[attr-defined]


def test_forced_tokens_have_no_logprob(compiler: Compiler) -> None:
    run = harness(compiler)
    run.run(constrained("a", "(a|b)-(3|1)-(2|3)", logprobs=True))
    logprobs: list[TokenLogprob] = run.answer("a")[1]
    assert [each.token for each in logprobs] == run.tokens("a")
    assert [each.logprob is None for each in logprobs] == [False, True, False, True, False]


def test_the_token_limit_counts_forced_tokens(compiler: Compiler) -> None:
    run = harness(compiler)
    run.run(constrained("a", "abcdeabcdeabcde(a|b)", max_tokens=3))
    assert finish(run, "a").reason == "length"
    assert len(run.tokens("a")) == finish(run, "a").usage.completion_tokens == 3


def test_a_stop_inside_a_forced_run(compiler: Compiler) -> None:
    run = harness(compiler)
    run.run(constrained("a", "(a|b)cde-0(1|2)", stop=("-",)))
    assert finish(run, "a").matched == "-"
    assert text(run, "a")[1:] + finish(run, "a").kept_bytes.decode() in ("cde",)


def test_ignoring_the_end_token_does_not_go_beyond_the_grammar(compiler: Compiler) -> None:
    run = harness(compiler)
    run.run(constrained("a", "[ab]{1,4}", ignore_eos=True, seed=3))
    assert re.fullmatch("[ab]{1,4}", text(run, "a"))


def test_a_bad_grammar_fails_its_request_alone(compiler: Compiler) -> None:
    run = harness(compiler)
    run.run(constrained("a", "(a"), constrained("b", "(a|b)"), generate("c", [1, 2], max_tokens=2))
    failed = run.replies["a"][-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "GrammarError"
    assert "position" in failed.error.message
    assert text(run, "b") in ("a", "b")
    assert finish(run, "c") is not None


def test_an_engine_without_a_compiler_refuses(compiler: Compiler) -> None:
    run = Harness(make_worker, VOCABULARY)
    run.run(constrained("a", "a"))
    assert isinstance(run.replies["a"][-1], Failed)


class Gate:
    """A builder that waits until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, source: GrammarSource, space: TokenSpace, limits: Limits, draw: Drawer) -> Grammar:
        assert self.open.wait(10)
        if source.text == "broken":
            raise RuntimeError("out of luck")
        return grammar_compile.build_drawn(source, space, limits, draw)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setitem(grammar_compile.BUILDERS, "regex", gate)
    return gate


def test_nobody_waits_for_anothers_grammar(gate: Gate) -> None:
    run = harness(Compiler(LongestPiece()))
    run.core.submit(constrained("slow", "(a|b)"))
    run.core.submit(generate("free", [1, 2, 3], max_tokens=3, ignore_eos=True))
    for _ in range(20):
        run.step()
    assert len(run.tokens("free")) == 3
    assert run.replies["slow"] == []
    gate.open.set()
    run.run()
    assert text(run, "slow") in ("a", "b")


def test_a_request_can_be_aborted_while_its_grammar_compiles(gate: Gate) -> None:
    run = harness(Compiler(LongestPiece()))
    run.core.submit(constrained("slow", "(a|b)"))
    run.step()
    run.core.submit(Abort(id="slow"))
    gate.open.set()
    run.run()
    assert finish(run, "slow").reason == "abort"
    assert len(run.replies["slow"]) == 1


def test_a_builder_that_breaks_fails_its_request_alone(gate: Gate) -> None:
    gate.open.set()
    run = harness(Compiler(LongestPiece()))
    run.run(constrained("a", "broken"), constrained("b", "(a|b)"))
    failed = run.replies["a"][-1]
    assert isinstance(failed, Failed)
    assert "out of luck" in failed.error.message
    assert text(run, "b") in ("a", "b")


def test_a_grammar_that_takes_too_long_fails_its_request_alone(gate: Gate) -> None:
    run = harness(Compiler(LongestPiece(), limits=Limits(seconds=0.05)))
    run.run(constrained("a", "(a|b)"), generate("b", [1], max_tokens=2))
    gate.open.set()
    failed = run.replies["a"][-1]
    assert isinstance(failed, Failed)
    assert "takes longer" in failed.error.message


@pytest.mark.parametrize("broken", ["fill_mask", "accept", "forced", "complete", "ended", "closing", "rollback"])
@pytest.mark.parametrize("jump", ["bytes", "token", "off"])
def test_a_matcher_that_raises_fails_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, compiler: Compiler, broken: str, jump: Jump
) -> None:
    """Whatever it raises in, after how many tokens; those beside it, with grammars and without, are as ever."""
    pattern = "20[a-j]{4}-[ab]{2,30}-1-3-4"
    others = [constrained("b", "[a-j]{3,6}(-[0-9]+)?", jump, seed=1), generate("c", [1, 2], max_tokens=12, seed=2)]
    alone = harness(compiler)
    alone.run(*others)
    for tokens in (0, 3, 8):
        run = harness(Compiler(LongestPiece()))
        breaking = Breaking(pattern, broken, tokens)
        monkeypatch.setitem(grammar_compile.BUILDERS, "regex", breaking)
        run.run(complete("a", pattern, jump=jump, max_tokens=11, seed=3), *others)
        ended = run.replies["a"][-1]
        if breaking.raised:
            assert isinstance(ended, Failed)
            assert "out of luck" in ended.error.message
        else:
            assert broken in ("forced", "rollback", "closing", "fill_mask")
        assert run.answer("b") == alone.answer("b")
        assert run.answer("c") == alone.answer("c")
        assert run.core.counters().failed == breaking.raised


class Breaking:
    """A builder: matchers of `pattern` raise in one of their methods, once they have accepted so many tokens."""

    def __init__(self, pattern: str, method: str, tokens: int) -> None:
        self.pattern, self.method, self.tokens = pattern, method, tokens
        self.raised = False

    def __call__(self, source: GrammarSource, space: TokenSpace, limits: Limits, draw: Drawer) -> Any:
        grammar = grammar_compile.build_drawn(source, space, limits, draw)
        return BreakingGrammar(grammar, self) if source.text == self.pattern else grammar


class BreakingGrammar:
    def __init__(self, grammar: Grammar, how: Breaking) -> None:
        self.grammar, self.how = grammar, how

    def matcher(self) -> Any:
        return BreakingMatcher(self.grammar.matcher(), self.how)


class BreakingMatcher:
    def __init__(self, inner: Matcher, how: Breaking) -> None:
        self._inner, self._how, self._accepted = inner, how, 0

    def __getattr__(self, name: str) -> Any:
        if name == self._how.method and self._accepted >= self._how.tokens:
            self._how.raised = True
            raise RecursionError("out of luck")
        found = getattr(self._inner, name)
        self._accepted += name == "accept"
        return found


# --- complete ---


def complete(name: str, pattern: str, **options: Any) -> Request:
    wanted = constraint(regex=pattern, jump=options.pop("jump", "bytes"), complete=True)
    return generate(name, [1, 2, 3], constraint=wanted, **options)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*PATTERNS, r"([a-j]+, )*[0-9]{2}", r"[a-j0-9 ]{0,60}-"]),
    st.sampled_from(["bytes", "token", "off"]),
    st.integers(1, 12),
    st.integers(0, 1000),
)
def test_complete_ends_within_the_budget(pattern: str, jump: Jump, tokens: int, seed: int) -> None:
    run = harness(COMPILER)
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


def test_complete_changes_nothing_where_there_is_room(compiler: Compiler) -> None:
    answers = []
    for make in (complete, constrained):
        run = harness(compiler)
        options = {"prompt": 3} if make is constrained else {}
        run.run(make("a", r"[a-j]{3,6}(-[0-9]+)?", max_tokens=40, seed=4, **options))
        answers.append(run.tokens("a"))
    assert answers[0] == answers[1]


def test_what_closes_an_output_has_no_logprob(compiler: Compiler) -> None:
    replaced = 0
    for seed in range(20):
        run = harness(compiler)
        run.run(complete("a", "[abcdefghij]{2,30}-1-3-4", max_tokens=9, seed=seed, jump="off", logprobs=True))
        logprobs = run.answer("a")[1]
        assert text(run, "a").endswith("-1-3-4")
        assert [each.token for each in logprobs] == run.tokens("a")
        assert logprobs[0].logprob is not None
        without = [each.logprob is None for each in logprobs]
        assert without == sorted(without)
        replaced += any(without)
    assert replaced


def test_an_end_that_is_reached_needs_no_more_tokens(compiler: Compiler) -> None:
    """At the limit a text that matches is complete, though it could go on; and it isn't left for one that can't end."""
    for seed in range(8):
        run = harness(compiler)
        run.run(complete("a", "(ab|cde, )+", max_tokens=2, seed=seed, jump="off", temperature=2.0))
        assert finish(run, "a").reason == "stop"
        assert re.fullmatch("(ab|cde, )+", text(run, "a"))
    run = harness(compiler)
    run.run(constrained("a", "(ab)+", max_tokens=2, jump="off", seed=2))
    assert finish(run, "a").reason == "length"


# --- stop_regex ---


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["[0-9]", "a.b", "(ab)+c|d", r"[^a-e]{2}", "bc|20"]), st.integers(0, 500), st.integers(0, 4))
def test_stop_patterns(pattern: str, seed: int, min_tokens: int) -> None:
    options = {"max_tokens": 30, "seed": seed, "ignore_eos": True, "temperature": 2.0}
    free = harness(COMPILER)
    free.run(generate("a", [1, 2, 3], **options))
    run = harness(COMPILER)
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


def test_stop_patterns_beside_a_grammar_and_strings(compiler: Compiler) -> None:
    run = harness(compiler)
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


def test_a_grammar_that_the_cache_gave_up_is_not_compiled_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """More grammars at once than are kept: each is compiled once, in the compiler's threads."""
    threads: list[str] = []

    def noted(source: GrammarSource, space: TokenSpace, limits: Limits, draw: Drawer) -> Grammar:
        threads.append(threading.current_thread().name)
        return grammar_compile.build_drawn(source, space, limits, draw)

    monkeypatch.setitem(grammar_compile.BUILDERS, "regex", noted)
    run = harness(Compiler(LongestPiece(), cached=1))
    patterns = [f"{letter}(a|b)" for letter in "abcdefgh"]
    run.run(*(constrained(pattern, pattern) for pattern in patterns))
    assert all(re.fullmatch(pattern, text(run, pattern)) for pattern in patterns)
    assert len(threads) == len(patterns)
    assert threading.current_thread().name not in threads


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


def test_a_grammar_that_breaks_fails_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ever more readings of one text: that request ends with the reason, its company goes on."""
    monkeypatch.setattr(llg, "SLOW", 0.0)
    monkeypatch.setattr(llg, "PATIENCE", 0.002)
    run = harness(Compiler(LongestPiece()))
    ambiguous = constraint(ebnf='root ::= root root | root root root | "a"', jump="off")
    run.run(
        generate("a", [1, 2], max_tokens=120, min_tokens=120, constraint=ambiguous),
        constrained("b", "[a-j]{40}"),
    )
    failed = run.replies["a"][-1]
    assert isinstance(failed, Failed)
    assert "many readings" in (failed.error.hint or "")
    assert re.fullmatch("[a-j]{40}", text(run, "b"))


def late(compiler: Compiler, **options: Any) -> LateHarness:
    return LateHarness(make_worker, VOCABULARY, compiler=compiler, **options)


@settings(max_examples=60, deadline=None)
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
    ahead, plain = late(COMPILER, **size), harness(COMPILER, **size)
    ahead.run(*requests)
    plain.run(*requests)
    for request in requests:
        assert ahead.answer(request.id) == plain.answer(request.id)


def test_an_output_under_a_grammar_has_a_row_in_every_step(compiler: Compiler) -> None:
    requests = [
        constrained("a", "[ab]{20}", "off", seed=1, max_tokens=20),
        generate("b", [1, 2], max_tokens=20, ignore_eos=True),
    ]
    compiler.compile(GrammarSource(kind="regex", text="[ab]{20}"))  # else the other runs alone until it is there
    ahead = late(compiler)
    ahead.run(*requests)
    assert len(ahead.tokens("a")) >= 10
    assert len(ahead.worker.steps) <= 22


def test_all_that_a_request_has_compiled_has_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its patterns would be in time."""
    compile_stop = grammar_compile.build_stop

    def slowly(source: GrammarSource, limits: Limits, draw: Drawer) -> Any:
        if source.text.startswith("slow"):
            time.sleep(0.3)
        return compile_stop(source, limits, draw)

    monkeypatch.setattr(grammar_compile, "build_stop", slowly)
    run = harness(Compiler(LongestPiece(), limits=Limits(seconds=0.5)))
    patterns = tuple(f"slow{letter}" for letter in "abcdefgh")
    started = time.monotonic()
    run.run(
        generate("many", [1], max_tokens=4, stop_regex=patterns), generate("b", [1], max_tokens=4, stop_regex=("j",))
    )
    assert time.monotonic() - started < 2
    failed = run.replies["many"][-1]
    assert isinstance(failed, Failed)
    assert "8 patterns and grammars of the request take longer than 0.5 seconds" in failed.error.message
    assert failed.error.param == "stop_regex"
    assert finish(run, "b") is not None
    run.run(generate("c", [1], max_tokens=4, stop_regex=("slow",)))
    assert finish(run, "c") is not None


def test_a_core_that_is_closed_gives_up_what_is_compiled_for_it() -> None:
    compiler = Compiler(LongestPiece())
    run = harness(compiler)
    run.core.submit(generate("slow", [1], max_tokens=4, constraint=constraint(regex="(a|b)*a(a|b){12}")))
    (pending,) = compiler._pending.values()
    assert pending.wanted
    run.core.close()
    assert not pending.wanted
    with pytest.raises(RuntimeError, match="shutdown"):
        compiler.submit(GrammarSource(kind="regex", text="a|b"))
