"""Command-line options made from EngineConfig's fields, so that every command that starts an engine shares them.

Knows the config and typer, no other part. Used by the commands in cli/ (`engine_options` on a command's function).
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import typer

from palmette.runtime.config import EngineConfig

PANEL = "Engine"

HELP = {
    "model": "A name from `palmette models`, a .gguf file, a folder of safetensors, or a hub name (org/name).",
    "dtype": "What the weights are computed in.",
    "kv_dtype": "The type that keys and values are kept in: as dtype (auto), or int8 in half the memory.",
    "chat_template": "A Jinja file instead of the model's own chat template.",
    "tool_call_parser": "How the model writes tool calls: a format of docs/tool-calls.md, auto (by the chat template), "
    "or none.",
    "reasoning_parser": "How it writes its reasoning: a format, two tags as in <reason>...</reason>, auto, or none.",
    "output_ids": "Messages of a chat that are earlier outputs keep the token ids that the model wrote.",
    "context_length": "The longest prompt and output together, in tokens; at most the model's. (default: the model's)",
    "page_size": "Tokens of one KV page.",
    "kv_tokens": "Tokens that the KV pool holds. (default: a quarter of the free memory)",
    "max_running": "Requests that run at the same time.",
    "step_tokens": "Tokens of one step, prefill chunks and decodes together.",
    "policy": "Which waiting request starts first.",
    "aging_alpha": "No starvation: a waiting request goes first once later ones were given alpha × the tokens queued "
    "before it + beta.",
    "aging_beta": "See --aging-alpha; in tokens.",
    "itl_target_ms": "Prefill chunks are cut so that no running output waits longer for its next token.",
    "ttft_target_ms": "Target for the first token, of requests that state none; policy `deadline` orders by it.",
    "tpot_target_ms": "Target for each token after the first, of requests that state none.",
    "prefix_cache": "Keep computed pages in the radix tree, and reuse them.",
    "eviction": "Which cached pages go first: program (hints, else learned), learned (hit density), lru, …",
    "threads": "CPU threads. (default: those this process may use)",
    "kernels": "Which kernels compute.",
    "kv_events": "A ZeroMQ endpoint (tcp://HOST:PORT) at which stored and removed pages are published; missed ones at "
    "PORT + 1.",
    "overlap": "Plan each step while the one before runs; pays where the model does not use the CPU.",
    "grammar_backend": "What holds outputs to JSON schemas: llguidance, or xgrammar (an extra; takes fewer keywords).",
    "check_invariants": "Check the tree's invariants after every step (slow; for finding faults).",
}
"""What each field of EngineConfig means to someone who starts an engine."""


def options() -> list[inspect.Parameter]:
    """One typer parameter a field. Their value is None where the option isn't given."""
    hints = get_type_hints(EngineConfig)
    return [_option(field, hints[field.name]) for field in msgspec.structs.fields(EngineConfig)]


def engine_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command every option of an engine. `function` gets `given`: the fields that were given, by name."""
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "given"]
    engine = options()

    @functools.wraps(function)
    def command(**values: Any) -> None:
        taken = {option.name: values.pop(option.name) for option in engine}
        function(given={name: _plain(value) for name, value in taken.items() if value is not None}, **values)

    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in [*own, *engine]]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _option(field: msgspec.structs.FieldInfo, hint: Any) -> inspect.Parameter:
    name = "--" + field.name.replace("_", "-")
    kind = _kind(field.name, hint)
    names = [f"{name}/--no-{name[2:]}"] if kind is bool else [name]
    if field.name == "model":
        names.append("-m")
    text = HELP[field.name]
    if field.default is not None and "(default" not in text:
        text += f" (default: {_shown(field.default)})"
    info = typer.Option(*names, help=text, rich_help_panel=PANEL, show_default=False)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


def _kind(name: str, hint: Any) -> Any:
    """The type that typer parses: the field's own, or an enumeration for a closed set of words."""
    if get_origin(hint) is Literal:
        return Enum(name, {word: word for word in get_args(hint)})
    if get_origin(hint) is types.UnionType:
        return next(each for each in get_args(hint) if each is not types.NoneType)
    return hint


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
