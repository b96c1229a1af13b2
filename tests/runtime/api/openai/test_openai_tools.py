"""Tool calls and reasoning through OpenAI's own client: whole, streamed, and with its helpers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import openai
import pydantic
import pytest
from chat_models import ScriptedChat
from live_server import LiveServer

from palmette.runtime.api.openai.chat_answers import ChatAnswer, ChatChunkAnswer
from palmette.runtime.messages.grammar import Constraint

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "c"}}\n</tool_call>'
SECOND = '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SAID = f"<think>\nOslo, then.\n</think>\n\nI look.\n{CALL}{SECOND}"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
HI = [{"role": "user", "content": "Weather in Oslo?"}]


@pytest.fixture
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as made:
        yield made


Ask = Callable[..., Any]


@pytest.fixture
def ask(client: openai.OpenAI, chat: ScriptedChat) -> Ask:
    def asked(says: str, *, sizes: tuple[int, ...] = (1,), **fields: Any) -> Any:
        chat.says, chat.sizes[:] = says, sizes
        given = {"model": "tiny", "messages": HI, "tools": [WEATHER, NOW], **fields}
        return client.chat.completions.create(**given)

    return asked


def test_calls_and_reasoning(ask: Ask) -> None:
    answer = ask(SAID, logprobs=True)
    ChatAnswer.model_validate(answer.model_dump(exclude_unset=True))
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    message = choice.message
    assert message.content == "I look."
    assert message.refusal is None
    assert message.reasoning_content == "Oslo, then."
    assert [(call.type, call.function.name) for call in message.tool_calls] == [
        ("function", "get_weather"),
        ("function", "now"),
    ]
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Oslo", "unit": "c"}
    assert message.tool_calls[1].function.arguments == "{}"
    assert len({call.id for call in message.tool_calls}) == 2
    assert 0 < answer.usage.completion_tokens_details.reasoning_tokens < answer.usage.completion_tokens
    assert "".join(each.token for each in choice.logprobs.content).startswith("<think>\nOslo, then.\n</think>")


@pytest.mark.parametrize("sizes", [(1,), (3, 1), (0,)])
@pytest.mark.parametrize("says", [SAID, CALL, "Hello 😀.", "", "<think>\nHm", CALL[:-19]])
def test_streams_add_up_to_the_whole_answer(ask: Ask, says: str, sizes: tuple[int, ...]) -> None:
    whole = ask(says, logprobs=True, top_logprobs=1)
    chunks = list(
        ask(says, sizes=sizes, stream=True, stream_options={"include_usage": True}, logprobs=True, top_logprobs=1)
    )
    for chunk in chunks:
        ChatChunkAnswer.model_validate(chunk.model_dump(exclude_unset=True))
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    tokens: list[Any] = []
    reasons = []
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        delta = choice.delta.model_dump(exclude_unset=True)
        reasons += [choice.finish_reason]
        tokens += choice.logprobs.content if choice.logprobs else []
        for call in delta.pop("tool_calls", ()):
            if call["index"] == len(calls):
                assert set(call) == {"index", "id", "type", "function"}
                assert call["function"]["arguments"] == ""
                calls.append({**call, "function": dict(call["function"])})
            else:
                assert set(call) == {"index", "function"}
                assert set(call["function"]) == {"arguments"}
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        for key, value in delta.items():
            message[key] = message[key] + value if message.get(key) is not None else value
    expected = whole.choices[0].message.model_dump(exclude_unset=True)
    assert [call["function"] for call in calls] == [call["function"] for call in expected.pop("tool_calls", ())]
    assert message == {key: value for key, value in expected.items() if key != "refusal"}
    assert tokens == whole.choices[0].logprobs.content
    assert reasons[-1] == whole.choices[0].finish_reason
    assert not any(reasons[:-1])


def test_the_stream_helper_accumulates_calls(client: openai.OpenAI, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = SAID, (2,)
    seen = []
    with client.chat.completions.stream(model="tiny", messages=HI, tools=[WEATHER, NOW]) as stream:  # type: ignore[list-item]
        for event in stream:
            seen.append(event.type)
            if event.type == "tool_calls.function.arguments.done" and event.index == 0:
                assert json.loads(event.arguments) == {"city": "Oslo", "unit": "c"}
        final = stream.get_final_completion()
    assert seen.count("tool_calls.function.arguments.done") == 2
    assert "content.delta" in seen
    assert [call.function.name for call in final.choices[0].message.tool_calls or ()] == ["get_weather", "now"]
    assert final.choices[0].message.content == "I look."


async def test_the_async_client(live: LiveServer, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = CALL, (1,)
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="x") as client:
        answer = await client.chat.completions.create(model="tiny", messages=HI, tools=[WEATHER])  # type: ignore[list-item]
        assert answer.choices[0].message.content is None
        async with client.chat.completions.stream(model="tiny", messages=HI, tools=[WEATHER]) as stream:  # type: ignore[list-item]
            final = await stream.get_final_completion()
        assert final.choices[0].message.content is None
        assert len(final.choices[0].message.tool_calls or ()) == 1


def behind_reasoning(constraint: Constraint | None) -> dict[str, Any]:
    """The grammar behind the reasoning that the model may begin."""
    assert constraint is not None
    grammar: dict[str, Any] = json.loads(constraint.grammar.text)["grammar"]
    return grammar


class GetWeather(pydantic.BaseModel):
    """The weather in a city."""

    city: str
    unit: Literal["c", "f"]


def test_pydantic_tools_are_parsed(client: openai.OpenAI, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = CALL, (1,)
    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    answer = client.chat.completions.parse(model="tiny", messages=HI, tools=[tool])  # type: ignore[list-item]
    called = (answer.choices[0].message.tool_calls or [])[0]
    assert called.function.parsed_arguments == GetWeather(city="Oslo", unit="c")
    assert behind_reasoning(chat.asked().params.constraint)["options"]["free_text"] is True  # the helper's are strict


def test_a_cut_call_ends_with_length(client: openai.OpenAI, ask: Ask) -> None:
    for stream in (False, True):
        answer = ask(CALL, max_completion_tokens=28, stream=stream)
        choice = list(answer)[-1].choices[0] if stream else answer.choices[0]
        assert choice.finish_reason == "length"
    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="tiny", messages=HI, tools=[tool], max_tokens=28)  # type: ignore[list-item]


def test_a_tool_loop(client: openai.OpenAI, chat: ScriptedChat) -> None:
    chat.says = lambda prompt: "4 degrees." if "<|im_start|>tool\n4" in prompt else SAID
    messages: list[Any] = list(HI)
    for _ in range(4):
        message = (
            client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER, NOW]).choices[0].message
        )  # type: ignore[list-item]
        messages.append(message)
        if not message.tool_calls:
            break
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "4"} for call in message.tool_calls]
    assert messages[-1].content == "4 degrees."
    assert SAID in chat.prompt()  # reasoning, text and calls stand in the prompt as the model wrote them
    assert chat.prompt().count("<|im_start|>tool\n4<|im_end|>") == 2


def test_one_call_at_a_time(ask: Ask, chat: ScriptedChat) -> None:
    for stream in (False, True):
        answer = ask(CALL + SECOND, parallel_tool_calls=False, stream=stream)
        if stream:
            chunks = [chunk.choices[0] for chunk in answer]
            assert {call.index for chunk in chunks for call in chunk.delta.tool_calls or ()} == {0}
            assert chunks[-1].finish_reason == "tool_calls"
        else:
            assert len(answer.choices[0].message.tool_calls) == 1
            assert answer.choices[0].finish_reason == "tool_calls"


def test_several_outputs_each_call(ask: Ask) -> None:
    answer = ask(CALL, n=3)
    ids = {call.id for choice in answer.choices for call in choice.message.tool_calls}
    assert len(ids) == 3
    chunks = list(ask(CALL, n=3, stream=True))
    assert {chunk.choices[0].index for chunk in chunks} == {0, 1, 2}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["tool_calls"] * 3


@pytest.mark.parametrize(
    ("choice", "names", "must"),
    [
        ("required", ["get_weather", "now"], True),
        ({"type": "function", "function": {"name": "now"}}, ["now"], True),
        (
            {"type": "allowed_tools", "allowed_tools": {
                "mode": "auto", "tools": [{"type": "function", "function": {"name": "now"}}]}},
            ["now"], False,
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {
                "mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}},
            ["now"], True,
        ),
    ],
)  # fmt: skip
def test_choices_become_grammars(ask: Ask, chat: ScriptedChat, choice: Any, names: list[str], must: bool) -> None:
    ask(CALL, tool_choice=choice, extra_body={"jump": "token"})
    constraint = chat.asked().params.constraint
    assert constraint is not None
    assert constraint.jump == "token"
    grammar = behind_reasoning(constraint)
    begins = [tag["begin"] for tag in json.loads(grammar["text"])["structures"]]
    assert [name for begin in begins for name in ("get_weather", "now") if f'"{name}"' in begin] == names
    assert grammar["options"]["at_least_one"] is must
    assert "get_weather" in chat.prompt()  # all tools stay in the prompt, so its pages are used again


def test_no_choice_is_plain_text(ask: Ask, chat: ScriptedChat) -> None:
    for stream in (False, True):
        answer = ask("Cold.", tool_choice="none", stream=stream)
        if stream:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in answer) == "Cold."
        else:
            assert answer.choices[0].message.content == "Cold."
            assert answer.choices[0].message.tool_calls is None
    assert "get_weather" not in chat.prompt()


def test_reasoning_as_it_is_wanted(ask: Ask) -> None:
    thought = "<think>\nHm.\n</think>\n\nYes."
    for extra, reasoning, content in (
        ({}, "Hm.", "Yes."),
        ({"include_reasoning": False}, None, "Yes."),
        ({"separate_reasoning": False}, None, thought),
    ):
        for stream in (False, True):
            answer = ask(thought, stream=stream, extra_body=extra)
            if stream:
                deltas = [chunk.choices[0].delta for chunk in answer]
                told = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
                assert told == (reasoning or "")
                assert "".join(delta.content or "" for delta in deltas) == content
            else:
                message = answer.choices[0].message
                assert getattr(message, "reasoning_content", None) == reasoning
                assert message.content == content


def test_templates_take_their_variables(ask: Ask, chat: ScriptedChat) -> None:
    ask("Yes.", extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert chat.prompt().endswith("<think>\n\n</think>\n\n")
    ask("Yes.", reasoning_effort="minimal")
    assert chat.prompt().endswith("<think>\n\n</think>\n\n")
    ask("Yes.", reasoning_effort="high")
    assert chat.prompt().endswith("assistant\n")


def test_the_last_message_is_continued(ask: Ask, chat: ScriptedChat) -> None:
    messages = [*HI, {"role": "assistant", "content": "It is "}]
    answer = ask("cold.", messages=messages, extra_body={"continue_final_message": True})
    assert chat.prompt().endswith("<|im_start|>assistant\nIt is ")
    assert answer.choices[0].message.content == "cold."


@pytest.mark.parametrize(
    ("fields", "words", "param"),
    [
        ({"tool_choice": "always"}, "tool_choice", "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "names 'other'", "tool_choice"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "type 'custom'", "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, "no tool",
         "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "no tools are offered", "tool_choice"),
        ({"tools": [NOW, NOW]}, "Two tools", "tools.1"),
        ({"tools": [{"type": "web_search"}]}, "type 'web_search'", "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "'a b'", "tools.0"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name", "tools.0.function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "code": "x"}}]}, "code", "tools.0.function.code"),
        ({"functions": [{"name": "f"}]}, "replaced by 'tools'", "functions"),
        ({"chat_template": "x"}, "not run", "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "the server sets it", "chat_template_kwargs.messages"),
        ({"regex": "a+"}, "beside tools", "response_format"),
        ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "'tool'", "messages.0.role"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}]},
         "the assistant's", "messages.0.tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, "name",
         "messages.0.tool_calls.0.function.name"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 7}}]}]},
         "neither JSON text", "messages.0.tool_calls.0.function.arguments"),
        ({"continue_final_message": True}, "continue_final_message", "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "both true", "add_generation_prompt"),
    ],
)  # fmt: skip
def test_wrong_requests_name_the_field(ask: Ask, fields: dict[str, Any], words: str, param: str) -> None:
    known = {name: fields.pop(name) for name in ("tools", "messages", "tool_choice") if name in fields}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask("x", stream=stream, extra_body=fields, **known)
        assert words in caught.value.message
        assert caught.value.param == param
