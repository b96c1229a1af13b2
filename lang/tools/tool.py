"""Tools: typed Python functions that a model may call. What they are told to the model as, and how calls are run.

`@tool` makes one of a function; a ToolSet runs calls side by side, each to a result: what goes wrong in a tool is told
to the model, never raised. `gen(type=tools.call)` is a call that is sure to be of one of the tools. Knows nothing of
states or backends.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import inspect
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import msgspec

from palmette.lang.arrival import Arrival
from palmette.lang.errors import caller
from palmette.lang.loop import language_loop, run_on
from palmette.lang.sampling import check_seconds
from palmette.lang.tools.docstrings import described
from palmette.lang.tools.schemas import hoisted, signature_of
from palmette.lang.types import OutputType, from_schema
from palmette.runtime.errors import InvalidRequest

TIMEOUT = 60.0
"""Seconds that a tool may take where nothing says otherwise."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asks for. `arguments`: by name, or JSON text as the model wrote it."""

    name: str
    arguments: Mapping[str, Any] | str

    def __str__(self) -> str:
        shown = self.arguments if isinstance(self.arguments, str) else _as_text(self.arguments)
        return f"{self.name}({shown})"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call. `text` is what the model is told; `value` what the function returned.

    `failed`: it raised, took too long, was not allowed, or can't be called like that; then `text` says so.
    """

    call: ToolCall
    text: str
    value: Any = None
    failed: bool = False
    seconds: float = 0.0


class Tool:
    """A function and what a model has to know of it: `name`, `description`, the JSON schema `parameters`.

    Called as the function that it is. `timeout` in seconds; `ask`: each call needs the approval of the tool set.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float = TIMEOUT,
        ask: bool = False,
    ) -> None:
        check_seconds("timeout", timeout)
        if not callable(func):
            raise InvalidRequest(f"A tool is made of a function, not of {func!r}.", param="func")
        summary, of_parameters = described(func.__doc__ or "")
        self.func = func
        self.name = name or func.__name__
        self.description = description if description is not None else summary
        self.timeout = timeout
        self.ask = ask
        self.parameters, self._decode = signature_of(func, self.name, of_parameters)
        functools.update_wrapper(self, func)
        if not self.description and description is None:
            _warn_undescribed(self.name)

    @classmethod
    def of_schema(
        cls,
        func: Callable[..., Any],
        *,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        timeout: float = TIMEOUT,
        ask: bool = False,
    ) -> Tool:
        """A tool that somebody else describes (MCP): `func` is called with the arguments by name, as they came."""
        check_seconds("timeout", timeout)
        made = cls.__new__(cls)
        made.func, made.name, made.description = func, name, description
        made.timeout, made.ask = timeout, ask
        made.parameters = {"type": "object", "properties": {}, **parameters}
        made._decode = msgspec.json.Decoder(dict[str, Any]).decode
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    @property
    def schema(self) -> dict[str, Any]:
        """As chat APIs are told of it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @property
    def arguments(self) -> OutputType:
        """`gen(type=tool.arguments)`: the arguments of a call, by name."""
        return from_schema(self.parameters, f"arguments of {self.name}")

    def bound(self, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """The function's keyword arguments. Raises ValueError saying what is wrong."""
        text = arguments.encode() if isinstance(arguments, str) else msgspec.json.encode(arguments)
        return self._decode(text or b"{}")

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


