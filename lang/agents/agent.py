"""Agents: a model that calls tools until it can answer. The loop is a program like any other, on a state of its own or
in the middle of another program's.

`agent(...)` checks what an agent is made of, `Agent` runs it; the loop is in loop.py, how a turn is written and
read in turns.py and native_turns.py. Every call that a model writes is valid, since a schema holds it; what goes
wrong in a tool is told to the model. Knows no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from palmette.lang.agents.loop import AgentLoop, RunsCalls
from palmette.lang.agents.native_turns import NativeTurns
from palmette.lang.agents.results import AgentResult, AgentStep
from palmette.lang.agents.turns import CallTurns, ReactTurns, TurnRules, Turns
from palmette.lang.compiling.tracing import TracingState
from palmette.lang.errors import Location, ProgramError, TraceError, caller, located, names_keywords
from palmette.lang.program import Program
from palmette.lang.state import ProgramState
from palmette.lang.tools.tool import Approval, Tool, ToolSet
from palmette.lang.traces.replay import Replay, ReplayedTools
from palmette.lang.traces.trace import Trace
from palmette.runtime.errors import InvalidRequest, PalmetteError

Mode = Literal["calls", "react", "native"]

MOST_STEPS = 1000
MOST_PARALLEL = 64


class Agent:
    """Made by `agent`. `run`, `arun` and `run_batch` run it on states of its own; `a(s, task)`, and `await a.acall(s,
    task)` in coroutines, within a program, where a failure is the program's."""

    def __init__(self, loop: AgentLoop) -> None:
        self.name = loop.name
        self._loop = loop
        self._program = Program(self._body, name=loop.name)
        self._aprogram = Program(self._abody, name=loop.name)

    @property
    def tools(self) -> RunsCalls:
        """Its tools, which run calls as they do while it works."""
        return self._loop.tools

    # On states of its own

    def run(self, task: str, **options: Any) -> AgentResult:
        """Work on `task`. Options are those of a program's `run`: backend, namespace, deadline, and sampling's.

        A failure is in the result: `ended` is "failed", and reading `answer` raises it.
        """
        results, where = list[AgentResult](), caller()
        try:
            self._program.run(task, results, **options)
        except PalmetteError as error:
            return self._failed(results, error, where)
        return results[0]

    async def arun(self, task: str, **options: Any) -> AgentResult:
        """`run` for coroutines."""
        results, where = list[AgentResult](), caller()
        try:
            await self._aprogram.arun(task, results, **options)
        except PalmetteError as error:
            return self._failed(results, error, where)
        return results[0]

    def run_batch(self, tasks: Sequence[str], **options: Any) -> list[AgentResult]:
        """`run` for each task, side by side; results in order. One that fails fails alone."""
        if "reorder" in options:
            raise InvalidRequest("An agent's run_batch reorders nothing.", hint="Leave it out.", param="reorder")
        results: list[list[AgentResult]] = [[] for _ in tasks]
        batch = [{"task": task, "results": each} for task, each in zip(tasks, results, strict=True)]
        where = caller()
        states = self._aprogram.run_batch(batch, **options)
        done: list[AgentResult] = []
        for state, each in zip(states, results, strict=True):
            error = state.error()
            done.append(each[0] if error is None else self._failed(each or [AgentResult(state)], error, where))
        return done

    def replay(self, trace: Trace) -> AgentResult:
        """The run that `trace` was recorded of, once more: no model, and no tool, is asked."""
        task = trace.about.get("task")
        if not isinstance(task, str):
            raise InvalidRequest("The trace is of no agent's run.", hint="Use result.trace() of Agent.run.")
        return Agent(replace(self._loop, tools=ReplayedTools(trace))).run(task, backend=Replay(trace))

    def _body(self, s: ProgramState, task: str, results: list[AgentResult]) -> None:
        results.append(AgentResult(s))
        s._interpreter.gathered.recording.about = {"agent": self.name, "task": task}
        self._loop.drive(s, task, results[0])

    async def _abody(self, s: ProgramState, task: str, results: list[AgentResult]) -> None:
        results.append(AgentResult(s))
        s._interpreter.gathered.recording.about = {"agent": self.name, "task": task}
        await self._loop.adrive(s, task, results[0])

    def _failed(self, results: list[AgentResult], error: PalmetteError, where: Location) -> AgentResult:
        """`where`: the program's line, which frames on an event loop don't lead back to."""
        if not results:
            raise error  # it never began: the backend or an option is wrong
        if isinstance(error, ProgramError):
            error = ProgramError(error.cause, where, error.node)
        else:
            error = located(error, where, self.name)
        results[0].ended, results[0].error = "failed", error
        results[0].usage = results[0].state.usage()
        return results[0]

    # Within a program

    def __call__(self, s: ProgramState, task: str) -> AgentResult:
        """Work on `task` on the program's own state, behind what it has. Raises what goes wrong."""
        _check_interpreted(s)
        result = AgentResult(s)
        self._loop.drive(s, task, result)
        return result

    async def acall(self, s: ProgramState, task: str) -> AgentResult:
        """In a coroutine program, work on `task` on its state `s`. Raises what goes wrong."""
        _check_interpreted(s)
        result = AgentResult(s)
        await self._loop.adrive(s, task, result)
        return result


