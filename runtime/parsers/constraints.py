"""Which calls an output may or must contain, as the grammar kind "structural_tag" (runtime/grammar/tags.py).

Begin text, the schema of the arguments, end text for each tool, in the format that the output's parser reads. Returns
plain data; the grammar is compiled in the engine. Called by the surfaces.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import GrammarSource
from palmette.runtime.parsers.formats.bare_json import GENERIC_JSON, LLAMA_JSON
from palmette.runtime.parsers.formats.harmony import ANSWER, HARMONY, THOUGHT
from palmette.runtime.parsers.protocol import NamedTool, Tool, ToolChoice
from palmette.runtime.parsers.registry import tool_format

MAX_TOOLS = 128
_BARE = {GENERIC_JSON.name: "arguments", LLAMA_JSON.name: "parameters"}  # formats whose calls are objects and no more
_DATA = frozenset({"const", "enum", "default", "examples"})  # keywords whose values are no schemas
_NAMED = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)  # whose values are schemas by name
_COMBINING = frozenset({"properties", "allOf", "anyOf", "oneOf", "$ref"})
_CONDITIONS = frozenset({"not", "if", "$dynamicRef", "dependentSchemas", "unevaluatedProperties"})
_OPEN = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames"})
LONGEST_TOOL_NAME = 128  # of a tool; what OpenAI's responses and Anthropic's messages take
_TOOL_NAME = re.compile(rf"[a-zA-Z0-9_.-]{{1,{LONGEST_TOOL_NAME}}}\Z")


def check_tools(tools: Sequence[Tool], choice: ToolChoice = "auto") -> None:
    """Raises InvalidRequest for names that can't be called, twice the same, too many, or a choice not on offer."""
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"{len(tools)} tools; at most {MAX_TOOLS}.", hint="Offer fewer tools.", param="tools")
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if not _TOOL_NAME.match(tool.name):
            raise InvalidRequest(
                f"tools.{index} is named {reprlib.repr(tool.name)}; a name has 1 to {LONGEST_TOOL_NAME} of a-z, A-Z,"
                " 0-9, '_', '-' and '.'.",
                hint="Rename the tool.",
                param=f"tools.{index}",
            )
        if tool.name in seen:
            raise InvalidRequest(
                f"Two tools are named {tool.name!r}.", hint="Rename one of them.", param=f"tools.{index}"
            )
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
    answer: GrammarSource | None = None,
) -> GrammarSource | None:
    """What an output must match, or None where nothing is asked of it. Raises InvalidRequest (check_tools).

    "required" and a named tool: calls only, their arguments by the tools' schemas. "auto": text and calls as the model
    likes, where a tool is strict; strict tools' arguments follow their schemas, others' are any object. `parallel`:
    more than one call may be made; `allowed`: by name, where not all of the tools may be called. `answer`: a schema
    (kind "json_schema") of what the model says where it may choose not to call: then it is that or calls, all by their
    schemas. Where a tool isn't strict, what its schema asks for beyond what a grammar can hold to (unique items of any
    sort, say) is left to the model. Reasoning comes before: the caller puts the grammar behind it, but for harmony,
    whose reasoning stands in messages like all else.

    Objects that a schema describes have no other members than it names, unless it says so: a model that may add what
    it likes does.
    """
    check_tools(tools, choice)
    _check_allowed(tools, allowed)
    free = choice == "auto" and allowed is None and answer is None and not any(tool.strict for tool in tools)
    if choice == "none" or not tools or free:
        return None
    must = choice != "auto"
    if answer is not None and not must and format in _BARE:
        callable_tools = [tool for tool in tools if allowed is None or tool.name in allowed]
        return _one_schema(answer, callable_tools, _BARE[format])
    structures = []
    triggers: dict[str, None] = {}
    for tool in tools:
        if isinstance(choice, NamedTool) and tool.name != choice.name:
            continue
        if allowed is not None and tool.name not in allowed:
            continue
        tag = tool_format(format).tag(tool.name)
        schema = closed(tool.schema) if must or tool.strict or answer is not None else {"type": "object"}
        structure = {"begin": tag.begin, "schema": schema, "end": tag.end}
        structures.append(structure if tool.strict or answer is not None else {**structure, "best_effort": True})
        triggers[tag.trigger] = None
    source: dict[str, Any] = {"structures": structures, "triggers": list(triggers)}
    alone = must or answer is not None
    options: dict[str, Any] = {
        "free_text": not alone,
        "at_least_one": alone,
        "stop_after_first": isinstance(choice, NamedTool) or not parallel,
    }
    if alone and format == HARMONY.name:
        options["before"] = [THOUGHT]
    if answer is not None and not must:
        options.update(answer.options)
        if format == HARMONY.name:
            structures.append(_headed(answer))
            source["triggers"].append(ANSWER.trigger)
        else:
            source["answer"] = json.loads(answer.text)
    return GrammarSource(kind="structural_tag", text=json.dumps(source), options=options)


