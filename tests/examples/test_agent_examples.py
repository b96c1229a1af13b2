"""The examples of agents, run whole: on the tiny model, and on the default one (slow). Tools really run."""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
from pathlib import Path

import pytest

import palmette as sgl

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def check(result: sgl.AgentResult, steps: int) -> None:
    """Whole, and at least one call of a tool was valid and ran."""
    assert result.error is None
    assert 1 <= len(result.steps) <= steps
    assert result.steps[0].results, "the first turn calls a tool"
    assert isinstance(result.answer, str)
    assert result.ended in ("answered", "steps")


def test_react_on_a_corpus(engine: sgl.Engine) -> None:
    from react_corpus import CORPUS, QUESTIONS, researcher, search

    assert search("Where was Ada Thorne born?").startswith("Ada Thorne: ")
    assert search("zzz").startswith("Nothing")
    results = researcher.run_batch(QUESTIONS, temperature=0.0, backend=engine)
    for result in results:
        check(result, steps=3)
        first = result.steps[0].results[0]
        assert not first.failed
        assert first.text.split(":")[0] in CORPUS or first.text.startswith("Nothing")
        assert f"Observation: {first.text}\n" in result.state.text()
    if engine.config.model == "smollm2-135m":
        assert results[0].steps[0].results[0].text.startswith("Skerry Point: "), "it looks for what is asked"


def test_sql(engine: sgl.Engine) -> None:
    from sql_agent import QUESTIONS, harbour, sql_agent

    database = harbour()
    agent = sql_agent(database)
    query = {"column": "seats", "table": "ships", "where": "name", "equals": "Bora"}
    good, bad = asyncio.run(
        agent.tools.arun([sgl.ToolCall("select", query), sgl.ToolCall("select", query | {"column": "ship"})])
    )
    assert good.value == [8]
    assert "no such column: ship" in bad.text
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        database.execute("DROP TABLE ships")
    for question in QUESTIONS:
        result = agent.run(question, temperature=0.0, backend=engine)
        check(result, steps=3)
        assert {call.name for call in result.calls} == {"select"}
        roles = [message["role"] for message in result.state.messages()]
        assert roles == ["system"] + ["user", "assistant"] * (len(result.steps) + 1)


@pytest.mark.server
@pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs the package mcp")
def test_mcp(engine: sgl.Engine) -> None:
    from mcp_agent import TASK, convert

    result = convert(TASK, temperature=0.0, backend=engine)
    check(result, steps=2)
    assert {call.name for call in result.calls} <= {"miles_to_kilometres", "fahrenheit_to_celsius"}
    assert any(not each.failed and " are " in each.text for step in result.steps for each in step.results)
