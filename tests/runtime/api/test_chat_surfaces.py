"""The three chat surfaces through their own clients: they say the same of an output, whole and streamed, and refuse or
leave out the same things."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import anthropic
import httpx
import openai
import pytest
from chat_models import HARMONY, HARMONY_SPECIALS, QWEN, SPECIALS, ScriptedChat, special_tokenizer
from live_server import LiveServer

from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.bodies import IGNORED_HEADER
from palmette.runtime.api.chats import ENOUGH, pieces

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
SCHEMAS = {"get_weather": CITY, "now": {"type": "object", "properties": {}}}
HI: Any = [{"role": "user", "content": "Hi."}]
LLAMA = (
    '{"name": x, "parameters": y} <|python_tag|>{{ tools }}'
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content }}{% endfor %}"
)
CODER = "<function= <parameter= " + QWEN
MODELS: dict[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "hermes": (QWEN, SPECIALS, [
        "<think>", "</think>", "<tool_call>\n", "\n</tool_call>", '{"name": "get_weather", "arguments": {"city": "Os',
        'lo"}}', '{"name": "now"}', '"', "\\", "é😀", "text ", "}", " ",
    ]),
    "harmony": (HARMONY, HARMONY_SPECIALS, [
        *HARMONY_SPECIALS, "analysis", "final", "commentary", " to=functions.get_weather ", "json", "hm ", "\n",
        '{"city": "Os', 'lo"}', "<|channel|>analysis<|message|>", "<|end|><|start|>assistant",
        "<|channel|>final<|message|>", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
    ]),
    "llama": (LLAMA, ["<|python_tag|>"], [
        "<|python_tag|>", '{"name": "get_weather", "parameters": {"city": "Os', 'lo"}}',
        '{"name": "now", "parameters": {}}', "; ", '{"x": 1}', "text ", '"', "{", "}", "now.call(", "a=1)", "\n",
    ]),
    "coder": (CODER, SPECIALS, [
        "<tool_call>\n", "<function=get_weather>\n", "<parameter=city>\n", "Oslo", "\n</parameter>\n", "</function>\n",
        "</tool_call>", "text", "<", ">", "<think>", "</think>", "<function=now>\n",
    ]),
    "json": ("{% for m in messages %}{{ m.content }}{% endfor %}", SPECIALS, [
        '{"tool_calls": [', '{"name": "get_weather", "arguments": {"city": "Os', 'lo"}}', "]}", "```json\n", "```",
        '{"name": "now", "arguments": {}}', "text ", '{"a": 1}', "\n", ", ", "<tool_call>", "</tool_call>",
    ]),
}  # fmt: skip


class Told(NamedTuple):
    """What a surface says of an output. `calls`: names, and arguments as text; `cut`: it ended at max_tokens."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    cut: bool
    tokens: int


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ScriptedChat, Any]:
    template, specials, bits = MODELS[request.param]
    return ScriptedChat(special_tokenizer(tmp_path_factory.mktemp("model"), template, specials)), bits


def by_chat(url: str, fields: dict[str, Any]) -> Iterator[Told]:
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
    ]
    asked: Any = {
        "model": "tiny", "messages": HI, "tools": tools, "max_tokens": fields["most"], "stop": fields["stop"],
        "parallel_tool_calls": fields["parallel"],
    }  # fmt: skip
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        completions: list[Any] = [client.chat.completions.create(**asked)]
        final: Any = None
        for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
            final = chunk if final is None else added(final, chunk)
        completions.append(final)
    for one in completions:
        (choice,) = one.choices
        message = choice.message
        calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
        yield Told(
            message.content or "", getattr(message, "reasoning_content", None) or "", tuple(calls),
            choice.finish_reason == "length", one.usage.completion_tokens,
        )  # fmt: skip


def added(whole: Any, chunk: Any) -> Any:
    """A stream's chunks as one completion, added up as clients do."""
    if not hasattr(whole.choices[0], "message"):
        whole.choices[0].message = whole.choices[0].delta
    message = whole.choices[0].message
    whole.usage = chunk.usage
    for choice in chunk.choices:
        delta = choice.delta
        message.content = (message.content or "") + (delta.content or "")
        message.reasoning_content = (getattr(message, "reasoning_content", None) or "") + (
            getattr(delta, "reasoning_content", None) or ""
        )
        for call in delta.tool_calls or ():
            message.tool_calls = message.tool_calls or []
            if call.index == len(message.tool_calls):
                message.tool_calls.append(call)
            else:
                message.tool_calls[call.index].function.arguments += call.function.arguments
        whole.choices[0].finish_reason = choice.finish_reason or whole.choices[0].finish_reason
    return whole


