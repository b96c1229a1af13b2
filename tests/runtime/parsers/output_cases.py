"""Outputs as the published chat templates render an assistant's calls, and what they mean; and ways of cutting a text.

Each text is written out by hand after the template that its comment names: what stands behind the prompt, without the
stop token, which the engine keeps to itself.
"""

# ruff: noqa: E501 (a rendering is easier to compare in long lines)

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from palmette.runtime.parsers.parser import output_parser
from palmette.runtime.parsers.protocol import (
    ArgumentsDelta,
    Event,
    OutputParser,
    ParsedOutput,
    ReasoningDelta,
    TextDelta,
    Tool,
    collect,
)
from palmette.runtime.parsers.registry import Formats

TOOLS = (
    Tool(
        name="get_weather",
        description="The weather somewhere",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "metric": {"type": "boolean"},
                "places": {"type": "array", "items": {"type": "string"}},
                "options": {"type": "object"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["city"],
        },
    ),
    Tool(name="write-file", parameters={"type": "object", "properties": {"code": {"type": "string"}}}),
    Tool(name="now"),
)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`calls`: names and arguments; `prompt`: its end, where it matters."""

    id: str
    tools: str
    output: str
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    text: str = ""
    reasoning: str = ""
    thinks: str = "none"
    prompt: str = ""
    offered: bool = True
    unfinished: tuple[int, ...] = ()


WEATHER = {"city": "Paris", "days": 3}
AWKWARD = {
    "city": 'Łódź "old" town\\ 🌍 </x> {[',
    "options": {"a": {"b": [1, 2.5, None, True, {"c": "}"}]}, "é": ""},
    "places": ["a,b", "c]d", "line\nbreak\ttab"],
}
AWKWARD_JSON = json.dumps(AWKWARD, ensure_ascii=False)
CODE = "def f(x):\n    return \"<b>\" + x  # 'quoted' \\n\n"


def json_case(id: str, tools: str, form: str, **more: Any) -> Case:
    """`form` has %s where the arguments stand."""
    return Case(id=id, tools=tools, output=form.replace("%s", AWKWARD_JSON), calls=[("get_weather", AWKWARD)], **more)


CASES = [
    # Qwen/Qwen2.5-7B-Instruct and Qwen/Qwen3-8B: content, then each call after a line feed.
    Case(
        id="hermes",
        tools="hermes",
        output='I look it up.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n'
        '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        text="I look it up.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    json_case("hermes-awkward", "hermes", '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>'),
    # NousResearch/Hermes-2-Pro-Llama-3-8B (tool_use template): the arguments come before the name.
    Case(
        id="hermes-name-last",
        tools="hermes",
        output='<tool_call>\n{ "arguments": {"city": "Paris", "days": 3}, "name": "get_weather"}\n</tool_call> ',
        calls=[("get_weather", WEATHER)],
    ),
    Case(
        id="hermes-text-behind",
        tools="hermes",
        output='One.\n\n<tool_call>{"name": "now"}</tool_call>\nTwo. <tool_call>{"name": "now", "arguments": null}'
        "</tool_call> Three.",
        text="One.\n\n\nTwo.  Three.",
        calls=[("now", {}), ("now", {})],
    ),
    Case(
        id="hermes-arguments-in-a-string",
        tools="hermes",
        output='<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\", \\"days\\": 3}"}</tool_call>',
        calls=[("get_weather", WEATHER)],
    ),
    Case(
        id="hermes-openai-shape",
        tools="hermes",
        output='<tool_call>{"id": "1", "type": "function", "function": {"name": "now", "arguments": {}}}</tool_call>',
        calls=[("now", {})],
    ),
    Case(
        id="hermes-several-in-one",
        tools="hermes",
        output='<tool_call>\n{"name": "now", "arguments": {}}\n{"name": "now", "arguments": {}}\n</tool_call>',
        calls=[("now", {}), ("now", {})],
    ),
    # Qwen/Qwen3-8B: reasoning between line feeds, then content.
    Case(
        id="qwen3-thinks",
        tools="hermes",
        thinks="think",
        output='<think>\nThe user asks\nfor <tool_call>s.\n</think>\n\nHere:\n<tool_call>\n{"name": "now", '
        '"arguments": {}}\n</tool_call>',
        reasoning="The user asks\nfor <tool_call>s.",
        text="Here:",
        calls=[("now", {})],
    ),
    # deepseek-ai/DeepSeek-R1: the prompt ends with the begin tag.
    Case(
        id="prompt-thinks",
        tools="json",
        thinks="think",
        prompt="<｜User｜>Hi<｜Assistant｜><think>\n",
        output="Well.\n</think>\n\nHello.",
        reasoning="Well.",
        text="Hello.",
    ),
    Case(
        id="prompt-thinks-and-model-repeats",
        tools="json",
        thinks="think",
        prompt="<think>",
        output="\n<think>\nWell.</think>Hello.",
        reasoning="Well.",
        text="Hello.",
    ),
    Case(id="no-thoughts", tools="json", thinks="think", output="\n<thin air", text="\n<thin air"),
    Case(
        id="thoughts-cut-off", tools="json", thinks="think", output="<think>Hm, </thi", reasoning="Hm, </thi", text=""
    ),
    # Qwen/Qwen3-Coder-30B-A3B-Instruct.
    Case(
        id="qwen3-coder",
        tools="qwen3_coder",
        output="I look it up.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n"
        '<parameter=places>\n["a", "b"]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n'
        "</function>\n</tool_call>",
        text="I look it up.",
        calls=[("get_weather", {**WEATHER, "metric": True, "places": ["a", "b"]}), ("now", {})],
    ),
    Case(
        id="qwen3-coder-code",
        tools="qwen3_coder",
        output=f"<tool_call>\n<function=write-file>\n<parameter=code>\n{CODE}\n</parameter>\n</function>\n</tool_call>",
        calls=[("write-file", {"code": CODE})],
    ),
    Case(
        id="qwen3-coder-careless",
        tools="qwen3_coder",
        output="<function=get_weather><parameter=city>Paris\n<parameter=days>3</parameter></function>\n",
        calls=[("get_weather", WEATHER)],
    ),
    # ByteDance-Seed/Seed-OSS-36B-Instruct.
    Case(
        id="seed-oss",
        tools="seed_oss",
        thinks="seed",
        output="\n<seed:think>Hm.</seed:think>\nI look.\n\n<seed:tool_call>\n<function=get_weather>\n"
        "<parameter=city>Paris</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>",
        reasoning="Hm.",
        text="I look.",
        calls=[("get_weather", WEATHER)],
    ),
    # nvidia/NVIDIA-Nemotron-Nano-9B-v2.
    Case(
        id="nemotron",
        tools="nemotron",
        thinks="think",
        prompt="<SPECIAL_11>Assistant\n<think>\n\n",
        output='Hm.\n</think>\n\nI look.\n\n<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}, '
        '{"name": "now", "arguments": {}}]</TOOLCALL>\n',
        reasoning="Hm.",
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    # LiquidAI/LFM2.5-8B-A1B, and its earlier form with JSON.
    Case(
        id="lfm2",
        tools="lfm2",
        output="<|tool_call_start|>[get_weather(city='Paris', days=3), now()]<|tool_call_end|>[1] is no call.",
        text="[1] is no call.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="lfm2-json",
        tools="lfm2",
        output='<|tool_call_start|>[{"name": "now", "arguments": {}, "id": "1"}]<|tool_call_end|>I look.',
        text="I look.",
        calls=[("now", {})],
    ),
    # meta-llama/Llama-3.1-8B-Instruct, with and without an ipython environment.
    Case(
        id="llama",
        tools="llama_json",
        output='{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}',
        calls=[("get_weather", WEATHER)],
    ),
    Case(
        id="llama-tag",
        tools="llama_json",
        output='<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris", "days": 3}}; '
        '{"type": "function", "name": "now", "parameters": {}}',
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="llama-built-in",
        tools="llama_json",
        output='<|python_tag|>brave_search.call(query="weather in \\"Łódź\\"")',
        calls=[("brave_search", {"query": 'weather in "Łódź"'})],
    ),
    json_case("llama-awkward", "llama_json", '{"name": "get_weather", "parameters": %s}'),
    Case(
        id="llama-json-answer",
        tools="llama_json",
        output='{"name": "Ada", "parameters": {"born": 1815}}; {"now": [1, {}]}',
        text='{"name": "Ada", "parameters": {"born": 1815}}; {"now": [1, {}]}',
    ),
    # Llama 3.2's and Llama 4's prompt formats.
    Case(
        id="pythonic",
        tools="pythonic",
        output='[get_weather(city="Paris", days=3), now()]',
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="pythonic-awkward",
        tools="pythonic",
        output="<|python_start|>[ get_weather(\n  city='a\\'b, (c) \\u0141 \\U0001F30D', options={'x': (1, -2.5e3), \"y\": None, "
        "'z': {}}, places=[\"]\", '''t\"'''], metric = False, note=r'\\d')]<|python_end|> See [1] and [now].",
        text="See [1] and [now].",
        calls=[
            (
                "get_weather",
                {
                    "city": "a'b, (c) Ł 🌍",
                    "options": {"x": [1, -2500.0], "y": None, "z": {}},
                    "places": ["]", 't"'],
                    "metric": False,
                    "note": "\\d",
                },
            )
        ],
    ),
    Case(
        id="pythonic-code",
        tools="pythonic",
        output=f"[write-file(code={CODE!r})]",
        calls=[("write-file", {"code": CODE})],
    ),
    Case(
        id="pythonic-positional-and-expressions",
        tools="pythonic",
        output='[get_weather("Paris", days=2+1, note=f(x), options=x.y)]',
        calls=[("get_weather", {"city": "Paris", "days": "2+1", "note": "f(x)", "options": "x.y"})],
    ),
    # Gemma 3's function calling guide.
    Case(
        id="gemma-tool-code",
        tools="gemma_tool_code",
        output='Sure.\n```tool_code\nprint(get_weather(city="Paris", days=3))\nnow()\n```\n',
        text="Sure.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    # mistralai/Mistral-Small-3.1-24B-Instruct-2503 and Mistral-Nemo-Instruct-2407.
    Case(
        id="mistral",
        tools="mistral",
        output='[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}, "id": "abcdefghi"}, '
        '{"name": "now", "arguments": {}, "id": "123456789"}]',
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    json_case("mistral-awkward", "mistral", 'So:[TOOL_CALLS][{"name": "get_weather", "arguments": %s}]', text="So:"),
    # mistralai/Devstral-Small-2-24B-Instruct-2512 and Ministral-3-14B-Reasoning-2512.
    Case(
        id="mistral-named",
        tools="mistral_named",
        thinks="mistral",
        output='[THINK]Hm [TOOL.[/THINK]I look.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris", "days": 3}'
        "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}",
        reasoning="Hm [TOOL.",
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="mistral-v11",
        tools="mistral",
        output='[TOOL_CALLS]now{}[TOOL_CALLS]now{"x": "[ARGS]"}',
        calls=[("now", {}), ("now", {"x": "[ARGS]"})],
    ),
    # deepseek-ai/DeepSeek-V3-0324.
    Case(
        id="deepseek-v3",
        tools="deepseek_v3",
        output="I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Paris", "days": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}'
        "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    json_case(
        "deepseek-v3-awkward",
        "deepseek_v3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n%s\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
    ),
    # deepseek-ai/DeepSeek-V3.1.
    Case(
        id="deepseek-v31",
        tools="deepseek_v31",
        thinks="think",
        prompt="<｜User｜>Hi<｜Assistant｜><think>",
        output='Hm.</think>I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris", '
        '"days": 3}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        reasoning="Hm.",
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="deepseek-thoughts-not-closed",
        tools="deepseek_v31",
        thinks="think",
        prompt="<think>",
        output="Hm, I call.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        reasoning="Hm, I call.",
        calls=[("now", {})],
    ),
    # deepseek-ai/DeepSeek-V3.2: encoding/encoding_dsv32.py.
    Case(
        id="deepseek-v32",
        tools="deepseek_v32",
        output='I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="deepseek-v32-awkward",
        tools="deepseek_v32",
        output='<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        f'<｜DSML｜parameter name="city" string="true">{AWKWARD["city"]}</｜DSML｜parameter>\n'
        f'<｜DSML｜parameter name="options" string="false">{json.dumps(AWKWARD["options"])}</｜DSML｜parameter>\n'
        f'<｜DSML｜parameter name="places" string="false">{json.dumps(AWKWARD["places"])}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        calls=[("get_weather", AWKWARD)],
    ),
    Case(
        id="deepseek-v4",
        tools="deepseek_v4",
        output='<｜DSML｜tool_calls>\n<｜DSML｜invoke name="write-file">\n'
        f'<｜DSML｜parameter name="code" string="true">{CODE}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        calls=[("write-file", {"code": CODE})],
    ),
    # MiniMaxAI/MiniMax-M2.
    Case(
        id="minimax",
        tools="minimax_m2",
        thinks="think",
        prompt="]~b]ai\n<think>\n",
        output='Hm.\n</think>\n\n\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>',
        reasoning="Hm.",
        calls=[("get_weather", WEATHER)],
    ),
    # zai-org/GLM-4.6, and GLM-4.7 without line feeds.
    Case(
        id="glm",
        tools="glm",
        thinks="think",
        output="\n<think>Hm.</think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        reasoning="Hm.",
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="glm-awkward",
        tools="glm",
        output=f"<tool_call>get_weather<arg_key>city</arg_key><arg_value>{AWKWARD['city']}</arg_value>"
        f"<arg_key>options</arg_key><arg_value>{json.dumps(AWKWARD['options'])}</arg_value><arg_key>places</arg_key>"
        f"<arg_value>{json.dumps(AWKWARD['places'])}</arg_value></tool_call>",
        calls=[("get_weather", AWKWARD)],
    ),
    # moonshotai/Kimi-K2-Instruct and Kimi-K2-Thinking.
    Case(
        id="kimi",
        tools="kimi_k2",
        thinks="think",
        output="<think>Hm.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Paris", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.now:1'
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        reasoning="Hm.",
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    json_case(
        "kimi-awkward",
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:12<|tool_call_argument_begin|>%s"
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    # openai/gpt-oss-20b, and the examples of OpenAI's description of the format.
    Case(
        id="harmony",
        tools="harmony",
        thinks="harmony",
        prompt="<|start|>user<|message|>Hi<|end|><|start|>assistant",
        output="<|channel|>analysis<|message|>Need to use\nget_weather.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris", "days": 3}<|call|>',
        reasoning="Need to use\nget_weather.",
        calls=[("get_weather", WEATHER)],
    ),
    Case(
        id="harmony-preamble",
        tools="harmony",
        thinks="harmony",
        output="<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>**Plan**:\n1. Look<|end|><|start|>assistant<|channel|>commentary"
        " to=functions.now<|constrain|>json<|message|>{}",
        reasoning="One.\n\nTwo.",
        text="**Plan**:\n1. Look",
        calls=[("now", {})],
    ),
    Case(
        id="harmony-answer",
        tools="harmony",
        thinks="harmony",
        output="<|channel|>analysis<|message|>2 + 2<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 = 4.",
        reasoning="2 + 2",
        text="2 + 2 = 4.",
    ),
    Case(
        id="harmony-recipient-in-the-role",
        tools="harmony",
        thinks="harmony",
        output=' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Paris", "days": 3}<|call|>'
        "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="harmony-prompt-in-a-channel",
        tools="harmony",
        thinks="harmony",
        prompt="<|start|>assistant<|channel|>analysis<|message|>",
        output="Hm.<|end|><|start|>assistant<|channel|>final<|message|>Ha.<|return|>",
        reasoning="Hm.",
        text="Ha.",
    ),
    Case(
        id="harmony-broken-header",
        tools="harmony",
        thinks="harmony",
        output="<|start|>assistant<|start|>assistant<|channel|>final<|message|>Hi.<|start|>assistant<|end|>",
        text="<|start|>assistant\n\nHi.<|start|>assistant<|end|>",
    ),
    Case(id="harmony-without-headers", tools="harmony", thinks="harmony", output="Just text.", text="Just text."),
    Case(
        id="harmony-no-tools",
        tools="harmony",
        thinks="harmony",
        offered=False,
        output='<|channel|>commentary to=functions.now<|message|>{"a": 1}<|call|>',
        text='{"a": 1}',
    ),
    # google/gemma-4-31B-it.
    Case(
        id="gemma4",
        tools="gemma4",
        thinks="gemma4",
        output='<|channel>thought\nHm.\n<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>'
        "<|tool_call>call:now{}<tool_call|>",
        reasoning="Hm.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    Case(
        id="gemma4-awkward",
        tools="gemma4",
        output='<|tool_call>call:get_weather{city:<|"|>Łódź "old" town\\ 🌍 </x> {[<|"|>,options:{a:{b:[1,2.5,null,true,'
        '{c:<|"|>}<|"|>}]},é:<|"|><|"|>},places:[<|"|>a,b<|"|>,<|"|>c]d<|"|>,<|"|>line\nbreak\ttab<|"|>]}<tool_call|>',
        calls=[("get_weather", AWKWARD)],
    ),
    Case(
        id="gemma4-code",
        tools="gemma4",
        output=f'<|tool_call>call:write-file{{code:<|"|>{CODE}<|"|>}}<tool_call|>',
        calls=[("write-file", {"code": CODE})],
    ),
    # google/functiongemma-270m-it.
    Case(
        id="function-gemma",
        tools="function_gemma",
        output="<start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>",
        calls=[("get_weather", WEATHER)],
    ),
    # ibm-granite/granite-3.3-8b-instruct.
    Case(
        id="granite",
        tools="granite",
        thinks="granite",
        output="<think>Hm.</think><response>I look.</response><|tool_call|>"
        '[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}, {"name": "now", "arguments": {}}]',
        reasoning="Hm.",
        text="I look.",
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    # ibm-granite/granite-3.2-8b-instruct.
    Case(
        id="granite-32-thinks",
        tools="granite",
        thinks="granite_32",
        output="Here is my thought process:\nHm.\n\nHere is my response:\nHello.",
        reasoning="Hm.",
        text="Hello.",
    ),
    # What runtime/parsers/prompting.py asks for, and what small models make of it.
    Case(
        id="json",
        tools="json",
        output='{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}, {"name": "now", '
        '"arguments": {}}]}',
        calls=[("get_weather", WEATHER), ("now", {})],
    ),
    json_case("json-single", "json", 'I call:\n{"name": "get_weather", "arguments": %s}\n', text="I call:"),
    Case(
        id="json-fenced",
        tools="json",
        output='Sure.\n```json\n{"name": "now", "arguments": {}}\n```\nand\n```python\nprint({"a": [1]})\n```',
        text='Sure.\n\nand\n```python\nprint({"a": [1]})\n```',
        calls=[("now", {})],
    ),
    Case(
        id="json-in-tags",  # HuggingFaceTB/SmolLM2-1.7B-Instruct's model card asks for this
        tools="json",
        output='<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}]</tool_call>',
        calls=[("get_weather", WEATHER)],
    ),
    Case(
        id="json-answer",
        tools="json",
        output='[1] {"name": "Bob", "age": 5} {"tool_calls": []} {} [] [{"x": 1}] ``` <tool_calls> {"name": "now", "x": 1}',
        text='[1] {"name": "Bob", "age": 5} {"tool_calls": []} {} [] [{"x": 1}] ``` <tool_calls> {"name": "now", "x": 1}',
    ),
    # Cut off, and broken by the model.
    Case(
        id="cut-in-a-marker",
        tools="hermes",
        output="Hi\n<tool_ca",
        text="Hi\n<tool_ca",
    ),
    Case(
        id="cut-before-the-name",
        tools="hermes",
        output='Hi\n<tool_call>\n{"arguments": {"a": 1}, "na',
        text='Hi\n<tool_call>\n{"arguments": {"a": 1}, "na',
    ),
    Case(
        id="closed-too-early",
        tools="hermes",
        output='<tool_call>{"name": "now", "arguments": {"a": [1</tool_call>\nSorry.',
        text="Sorry.",
        calls=[("now", {})],
        unfinished=(0,),
    ),
    Case(
        id="no-call-in-tags",
        tools="hermes",
        output='<tool_call>not JSON</tool_call> <tool_call>{"name": 5}</tool_call>',
        text='<tool_call>not JSON</tool_call> <tool_call>{"name": 5}</tool_call>',
    ),
    Case(
        id="call-behind-a-failed-one",
        tools="hermes",
        output='<tool_call> <tool_call>{"name": "now"}</tool_call>',
        text="<tool_call>",
        calls=[("now", {})],
    ),
    Case(
        id="cut-behind-the-arguments",
        tools="mistral",
        output='[TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "abc',
        calls=[("now", {})],
    ),
    Case(
        id="cut-in-a-closer",
        tools="deepseek_v31",
        output="<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁ca",
        calls=[("now", {})],
    ),
    Case(
        id="cut-in-a-second-call",
        tools="mistral",
        output='[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "ge',
        calls=[("now", {})],
        text=', {"name": "ge',
    ),
    Case(id="not-offered", tools="hermes", offered=False, output="<tool_call>{}", text="<tool_call>{}"),
]
BY_ID = {case.id: case for case in CASES}
assert len(BY_ID) == len(CASES)


def parser_of(case: Case, tools: Sequence[Tool] = TOOLS) -> OutputParser:
    ids = (f"id{number}" for number in itertools.count())
    return output_parser(
        Formats(tools=case.tools, reasoning=case.thinks),
        tools if case.offered else (),
        offered=case.offered,
        prompt=case.prompt,
        new_id=lambda: next(ids),
    )


def events_of(parser: OutputParser, pieces: Iterable[str]) -> list[Event]:
    return joined([event for piece in pieces for event in parser.push(piece)] + parser.finish())


def joined(events: Iterable[Event]) -> list[Event]:
    """Adjacent deltas of a kind as one."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta) and type(last) is type(event):
            found[-1] = msgspec.structs.replace(event, text=last.text + event.text)  # type: ignore[union-attr]
        else:
            found.append(event)
    return found


def parsed(case: Case, output: str | None = None) -> ParsedOutput:
    return collect(events_of(parser_of(case), [case.output if output is None else output]))


def cut(text: str, at: Iterable[int]) -> Iterator[str]:
    begin = 0
    for end in sorted(at):
        yield text[begin:end]
        begin = end
    yield text[begin:]
