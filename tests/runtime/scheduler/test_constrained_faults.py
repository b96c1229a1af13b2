"""Grammars that break, or take their time: their request fails alone, and nobody waits for another's."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from constrained_harness import (
    VOCABULARY,
    LongestPiece,
    complete,
    constrained,
    finish,
    harness,
    make_worker,
    text,
)
from engine_harness import Harness, generate

from palmette.runtime.grammar import compile as grammar_compile
from palmette.runtime.grammar.compile import Compiler
from palmette.runtime.grammar.compiling.drawing import Drawer
from palmette.runtime.grammar.llg import matcher as llg
from palmette.runtime.grammar.protocol import Grammar, GrammarSource, Limits, Matcher, TokenSpace
from palmette.runtime.messages.grammar import Jump, constraint
from palmette.runtime.messages.replies import Failed
from palmette.runtime.messages.requests import Abort


def test_a_bad_grammar_fails_its_request_alone() -> None:
    run = harness()
    run.run(constrained("a", "(a"), constrained("b", "(a|b)"), generate("c", [1, 2], max_tokens=2))
    failed = run.replies["a"][-1]
    assert isinstance(failed, Failed)
    assert failed.error.kind == "GrammarError"
    assert "position" in failed.error.message
    assert text(run, "b") in ("a", "b")
    assert finish(run, "c") is not None


def test_an_engine_without_a_compiler_refuses() -> None:
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


@pytest.mark.parametrize("broken", ["fill_mask", "accept", "forced", "complete", "ended", "closing", "rollback"])
@pytest.mark.parametrize("jump", ["bytes", "token", "off"])
def test_a_matcher_that_raises_fails_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, broken: str, jump: Jump
) -> None:
    """Whatever it raises in, after how many tokens; those beside it, with grammars and without, are as ever."""
    pattern = "20[a-j]{4}-[ab]{2,30}-1-3-4"
    others = [constrained("b", "[a-j]{3,6}(-[0-9]+)?", jump, seed=1), generate("c", [1, 2], max_tokens=12, seed=2)]
    alone = harness()
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
