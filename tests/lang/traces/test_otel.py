"""Traces as OpenTelemetry spans."""

from __future__ import annotations

import importlib
import importlib.util
import time
from typing import Any

import pytest

import palmette as sgl
from palmette import agent, tool
from palmette.lang.traces import otel
from palmette.lang.traces.otel import export_spans
from palmette.runtime.errors import InvalidRequest


@tool
def lamp() -> str:
    """Switches the lamp."""
    return "on"


def result() -> sgl.AgentResult:
    answers = ['{"name": "lamp", "arguments": {}}', '{"name": "final_answer", "arguments": {"answer": "done"}}']
    return agent([lamp]).run("Light!", backend=sgl.ScriptedBackend(answers))


def _sdk() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.sdk.trace") is not None
    except ImportError:
        return False


@pytest.mark.skipif(not _sdk(), reason="needs the package opentelemetry-sdk")
def test_a_span_for_each_call_within_one_of_the_program() -> None:
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    export = importlib.import_module("opentelemetry.sdk.trace.export")
    memory = importlib.import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    trace = result().trace()
    export_spans(trace, provider.get_tracer("test"))
    *calls, root = memory.get_finished_spans()
    assert root.name == "invoke_agent agent"
    assert root.attributes["palmette.task"] == "Light!"
    assert [span.name for span in calls if span.name.startswith(("gen", "tool"))] == [
        "gen agent.1",
        "tool lamp",
        "gen agent.2",
    ]
    assert all(span.parent.span_id == root.context.span_id for span in calls)
    assert [span.attributes.get("gen_ai.usage.output_tokens") for span in calls if "agent.1" in span.name] == [33]
    assert abs(root.start_time / 1e9 - time.time()) < 60


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(otel.importlib, "import_module", missing)
    with pytest.raises(InvalidRequest, match=r"pip install 'palmette\[otel\]'"):
        export_spans(result().trace())
