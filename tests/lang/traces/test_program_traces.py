"""Traces: each call with its time and tokens, saved and read, replayed without a model, drawn."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palmette as sgl
from palmette import agent, assistant, function, gen, select, system, tool, user, when
from palmette.lang.traces.replay import Replay
from palmette.lang.traces.timeline import timeline_html, timeline_svg
from palmette.lang.traces.trace import Trace, TracedCall
from palmette.runtime.errors import InvalidRequest


@function
def everything(s, topic="palms", wait=0.0):
    s += system("Be brief.") + user("Tell me of " + topic)
    s += assistant(gen("first", max_tokens=6))
    time.sleep(wait)
    s += user("More.")
    with s.assistant():
        forks = s.fork(2)
        forks += lambda index: f"{index}. " + gen("idea", max_tokens=5, n=2)
        forks.join("concate_and_append")
        s += " So " + select("best", choices=["this", "that"]) + " " + gen("number", type=int)
    s["text"] = s.text()


def values(state: sgl.ProgramState) -> tuple[Any, ...]:
    return state.text(), state.messages(), state["first"], state["best"], state["number"], state.usage()


def test_each_call_with_its_time_and_tokens(engine: sgl.Engine) -> None:
    state = everything.run(seed=1, backend=engine)
    trace = state.trace()
    calls = [(call.kind, call.name, call.state) for call in trace if call.kind != "text"]
    assert calls[0] == ("gen", "first", "")
    assert ("fork", "", "") in calls
    assert {state for kind, name, state in calls if name == "idea"} == {"1.0/", "1.0/1.0/", "1.1/", "1.1/1.0/"}
    assert calls[-2:] == [("select", "best", ""), ("gen", "number", "")]
    first = trace[0] if trace[0].kind == "gen" else next(call for call in trace if call.kind == "gen")
    assert re.match(r".*test_program_traces\.py:\d+ in everything", first.where)
    assert first.text == state["first"]
    assert first.appended.endswith("assistant\n") or "palms" in first.appended
    usage = state.get_meta_info("first")
    assert first.usage.computed_tokens == usage["computed_tokens"]
    assert 0.0 <= first.start <= first.first <= first.end <= trace.seconds
    appended = "".join(call.appended + call.text for call in trace if not call.state and call.kind != "select")
    assert "palms" in appended


def test_a_trace_is_read_as_it_was_saved_and_replayed(engine: sgl.Engine, tmp_path: Path) -> None:
    state = everything.run(seed=2, backend=engine)
    path = tmp_path / "trace.jsonl"
    state.trace().save(path)
    trace = Trace.load(path)
    assert list(trace) == list(state.trace())
    for slow in (0.0, 0.02):  # another timing, and other messages
        again = everything.run(wait=slow, backend=Replay(trace))
        assert values(again) == values(state)
    with pytest.raises(sgl.ProgramError, match=r"differs from its trace.*'Tell me of figs'"):
        everything.run("figs", backend=Replay(trace)).text()


@function
def random_program(s, verbs):
    for index, verb in enumerate(verbs):
        if verb == "text":
            s += f"text {index}, "
        elif verb == "gen":
            s += gen(f"x{index}", max_tokens=3)
        elif verb == "turn":
            s += user(f"turn {index}") + assistant(gen(f"x{index}", max_tokens=2))
        elif verb == "select":
            s += select(f"x{index}", choices=["a", "b"])
        elif verb == "n":
            s += gen(f"x{index}", max_tokens=2, n=2)
        elif verb == "fork":
            forks = s.fork(2)
            forks += lambda fork, index=index: f"fork {fork} " + gen(f"x{index}", max_tokens=2)
            forks.join("concate_and_append" if index % 2 else "gather_variable")
        else:
            s.text()


@given(verbs=st.lists(st.sampled_from(["text", "gen", "turn", "select", "n", "fork", "sync"]), max_size=7))
def test_any_program_is_replayed_as_it_was(verbs: list[str]) -> None:
    backend = sgl.ScriptedBackend(lambda prompt: f"[{len(prompt)}]")
    state = random_program(verbs, backend=backend)
    again = random_program(verbs, backend=Replay(state.trace()))
    assert again.text() == state.text()
    assert again.messages() == state.messages()
    assert all(again[name] == state[name] for name in state.variables())


@tool
def now(zone: str) -> dict[str, str]:
    """The time."""
    ran.append(zone)
    return {"time": f"{time.monotonic()} {zone}"}


ran: list[str] = []


@pytest.mark.parametrize("mode", ["calls", "react"])
def test_an_agent_is_replayed_without_model_and_tools(engine: sgl.Engine, tmp_path: Path, mode: Any) -> None:
    clock = agent([now], mode=mode, steps=2, least_calls=1, step_tokens=60, answer_tokens=80, thought_tokens=16)
    result = clock.run("What time is it?", seed=5, backend=engine)
    result.trace().save(tmp_path / "t")
    count = len(ran)
    again = clock.replay(Trace.load(tmp_path / "t"))
    assert len(ran) == count >= 1, "no tool ran"
    assert (again.answer, again.ended, again.usage) == (result.answer, result.ended, result.usage)
    assert [[each.text for each in step.results] for step in again.steps] == [
        [each.text for each in step.results] for step in result.steps
    ]
    tools = [call for call in result.trace() if call.kind == "tool"]
    assert [call.value for call in tools] == [each.value for step in result.steps for each in step.results]
    other = agent([now], mode=mode, instructions="Otherwise.", least_calls=1)
    assert "differs from its trace" in str(other.replay(result.trace()).error)


def test_a_failed_call_is_in_the_trace() -> None:
    def broken(prompt: str) -> str:
        raise ValueError("no model")

    run = function(lambda s: s.__iadd__("Hello" + gen("x"))).run(backend=sgl.ScriptedBackend(broken))
    assert run.error() is not None
    [call] = run.trace()
    assert (call.kind, call.name, call.failed) == ("gen", "x", True)
    assert "no model" in call.error


def test_what_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "no"
    with pytest.raises(InvalidRequest, match="can't be read"):
        Trace.load(path)
    path.write_text("{}\n")
    with pytest.raises(InvalidRequest, match="line 1"):
        Trace.load(path)
    path.write_text('{"palmette_trace":1,"about":{}}\n{"kind":"gen"}\n{"kind":"what"}\n')
    with pytest.raises(InvalidRequest, match="line 3"):
        Trace.load(path)
    path.write_text('{"palmette_trace":9,"about":{}}\n')
    with pytest.raises(InvalidRequest, match="format 9"):
        Trace.load(path)
    with pytest.raises(InvalidRequest, match="no agent's run"):
        agent([now]).replay(Trace([]))


def test_the_pictures(engine: sgl.Engine) -> None:
    trace = everything.run(topic="<b>", seed=3, backend=engine).trace()
    svg = timeline_svg(trace, "a & b")
    root = ET.fromstring(svg)
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title.startswith("gen idea") for title in titles) >= 4
    assert any("prompt tokens reused" in title for title in titles)
    page = timeline_html(trace)
    assert page.count("<tr>") == len(trace) + 1
    assert "&lt;b&gt;" in page
    assert ET.fromstring(timeline_svg(Trace([]))) is not None


def test_tools_side_by_side_have_rows_of_their_own() -> None:
    calls = [TracedCall(kind="tool", name=str(index), start=0.0, first=1.0, end=1.0) for index in range(2)]
    assert timeline_svg(Trace(calls)).count("program tools") == 2
    both = Trace([*calls, TracedCall(kind="tool", start=2.0, first=3.0, end=3.0)])
    assert both.seconds_in("tool") == 2.0
    assert both.seconds == 3.0


def by_state(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    """The calls of each state in order. Which turns went alone is a matter of timing, so texts are left out."""
    states: dict[str, list[tuple[Any, ...]]] = {}
    for call in trace:
        if call.kind != "text":
            told = (call.kind, call.name, call.where, call.text, call.tokens, call.error)
            states.setdefault(call.state, []).append(told)
    return states


@function
def deciding(s, wanted):
    s += "Say " + select("word", choices=["yes", "no"])
    s.call("again", lambda word: f"{word} again", s["word"])
    s += when(s["word"] == wanted, " so " + gen("then", max_tokens=3), " or " + gen("else", max_tokens=4))
    s += " and " + s["again"] + gen("last", max_tokens=3)


def test_a_compiled_program_leaves_the_same_trace(engine: sgl.Engine) -> None:
    for program, arguments in ((everything, ()), (deciding, ("yes",)), (deciding, ("maybe",))):
        plain = program.run(*arguments, seed=3, backend=engine)
        compiled = program.compile().run(*arguments, seed=3, backend=engine)
        trace = compiled.trace()
        assert by_state(trace) == by_state(plain.trace())
        assert all(0.0 <= call.start <= call.first <= call.end <= trace.seconds for call in trace)
        for state in by_state(trace):  # a state's outputs come one behind the other
            ends = [call.end for call in trace if call.state == state]
            assert ends == sorted(ends)
        again = program.run(*arguments, backend=Replay(trace))
        assert (again.text(), again.usage()) == (compiled.text(), compiled.usage())


def test_a_compiled_program_that_fails_has_its_failed_call_in_the_trace(engine: sgl.Engine) -> None:
    @function
    def program(s):
        s += "a" + gen("x", max_tokens=3)
        s += "b" + gen("y", regex="(", max_tokens=3)

    for each in (program, program.compile()):
        state = each.run(seed=1, backend=engine)
        assert state.error() is not None
        assert [(call.name, call.failed) for call in state.trace() if call.kind == "gen"] == [("x", False), ("y", True)]
