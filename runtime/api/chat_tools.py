"""What a chat surface is asked beside its messages, as all of them have it: tools that the client runs, the choice
among them in OpenAI's forms, and how much the model shall think.

Surfaces write tools in their own ways, which they hand in as readers. Raises InvalidRequest or Unsupported, naming the
path; a lenient server leaves out what the model can't do.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from palmette.runtime.api.lenient import LenientBody
from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend.chat_prompt import ReasoningControl
from palmette.runtime.parsers.protocol import NamedTool, Tool, ToolChoice


class Choice(NamedTuple):
    """`allowed`: the names that may be called, where not all of the tools may. `parallel` False: one call at most."""

    choice: ToolChoice
    allowed: frozenset[str] | None = None
    parallel: bool = True


class AllowedNames(NamedTuple):
    """Some of the tools, by whom a choice is narrowed."""

    mode: Literal["auto", "required"]
    names: frozenset[str]


def as_object(given: Any, path: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is no object.", param=path)
    return given


def own_tools(
    body: LenientBody, given: Sequence[Any], read: Callable[[dict[str, Any], str], Tool], *, kind: str = "function"
) -> tuple[Tool, ...]:
    """The `tools` of `body`. Those of other kinds than `kind` are run by a server that isn't here."""
    found: list[Tool] = []
    for index, tool in enumerate(given):
        path = f"tools.{index}"
        foreign = _foreign(as_object(tool, path), path, kind)
        if foreign is None:
            found.append(read(tool, path))
        else:
            body.refuse(foreign, named=path)
    return tuple(found)


def openai_choice(
    given: Any, name_of: Callable[[dict[str, Any], str], str], allowed_of: Callable[[dict[str, Any], str], AllowedNames]
) -> Choice:
    """A `tool_choice`. `name_of` reads one that names a tool, `allowed_of` one of the type allowed_tools."""
    path = "tool_choice"
    if given in ("none", "auto", "required"):
        return Choice(given)
    if not isinstance(given, dict):
        raise InvalidRequest(
            f"tool_choice={reprlib.repr(given)} is not 'none', 'auto', 'required' or an object that names a tool.",
            param=path,
        )
    if given.get("type") != "allowed_tools":
        return Choice(NamedTool(name_of(own(given, path), path)))
    allowed = allowed_of(given, path)
    return Choice(allowed.mode, allowed.names)


def own(given: Any, path: str) -> dict[str, Any]:
    """An object that names a tool of the client's. Raises Unsupported for another's."""
    foreign = _foreign(as_object(given, path), path, "function")
    if foreign is not None:
        raise foreign
    return as_object(given, path)


def _foreign(tool: Mapping[str, Any], path: str, kind: str) -> Unsupported | None:
    given = tool.get("type")
    if not isinstance(given, str) or given == kind:
        return None
    hint = "Tools are functions here, which the client runs: describe it as one."
    if given == "function":
        hint = "That is how OpenAI writes it; here it is {'name': …, 'description': …, 'input_schema': {…}}."
    return Unsupported(
        f"{path}: a tool of type {reprlib.repr(given)} is not supported.",
        hint=hint,
        param=f"{path}.type",
    )


def effort_of(body: LenientBody, given: str | None, control: ReasoningControl, path: str) -> str | None:
    """How much the model shall think, where its template takes that."""
    if given is None or control.takes(given):
        return given
    body.refuse(
        Unsupported(
            f"{path}={given!r}: the model's template has no levels of reasoning.", hint="Leave it out.", param=path
        )
    )
    return None
