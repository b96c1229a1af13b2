"""Tools for models whose chat template knows none: a system prompt that describes them, and their turns as plain text.

The calls that it asks for are read by the format "json". Called by the surfaces where registry.knows_tools is false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from palmette.runtime.parsers.json_text import decode, encode
from palmette.runtime.parsers.protocol import NamedTool, Tool, ToolChoice

Message = Mapping[str, Any]

_INTRODUCTION = (
    "You can call functions. Each line between <tools> and </tools> describes one of them; its parameters are a JSON"
    " schema."
)
_FORM = '{"name": "the function\'s name", "arguments": {"a parameter": "its value"}}'
_HOW = f"To call a function, answer with nothing but a JSON object of this form:\n{_FORM}"
_SEVERAL = f'To call several at once, put them in a list:\n{{"tool_calls": [{_FORM}, {_FORM}]}}'
_AFTERWARDS = "You are then told what it returned."
_CHOICES = {
    "auto": "Call a function only if the answer needs it; otherwise answer in plain words.",
    "required": "You must call a function now.",
}


def tools_prompt(tools: Sequence[Tool], choice: ToolChoice = "auto", *, parallel: bool = True) -> str:
    """The part of a system prompt that tells a model of its tools; "" where it may not call any."""
    if not tools or choice == "none":
        return ""
    lines = [
        encode({"name": tool.name, "description": tool.description, "parameters": msgspec.to_builtins(tool.schema)})
        for tool in tools
    ]
    last = f"You must call {choice.name} now." if isinstance(choice, NamedTool) else _CHOICES[choice]
    how = [_HOW, _SEVERAL] if parallel and not isinstance(choice, NamedTool) else [_HOW]
    return "\n\n".join([_INTRODUCTION, "\n".join(["<tools>", *lines, "</tools>"]), *how, f"{_AFTERWARDS} {last}"])


def calls_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls of an earlier turn (OpenAI's `tool_calls`), as the prompt asks for them."""
    written = [_call_text(call.get("function") or {}) for call in calls]
    return written[0] if len(written) == 1 else f'{{"tool_calls": [{", ".join(written)}]}}'


def _call_text(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or not isinstance(decode(arguments), dict):
        arguments = encode(arguments if arguments is not None else {})
    return f'{{"name": {encode(function.get("name", ""))}, "arguments": {arguments}}}'


def plain_messages(
    messages: Sequence[Message], tools: Sequence[Tool], choice: ToolChoice = "auto", *, parallel: bool = True
) -> list[dict[str, Any]]:
    """The conversation for a template that knows neither tools nor tool turns.

    The tools go behind the system prompt, calls become the text that made them, results turns of the user; results
    that follow each other share a turn, since templates want turns to alternate.
    """
    plain: list[dict[str, Any]] = []
    called: dict[Any, str] = {}
    after_result = False
    for message in messages:
        is_result = message.get("role") in ("tool", "function")
        if is_result:
            name = message.get("name") or called.get(message.get("tool_call_id")) or "The function"
            text = f"{name} returned:\n{_text_of(message.get('content'))}"
            if after_result:
                plain[-1]["content"] += "\n\n" + text
            else:
                plain.append({"role": "user", "content": text})
        elif message.get("role") == "assistant" and message.get("tool_calls"):
            calls = message["tool_calls"]
            called.update({call.get("id"): (call.get("function") or {}).get("name", "") for call in calls})
            said = [text for text in (_text_of(message.get("content")), calls_text(calls)) if text]
            kept = {key: value for key, value in message.items() if key != "tool_calls"}
            plain.append({**kept, "content": "\n".join(said)})
        else:
            plain.append(dict(message))
        after_result = is_result
    prompt = tools_prompt(tools, choice, parallel=parallel)
    if prompt and plain and plain[0].get("role") in ("system", "developer"):
        text = _text_of(plain[0].get("content"))
        plain[0] = {**plain[0], "content": f"{text}\n\n{prompt}" if text else prompt}
    elif prompt:
        plain.insert(0, {"role": "system", "content": prompt})
    return plain


def _text_of(content: Any) -> str:
    """A message's content as one text: a string, or parts of which those with text count."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return ""
