"""Large and slow sources are compiled by child processes: to the same grammars, within bounds, and given up with their
requests."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from grammar_patterns import WORDS, regular
from hypothesis import given, settings

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import Automata, RuleText, pack, unpack
from palmette.runtime.grammar.compile import Compiler, build
from palmette.runtime.grammar.compiling import contained
from palmette.runtime.grammar.compiling.child import Job
from palmette.runtime.grammar.compiling.compilations import Share
from palmette.runtime.grammar.compiling.contained import Contained
from palmette.runtime.grammar.compiling.drawing import QUICK_BYTES, draw
from palmette.runtime.grammar.protocol import GrammarSource, Limits, TooSlow
from palmette.runtime.grammar.tag_marks import Marks

MARKS = Marks({}, (0,))
SLOW = "(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])(?=.*[!-/])(?!.*word)(?!.*pass)(?!.*abc)[!-~]{8,400}"
LARGE = {"enum": [f"value number {number}" for number in range(2_000)]}


class Waiting:
    wanted = True

    def pause(self) -> None:
        pass

    def begin(self) -> None:
        pass


def source(kind: str, text: str) -> GrammarSource:
    return GrammarSource(kind=kind, text=text)


def job(what: GrammarSource, seconds: float = 10.0) -> Job:
    return Job(what, {}, (0,), Limits(seconds=seconds))


@pytest.fixture
def children() -> Iterator[Contained]:
    made = Contained()
    yield made
    made.close()


@given(regular)
@settings(max_examples=60)
def test_an_automaton_comes_back_as_it_was(pattern: str) -> None:
    try:
        drawn = draw(source("regex", pattern), MARKS, Limits())
    except GrammarError:
        return
    assert isinstance(drawn, Automata)
    back = unpack(pack(drawn))
    assert isinstance(back, Automata)
    for one, other in zip(drawn.automata, back.automata, strict=True):
        assert (one.after == other.after).all()
        assert (one.alphabet.step == other.alphabet.step).all()
        assert one.dfa.finals.tolist() == other.dfa.finals.tolist()
        assert (one.start, one.alphabet.intervals) == (other.start, other.alphabet.intervals)


def test_places_of_arrays_come_back_with_their_circles() -> None:
    schema = {
        "type": "object",
        "properties": {"of": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}, "in": {"$ref": "#"}},
    }
    drawn = draw(source("json_schema", json.dumps(schema)), MARKS, Limits())
    back = unpack(pack(drawn))
    assert isinstance(drawn, RuleText)
    assert isinstance(back, RuleText)
    assert back.vetted
    assert back.lark == drawn.lark
    node = back.distinct
    assert node is not None
    inner = node.names["in"]
    assert inner is not None
    assert inner.names["in"] is inner
    assert inner.names["of"] is not None
    assert inner.names["of"].unique


def test_a_child_draws_what_would_be_drawn_here(children: Contained) -> None:
    for what in (source("json_schema", json.dumps(LARGE)), source("regex", r"\w{2,5}"), source("ebnf", 'root ::= "a"')):
        here, there = draw(what, MARKS, Limits()), children.draw(job(what), Waiting())
        assert pack(here) == pack(there)
    with pytest.raises(GrammarError, match="position 1") as raised:
        children.draw(job(source("regex", "a(")), Waiting())
    assert raised.value.param == "regex"


def test_what_takes_too_long_is_ended_with_its_process(children: Contained) -> None:
    children._give_back(first := contained._Child())
    with pytest.raises(GrammarError, match=r"longer than 0\.3 seconds"):
        children.draw(job(source("regex", SLOW), 0.3), Waiting())
    with pytest.raises(ProcessLookupError):
        os.kill(first.pid, 0)
    assert children.draw(job(source("regex", "a|b")), Waiting())


def test_a_child_that_needs_too_much_memory_says_so(monkeypatch: pytest.MonkeyPatch, children: Contained) -> None:
    monkeypatch.setattr(contained, "MEMORY_BYTES", 20 << 20)
    with pytest.raises(GrammarError, match=r"more than 20 MiB|the process that did it ended"):
        children.draw(job(source("json_schema", json.dumps({"enum": list(range(200_000))}))), Waiting())


def test_a_child_that_dies_fails_its_source_alone(children: Contained) -> None:
    children._give_back(child := contained._Child())
    killer = threading.Timer(0.4, lambda: os.kill(child.pid, signal.SIGKILL))
    killer.start()
    children.draw(job(source("regex", "[a-z]{3}"), 5.0), Waiting())
    killer.join()
    assert children.draw(job(source("regex", "a|b")), Waiting())  # by another


def test_idle_children_end_and_leave_nothing_behind() -> None:
    children = Contained(idle_seconds=0.5)
    draws = [lambda: children.draw(job(source("regex", "a|b")), Waiting())] * 2
    threads = [threading.Thread(target=each) for each in draws]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    idle = list(children._idle)
    assert idle
    os.kill(idle[0].pid, signal.SIGKILL)  # ended by somebody else
    until = time.monotonic() + 20
    while any(child._process.returncode is None for child in idle) and time.monotonic() < until:
        time.sleep(0.05)  # nobody asks for them: only who waited for them knows
    assert not children._idle
    for child in idle:
        with pytest.raises(ChildProcessError):  # nobody is left to be waited for
            os.waitpid(child.pid, os.WNOHANG)
    assert children.draw(job(source("regex", "a|b")), Waiting())
    children.close()
    assert not children._idle


def test_a_child_that_doesnt_read_is_ended_in_time(children: Contained) -> None:
    """The job is larger than a pipe holds."""
    child = contained._Child()
    child.started(Waiting())
    os.kill(child.pid, signal.SIGSTOP)
    children._give_back(child)
    begun = time.monotonic()
    with pytest.raises(GrammarError, match=r"longer than 0\.3 seconds"):
        children.draw(job(source("regex", "a" * 300_000), 0.3), Waiting())
    assert time.monotonic() - begun < 10


def test_the_start_of_a_child_is_not_its_jobs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than the job may."""
    monkeypatch.setattr(contained, "_PROGRAM", "import time; time.sleep(1.5); " + contained._PROGRAM)
    compiler = Compiler(WORDS, limits=Limits(seconds=1.0))
    pending = compiler.submit(source("choices", json.dumps(["a" * QUICK_BYTES, "b"])), Share())
    until = time.monotonic() + 30
    while not pending.ready and time.monotonic() < until:
        time.sleep(0.05)
    assert pending.result().accepts("b")
    compiler.close()