def headed_answer(answer: GrammarSource) -> GrammarSource:
    """An answer of harmony's that meets a schema (kind "json_schema"), behind its header and what is thought before."""
    source = {"structures": [_headed(answer)], "triggers": [ANSWER.trigger]}
    options = {"free_text": False, "at_least_one": True, "stop_after_first": True, "before": [THOUGHT]}
    return GrammarSource(kind="structural_tag", text=json.dumps(source), options={**options, **answer.options})


def _headed(answer: GrammarSource) -> dict[str, Any]:
    return {"begin": ANSWER.begin, "schema": json.loads(answer.text), "end": ANSWER.end}


def _one_schema(answer: GrammarSource, tools: Sequence[Tool], arguments: str) -> GrammarSource:
    """An answer or a call, both JSON: one schema that says both."""
    definitions = {"answer": _embedded(json.loads(answer.text), "answer")}
    for index, tool in enumerate(tools):
        definitions[f"call_{index}"] = {
            "type": "object",
            "properties": {"name": {"const": tool.name}, arguments: {"$ref": f"#/$defs/arguments_{index}"}},
            "required": ["name", arguments],
            "additionalProperties": False,
        }
        definitions[f"arguments_{index}"] = _embedded(closed(tool.schema), f"arguments_{index}")
    ways = [{"$ref": f"#/$defs/{name}"} for name in definitions if not name.startswith("arguments_")]
    text = json.dumps({"anyOf": ways, "$defs": definitions})
    return GrammarSource(kind="json_schema", text=text, options=answer.options)


def _embedded(schema: Any, name: str) -> Any:
    """`schema` as a document of its own within another: its references stay inside it."""
    if not isinstance(schema, Mapping) or isinstance(schema.get("$id"), str):
        return schema
    return {**schema, "$id": f"urn:palmette:{name}"}


def closed(schema: Any) -> Any:
    """`schema` without room for members that it doesn't name. Where objects are put together of several schemas, all of
    which would have to name all members, it stays as it is."""
    return schema if _joins(schema) else _shut(schema)


def _shut(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_shut(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _shut_below(key, value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), Mapping) and _OPEN.isdisjoint(schema):
        made["additionalProperties"] = False
    return made


def _shut_below(keyword: str, value: Any) -> Any:
    if keyword in _NAMED and isinstance(value, Mapping):
        return {name: _shut(each) for name, each in value.items()}
    return value if keyword in _DATA else _shut(value)


def _joins(schema: Any) -> bool:
    """Whether one object must meet several schemas, somewhere in this one."""
    if isinstance(schema, list):
        return any(map(_joins, schema))
    if not isinstance(schema, Mapping):
        return False
    several = len(_COMBINING & schema.keys()) > 1 or len(schema.get("allOf") or ()) > 1
    return (
        several
        or not _CONDITIONS.isdisjoint(schema)
        or any(
            _joins(list(value.values()) if key in _NAMED and isinstance(value, Mapping) else value)
            for key, value in schema.items()
            if key not in _DATA
        )
    )