@names_keywords
def agent(
    tools: ToolSet | Sequence[Tool | Callable[..., Any]],
    *,
    mode: Mode = "calls",
    instructions: str = "",
    answer: Any = str,
    steps: int = 8,
    tokens: int | None = None,
    step_tokens: int = 256,
    answer_tokens: int = 256,
    thought_tokens: int | None = None,
    parallel: int = 1,
    least_calls: int = 0,
    result_characters: int = 4000,
    approve: Approval | None = None,
    on_step: Callable[[AgentStep], object] | None = None,
    name: str = "agent",
) -> Agent:
    """An agent that works on a task with `tools`.

    `mode`: "calls", turns of a chat in each of which the model writes a call, or several at once up to `parallel`, or
    its answer, as JSON; "react", a text of thoughts, actions and observations for models without a chat template;
    "native", a chat in which calls have the model's own format, beside what the state holds.
    `answer`: the type of the answer. `steps`: turns with calls at most; `tokens`: that the model writes at most, of
    which each turn may take `thought_tokens` and `step_tokens`, the answer `answer_tokens`. Where a limit is reached it
    must answer with what it knows. `least_calls`: so many turns call a tool before there may be an answer.
    `thought_tokens`: of a thought before each call (64 in "react", none in "calls"). `result_characters`: more of a
    tool's result is cut. `approve`: asked before a call of a tool with ask=True. `on_step` sees each step.

    Raises InvalidRequest.
    """
    if isinstance(tools, ToolSet):
        if approve is not None:
            raise InvalidRequest(
                "approve was given beside a ToolSet, which has its own.",
                hint="Give it there: ToolSet(tools, approve=…).",
                param="approve",
            )
    else:
        tools = ToolSet(tools, approve=approve)
    for option, value, most in (("steps", steps, MOST_STEPS), ("parallel", parallel, MOST_PARALLEL)):
        _check_whole(option, value, 1, most)
    thinks = thought_tokens if thought_tokens is not None else (64 if mode == "react" else 0)
    for option, value in (("step_tokens", step_tokens), ("answer_tokens", answer_tokens)):
        _check_whole(option, value, 1)
    for option, value in (("thought_tokens", thinks), ("least_calls", least_calls)):
        _check_whole(option, value, 0)
    _check_whole("result_characters", result_characters, 1)
    if mode not in _MODES:
        raise InvalidRequest(f"mode={mode!r} is not one of {', '.join(_MODES)}.", param="mode")
    rules = TurnRules(
        name=name,
        instructions=instructions,
        answer=answer,
        step_tokens=step_tokens,
        answer_tokens=answer_tokens,
        thought_tokens=thinks,
        parallel=parallel,
    )
    turns = _MODES[mode](tools, rules)
    if tokens is not None:
        _check_whole("tokens", tokens, 1)
        if tokens < turns.most_tokens:
            raise InvalidRequest(
                f"tokens={tokens!r} leaves no room for a turn and the answer, which may take {turns.most_tokens}"
                f" (step_tokens={step_tokens!r}, thought_tokens={thinks!r}, answer_tokens={answer_tokens!r}).",
                hint="Give more, or lower those.",
                param="tokens",
            )
    if least_calls > steps:
        raise InvalidRequest(f"least_calls={least_calls!r} is more than steps={steps!r}.", param="least_calls")
    loop = AgentLoop(
        name=name,
        tools=tools,
        turns=turns,
        steps=steps,
        tokens=tokens,
        least_calls=least_calls,
        result_characters=result_characters,
        on_step=on_step,
    )
    return Agent(loop)


_MODES: Mapping[str, Callable[[ToolSet, TurnRules], Turns]] = {
    "calls": CallTurns,
    "react": ReactTurns,
    "native": NativeTurns,
}


def _check_interpreted(s: ProgramState) -> None:
    if isinstance(s, TracingState) and not s.tracer.over:
        raise TraceError(
            "An agent decides in Python what comes next, so a program with one can't be compiled or traced.",
            hint="Run the program as it is; compile(or_interpret=True) does, where it can't be compiled.",
        )


def _check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        limits = f"from {least} to {most}" if most is not None else f"of at least {least}"
        hint = "An agent that may not call is a gen: s += gen(…)." if name == "steps" else ""
        raise InvalidRequest(f"{name}={value!r} is not a whole number {limits}.", hint=hint, param=name)