def test_a_quick_try_leaves_what_is_large_or_slow() -> None:
    quick = Limits(quick=True, seconds=0.02)
    repeats = source("ebnf", 'root ::= x{1,100}\nx ::= ("a" | "]("){300}{10} | "b"')
    for what in (source("choices", json.dumps(["a" * QUICK_BYTES])), source("regex", SLOW), repeats):
        begun = time.thread_time()
        with pytest.raises(TooSlow):
            draw(what, MARKS, quick)
        assert time.thread_time() - begun < 1


def test_submitted_sources_go_to_children_where_they_must() -> None:
    compiler = Compiler(WORDS)
    large, small = source("json_schema", json.dumps(LARGE)), source("regex", "a|b")
    pending = compiler.submit(large)
    assert compiler.submit(small).result().accepts("a")
    grammar = pending.result()
    assert grammar.accepts('"value number 17"')
    assert compiler.cached(large) is grammar
    assert pending.seconds == pending.seconds  # it doesn't go on to count
    assert compiler._children._idle
    compiler.close()


def test_what_nobody_waits_for_is_given_up() -> None:
    compiler = Compiler(WORDS)
    slow = compiler.submit(source("regex", SLOW))
    assert compiler.submit(source("regex", SLOW)) is slow
    slow.leave()
    until = time.monotonic() + 20
    while slow.seconds < 0.2 and time.monotonic() < until:
        time.sleep(0.01)
    assert slow.wanted
    slow.leave()
    assert not slow.wanted
    while not slow.ready and time.monotonic() < until:
        time.sleep(0.01)
    assert slow.seconds < 5
    compiler.close()


def test_a_request_that_has_used_its_share_isnt_tried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(WORDS)
    share = Share(0.0)
    assert compiler.submit(source("regex", "a|b"), share).result().accepts("b")
    assert compiler._children._idle
    compiler.close()


def test_the_cache_is_bounded_by_bytes() -> None:
    compiler = Compiler(WORDS, cached_bytes=100_000)
    for number in range(20):
        compiler.compile(source("json_schema", json.dumps({"enum": [f"{number}-{each}" for each in range(50)]})))
    assert len(compiler._cache) < 20
    last = source("json_schema", json.dumps({"enum": [f"19-{each}" for each in range(50)]}))
    assert compiler.cached(last) is not None
    compiler.close()


def test_rules_are_refused_in_our_words() -> None:
    many = "start: " + " | ".join(f'"word{number}" rest' for number in range(20_000)) + '\nrest: "x"'
    with pytest.raises(GrammarError, match="more than 10,000 ways to go on at one place") as raised:
        build(source("lark", many), WORDS, Limits())
    assert raised.value.param == "lark"
    assert raised.value.hint
    with pytest.raises(GrammarError, match=r"line 2, column 4: a pattern that can't be read: unclosed group"):
        build(source("lark", "start: X\nX: /(/"), WORDS, Limits())
    with pytest.raises(GrammarError, match="patterns that take too many steps"):
        build(source("lark", "start: X\nX: /.*a.{200}/ & /.*b.{200}/ & ~/.*c.{100}/"), WORDS, Limits())