@overload
def tool(func: Callable[..., Any]) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout: float = TIMEOUT, ask: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a Tool of a typed function; its docstring tells the model what it does and what its parameters mean.

    `@tool`, or `@tool(…)` with the options of Tool. Raises InvalidRequest for a parameter without a type, or whose type
    has no JSON schema.
    """
    return Tool(func) if func is not None else functools.partial(Tool, **options)


Approval = Callable[[ToolCall], bool | Awaitable[bool]]


class ToolSet:
    """Tools by name. `approve(call)` is asked before a call of a tool that wants to be asked for; without one it is
    refused. It may be a coroutine function."""

    def __init__(self, tools: Sequence[Tool | Callable[..., Any]], *, approve: Approval | None = None) -> None:
        if isinstance(tools, Tool) or not isinstance(tools, Iterable):
            raise InvalidRequest(
                f"tools={tools!r} is not a list of tools.", hint="Put it in one: [tool].", param="tools"
            )
        self._tools: dict[str, Tool] = {}
        self._approve = approve
        self._took: dict[str, float] = {}  # seconds a call, lately
        for given in tools:
            each = given if isinstance(given, Tool) else Tool(given)
            if each.name in self._tools:
                raise InvalidRequest(
                    f"Two tools are named {each.name!r}.", hint="Give one another name.", param="tools"
                )
            self._tools[each.name] = each
        if not self._tools:
            raise InvalidRequest("There are no tools.", hint="Give at least one.", param="tools")

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        """Raises InvalidRequest for a name that is no tool's."""
        if name in self._tools:
            return self._tools[name]
        near = difflib.get_close_matches(name, self._tools, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"The tools are {', '.join(self._tools)}."
        raise InvalidRequest(f"There is no tool {name!r}.", hint=hint, param="name")

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Of each tool, as chat APIs are told of it."""
        return [each.schema for each in self]

    @functools.cached_property
    def call(self) -> OutputType:
        """`gen(type=tools.call)`: a ToolCall, of one of the tools, with arguments that follow its schema."""
        one, definitions = self.call_schema()
        written = from_schema({**one, "$defs": definitions} if definitions else one)
        return OutputType("tool call", msgspec.json.Decoder(ToolCall).decode, written.constraint)

    def call_schema(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The JSON schema of a call of one of the tools, and the definitions that it refers to."""
        definitions: dict[str, Any] = {}
        forms = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": each.name},
                    "arguments": hoisted(each.parameters, each.name, definitions),
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for each in self
        ]
        return (forms[0] if len(forms) == 1 else {"anyOf": forms}), definitions

    def expected_seconds(self, calls: Sequence[ToolCall]) -> float | None:
        """How long `calls` take side by side, as their tools' last calls did; None where one was never called."""
        took = [self._took.get(call.name) for call in calls]
        return None if None in took else max((each for each in took if each is not None), default=0.0)

    def longest_seconds(self, calls: Sequence[ToolCall]) -> float:
        """How long `calls` take at most."""
        return max((self._tools[call.name].timeout for call in calls if call.name in self._tools), default=0.0)

    def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of `calls`, in order, run side by side. Never raises what a tool raises."""
        return run_on(language_loop(), self.arun(calls))

    async def arun(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """`run` for coroutines."""
        return list(await asyncio.gather(*(self._result(call) for call in calls)))

    async def _result(self, call: ToolCall) -> ToolResult:
        start = time.monotonic()

        def failed(why: str) -> ToolResult:
            return ToolResult(call, f"Error: {why}", failed=True, seconds=time.monotonic() - start)

        try:
            wanted = self[call.name]
            arguments = wanted.bound(call.arguments)
        except InvalidRequest as error:
            return failed(str(error))
        except ValueError as error:
            return failed(f"the arguments of {call.name} are wrong: {error}.")
        try:
            if wanted.ask and not await self._approved(call):
                return failed(f"the call of {call.name} was not allowed.")
            async with asyncio.timeout(wanted.timeout):
                value = await _called(wanted.func, arguments)
        except TimeoutError:
            return failed(f"{call.name} took longer than {wanted.timeout:g} s.")
        except Exception as error:  # a tool may raise anything; the model is told
            return failed(f"{type(error).__name__}: {error}")
        took = time.monotonic() - start
        self._took[call.name] = (self._took.get(call.name, took) + took) / 2
        return ToolResult(call, _as_text(value), value, seconds=took)

    async def _approved(self, call: ToolCall) -> bool:
        if self._approve is None:
            return False
        allowed = self._approve(call)
        return bool(await allowed if inspect.isawaitable(allowed) else allowed)


async def _called(func: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What the function returns; one that isn't a coroutine function runs in a thread of its own, which nobody waits
    for once it has taken too long."""
    if inspect.iscoroutinefunction(func):
        return await func(**arguments)
    returned: Arrival[Any] = Arrival()

    def work() -> None:
        try:
            returned.set_result(func(**arguments))
        except BaseException as error:  # raised where it is waited for
            returned.set_exception(error)

    threading.Thread(target=work, name=f"palmette-tool-{func.__name__}", daemon=True).start()
    return await returned


def _warn_undescribed(name: str) -> None:
    """At the program's line: such a tool works, and the model has to guess what it is for."""
    where = caller()
    warnings.warn_explicit(
        f"Tool {name} has no docstring, so the model knows nothing but its name and parameters. Write one, or give"
        f" description=…",
        UserWarning,
        where.filename,
        where.line,
    )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return str(value)
