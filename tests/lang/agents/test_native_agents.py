"""Agents whose calls have the model's own format, in process: run, kept in the cache while tools run, stopped, traced
and replayed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from lang_helpers import line_of, until

import palmette as sgl
from palmette import agent, function, gen, tool
from palmette.lang.traces.trace import Trace
from palmette.runtime.errors import EngineDied
from palmette.runtime.messages.hints import Hint
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.tokens import count
from palmette.runtime.messages.tool_chats import AskTurn, SaidCall, ToldTurn

ran: list[bool] = []


@tool
def lamp(on: bool) -> str:
    """Switches the lamp."""
    ran.append(on)
    return f"it is {'on' if on else 'off'}"


helper = agent(
    [lamp], mode="native", steps=2, least_calls=1, step_tokens=80, answer_tokens=12, instructions="You know lamps."
)


def test_an_agent_in_the_models_own_format_runs_in_process(engine: sgl.Engine) -> None:
    alone = helper.run("Light!", seed=1, backend=engine)
    several = helper.run_batch(["Light!", "Dark!"], temperature=0, backend=engine)
    awaited = asyncio.run(helper.arun("Light!", seed=1, backend=engine))
    for result in (alone, *several, awaited):
        assert result.error is None
        [each] = result.steps[0].results
        assert each.text.startswith("it is o"), "its arguments follow the schema"
        assert isinstance(result.answer, str)
        assert result.usage.calls == len(result.steps) + 1
    assert awaited.answer == alone.answer
    assert alone.usage.cached_tokens > 0


def test_its_conversation_stays_cached_while_a_tool_runs(engine: sgl.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    hints: list[Hint] = []
    monkeypatch.setattr(engine.frontend, "hint", hints.append)

    @tool(timeout=7)
    def slow(x: int) -> int:
        """Takes its time."""
        until(lambda: bool(hints))
        return x

    result = agent([slow], mode="native", steps=1, least_calls=1, step_tokens=60, answer_tokens=4).run(
        "Go", temperature=0, backend=engine
    )
    assert result.error is None
    begun, over = hints
    assert (begun.pin_seconds, begun.tool_wait_seconds) == (12.0, 7.0)
    assert over.pin_seconds == 0.0
    assert over.tokens == begun.tokens
    first = result.trace()[0].usage
    assert count(begun.tokens) > first.prompt_tokens, "the model's own call is a part of it"


def test_its_trace_is_saved_and_replayed_without_model_and_tools(engine: sgl.Engine, tmp_path: Path) -> None:
    result = helper.run("Light!", seed=5, backend=engine)
    assert [call.kind for call in result.trace()][:3] == ["gen", "tool", "gen"]
    result.trace().save(tmp_path / "t")
    trace, count = Trace.load(tmp_path / "t"), len(ran)
    assert list(trace) == list(result.trace())
    again = helper.replay(trace)
    assert len(ran) == count, "no tool ran"
    assert (again.answer, again.ended, again.usage) == (result.answer, result.ended, result.usage)
    assert again.calls == result.calls
    other = agent([lamp], mode="native", steps=2, least_calls=1, instructions="Otherwise.")
    assert "the conversation has system 'Otherwise.', the trace system 'You know" in str(other.replay(trace).error)
    assert trace[0].appended.startswith("system: You know lamps.\nuser: Light!\n")
    assert "lamp(" in trace[0].text
    cut = Trace(trace[:2], trace.about)
    assert "asks for another turn of the conversation, where the trace ends" in str(helper.replay(cut).error)


def test_forks_have_conversations_of_their_own(engine: sgl.Engine) -> None:
    @function
    def program(s, tasks):
        s += "Tasks:"
        forks = s.fork(len(tasks))
        s["answers"] = [helper(fork, task).answer for fork, task in zip(forks, tasks, strict=True)]
        forks.join()

    state = program.run(["Light!", "Dark!"], seed=2, backend=engine)
    trace = state.trace()
    assert {call.state for call in trace if call.asked} == {"1.0/", "1.1/"}
    again = program.run(["Light!", "Dark!"], backend=sgl.Replay(trace))
    assert again["answers"] == state["answers"], "its tools run again, as they are the program's"


def test_a_failure_names_the_programs_line(engine: sgl.Engine) -> None:
    def program(s):
        s["answer"] = helper(s, "Light!").answer  # here

    said = str(function(program).run(stream=True, backend=sgl.ScriptedBackend([])).error())
    assert f"test_native_agents.py:{line_of(program, 'here')} in program" in said
    assert "mode='native': the backend 'scripted' has no chat with tools" in said
    result = helper.run("x" * 60_000, backend=engine)
    assert result.ended == "failed"
    assert "test_native_agents.py" in str(result.error)
    assert "context" in str(result.error)


class _Slow:
    """A chat that never answers, or whose server is lost at first."""

    name = "slow"

    def __init__(self, losses: int = 0) -> None:
        self.losses = losses
        self.opened = 0
        self.stopped = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return sgl.ScriptedBackend([]).loop

    async def open(self, *, namespace: str = "") -> Any:
        raise AssertionError("nothing is written to the branch")

    async def flush_cache(self) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to release."""

    def open_tool_chat(self, *, namespace: str = "", state: str = "") -> _Slow:
        self.opened += 1
        return self

    async def hint(self, hint: Any) -> None:
        """There is no cache."""

    async def ask(self, turn: AskTurn) -> ToldTurn:
        if self.opened <= self.losses:
            raise EngineDied("gone")
        if self.losses:
            calls = (SaidCall(id="1", name="lamp", arguments='{"on":true}'),) if turn.choice == "required" else ()
            return ToldTurn(text="" if calls else "lit", calls=calls, usage=Usage(completion_tokens=1))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.stopped = True
            raise
        raise AssertionError


def test_a_deadline_stops_the_turn_that_runs() -> None:
    backend, start = _Slow(), time.monotonic()
    result = helper.run("Light!", deadline=0.1, backend=backend)
    assert "deadline of 0.1 s" in str(result.error)
    until(lambda: backend.stopped)
    timed = helper.run("Light!", timeout=0.1, backend=_Slow())
    assert "0.1 s have passed" in str(timed.error)
    assert time.monotonic() - start < 10


def test_a_lost_server_is_asked_once_more() -> None:
    assert helper.run("Light!", backend=_Slow(losses=1)).answer == "lit"
    assert "gone" in str(helper.run("Light!", backend=_Slow(losses=2)).error)


def test_what_follows_in_a_program_is_the_states_own(engine: sgl.Engine) -> None:
    @function
    def program(s):
        s += "Before. "
        found = helper(s, "Light!")
        s += "The answer was " + found.answer + ". So" + gen("so", max_tokens=4)

    state = program.run(seed=1, backend=engine)
    assert state.text().startswith("Before. The answer was ")
