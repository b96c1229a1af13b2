"""/v1/messages through Anthropic's own client: whole, streamed, and with its helpers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import anthropic
import httpx
import pydantic
import pytest
from chat_models import THINKING, ScriptedChat, special_tokenizer
from live_server import LiveServer

from palmette.runtime.api.access import Keys
from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.errors import error_body, error_response
from palmette.runtime.api.messages.answers import MessageAnswer, MessageError, MessageEvent
from palmette.runtime.errors import (
    BodyTooLarge,
    EngineDied,
    Forbidden,
    InternalError,
    InvalidRequest,
    Overloaded,
    PalmetteError,
    TimedOut,
)

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "c"}}\n</tool_call>'
SECOND = '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SAID = f"<think>\nOslo, then.\n</think>\n\nI look.\n{CALL}{SECOND}"
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
NOW: Any = {"name": "now", "input_schema": {"type": "object", "properties": {}}}
HI: Any = [{"role": "user", "content": "Weather in Oslo?"}]


@pytest.fixture
def client(live: LiveServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=live.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def http(live: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=30) as made:
        yield made


Ask = Callable[..., Any]


@pytest.fixture
def ask(client: anthropic.Anthropic, chat: ScriptedChat) -> Ask:
    def asked(says: str, *, sizes: tuple[int, ...] = (1,), **fields: Any) -> Any:
        chat.says, chat.sizes[:] = says, sizes
        given = {"model": "tiny", "max_tokens": 4000, "messages": HI, "tools": [WEATHER, NOW], **fields}
        return client.messages.create(**given)

    return asked


def plain(message: Any) -> dict[str, Any]:
    """What a message says, ids aside."""
    told: dict[str, Any] = message.model_dump(exclude_none=True)
    del told["id"]
    for block in told["content"]:
        block.pop("id", None)
        block.pop("parsed_output", None)
    return told


def test_text_thinking_and_calls(ask: Ask) -> None:
    answer = ask(SAID)
    MessageAnswer.model_validate(answer.model_dump(exclude_unset=True))
    assert (answer.type, answer.role, answer.model, answer.stop_reason) == ("message", "assistant", "tiny", "tool_use")
    assert answer.id.startswith("msg_")
    assert answer._request_id.startswith("req_")
    thinking, text, weather, now = answer.content
    assert thinking.thinking == "Oslo, then."
    assert thinking.signature
    assert text.text == "I look."
    assert (weather.type, weather.name, weather.input) == ("tool_use", "get_weather", {"city": "Oslo", "unit": "c"})
    assert (now.name, now.input) == ("now", {})
    assert weather.id.startswith("toolu_")
    assert weather.id != now.id
    usage = answer.usage
    assert usage.cache_read_input_tokens == 1  # as the scripted engine has it
    assert usage.cache_creation_input_tokens == 0
    assert usage.input_tokens > 20
    assert 0 < usage.output_tokens_details.thinking_tokens < usage.output_tokens


@pytest.mark.parametrize("sizes", [(1,), (3, 1), (0,)])
@pytest.mark.parametrize(
    "says",
    [
        SAID,
        CALL,
        "Hello 😀.",
        "",
        "<think>\nHm",
        CALL[:-19],
        CALL[:-25],
        f"{CALL}\nAnd then?",
        CALL.replace("Oslo", "O\nslo\\d"),
        CALL.replace('"Oslo"', "Oslo"),
        CALL.replace('{"city": "Oslo", "unit": "c"}', "[1, 2]"),
    ],
)
def test_the_stream_helper_makes_the_whole_answer(
    client: anthropic.Anthropic, ask: Ask, says: str, sizes: tuple[int, ...]
) -> None:
    whole = ask(says)
    MessageAnswer.model_validate(whole.model_dump(exclude_unset=True))
    events = list(ask(says, sizes=sizes, stream=True))
    for event in events:
        MessageEvent.model_validate(event.model_dump(exclude_unset=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert [event.index for event in events if event.type == "content_block_start"] == [*range(len(whole.content))]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop")
    with client.messages.stream(model="tiny", max_tokens=4000, messages=HI, tools=[WEATHER, NOW]) as stream:
        told = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert plain(final) == plain(whole)
    assert told == "".join(block.text for block in whole.content if block.type == "text")


async def test_the_async_client(live: LiveServer, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = SAID, (2,)
    async with anthropic.AsyncAnthropic(base_url=live.url, auth_token="x") as client:
        whole = await client.messages.create(model="tiny", max_tokens=4000, messages=HI, tools=[WEATHER, NOW])
        async with client.messages.stream(model="tiny", max_tokens=4000, messages=HI, tools=[WEATHER, NOW]) as stream:
            final = await stream.get_final_message()
    assert plain(final) == plain(whole)


# --- how a message ends ---


def test_stop_reasons(ask: Ask) -> None:
    assert ask("Hello.").stop_reason == "end_turn"
    assert ask("Hello.", max_tokens=2).stop_reason == "max_tokens"
    for stream in (False, True):
        stopped = ask("One. Two. Three.", stop_sequences=["Five", " Two"], stream=stream)
        if stream:
            events = list(stopped)
            assert "".join(event.delta.text for event in events if event.type == "content_block_delta") == "One."
            stopped = next(event.delta for event in events if event.type == "message_delta")
        else:
            assert stopped.content[0].text == "One."
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " Two")


def test_a_call_that_was_cut_off_keeps_what_was_whole(ask: Ask) -> None:
    for cut, kept in (('", "unit": "c"}}\n</tool_call>', {}), ('"}}\n</tool_call>', {"city": "Oslo"})):
        answer = ask(CALL.removesuffix(cut))
        assert answer.stop_reason == "max_tokens"
        assert answer.content[0].input == kept
        pieces = [event.delta for event in ask(CALL.removesuffix(cut), stream=True)
                  if event.type == "content_block_delta"]  # fmt: skip
        text = "".join(piece.partial_json for piece in pieces)
        assert text.startswith('{"city": "Oslo')
        assert text != json.dumps(kept)


def test_arguments_that_are_no_json_are_not_to_be_run(ask: Ask) -> None:
    for broken in ("{'city': 'Oslo'}", '{"city": Oslo}', '["Oslo"]'):
        answer = ask(CALL.replace('{"city": "Oslo", "unit": "c"}', broken))
        assert (answer.stop_reason, answer.content[0].input) == ("max_tokens", {})


def test_the_context_may_end_before_max_tokens(ask: Ask, chat: ScriptedChat) -> None:
    says = "word " * 9000
    for stream in (False, True):
        answer = ask(says, max_tokens=20_000, stream=stream, sizes=(0,))
        if stream:
            delta = next(event for event in answer if event.type == "message_delta")
            reason, usage = delta.delta.stop_reason, delta.usage
        else:
            reason, usage = answer.stop_reason, answer.usage
        assert reason == "model_context_window_exceeded"
        assert usage.input_tokens + usage.cache_read_input_tokens + usage.output_tokens == 8192
    assert ask("Hi.", max_tokens=20_000).stop_reason == "end_turn"
    assert ask(CALL[:-19], max_tokens=20_000).stop_reason == "max_tokens"


def test_no_tokens_at_all_fill_the_cache(ask: Ask) -> None:
    answer = ask("Hello.", max_tokens=0)
    assert (answer.content, answer.stop_reason, answer.usage.output_tokens) == ([], "max_tokens", 0)


# --- loops ---


def test_a_tool_loop(client: anthropic.Anthropic, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = lambda prompt: "4 degrees." if "<|im_start|>tool\n4" in prompt else SAID, (1,)
    for stream in (False, True):
        messages: list[Any] = list(HI)
        for _ in range(4):
            given: Any = {"model": "tiny", "max_tokens": 4000, "messages": messages, "tools": [WEATHER, NOW]}
            if stream:
                with client.messages.stream(**given) as streamed:
                    answer: Any = streamed.get_final_message()
            else:
                answer = client.messages.create(**given)
            messages.append({"role": "assistant", "content": answer.content})
            if answer.stop_reason != "tool_use":
                break
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "4"}
                for block in answer.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})
        assert answer.content[0].text == "4 degrees."
        assert len(messages) == 4
        assert SAID in chat.prompt()  # thinking, text and calls stand in the prompt as the model wrote them
        assert chat.prompt().count("<|im_start|>tool\n4<|im_end|>") == 2


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner(client: anthropic.Anthropic, chat: ScriptedChat, stream: bool) -> None:
    chat.says, chat.sizes[:] = lambda prompt: "It is 4." if "4 degrees" in prompt else CALL, (1,)
    ran = []

    @anthropic.beta_tool
    def get_weather(city: str, unit: str) -> str:
        """The weather in a city."""
        ran.append((city, unit))
        return "4 degrees"

    runner: Any = client.beta.messages.tool_runner(
        model="tiny", max_tokens=4000, messages=HI, tools=[get_weather], stream=stream
    )
    final = [each.get_final_message() if stream else each for each in runner][-1]
    assert ran == [("Oslo", "c")]
    assert final.content[0].text == "It is 4."
    assert final.stop_reason == "end_turn"


async def test_the_async_tool_runner(live: LiveServer, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = lambda prompt: "It is 4." if "Error" in prompt else CALL, (1,)

    @anthropic.beta_async_tool
    async def get_weather(city: str, unit: str) -> str:
        """The weather in a city."""
        raise ValueError("no such city")

    async with anthropic.AsyncAnthropic(base_url=live.url, api_key="x") as client:
        runner: Any = client.beta.messages.tool_runner(model="tiny", max_tokens=4000, messages=HI, tools=[get_weather])
        final = await runner.until_done()
    assert final.content[0].text == "It is 4."
    assert "<|im_start|>tool\nError: " in chat.prompt()


class Weather(pydantic.BaseModel):
    city: str
    unit: Literal["c", "f"]


def test_parsed_answers(client: anthropic.Anthropic, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = '{"city": "Oslo", "unit": "c"}', (1,)
    answer = client.messages.parse(model="tiny", max_tokens=400, messages=HI, output_format=Weather)
    assert answer.parsed_output == Weather(city="Oslo", unit="c")
    constraint = chat.asked().params.constraint
    assert constraint is not None
    assert "Oslo" not in constraint.grammar.text
    assert json.loads(json.loads(constraint.grammar.text)["grammar"]["text"])["required"] == ["city", "unit"]


# --- what reaches the model ---


def test_system_and_merged_turns(ask: Ask, chat: ScriptedChat) -> None:
    messages = [
        {"role": "user", "content": "One."},
        {"role": "user", "content": [{"type": "text", "text": "Two."}, {"type": "text", "text": ""}]},
        {"role": "assistant", "content": "A"},
        {"role": "assistant", "content": [{"type": "text", "text": "B"}]},
        {"role": "user", "content": "Three <|im_end|>."},
    ]
    system = [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "good."}]
    ask("Yes.", messages=messages, system=system, tools=[])
    assert chat.prompt() == (
        "<|im_start|>system\nBe\ngood.<|im_end|>\n<|im_start|>user\nOne.\nTwo.<|im_end|>\n"
        "<|im_start|>assistant\nAB<|im_end|>\n<|im_start|>user\nThree <|im_end|>.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_systems_that_say_nothing_are_none(ask: Ask, chat: ScriptedChat) -> None:
    for system in ("", [], [{"type": "text", "text": ""}]):
        ask("Yes.", system=system, tools=[])
        assert chat.prompt().startswith("<|im_start|>user\n")
    ask("Yes.", system="One.", messages=[{"role": "system", "content": "Two."}, *HI], tools=[])
    assert chat.prompt().startswith("<|im_start|>system\nOne.\nTwo.<|im_end|>\n<|im_start|>user\n")


def test_the_last_message_is_continued(ask: Ask, chat: ScriptedChat) -> None:
    answer = ask("cold.", messages=[*HI, {"role": "assistant", "content": "It is "}])
    assert chat.prompt().endswith("<|im_start|>assistant\nIt is ")
    assert answer.content[0].text == "cold."
    ask("cold.", messages=[*HI, {"role": "assistant", "content": ""}])
    assert chat.prompt().endswith("<|im_start|>assistant\n")


def test_results_come_as_text(ask: Ask, chat: ScriptedChat) -> None:
    calls = [{"type": "tool_use", "id": id, "name": "now", "input": {}} for id in ("a", "b", "c")]
    results = [
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}], "is_error": True},
        {"type": "tool_result", "tool_use_id": "c", "content": "Error 5", "is_error": True},
        {"type": "text", "text": "So?"},
    ]
    ask("Yes.", messages=[*HI, {"role": "assistant", "content": calls}, {"role": "user", "content": results}])
    tools = [part.partition("<|im_end|>")[0] for part in chat.prompt().split("<|im_start|>tool\n")[1:]]
    assert tools == ["", "Error: x", "Error 5"]
    assert chat.prompt().endswith("<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("choice", "names", "parallel"),
    [
        ({"type": "any"}, ["get_weather", "now"], True),
        ({"type": "tool", "name": "now", "disable_parallel_tool_use": True}, ["now"], False),
    ],
)
def test_choices_become_grammars(
    ask: Ask, chat: ScriptedChat, choice: dict[str, Any], names: list[str], parallel: bool
) -> None:
    ask(CALL, tool_choice=choice)
    constraint = chat.asked().params.constraint
    assert constraint is not None
    grammar = json.loads(constraint.grammar.text)["grammar"]
    begins = [tag["begin"] for tag in json.loads(grammar["text"])["structures"]]
    assert [name for begin in begins for name in ("get_weather", "now") if f'"{name}"' in begin] == names
    assert grammar["options"]["at_least_one"] is True


def test_other_choices(ask: Ask, chat: ScriptedChat) -> None:
    one = ask(CALL + SECOND, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [block.type for block in one.content] == ["tool_use"]
    assert one.stop_reason == "tool_use"
    ask("Cold.", tool_choice={"type": "none"})
    assert "get_weather" not in chat.prompt()
    ask("Cold.", tools=[{**WEATHER, "strict": True, "input_examples": [{"city": "Rome", "unit": "f"}]}])
    assert '"examples": [{"city": "Rome", "unit": "f"}]' in chat.prompt()
    assert chat.asked().params.constraint is not None


def test_thinking_where_the_template_has_a_switch(ask: Ask, chat: ScriptedChat) -> None:
    ask("Yes.", thinking={"type": "disabled"})
    assert chat.prompt().endswith("<think>\n\n</think>\n\n")
    answer = ask(SAID, thinking={"type": "enabled", "budget_tokens": 1024})
    assert chat.prompt().endswith("assistant\n")
    assert answer.content[0].thinking == "Oslo, then."
    ask("Yes.", thinking={"type": "adaptive"})
    for stream in (False, True):
        hidden = ask(SAID, thinking={"type": "adaptive", "display": "omitted"}, stream=stream)
        if stream:
            assert "thinking_delta" not in {getattr(event, "delta", event).type for event in hidden
                                            if event.type == "content_block_delta"}  # fmt: skip
        else:
            assert (hidden.content[0].type, hidden.content[0].thinking) == ("thinking", "")


def test_thinking_where_it_has_none(tmp_path: Any) -> None:
    always = ScriptedChat(special_tokenizer(tmp_path, THINKING.replace("enable_thinking", "nothing")), "x")
    with LiveServer(always.frontend) as live, httpx.Client(base_url=live.url, timeout=30) as http:
        body = {"max_tokens": 9, "messages": HI, "thinking": {"type": "disabled"}}
        assert "can't be kept from thinking" in http.post("/v1/messages", json=body).text
        body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
        assert http.post("/v1/messages", json=body).json()["content"][0]["type"] == "thinking"


# --- what is refused ---

USE = {"type": "tool_use", "id": "a", "name": "now", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
CALLED = [*HI, {"role": "assistant", "content": [USE]}]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": None}, "'max_tokens' is missing"),
        ({"max_tokens": -1}, "max_tokens=-1"),
        ({"max_tokens": "5"}, "max_tokens: "),
        ({"max_tokens": True}, "max_tokens: "),
        ({"messages": []}, "'messages' is empty"),
        ({"messages": None}, "'messages' is missing"),
        ({"messages": "Hi"}, "messages: "),
        ({"messages": [7]}, "messages.0: "),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content: "),
        ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content is empty"),
        ({"messages": [{"role": "user", "content": []}]}, "messages.0.content is empty"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "messages.0.content is empty"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "it has no type"),
        ({"messages": [user({"type": "text", "text": 7})]}, "messages.0.content.0.text"),
        ({"messages": [user({"type": "text", "text": "a", "colour": "red"})]}, "messages.0.content.0.colour"),
        ({"messages": [user({"type": "image", "source": {"type": "url", "url": "http://a/b"}})]}, "reads text only"),
        ({"messages": [user({"type": "document", "source": {}})]}, "'document' is not supported"),
        ({"messages": [user(USE)]}, "messages.0.content.0: a block of type 'tool_use' can't stand here"),
        ({"messages": [*HI, {"role": "tool", "content": "x"}]}, "messages.1.role"),
        ({"messages": [user(RESULT)]}, "is no call of the message before"),
        ({"messages": [*CALLED, user(RESULT, RESULT)]}, "answered twice"),
        ({"messages": [*CALLED, *HI]}, "has no tool_result"),
        ({"messages": CALLED}, "has no tool_result"),
        ({"messages": [*CALLED, *HI, user(RESULT)]}, "messages.3.content.0: a tool_result comes behind text"),
        ({"messages": [*CALLED, user({**RESULT, "content": [{"type": "image"}]})]}, "messages.2.content.0.content.0"),
        ({"messages": [*HI, {"role": "assistant", "content": [USE, USE]}, user(RESULT)]}, "the id of another call"),
        ({"messages": [*HI, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm"}]}]},
         "ends with thinking"),
        ({"system": [{"type": "image"}]}, "system.0: "),
        ({"system": 7}, "system: "),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "'a b'"),
        ({"tools": [{"name": "f", "input_schema": {"type": "string"}}]}, "a tool takes an object"),
        ({"tools": [NOW, NOW]}, "Two tools"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "'bash_20250124' is not supported"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'web_search_20250305'"),
        ({"tools": [{**NOW, "defer_loading": True}]}, "tools.0.defer_loading"),
        ({"tools": [{**NOW, "allowed_callers": ["code_execution_20250825"]}]}, "tools.0.allowed_callers"),
        ({"tool_choice": {"type": "any"}, "tools": []}, "no tools are offered"),
        ({"tool_choice": {"type": "tool", "name": "other"}}, "names 'other'"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "any"}, "messages": [*HI, {"role": "assistant", "content": "x"}]}, "asks for a call"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"output_config": {"effort": "high"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}, "regex": "a"}, "one grammar"),
        ({"regex": "a+"}, "output_config.format"),
        ({"stop_sequences": [""]}, "stop_sequences.0 is empty"),
        ({"stop_sequences": "a"}, "stop_sequences"),
        ({"stop_sequences": [str(each) for each in range(65)]}, "at most 64"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"metadata": {"user_id": 7}}, "metadata.user_id"),
        ({"metadata": {"name": "x"}}, "metadata.name"),
        ({"thread": {"type": "create"}}, "isn't kept"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"type": "url", "name": "x", "url": "http://a"}]}, "mcp_servers"),
        ({"n": 2}, "'n' is not a field"),
    ],
)  # fmt: skip
def test_wrong_requests_name_the_field(http: httpx.Client, fields: dict[str, Any], words: str) -> None:
    for stream in (False, True):
        body = {"max_tokens": 9, "messages": HI, "tools": [WEATHER, NOW], "stream": stream, **fields}
        answer = http.post("/v1/messages", json=body)
        assert answer.status_code == 400, answer.text
        told = answer.json()
        assert told["type"] == "error"
        assert told["error"]["type"] == "invalid_request_error"
        assert words in told["error"]["message"]


def test_a_path_is_said_once(http: httpx.Client) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    for field, wrong in (("messages", [{"role": "user", "content": [image]}]), ("tools", [{"type": "x", "name": "y"}])):
        answer = http.post("/v1/messages", json={"max_tokens": 9, "messages": HI, field: wrong})
        message = answer.json()["error"]["message"]
        assert message.count(f"{field}.0") == 1, message


def test_errors_are_the_client_s(client: anthropic.Anthropic, http: httpx.Client) -> None:
    given: Any = {"max_tokens": 5, "messages": HI}
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="claude-9", **given)
    assert "Use 'tiny'" in str(missing.value)
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(model="tiny", max_tokens=5, messages=[{"role": "user", "content": "word " * 9000}])
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(model="tiny", max_tokens=5, messages=[{"role": "user", "content": "x" * 1_000_000}])
    assert http.get("/v1/messages").json()["type"] == "error"
    assert http.post("/v1/messages/batches", json={}).json()["error"]["type"] == "not_found_error"
    assert http.post("/v1/messages", content=b"{").json()["error"]["type"] == "invalid_request_error"
    assert "error" in http.post("/v1/completions", content=b"{").json()


def test_what_has_no_effect_is_named(http: httpx.Client, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = "Hi.", (1,)
    body = {
        "max_tokens": 9, "messages": [user({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}})],
        "service_tier": "auto", "metadata": {"user_id": "ann"}, "context_management": {"edits": []},
        "tools": [{**NOW, "cache_control": {"type": "ephemeral"}}], "thinking": {"type": "adaptive"},
    }  # fmt: skip
    answer = http.post("/v1/messages?beta=true", json=body, headers={"anthropic-version": "2023-06-01"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-palmette-ignored"].split(", ") == [
        "context_management", "service_tier", "messages.0.content.0.cache_control", "tools.0.cache_control",
    ]  # fmt: skip
    assert chat.asked().tenant == "ann"


def test_a_lenient_server_leaves_out_what_it_would_refuse(chat: ScriptedChat) -> None:
    other = ScriptedChat(chat.tokenizer, "Hi.")
    with LiveServer(other.frontend, options=ApiOptions(lenient=True)) as live, httpx.Client(base_url=live.url) as http:
        body = {"max_tokens": 9, "messages": HI, "output_config": {"effort": "max"}, "container": "x", "colour": 1}
        answer = http.post("/v1/messages", json=body)
        assert answer.status_code == 200, answer.text
        assert set(answer.headers["x-palmette-ignored"].split(", ")) == {"output_config.effort", "container", "colour"}
        # A client that believed its conversation kept would send only the end of it.
        assert http.post("/v1/messages", json={**body, "thread": {"type": "create"}}).status_code == 400


def test_extensions(ask: Ask, chat: ScriptedChat) -> None:
    ask("x", tools=[], extra_body={"seed": 7, "min_p": 0.1, "priority": 3, "choices": ["x", "y"], "stop": ["z"]})
    sent = chat.asked()
    assert (sent.params.seed, sent.params.min_p, sent.priority, sent.params.stop) == (7, 0.1, 3, ("z",))
    assert sent.params.constraint is not None


# --- the rest ---


def test_counts(client: anthropic.Anthropic, ask: Ask) -> None:
    given: Any = {"messages": HI, "tools": [WEATHER], "system": "Be good."}
    counted = client.messages.count_tokens(model="tiny", **given).input_tokens
    usage = ask("Hi.", **given).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens
    assert client.messages.count_tokens(model="tiny", messages=HI).input_tokens < counted
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="other", messages=HI)


def test_keys(chat: ScriptedChat) -> None:
    other = ScriptedChat(chat.tokenizer, "Hi.")
    given: Any = {"model": "tiny", "max_tokens": 5, "messages": HI}
    with LiveServer(other.frontend, keys=Keys(("secret", "other"))) as live:
        with pytest.raises(anthropic.AuthenticationError) as refused:
            anthropic.Anthropic(base_url=live.url, api_key="wrong", max_retries=0).messages.create(**given)
        assert refused.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
        for key in ({"api_key": "secret"}, {"auth_token": "other"}):
            with anthropic.Anthropic(base_url=live.url, max_retries=0, **key) as client:  # type: ignore[arg-type]
                assert client.messages.create(**given).content


def test_a_client_that_leaves_aborts_its_message(live: LiveServer, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = "Hello. " * 50, (1,)
    live.soon(chat.link.go.clear)
    aborted = len(chat.link.aborted())
    with anthropic.Anthropic(base_url=live.url, api_key="x", max_retries=0) as client:
        with client.messages.stream(model="tiny", max_tokens=900, messages=HI) as stream:
            assert next(stream).type == "message_start"
        with pytest.raises(anthropic.APITimeoutError):
            client.messages.create(model="tiny", max_tokens=900, messages=HI, timeout=0.3)
    for _ in range(100):
        if len(chat.link.aborted()) == aborted + 2:
            break
        live.soon(lambda: None)
        httpx.get(f"{live.url}/health")
    assert len(chat.link.aborted()) == aborted + 2
    live.soon(chat.link.go.set)


def test_an_error_inside_a_stream_is_an_event(live: LiveServer, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = "Hello.", (1,)
    live.soon(chat.link.go.clear)
    with anthropic.Anthropic(base_url=live.url, api_key="x", max_retries=0) as client:
        stream = client.messages.create(model="tiny", max_tokens=900, messages=HI, stream=True)
        assert next(stream).type == "message_start"
        live.soon(chat.link.die)
        with pytest.raises(anthropic.APIStatusError, match="The engine died"):
            list(stream)
    live.soon(chat.link.go.set)


def test_huge_conversations_are_read_beside_the_loop(http: httpx.Client, chat: ScriptedChat) -> None:
    many = [{"role": "user", "content": [{"type": "text", "text": ""}] * 50 + [{"type": "text", "text": "x"}]}] * 400
    answer = http.post("/v1/messages", json={"max_tokens": 5, "messages": many})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("depth", [900, 940, 970, 1010, 20_000])
def test_what_is_nested_deeply_is_refused_at_worst(http: httpx.Client, depth: int) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    call = json.dumps({"role": "assistant", "content": [{**USE, "input": "INPUT"}]}).replace('"INPUT"', nested)
    tool = json.dumps({**NOW, "input_schema": {"type": "object", "properties": {"a": {"default": "INPUT"}}}})
    fields = {
        "messages": f"[{json.dumps(HI[0])}, {call}, {json.dumps(user(RESULT))}]",
        "tools": "[" + tool.replace('"INPUT"', nested) + "]",
        "thinking": nested,
        "output_config": f'{{"format": {{"type": "json_schema", "schema": {nested}}}}}',
        "tool_choice": nested,
        "system": nested,
    }
    for name, value in fields.items():
        given = {"max_tokens": "5", "messages": json.dumps(HI), name: value}
        body = ", ".join(f'"{name}": {value}' for name, value in given.items())
        answer = http.post("/v1/messages", content="{" + body + "}")
        assert answer.status_code in (200, 400), answer.text
        assert answer.json()["type"] in ("message", "error")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Overloaded("x"), "rate_limit_error"),
        (EngineDied("x"), "overloaded_error"),
        (BodyTooLarge("x"), "request_too_large"),
        (InternalError("x"), "api_error"),
        (TimedOut("x"), "timeout_error"),
        (Forbidden("x"), "permission_error"),
        (InvalidRequest("response_format is x", param="response_format"), "invalid_request_error"),
    ],
)
def test_errors_in_its_form(error: PalmetteError, kind: str) -> None:
    told = error_body(error, "/v1/messages")
    MessageError.model_validate(told)
    assert told["error"]["type"] == kind
    assert "details" not in told["error"]
    assert "error" not in error_body(error, "/v1/messagesx")["error"]
    assert error_response(Overloaded("x"), "/v1/messages").headers["retry-after"] == "1"
