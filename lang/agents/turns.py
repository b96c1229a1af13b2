"""How an agent's turns are written and read: as JSON in a chat (CallTurns), or as thoughts and actions in a text
(ReactTurns). What the model writes is held to a grammar, so it can always be read.

Used by lang/agents/agent.py, which runs the calls; waits for nothing itself: `write` yields the names of variables
whose values it needs.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from palmette.lang.primitives import assistant_begin, assistant_end, gen, system, user
from palmette.lang.tools.tool import Tool, ToolCall, ToolSet
from palmette.lang.types import OutputType, from_schema, output_type
from palmette.runtime.errors import InvalidRequest

FINAL = "final_answer"


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model did: calls, or an answer where `answered`. `problem`: why there is neither, told to the model."""

    thought: str = ""
    calls: Sequence[ToolCall] = ()
    answered: bool = False
    answer: Any = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRules:
    """How an agent's turns are to be. `name`: of the agent; `answer`: the type of its answer; `parallel`: calls of one
    turn at most; tokens that a call, the answer, and a thought before either may take."""

    name: str
    instructions: str
    answer: Any
    step_tokens: int
    answer_tokens: int
    thought_tokens: int
    parallel: int


Writing = Generator[str, Any, Turn]
"""Yields names of variables, is sent their values, returns the turn."""


class Turns(Protocol):
    """`most_tokens`: what a turn and the answer behind it write together at most."""

    most_tokens: int

    def begin(self, s: Any, task: str) -> None:
        """Append the instructions, unless `s` has them from an earlier task, and the task."""
        ...

    def write(self, s: Any, name: str, *, last: bool, must_call: bool) -> Writing:
        """The model's next turn. `last`: it must be the answer; `must_call`: it must not."""
        ...

    def tell(self, s: Any, turn: Turn, results: Sequence[str]) -> None:
        """Append what came of the turn's calls, or what was wrong with it."""
        ...


@dataclass(frozen=True, slots=True)
class _Malformed:
    """An output that is no turn: cut off by max_tokens, or by a backend that holds to no grammar."""

    text: str
    problem: str


class CallTurns:
    """Each turn of the assistant is JSON: a call, a list of them where several may run at once, or the final answer,
    which has the form of a call too. Results are turns of the user."""

    def __init__(self, tools: ToolSet, rules: TurnRules) -> None:
        if FINAL in [each.name for each in tools]:
            raise InvalidRequest(f"A tool is named {FINAL!r}, as the answer is.", hint="Give it another name.")
        self._tools = tools
        self._rules = rules
        self._final = _final_tool(rules.answer)
        self._begun = f"{rules.name}.begun"
        self.most_tokens = rules.thought_tokens + rules.step_tokens + rules.answer_tokens

    def begin(self, s: Any, task: str) -> None:
        if self._begun not in s:
            s += system(self._prompt())
            s[self._begun] = True
        s += user(task)

    def _prompt(self) -> str:
        call = '{"name": …, "arguments": {…}}'
        several = (
            f" or up to {self._rules.parallel} at once, as a list [{call}, …]," if self._rules.parallel > 1 else ""
        )
        think = "Write a short thought on one line, and then" if self._rules.thought_tokens else "Write"
        return "\n\n".join(
            [
                *([self._rules.instructions] if self._rules.instructions else []),
                f"You work with tools. Each line describes one as JSON:\n{described(self._tools)}",
                f"{think} a call as JSON, {call},{several} and you are told what it returned. When you know the answer,"
                f' write {{"name": "{FINAL}", "arguments": {{"answer": …}}}}.',
            ]
        )

    def write(self, s: Any, name: str, *, last: bool, must_call: bool) -> Writing:
        thought = ""
        s += assistant_begin()
        if self._rules.thought_tokens and not last:
            s += gen(f"{name}.thought", max_tokens=self._rules.thought_tokens, stop="\n") + "\n"
        most = self._rules.answer_tokens if last else self._rules.step_tokens
        s += gen(name, type=self._form(last=last, must_call=must_call), max_tokens=most)
        s += assistant_end()
        if self._rules.thought_tokens and not last:
            thought = (yield f"{name}.thought").strip()
        return self._read((yield name), thought)

    def _form(self, *, last: bool, must_call: bool) -> OutputType:
        if last:
            return self._final_form
        return self._call_form if must_call else self._any_form

    @functools.cached_property
    def _final_form(self) -> OutputType:
        return _form(ToolSet([self._final]))

    @functools.cached_property
    def _call_form(self) -> OutputType:
        return _form(self._tools, parallel=self._rules.parallel)

    @functools.cached_property
    def _any_form(self) -> OutputType:
        return _form(self._tools, final=self._final, parallel=self._rules.parallel)

    def _read(self, written: list[ToolCall] | _Malformed, thought: str) -> Turn:
        if isinstance(written, _Malformed):
            return Turn(thought, problem=f"that is no call ({written.problem}); write one, whole.")
        for call in written:
            if call.name != FINAL:
                continue
            try:
                return Turn(thought, answered=True, answer=self._final.bound(call.arguments)["answer"])
            except ValueError as error:
                return Turn(thought, problem=f"the answer is wrong: {error}.")
        return Turn(thought, written)

    def tell(self, s: Any, turn: Turn, results: Sequence[str]) -> None:
        if turn.problem:
            s += user(f"Error: {turn.problem}")
        elif len(results) == 1:
            s += user(f"Result of {turn.calls[0].name}:\n{results[0]}")
        else:
            shown = [f"Result of {call}:\n{text}" for call, text in zip(turn.calls, results, strict=True)]
            s += user("\n\n".join(shown))


