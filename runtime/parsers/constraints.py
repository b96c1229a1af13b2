"""Which calls an output may or must contain, as the grammar kind "structural_tag" (runtime/grammar/tags.py).

Begin text, the schema of the arguments, end text for each tool, in the format that the output's parser reads. Returns
plain data; the grammar is compiled in the engine. Called by the surfaces.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import GrammarSource
from palmette.runtime.parsers.protocol import NamedTool, Tool, ToolChoice
from palmette.runtime.parsers.registry import tool_format

MAX_TOOLS = 128
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")


def check_tools(tools: Sequence[Tool], choice: ToolChoice = "auto") -> None:
    """Raises InvalidRequest for names that can't be called, twice the same, too many, or a choice not on offer."""
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"{len(tools)} tools; at most {MAX_TOOLS}.", hint="Offer fewer tools.", param="tools")
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if not _TOOL_NAME.match(tool.name):
            raise InvalidRequest(
                f"tools[{index}] is named {tool.name!r}; a name has 1 to 64 of a-z, A-Z, 0-9, '_', '-' and '.'.",
                hint="Rename the tool.",
                param="tools",
            )
        if tool.name in seen:
            raise InvalidRequest(f"Two tools are named {tool.name!r}.", hint="Rename one of them.", param="tools")
        seen.add(tool.name)
    if isinstance(choice, NamedTool) and choice.name not in seen:
        raise InvalidRequest(
            f"tool_choice names {choice.name!r}, which is not among the tools ({', '.join(sorted(seen)) or 'none'}).",
            hint="Name one of the tools, or offer that one.",
            param="tool_choice",
        )
    if choice == "required" and not tools:
        raise InvalidRequest(
            "tool_choice is 'required', but no tools are offered.", hint="Offer a tool.", param="tool_choice"
        )


def _check_allowed(tools: Sequence[Tool], allowed: Collection[str] | None) -> None:
    if allowed is None:
        return
    names = {tool.name for tool in tools}
    unknown = sorted(set(allowed) - names)
    if unknown or not allowed:
        what = f"names {unknown[0]!r}, which is not among the tools" if unknown else "allows no tool"
        raise InvalidRequest(
            f"tool_choice {what} ({', '.join(sorted(names)) or 'none'}).",
            hint="Name tools that are offered, or set tool_choice to 'none'.",
            param="tool_choice",
        )


def constraint_for(
    format: str,
    tools: Sequence[Tool],
    choice: ToolChoice = "auto",
    *,
    parallel: bool = True,
    allowed: Collection[str] | None = None,
) -> GrammarSource | None:
    """What an output must match, or None where nothing is asked of it. Raises InvalidRequest (check_tools).

    "required" and a named tool: calls only, their arguments by the tools' schemas. "auto": text and calls as the model
    likes, where a tool is strict; strict tools' arguments follow their schemas, others' are any object. `parallel`:
    more than one call may be made; `allowed`: by name, where not all of the tools may be called. Reasoning comes
    before: the caller puts the grammar behind it.
    """
    check_tools(tools, choice)
    _check_allowed(tools, allowed)
    free = choice == "auto" and allowed is None and not any(tool.strict for tool in tools)
    if choice == "none" or not tools or free:
        return None
    must = choice != "auto"
    structures = []
    triggers: dict[str, None] = {}
    for tool in tools:
        if isinstance(choice, NamedTool) and tool.name != choice.name:
            continue
        if allowed is not None and tool.name not in allowed:
            continue
        tag = tool_format(format).tag(tool.name)
        schema = tool.schema if must or tool.strict else {"type": "object"}
        structures.append({"begin": tag.begin, "schema": schema, "end": tag.end})
        triggers[tag.trigger] = None
    text = msgspec.json.encode({"structures": structures, "triggers": list(triggers)}).decode()
    options = {
        "free_text": not must,
        "at_least_one": must,
        "stop_after_first": isinstance(choice, NamedTool) or not parallel,
    }
    return GrammarSource(kind="structural_tag", text=text, options=options)
