"""Which formats a chat template asks for."""

from __future__ import annotations

import pytest

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.parsers.registry import Formats, detect, knows_tools, names, tool_format

# What the published template of a model contains, as far as it matters here.
TEMPLATES = {
    # HuggingFaceTB/SmolLM2-135M-Instruct, the default model
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'}}"
    "{% endfor %}": ("json", "none"),
    # Qwen/Qwen2.5-7B-Instruct
    "{%- if tools %}{{- '<tools>' }}{%- for tool in tools %}{{ tool | tojson }}{%- endfor %}{{- '\\n<tool_call>\\n' }}"
    "{%- endif %}": ("hermes", "none"),
    # Qwen/Qwen3-8B
    "{%- if tools %}{%- endif %}{{- '\\n<tool_call>\\n{\"name\": \"' }}{{- '<think>\\n' }}": ("hermes", "think"),
    # Qwen/Qwen3-Coder-30B-A3B-Instruct
    "{%- if tools %}{{- '<tool_call>\\n<function=' + tool.name + '>\\n' }}{{- '<parameter=' + name + '>\\n' }}"
    "{%- endif %}": ("qwen3_coder", "none"),
    # zai-org/GLM-4.6
    "{%- if tools -%}<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>{%- endif -%}<think></think>": (
        "glm",
        "think",
    ),
    # deepseek-ai/DeepSeek-V3-0324 and DeepSeek-V3.1
    "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + '\\n' + '```json'}}": (
        "deepseek_v3",
        "none",
    ),
    "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>'}}{{'</think>'}}": (
        "deepseek_v31",
        "think",
    ),
    # deepseek-ai/DeepSeek-V3.2
    "{%- set dsml_token = \"｜DSML｜\" -%}<{{ dsml_token }}function_calls>{{ '<think>' }}": ("deepseek_v32", "think"),
    # moonshotai/Kimi-K2-Instruct and -Thinking
    "{% if tools -%}{{ '<|im_system|>tool_declare<|im_middle|>' -}}{% endif %}": ("kimi_k2", "none"),
    "<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}<|tool_call_argument_begin|><think></think>": (
        "kimi_k2",
        "think",
    ),
    # mistralai/Mistral-Small-3.1, Devstral-Small-2, Magistral-Small-2509
    '{{- "[TOOL_CALLS] [" }}{%- for tool in tools %}{%- endfor %}': ("mistral", "none"),
    "{{- '[TOOL_CALLS]' }}{{- name + '[ARGS]' + arguments }}": ("mistral_named", "none"),
    "{{- '[TOOL_CALLS]' }}{{- name + '[ARGS]' }}{{ '[THINK]' }}": ("mistral_named", "mistral"),
    # openai/gpt-oss-20b
    '{{- "<|start|>assistant to=functions." + name + "<|channel|>commentary json<|message|>" }}'
    '{{- "<|start|>assistant<|channel|>analysis<|message|>" }}': ("harmony", "harmony"),
    # meta-llama/Llama-3.1-8B-Instruct, Llama-3.2-3B-Instruct
    '{{- "<|python_tag|>" + tool_call.name + ".call(" }}{{- \'"parameters": \' }}': ("llama_json", "none"),
    "{{- '<|start_header_id|>' }}{{- '{\"name\": \"' + tool_call.name + '\", ' }}{{- '\"parameters\": ' }}": (
        "llama_json",
        "none",
    ),
    # Llama 4 with lists of calls
    "{{- '<|header_start|>' }}Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]": (
        "pythonic",
        "none",
    ),
    # google/gemma-4-31B-it, functiongemma-270m-it
    "{{- '<|tool_call>call:' + function['name'] + '{' -}}{{- '<|channel>thought\\n' -}}": ("gemma4", "gemma4"),
    "<start_function_call>call:{{ tool_call.function.name }}{": ("function_gemma", "none"),
    # ibm-granite/granite-3.3-8b-instruct, granite-4.0-h-small
    "{{- '<|tool_call|>' }}{{ '<think></think><response></response>' }}": ("granite", "granite"),
    '<|start_of_role|>{{ tools }}\n<tool_call>\n{"name": <function-name>': ("hermes", "none"),
    # nvidia/NVIDIA-Nemotron-Nano-9B-v2, LiquidAI/LFM2.5-8B-A1B, ByteDance-Seed/Seed-OSS-36B-Instruct
    "{{- '<TOOLCALL>[' -}}{{- '<think>\n\n' -}}": ("nemotron", "think"),
    '{{- "<|tool_call_start|>[" }}{{- "<think>" }}': ("lfm2", "think"),
    "<seed:tool_call>\\n<function=f>\\n<parameter=p>value_1</parameter>{{ '<seed:think>' }}": ("seed_oss", "seed"),
    # MiniMaxAI/MiniMax-M2
    "{%- set toolcall_begin_token = '<minimax:tool_call>' -%}<invoke name=\"x\"><think><response>": (
        "minimax_m2",
        "think",
    ),
}


@pytest.mark.parametrize(("template", "expected"), TEMPLATES.items(), ids=[repr(text[:30]) for text in TEMPLATES])
def test_detect(template: str, expected: tuple[str, str]) -> None:
    assert detect(template) == Formats(tools=expected[0], reasoning=expected[1])


def test_every_format_but_the_one_for_guides_is_detected() -> None:
    found = {detect(template).tools for template in TEMPLATES}
    missing = set(names().tools) - found
    assert missing == {"deepseek_v4", "gemma_tool_code"}
    assert detect("<｜DSML｜tool_calls>").tools == "deepseek_v4"
    assert detect("```tool_code").tools == "gemma_tool_code"


def test_without_a_template() -> None:
    assert detect(None) == Formats(tools="json", reasoning="none")


def test_names_override() -> None:
    template = "<tool_call><think>"
    assert detect(template, tools="glm", reasoning="none") == Formats(tools="glm", reasoning="none")
    assert detect(template, tools="none").tools == "none"
    assert detect(template, reasoning="<reason>...</reason>").reasoning == "<reason>...</reason>"
    assert detect(template, tools="none", reasoning="<reason>...</reason>").marks == {"<reason>", "</reason>"}
    assert "hermes" in names().tools
    assert {"think", "harmony"} <= set(names().reasoning)


@pytest.mark.parametrize("name", ["", "hermess", "Hermes"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not known") as error:
        detect("", tools=name)
    assert "hermes" in error.value.hint
    with pytest.raises(InvalidRequest, match="is not known"):
        detect("", reasoning=name)


@pytest.mark.parametrize("name", ["<a>...", "...<a>", "<a>...<a>", " ... "])
def test_tags_that_can_not_be_told_apart(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not known"):
        detect("", reasoning=name)


def test_knows_tools() -> None:
    assert knows_tools("{%- if tools %}{% endif %}")
    assert knows_tools("{% for tool in tools %}{% endfor %}")
    assert knows_tools("{{ tools | tojson }}")
    assert not knows_tools("{{ messages }} tools")
    assert not knows_tools(None)


def test_marks_are_what_a_detokenizer_must_keep() -> None:
    for name in names().tools:
        format = tool_format(name)
        marks = Formats(tools=name).marks
        unmarked = set(format.opens) - marks - {"{", "[", "```", " to=functions."}
        assert not unmarked, name
    assert "</think>" in Formats(reasoning="think").marks
    assert "<|message|>" in Formats(tools="none", reasoning="harmony").marks
    assert Formats(tools="none").marks == frozenset()