class ReactTurns:
    """A text: Question, then Thought, Action and Observation again and again, then Answer."""

    def __init__(self, tools: ToolSet, rules: TurnRules) -> None:
        if rules.thought_tokens < 8:
            raise InvalidRequest(
                f"thought_tokens={rules.thought_tokens!r}: mode 'react' needs 8 or more, since it decides in thoughts.",
                hint="Use mode='calls' for an agent without thoughts.",
                param="thought_tokens",
            )
        self._tools = tools
        self._rules = rules
        self._answer = None if rules.answer is str else output_type(rules.answer)
        self._begun = f"{rules.name}.begun"
        self._form = _form(tools, parallel=rules.parallel)
        self.most_tokens = rules.thought_tokens + rules.step_tokens + 2 * rules.answer_tokens

    def begin(self, s: Any, task: str) -> None:
        if self._begun not in s:
            s += self._prompt()
            s[self._begun] = True
        s += f"\nQuestion: {task}\n"

    def _prompt(self) -> str:
        """In prose: small models copy a form that is shown to them with words in its places."""
        tail = f"\n{self._rules.instructions}\n" if self._rules.instructions else ""
        return (
            f"Questions are answered with tools. Each line describes one as JSON:\n{described(self._tools)}\n\n"
            "Each Question is followed by a Thought, and that by an Action, which is a call as JSON with name and"
            " arguments, and by its Observation, which is what the tool returned. So it goes on, until a Thought says"
            f" what the answer is; then comes the Answer, on one line.\n{tail}"
        )

    def write(self, s: Any, name: str, *, last: bool, must_call: bool) -> Writing:
        """A thought that ends with the decision; then the call, or the answer."""
        thought = ""
        if not last:
            ways = "Action" if must_call else "(Action|Answer)"
            pattern = rf" [^ \n][^\n]*\n{ways}:"
            s += "Thought:" + gen(
                f"{name}.thought", regex=pattern, complete=True, max_tokens=self._rules.thought_tokens
            )
            written: str = yield f"{name}.thought"
            thought, _, way = written.strip().rpartition("\n")
            if way not in ("Action:", "Answer:"):  # cut off, or held to no grammar
                thought, way = written.strip(), "Action:"
                s += "\nAction:"
            last = way == "Answer:" and not must_call
        else:
            s += "Answer:"
        if last:
            s += gen(f"{name}.answer", type=self._answer, max_tokens=self._rules.answer_tokens, stop="\n") + "\n"
            answer = yield f"{name}.answer"
            return Turn(thought, answered=True, answer=answer.strip() if isinstance(answer, str) else answer)
        s += " " + gen(name, type=self._form, max_tokens=self._rules.step_tokens) + "\n"
        calls: list[ToolCall] | _Malformed = yield name
        if isinstance(calls, _Malformed):
            return Turn(thought, problem=f"that is no call ({calls.problem}); write one, whole.")
        return Turn(thought, calls)

    def tell(self, s: Any, turn: Turn, results: Sequence[str]) -> None:
        if turn.problem:
            s += f"Observation: Error: {turn.problem}\n"
        for text in results:
            s += f"Observation: {text.strip()}\n"


def described(tools: ToolSet) -> str:
    """Each tool on a line, as JSON."""
    functions = [each.schema["function"] for each in tools]
    return "\n".join(msgspec.json.encode(function).decode() for function in functions)


def _final_tool(answer: Any) -> Tool:
    """The answer as a tool, so that it has a schema and is checked like a call's arguments."""

    def final(answer: Any) -> None: ...

    final.__annotations__ = {"answer": answer}
    return Tool(final, name=FINAL, description="Gives the answer and ends the work.")


def _form(tools: ToolSet, *, final: Tool | None = None, parallel: int = 1) -> OutputType:
    """A call of `tools` (a list of up to `parallel` of them, where that is more than one), or of `final`.

    Its value is the list of calls, or _Malformed; it never raises, so that a state outlives what a model writes.
    """
    if parallel == 1:
        schema, definitions = ToolSet([*tools, *([final] if final else [])]).call_schema()
    else:
        one, definitions = tools.call_schema()
        schema = {"type": "array", "items": one, "minItems": 1, "maxItems": parallel}
        if final is not None:
            ending, more = ToolSet([final]).call_schema()
            schema, definitions = {"anyOf": [schema, ending]}, definitions | more
    written = from_schema({**schema, "$defs": definitions} if definitions else schema)
    return OutputType("tool call", _calls, written.constraint)


_one = msgspec.json.Decoder(ToolCall)
_several = msgspec.json.Decoder(list[ToolCall])


def _calls(text: str) -> list[ToolCall] | _Malformed:
    try:
        return _several.decode(text) if text.lstrip().startswith("[") else [_one.decode(text)]
    except ValueError as error:
        return _Malformed(text, str(error))
