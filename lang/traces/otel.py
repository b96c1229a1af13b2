"""A trace as OpenTelemetry spans: one of the program, and within it one of each call, at the times when they ran.

Needs the `opentelemetry` packages (an extra). Attributes have the names of the GenAI conventions where there is one.
"""

from __future__ import annotations

import importlib
from typing import Any

from palmette.lang.traces.trace import Trace, TracedCall
from palmette.runtime.errors import InvalidRequest

_OPERATIONS = {"gen": "text_completion", "select": "select", "tool": "execute_tool", "text": "extend", "fork": "fork"}


def export_spans(trace: Trace, tracer: Any = None) -> None:
    """Give `trace` to `tracer` (the process's own, where none is given). Raises InvalidRequest without the package."""
    try:
        api = importlib.import_module("opentelemetry.trace")
    except ImportError as error:
        raise InvalidRequest(
            f"Spans need the package opentelemetry ({error}).", hint="Install it: pip install 'palmette[otel]'."
        ) from error
    if tracer is None:
        tracer = api.get_tracer("palmette")
    began = float(trace.about.get("began", 0.0))
    about = {f"palmette.{name}": value for name, value in trace.about.items() if isinstance(value, str)}
    name = trace.about.get("agent")
    root = tracer.start_span(f"invoke_agent {name}" if name else "program", start_time=_ns(began), attributes=about)
    within = api.set_span_in_context(root)
    for call in trace:
        span = tracer.start_span(
            f"{call.kind} {call.name}".rstrip(),
            context=within,
            start_time=_ns(began + call.start),
            attributes=_attributes(call),
        )
        if call.failed:
            span.set_status(api.Status(api.StatusCode.ERROR, call.error or call.text))
        span.end(end_time=_ns(began + call.end))
    root.end(end_time=_ns(began + trace.seconds))


def _attributes(call: TracedCall) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gen_ai.operation.name": _OPERATIONS[call.kind],
        "palmette.state": call.state,
        "code.location": call.where,
        "palmette.first_token_seconds": call.first - call.start,
    }
    if call.kind == "tool":
        found["gen_ai.tool.name"] = call.name
    if call.usage is not None:
        found |= {
            "gen_ai.usage.input_tokens": call.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": call.usage.completion_tokens,
            "palmette.usage.cached_tokens": call.usage.cached_tokens,
            "palmette.usage.computed_tokens": call.usage.computed_tokens,
            "palmette.queue_seconds": call.usage.queue_seconds,
        }
    if call.finish is not None:
        found["gen_ai.response.finish_reasons"] = (call.finish.reason,)
    return found


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)
