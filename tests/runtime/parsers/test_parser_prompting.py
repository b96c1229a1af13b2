"""Tools for templates that know none."""

from __future__ import annotations

import json
from typing import Any

from output_cases import TOOLS, Case, parsed

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.parsers.prompting import calls_text, plain_messages, tools_prompt
from palmette.runtime.parsers.protocol import NamedTool
from palmette.runtime.parsers.registry import detect, knows_tools
from palmette.runtime.text.chat_template import ChatTemplate
from palmette.runtime.text.load import load_tokenizer

CALL = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": '{"zone": "é"}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "What time is it?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "13:00"}]},
    {"role": "assistant", "content": "Noon."},
]


def test_the_prompt_describes_each_tool() -> None:
    prompt = tools_prompt(TOOLS)
    lines = prompt[prompt.index("<tools>\n") + 8 : prompt.index("\n</tools>")].splitlines()
    described = [json.loads(line) for line in lines]
    assert [tool["name"] for tool in described] == ["get_weather", "write-file", "now"]
    assert described[0]["description"] == "The weather somewhere"
    assert described[0]["parameters"] == TOOLS[0].parameters
    assert described[2]["parameters"]["properties"] == {}


def test_the_form_that_it_asks_for_is_read() -> None:
    prompt = tools_prompt(TOOLS)
    for line in prompt.splitlines():
        if line.startswith(("{", '{"tool_calls"')) and "the function's name" in line:
            said = line.replace("the function's name", "now")
            found = parsed(Case(id="", tools="json", output=""), said)
            assert found.text == ""
            assert len(found.calls) == said.count('"now"')


def test_choices() -> None:
    assert tools_prompt(TOOLS, "none") == ""
    assert tools_prompt([]) == ""
    assert "You must call a function now." in tools_prompt(TOOLS, "required")
    assert "You must call now now." in tools_prompt(TOOLS, NamedTool("now"))
    assert "tool_calls" not in tools_prompt(TOOLS, NamedTool("now"))
    assert "tool_calls" not in tools_prompt(TOOLS, parallel=False)


def test_turns_become_plain() -> None:
    plain = plain_messages(CONVERSATION, TOOLS)
    assert [message["role"] for message in plain] == ["system", "user", "assistant", "user", "assistant"]
    assert plain[0]["content"] == tools_prompt(TOOLS)
    call = '{"name": "now", "arguments": {"zone": "é"}}'
    assert plain[2] == {"role": "assistant", "content": f'{{"tool_calls": [{call}, {call}]}}'}
    assert plain[3] == {"role": "user", "content": "now returned:\n12:00\n\nnow returned:\n13:00"}
    assert CONVERSATION[1]["tool_calls"] == [CALL, {**CALL, "id": "call_2"}], "the messages given aren't changed"


def test_the_calls_of_an_earlier_turn_are_those_that_made_them() -> None:
    found = parsed(Case(id="", tools="json", output=""), calls_text([CALL, CALL]))
    assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [("now", {"zone": "é"})] * 2
    assert (
        calls_text([{"function": {"name": "f", "arguments": "not JSON"}}]) == '{"name": "f", "arguments": "not JSON"}'
    )
    assert calls_text([{"function": {"name": "f"}}]) == '{"name": "f", "arguments": {}}'


def test_a_system_prompt_stays_first() -> None:
    plain = plain_messages([{"role": "system", "content": "Be brief."}, *CONVERSATION[:1]], TOOLS)
    assert plain[0]["content"].startswith("Be brief.\n\nYou can call functions.")
    assert len(plain) == 2
    assert plain_messages(CONVERSATION[:1], TOOLS, "none") == CONVERSATION[:1]


def test_the_built_in_models_template_knows_no_tools_and_renders_plain_turns() -> None:
    tokenizer = load_tokenizer(resolve("tiny"))
    assert not knows_tools(tokenizer.chat_template)
    assert detect(tokenizer.chat_template).tools == "json"
    rendered = ChatTemplate.of(tokenizer).render(plain_messages(CONVERSATION, TOOLS), add_generation_prompt=True)
    assert "now returned:\n12:00" in rendered.text
    assert '"zone": "é"' in rendered.text