def by_responses(url: str, fields: dict[str, Any]) -> Iterator[Told]:
    tools: Any = [{"type": "function", "name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
    asked: Any = {
        "model": "tiny", "input": HI, "tools": tools, "max_output_tokens": fields["most"],
        "parallel_tool_calls": fields["parallel"], "extra_body": {"stop": fields["stop"]},
    }  # fmt: skip
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        whole: Any = client.responses.create(**asked)
        with client.responses.stream(**asked) as stream:
            last: Any = list(stream)[-1].response  # type: ignore[union-attr]
    for response in (whole, last):
        reasoning = [part.text for item in response.output if item.type == "reasoning" for part in item.content or ()]
        calls = [(item.name, item.arguments) for item in response.output if item.type == "function_call"]
        yield Told(
            response.output_text, "".join(reasoning), tuple(calls), response.status == "incomplete",
            response.usage.output_tokens,
        )  # fmt: skip


def by_messages(url: str, fields: dict[str, Any]) -> Iterator[Told]:
    tools: Any = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    asked: Any = {
        "model": "tiny", "messages": HI, "tools": tools, "max_tokens": fields["most"],
        "stop_sequences": fields["stop"],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": not fields["parallel"]},
    }  # fmt: skip
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client:
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            final = stream.get_final_message()
    for message in (whole, final):
        said: Any = message.content
        yield Told(
            "".join(block.text for block in said if block.type == "text"),
            "".join(block.thinking for block in said if block.type == "thinking"),
            tuple((block.name, json.dumps(block.input)) for block in said if block.type == "tool_use"),
            message.stop_reason in ("max_tokens", "model_context_window_exceeded"), message.usage.output_tokens,
        )  # fmt: skip


def test_all_say_the_same_whole_and_streamed(model: tuple[ScriptedChat, Any]) -> None:
    chat, bits = model
    drawn = random.Random(5)
    with LiveServer(chat.frontend) as live:
        for _ in range(12):
            chat.says, chat.ends = "".join(drawn.choices(bits, k=drawn.randrange(12))), drawn.random() < 0.7
            chat.sizes[:] = [drawn.choice([1, 2, 5, 0]) for _ in range(3)]
            fields = {
                "most": drawn.choice([400, 400, 9]),
                "stop": drawn.choice([[], [], ["lo"], ["name"]]),
                "parallel": drawn.random() < 0.7,
            }
            ways: list[Callable[[str, dict[str, Any]], Iterator[Told]]] = [by_chat, by_responses, by_messages]
            told = [one for way in ways for one in way(live.url, fields)]
            assert told[0] == told[1] == told[2] == told[3], (chat.says, fields)
            assert told[4] == told[5], (chat.says, fields)
            assert told[4]._replace(calls=(), cut=False) == told[0]._replace(calls=(), cut=False), (chat.says, fields)
            assert [name for name, _ in told[4].calls] == [name for name, _ in told[0].calls]
            for (_, ours), (_, theirs) in zip(told[0].calls, told[4].calls, strict=True):
                if not told[4].cut and not fields["stop"]:
                    assert json.loads(ours) == json.loads(theirs)


HOSTED = {"type": "web_search", "name": "web_search"}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": HI, "tools": [HOSTED, {"type": "function", "function": {"name": "now"}}], "reasoning_effort": "low",
    },
    "/v1/responses": {"input": "Hi.", "tools": [HOSTED, {"type": "function", "name": "now"}],
                      "reasoning": {"effort": "low"}},
    "/v1/messages": {"messages": HI, "tools": [HOSTED, {"name": "now", "input_schema": {"type": "object"}}],
                     "max_tokens": 9, "output_config": {"effort": "low"}},
}  # fmt: skip


def test_what_the_model_can_not_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tools that others run, and levels of reasoning that its template doesn't have."""
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}"
    chat = ScriptedChat(special_tokenizer(tmp_path_factory.mktemp("model"), plain), "Hi.")
    for lenient in (False, True):
        with (
            LiveServer(chat.frontend, options=ApiOptions(lenient=lenient)) as live,
            httpx.Client(base_url=live.url) as http,
        ):
            for path, body in ASKED.items():
                answer = http.post(path, json=body)
                if lenient:
                    assert answer.status_code == 200, answer.text
                    ignored = answer.headers[IGNORED_HEADER].split(", ")
                    assert ignored[0] == "tools.0"
                    assert ignored[1] in ("reasoning_effort", "reasoning.effort", "output_config.effort")
                    assert "web_search" not in chat.prompt()
                    assert "now" in chat.prompt()
                    continue
                assert answer.status_code == 400, answer.text
                assert "type 'web_search' is not supported" in answer.text
                without = {**body, "tools": body["tools"][1:]}
                assert "no levels of reasoning" in http.post(path, json=without).text


def test_pieces_of_messages_are_counted_as_far_as_it_matters() -> None:
    assert pieces([]) == 0
    assert pieces([{"role": "user", "content": "a"}, "x", 5]) == 3
    assert pieces([{"content": [{"content": [1, 2]}, {}]}, {"tool_calls": [{}]}]) == 7
    assert pieces([{"content": [{}] * 10_000}]) >= ENOUGH
    deep: Any = []
    for _ in range(5000):
        deep = [{"content": deep}]
    assert pieces(deep) == ENOUGH
