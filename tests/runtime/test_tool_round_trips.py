"""Conversations with tools, turn by turn, in the manner of published templates: what the template renders of an
assistant's turn is read however it is cut, and what was read renders to the same again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from chat_models import HARMONY, HARMONY_SPECIALS, QWEN, SPECIALS, special_tokenizer

from palmette.runtime.frontend.chat_prompt import ChatPrompts
from palmette.runtime.frontend.chat_turn import ChatMessage, ChatTurn, ToolCall
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.parsers.parser import output_parser
from palmette.runtime.parsers.protocol import ParsedOutput, Tool, collect
from palmette.runtime.parsers.registry import detect
from palmette.runtime.text.chat_template import ChatTemplate
from palmette.runtime.text.turns import TurnRenderer

TOOLS = (
    Tool(
        name="get_weather",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"}, "days": {"type": "integer"}, "options": {"type": "object"},
                "places": {"type": "array"}, "metric": {"type": "boolean"},
            },
        },
    ),
    Tool(name="now"),
)  # fmt: skip

# zai-org/GLM-4.6
GLM = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
    "{% if m.role == 'user' %}{{ '<|user|>\n' + m.content }}"
    "{% elif m.role == 'tool' %}{{ '<|observation|>\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{% else %}{{ '<|assistant|>\n<think>' + (m.reasoning_content or '') + '</think>' }}"
    "{% if m.content %}{{ '\n' + m.content }}{% endif %}{% for c in m.tool_calls or [] %}"
    "{{ '\n<tool_call>' + c.function.name + '\n' }}{% for k, v in c.function.arguments.items() %}"
    "{{ '<arg_key>' + k + '</arg_key>\n<arg_value>' }}"
    "{{ v if v is string else v | tojson(ensure_ascii=False) }}{{ '</arg_value>\n' }}"
    "{% endfor %}</tool_call>{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# deepseek-ai/DeepSeek-V3.1: no header behind the results of tools
DEEPSEEK_V31 = (
    "{{ tools | tojson }}{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
    "{% elif m.role == 'tool' %}<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>{% else %}"
    "{% if loop.previtem.role == 'user' %}<｜Assistant｜></think>{% endif %}{{ m.content or '' }}"
    "{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for c in m.tool_calls %}"
    "{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments + '<｜tool▁call▁end｜>' }}"
    "{% endfor %}<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role == 'user' %}<｜Assistant｜></think>{% endif %}"
)
# moonshotai/Kimi-K2-Thinking: a call is known by its id alone
KIMI = (
    "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}<|im_user|>user<|im_middle|>{{ m.content }}"
    "{% elif m.role == 'tool' %}{{ '<|im_system|>' + m.name + '<|im_middle|>## Return of ' + m.tool_call_id }}"
    "{{ '\n' + m.content }}{% else %}"
    "<|im_assistant|>assistant<|im_middle|><think>{{ m.reasoning_content or '' }}</think>{{ m.content or '' }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}"
    "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson(ensure_ascii=False) }}"
    "<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}"
)
# Qwen/Qwen3-Coder-30B-A3B-Instruct
CODER = (
    "{{ tools | tojson }}{% for m in messages %}{{ '<|im_start|>' + m.role }}"
    "{% if m.role != 'assistant' or not m.tool_calls %}{{ '\n' + m.content }}{% else %}"
    "{% if m.content %}{{ '\n' + m.content + '\n' }}{% endif %}"
    "{% for c in m.tool_calls %}{{ '\n<tool_call>\n<function=' + c.function.name + '>\n' }}"
    "{% for k, v in c.function.arguments.items() %}{{ '<parameter=' + k + '>\n' }}"
    "{{ v | tojson(ensure_ascii=False) if v is mapping or v is sequence and v is not string else v | string }}"
    "{{ '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# meta-llama/Llama-3.1-8B-Instruct: one call a turn, and no text beside it
LLAMA = (
    "{{ tools | tojson }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}{% if m.tool_calls %}"
    '{{ \'{"name": "\' + m.tool_calls[0].function.name + \'", "parameters": \' }}'
    "{{ m.tool_calls[0].function.arguments | tojson(ensure_ascii=False) }}{{ '}' }}"
    "{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
# mistralai/Devstral-Small-2-24B-Instruct-2512
MISTRAL_NAMED = (
    "{{ tools | tojson }}{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
    "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"
    "{% else %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' }}{{ c.function.arguments | tojson(ensure_ascii=False) }}"
    "{% endfor %}</s>{% endif %}{% endfor %}"
)
# ibm-granite/granite-3.3-8b-instruct
GRANITE = (
    "{{ tools | tojson }}{% for m in messages %}{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' }}"
    "{% if m.tool_calls %}<|tool_call|>[{% for c in m.tool_calls %}{{ c.function | tojson(ensure_ascii=False) }}"
    "{{ ', ' if not loop.last }}{% endfor %}]{% else %}{{ m.content }}{% endif %}{{ '<|end_of_text|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)


class Model(NamedTuple):
    """`ends`: what ends a turn, the first of these; `beside`: text may stand beside calls; `several` calls a turn."""

    template: str
    specials: Sequence[str]
    tools: str
    ends: Sequence[str] = ("<|im_end|>",)
    beside: bool = True
    several: bool = True
    thinks: bool = False


MODELS = {
    "qwen": Model(QWEN, SPECIALS, "hermes", thinks=True),
    "glm": Model(GLM, ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|user|>"], "glm", (), thinks=True),
    "deepseek": Model(
        DEEPSEEK_V31,
        ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
         "<｜tool▁calls▁end｜>"],
        "deepseek_v31", ["<｜end▁of▁sentence｜>"],
    ),
    "kimi": Model(KIMI, ["<|tool_call_begin|>", "<|tool_call_end|>", "<|im_end|>"], "kimi_k2", thinks=True),
    "coder": Model(CODER, ["<|im_end|>"], "qwen3_coder"),
    "llama": Model(LLAMA, ["<|eot_id|>"], "llama_json", ["<|eot_id|>"], beside=False, several=False),
    "mistral": Model(MISTRAL_NAMED, ["[TOOL_CALLS]", "[ARGS]", "[INST]"], "mistral_named", ["</s>"]),
    "granite": Model(GRANITE, ["<|tool_call|>"], "granite", ["<|end_of_text|>"], beside=False),
    "harmony": Model(HARMONY, HARMONY_SPECIALS, "harmony", ["<|call|>", "<|end|>"], beside=False, several=False),
}  # fmt: skip
AWKWARD = {
    "city": 'Łódź "old" town\\ 🌍 </x> {[',
    "days": 3,
    "options": {"a": {"b": [1, 2.5, None, True, {"c": "}"}]}, "é": ""},
    "places": ["a,b", "c]d", "line\nbreak\ttab"],
}
PLAIN = {"city": "Paris", "metric": True}


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def talk(name: str, tmp_path_factory: pytest.TempPathFactory) -> Talk:
    return Talk(MODELS[name], tmp_path_factory.mktemp("model"))


class Talk:
    """A conversation with a model: its prompts as text, and its outputs read."""

    def __init__(self, model: Model, folder: Path) -> None:
        self.model = model
        self.tokenizer = special_tokenizer(folder, model.template, model.specials)
        renderer = TurnRenderer.of(self.tokenizer)
        assert renderer is not None
        template: ChatTemplate = renderer.chat_template
        self.formats = detect(template.source)
        self.prompts = ChatPrompts(template, self.tokenizer, self.formats)

    def text(self, messages: Sequence[ChatMessage], *, generate: bool) -> str:
        turn = ChatTurn(messages=tuple(messages), tools=TOOLS, add_generation_prompt=generate)
        return self.tokenizer.decode(unpack(self.prompts.prompt(turn).tokens), skip_special=False)

    def written(self, before: Sequence[ChatMessage], message: ChatMessage) -> tuple[str, str]:
        """The prompt, and what the model writes behind it where its turn is this message."""
        prompt, whole = self.text(before, generate=True), self.text([*before, message], generate=False)
        assert whole.startswith(prompt)
        output = whole[len(prompt) :]
        ends = [at for end in self.model.ends if (at := output.find(end)) >= 0]
        if self.model.tools == "harmony" and message.tool_calls:
            ends = [output.index("<|call|>")]
        return prompt, output[: min(ends)] if ends else output

    def read(self, pieces: Iterator[str], prompt: str) -> ParsedOutput:
        count = iter(range(100))
        own_ids = self.model.tools == "kimi_k2"
        new_id = None if own_ids else lambda: f"{next(count):09}"
        parser = output_parser(self.formats, TOOLS, prompt=prompt, new_id=new_id)
        return collect([event for piece in pieces for event in parser.push(piece)] + parser.finish())


def cuts(text: str) -> Iterator[Iterator[str]]:
    yield iter([text])
    yield iter(text)
    for at in range(1, len(text)):
        yield iter([text[:at], text[at:]])


def turns(model: Model) -> list[ChatMessage]:
    """What the assistant says in turn; tools answer its calls, and the user what has none."""

    def call(number: int, name: str, arguments: dict[str, Any]) -> ToolCall:
        id = f"functions.{name}:{number}" if model.tools == "kimi_k2" else f"{number:09}"
        return ToolCall(id=id, name=name, arguments=json.dumps(arguments, ensure_ascii=False))

    def said(content: str, *calls: ToolCall, reasoning: str = "") -> ChatMessage:
        text = content if model.beside or not calls else ""
        kept = calls if model.several else calls[:1]
        thought = reasoning if model.thinks else ""
        return ChatMessage(
            role="assistant", content=text or (None if calls else ""), tool_calls=kept, reasoning=thought or None
        )

    return [
        said("", call(0, "get_weather", PLAIN)),
        said("I look.", call(0, "get_weather", AWKWARD), call(1, "now", {}), reasoning="Łódź, then."),
        said('It is {"cold"}: <b>3</b> [degrees].', reasoning="So."),
        said("", call(0, "now", {})),
        said("Done."),
    ]


def test_the_format_is_known_by_the_template(talk: Talk) -> None:
    assert talk.formats.tools == talk.model.tools
    assert (talk.formats.reasoning != "none") or not talk.model.thinks


def test_turns_are_read_and_rendered_again(talk: Talk) -> None:
    before = [ChatMessage(role="user", content="Weather in Łódź?")]
    for message in turns(talk.model):
        prompt, output = talk.written(before, message)
        first: ParsedOutput | None = None
        for pieces in cuts(output):
            found = talk.read(pieces, prompt)
            first = first or found
            assert found == first
        assert first is not None
        assert first.text == (message.content or "")
        assert first.reasoning == (message.reasoning or "")
        assert [(call.name, json.loads(call.arguments)) for call in first.calls] == [
            (call.name, json.loads(call.arguments)) for call in message.tool_calls
        ]
        assert all(call.finished for call in first.calls)
        back = ChatMessage(
            role="assistant",
            content=None if first.calls and not first.text else first.text,
            reasoning=first.reasoning or None,
            tool_calls=tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in first.calls),
        )
        assert talk.text([*before, back], generate=False) == talk.text([*before, message], generate=False)
        before.append(back)
        answers = [ChatMessage(role="tool", content="4 °C", tool_call_id=call.id) for call in back.tool_calls]
        before += answers or [ChatMessage(role="user", content="And now?")]


def test_a_turn_cut_off_anywhere_begins_like_the_whole(talk: Talk) -> None:
    """What a client is told of a call that broke off is the beginning of it, and it isn't taken for a whole one."""
    before = [ChatMessage(role="user", content="Weather in Łódź?")]
    message = turns(talk.model)[1]
    prompt, output = talk.written(before, message)
    whole = talk.read(iter([output]), prompt)
    for length in range(len(output)):
        found = talk.read(iter([output[:length]]), prompt)
        assert len(found.calls) <= len(whole.calls)
        for call, complete in zip(found.calls, whole.calls, strict=False):
            assert call.name == complete.name
            assert complete.arguments.startswith(call.arguments) or not call.finished
            if call.finished:
                assert json.loads(call.arguments) == json.loads(complete.arguments)
