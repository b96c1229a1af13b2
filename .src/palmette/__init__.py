"""Palmette: a radix-tree structured generation runtime for multi-call agent programs.

    import palmette as sgl

    @sgl.function
    def qa(s, question):
        s += sgl.user(question)
        s += sgl.assistant(sgl.gen("answer", max_tokens=64))

    sgl.set_default_backend(sgl.Runtime())
    print(qa("What is a palmette?")["answer"])

Public names are loaded at first use (PEP 562), so importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LANG = "palmette.lang."
_NAMES = {
    **dict.fromkeys(
        (
            "gen",
            "select",
            "system",
            "user",
            "assistant",
            "system_begin",
            "system_end",
            "user_begin",
            "user_end",
            "assistant_begin",
            "assistant_end",
            "separate_reasoning",
            "any_order",
        ),
        _LANG + "primitives",
    ),
    **dict.fromkeys(
        (
            "token_length_normalized",
            "greedy_token_selection",
            "unconditional_likelihood_normalized",
            "ChoicesMethod",
        ),
        _LANG + "choices",
    ),
    **dict.fromkeys(("when", "match", "repeat"), _LANG + "control"),
    **dict.fromkeys(("set_default_backend", "flush_cache"), _LANG + "default"),
    **dict.fromkeys(("function", "Program"), _LANG + "program"),
    "Batch": _LANG + "batches",
    "ProgramState": _LANG + "state",
    "StateGroup": _LANG + "branches",
    "ProgramError": _LANG + "errors",
    "TraceError": _LANG + "errors",
    "Graph": _LANG + "compiling.graph",
    "NotOfType": _LANG + "types",
    **dict.fromkeys(("tool", "Tool", "ToolCall", "ToolResult", "ToolSet"), _LANG + "tools.tool"),
    **dict.fromkeys(("agent", "Agent"), _LANG + "agents.agent"),
    **dict.fromkeys(("AgentResult", "AgentStep"), _LANG + "agents.results"),
    "McpServer": _LANG + "tools.mcp",
    "Trace": _LANG + "traces.trace",
    "Replay": _LANG + "traces.replay",
    "export_spans": _LANG + "traces.otel",
    "RuntimeEndpoint": _LANG + "backends.http",
    "OpenAI": _LANG + "backends.openai",
    "ScriptedBackend": _LANG + "backends.scripted",
    "Engine": "palmette.runtime.engine",
    "EngineConfig": "palmette.runtime.config",
    "SamplingParams": "palmette.runtime.messages.sampling",
    "PalmetteError": "palmette.runtime.errors",
}

_MODULES = {"grammar": "palmette.runtime.grammar.compile"}
"""Public names that are modules of the runtime."""

_ELSEWHERE = {
    "image": "the models here read text only",
    "video": "the models here read text only",
    "gen_int": "use gen(..., type=int)",
    "gen_string": "use gen(...)",
    "Anthropic": "run on Runtime() or RuntimeEndpoint(url)",
    "LiteLLM": "run on Runtime() or RuntimeEndpoint(url)",
    "VertexAI": "run on Runtime() or RuntimeEndpoint(url)",
    "Crusoe": "run on Runtime() or RuntimeEndpoint(url)",
    "Shisa": "run on Runtime() or RuntimeEndpoint(url)",
    "ServerArgs": "use EngineConfig",
    "get_server_info": "read RuntimeEndpoint(url).model_info, or the server's /metrics",
    "global_config": "give options to Engine(...), Runtime(...) or run(...)",
}
"""Names of the frontend whose programs run here that are not built: refused by name, never silently missing."""

if TYPE_CHECKING:
    from palmette.lang.agents.results import AgentResult as AgentResult
    from palmette.lang.agents.results import AgentStep as AgentStep
    from palmette.lang.agents.agent import Agent as Agent
    from palmette.lang.agents.agent import agent as agent
    from palmette.lang.backends.engine import Runtime as _Runtime
    from palmette.lang.backends.http import RuntimeEndpoint as RuntimeEndpoint
    from palmette.lang.backends.openai import OpenAI as OpenAI
    from palmette.lang.backends.scripted import ScriptedBackend as ScriptedBackend
    from palmette.lang.batches import Batch as Batch
    from palmette.lang.branches import StateGroup as StateGroup
    from palmette.lang.choices import ChoicesMethod as ChoicesMethod
    from palmette.lang.choices import greedy_token_selection as greedy_token_selection
    from palmette.lang.choices import token_length_normalized as token_length_normalized
    from palmette.lang.choices import (
        unconditional_likelihood_normalized as unconditional_likelihood_normalized,
    )
    from palmette.lang.control import match as match
    from palmette.lang.control import repeat as repeat
    from palmette.lang.control import when as when
    from palmette.lang.default import flush_cache as flush_cache
    from palmette.lang.default import set_default_backend as set_default_backend
    from palmette.lang.errors import ProgramError as ProgramError
    from palmette.lang.errors import TraceError as TraceError
    from palmette.lang.compiling.graph import Graph as Graph
    from palmette.lang.tools.mcp import McpServer as McpServer
    from palmette.lang.traces.otel import export_spans as export_spans
    from palmette.lang.primitives import any_order as any_order
    from palmette.lang.primitives import assistant as assistant
    from palmette.lang.primitives import assistant_begin as assistant_begin
    from palmette.lang.primitives import assistant_end as assistant_end
    from palmette.lang.primitives import gen as gen
    from palmette.lang.primitives import select as select
    from palmette.lang.primitives import separate_reasoning as separate_reasoning
    from palmette.lang.primitives import system as system
    from palmette.lang.primitives import system_begin as system_begin
    from palmette.lang.primitives import system_end as system_end
    from palmette.lang.primitives import user as user
    from palmette.lang.primitives import user_begin as user_begin
    from palmette.lang.primitives import user_end as user_end
    from palmette.lang.program import Program as Program
    from palmette.lang.program import function as function
    from palmette.lang.traces.replay import Replay as Replay
    from palmette.lang.state import ProgramState as ProgramState
    from palmette.lang.tools.tool import Tool as Tool
    from palmette.lang.tools.tool import ToolCall as ToolCall
    from palmette.lang.tools.tool import ToolResult as ToolResult
    from palmette.lang.tools.tool import ToolSet as ToolSet
    from palmette.lang.tools.tool import tool as tool
    from palmette.lang.traces.trace import Trace as Trace
    from palmette.lang.types import NotOfType as NotOfType
    from palmette.runtime.config import EngineConfig as EngineConfig
    from palmette.runtime.engine import Engine as Engine
    from palmette.runtime.errors import PalmetteError as PalmetteError
    from palmette.runtime.grammar import compile as grammar
    from palmette.runtime.messages.sampling import SamplingParams as SamplingParams

    class Runtime(_Runtime):
        def __init__(self, model_path: str | None = None, **options: Any) -> None: ...


__all__ = sorted([*_NAMES, *_MODULES, "Runtime"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    value: Any
    if name == "Runtime":
        value = _runtime()
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
    elif name in _ELSEWHERE:
        from palmette.runtime.errors import Unsupported

        raise Unsupported(f"palmette.{name} is not here.", hint=f"Instead, {_ELSEWHERE[name]}.", param=name)
    else:
        raise AttributeError(f"module 'palmette' has no attribute {name!r}; its names: {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _runtime() -> Any:
    """`Runtime` with its engine filled in. The language never imports the engine, so they meet here."""
    backend = importlib.import_module(_LANG + "backends.engine").Runtime
    engine = importlib.import_module("palmette.runtime.engine").Engine

    def start(self: Any, model_path: str | None = None, **options: Any) -> None:
        backend.__init__(self, model_path, start=engine, **options)

    return type("Runtime", (backend,), {"__init__": start, "__doc__": backend.__doc__, "__module__": __name__})
