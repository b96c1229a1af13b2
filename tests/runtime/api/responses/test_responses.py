"""/v1/responses through OpenAI's own client: whole, streamed, parsed, with tools, kept, gone on from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest
from chat_models import ScriptedChat
from live_server import LiveServer

from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.bodies import IGNORED_HEADER
from palmette.runtime.api.responses.answers import InputItems, ResponseAnswer, ResponseEvent

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "c"}}\n</tool_call>'
SECOND = '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SAID = f"<think>\nOslo, then.\n</think>\n\nI look.\n{CALL}{SECOND}"
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "strict": False,
}
NOW: dict[str, Any] = {"type": "function", "name": "now", "parameters": None, "strict": False}
HI = "Weather in Oslo?"
Ask = Callable[..., Any]


@pytest.fixture
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def http(live: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=30) as made:
        yield made


@pytest.fixture
def ask(client: openai.OpenAI, chat: ScriptedChat) -> Ask:
    def asked(says: str | Callable[[str], str], *, sizes: tuple[int, ...] = (1,), **fields: Any) -> Any:
        chat.says, chat.sizes[:] = says, sizes
        given = {"model": "tiny", "input": HI, "tools": [WEATHER, NOW], **fields}
        return client.responses.create(**given)

    return asked


def plain(response: Any) -> dict[str, Any]:
    """A response without what differs between any two."""
    data: dict[str, Any] = response.model_dump(mode="json", exclude_unset=True)
    for name in ("id", "created_at", "completed_at"):
        assert data.pop(name) is not None or name == "completed_at"
    for item in data["output"]:
        assert item.pop("id").startswith({"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}[item["type"]])
        item.pop("parsed_arguments", None)
        if item["type"] == "function_call":
            assert item.pop("call_id").startswith("call_")
        for part in item.get("content", ()):
            part.pop("parsed", None)
    return data


def grammar_of(chat: ScriptedChat) -> dict[str, Any]:
    """What the last answer had to match, behind its reasoning."""
    constraint = chat.asked().params.constraint
    assert constraint is not None
    assert constraint.grammar.kind == "after_reasoning"
    found: dict[str, Any] = json.loads(constraint.grammar.text)["grammar"]
    return found


def test_items(ask: Ask) -> None:
    response = ask(SAID, metadata={"who": "me"}, instructions="Be brief.")
    ResponseAnswer.model_validate(response.model_dump(exclude_unset=True))
    assert response.id.startswith("resp_")
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert response.metadata == {"who": "me"}
    assert response.instructions == "Be brief."
    thought, message, first, second = response.output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", "Oslo, then.", [])
    assert (message.type, message.role, message.content[0].text) == ("message", "assistant", "I look.")
    assert (first.type, first.name, json.loads(first.arguments)) == (
        "function_call", "get_weather", {"city": "Oslo", "unit": "c"},
    )  # fmt: skip
    assert (second.name, second.arguments, second.status) == ("now", "{}", "completed")
    assert len({item.id for item in response.output}) == 4
    assert first.call_id != second.call_id
    assert response.output_text == "I look."
    usage = response.usage
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    assert usage.input_tokens_details.cached_tokens == 1
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_instructions_stand_in_front(ask: Ask, chat: ScriptedChat) -> None:
    messages = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": HI}]
    ask("Hi.", instructions="Be brief.", input=messages, tools=[])
    assert chat.prompt().startswith(f"<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\n{HI}")


@pytest.mark.parametrize("sizes", [(1,), (3, 1), (0,)])
@pytest.mark.parametrize("says", [SAID, CALL, "Hello 😀.", "", "<think>\nHm", CALL[:-19], f"{CALL}\nThen."])
def test_streams_accumulate_to_the_whole_response(
    ask: Ask, client: openai.OpenAI, says: str, sizes: tuple[int, ...]
) -> None:
    whole = ask(says, include=["message.output_text.logprobs"], top_logprobs=1)
    events = list(ask(says, sizes=sizes, stream=True, include=["message.output_text.logprobs"], top_logprobs=1))
    for each in events:
        ResponseEvent.model_validate(each.model_dump(mode="json", exclude_unset=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert plain(events[-1].response) == plain(whole)
    for item in events[-1].response.output:
        if item.type == "message":
            part = item.content[0]
            data = b"".join(bytes(each.bytes) for each in part.logprobs)
            assert data.decode().strip() == part.text
    # What the deltas say is what the items hold.
    items: list[dict[str, Any]] = []
    for event in events:
        match event.type:
            case "response.output_item.added":
                assert event.output_index == len(items)
                items.append({"id": event.item.id, "text": ""})
            case "response.output_text.delta" | "response.reasoning_text.delta":
                assert event.item_id == items[event.output_index]["id"]
                items[event.output_index]["text"] += event.delta
            case "response.function_call_arguments.delta":
                items[event.output_index]["text"] += event.delta
            case "response.output_text.done" | "response.reasoning_text.done":
                assert items[event.output_index]["text"] == event.text
            case "response.function_call_arguments.done":
                assert items[event.output_index]["text"] == event.arguments
            case "response.output_item.done":
                assert event.item == events[-1].response.output[event.output_index]
    assert len(items) == len(events[-1].response.output)
    with client.responses.stream(
        model="tiny", input=HI, tools=[WEATHER, NOW], include=["message.output_text.logprobs"], top_logprobs=1
    ) as stream:  # type: ignore[list-item]
        if whole.status == "completed":
            assert plain(stream.get_final_response()) == plain(whole)
        else:
            assert plain(list(stream)[-1].response) == plain(whole)  # type: ignore[union-attr]


def test_logprobs_only_where_asked_for(ask: Ask) -> None:
    assert ask("Hello.").output[0].content[0].logprobs == []
    part = ask("Hello.", include=["message.output_text.logprobs"]).output[0].content[0]
    assert "".join(each.token for each in part.logprobs) == "Hello."
    assert len(ask("Hello.", top_logprobs=2).output[0].content[0].logprobs[0].top_logprobs) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_cut_off_is_incomplete(ask: Ask, stream: bool) -> None:
    answer = ask(CALL, max_output_tokens=28, stream=stream)
    if stream:
        last = list(answer)[-1]
        assert last.type == "response.incomplete"
        answer = last.response
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.output[-1].status == "incomplete"
    assert answer.max_output_tokens == 28


class Weather(pydantic.BaseModel):
    city: str
    unit: Literal["c", "f"]


def test_pydantic_models_are_parsed(client: openai.OpenAI, chat: ScriptedChat) -> None:
    chat.says = '{"city": "Oslo", "unit": "c"}'
    response = client.responses.parse(model="tiny", input=HI, text_format=Weather)
    assert response.output_parsed == Weather(city="Oslo", unit="c")
    assert grammar_of(chat)["kind"] == "json_schema"
    with client.responses.stream(model="tiny", input=HI, text_format=Weather) as stream:
        assert stream.get_final_response().output_parsed == Weather(city="Oslo", unit="c")
    chat.says = CALL.replace("get_weather", "Weather")
    response = client.responses.parse(model="tiny", input=HI, tools=[openai.pydantic_function_tool(Weather)])  # type: ignore[list-item]
    assert response.output[0].parsed_arguments == Weather(city="Oslo", unit="c")  # type: ignore[union-attr]


@pytest.mark.parametrize("kept", [False, True])
def test_a_tool_loop_of_two_rounds(client: openai.OpenAI, chat: ScriptedChat, kept: bool) -> None:
    """Items sent back by the client, or kept here: the prompt is the same, as the model wrote it."""

    def says(prompt: str) -> str:
        if "<|im_start|>tool\n9" in prompt:
            return "Nine."
        return f"<think>\nOnce more.\n</think>\n\nAgain.\n{CALL}" if "<|im_start|>tool\n4" in prompt else SAID

    chat.says, chat.sizes[:] = says, (1,)
    tools: Any = [WEATHER, NOW]
    items: list[Any] = [{"role": "user", "content": HI}]
    response = client.responses.create(model="tiny", input=items, tools=tools)
    results = iter("449")
    for _ in range(2):
        calls = [item for item in response.output if item.type == "function_call"]
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": next(results)} for call in calls]
        if kept:
            given: Any = outputs
            response = client.responses.create(model="tiny", input=given, tools=tools, previous_response_id=response.id)
        else:
            items += [*response.output, *outputs]
            response = client.responses.create(model="tiny", input=items, tools=tools)
    assert response.output_text == "Nine."
    before = (
        f"<|im_start|>assistant\n{SAID}<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\nOnce more.\n</think>\n\nAgain.\n{CALL}<|im_end|>\n"
        "<|im_start|>tool\n9<|im_end|>\n"
    )
    assert before in chat.prompt()
    listed = client.responses.input_items.list(response.id, order="asc", limit=3)
    kinds = [item.type for item in listed]  # the client turns the pages
    assert kinds[:5] == ["message", "reasoning", "message", "function_call", "function_call"]
    assert kinds[5:] == ["function_call_output"] * 2 + ["reasoning", "message", "function_call", "function_call_output"]


def test_a_response_is_kept_until_it_is_deleted(client: openai.OpenAI, ask: Ask) -> None:
    response = ask("Hello.")
    assert client.responses.retrieve(response.id) == response
    assert plain(ask("Hello.", store=False)) == {**plain(response), "store": False}
    client.responses.delete(response.id)
    for again in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            again(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(ask("Hello.", store=False).id)


def test_conversations_go_on(ask: Ask, chat: ScriptedChat, client: openai.OpenAI) -> None:
    first = ask("Hello.", instructions="Be brief.", tools=[])
    second = ask("Fine.", input="And you?", previous_response_id=first.id, instructions="Be long.", tools=[])
    client.responses.delete(first.id)
    third = ask("Yes.", input="Really?", previous_response_id=second.id, tools=[])
    turns = ["user\nWeather in Oslo?", "assistant\nHello.", "user\nAnd you?", "assistant\nFine.", "user\nReally?"]
    assert chat.prompt() == "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in turns) + "<|im_start|>assistant\n"
    page = client.responses.input_items.list(third.id, limit=2)
    InputItems.model_validate(page.model_dump(exclude_unset=True))
    assert [item.content[0].text for item in page.data] == ["Really?", "Fine."]  # type: ignore[union-attr]
    assert page.has_more  # type: ignore[attr-defined]
    assert [item.content[0].text for item in page] == ["Really?", "Fine.", "And you?", "Hello.", HI]  # type: ignore[union-attr]


def test_items_by_reference(ask: Ask, chat: ScriptedChat) -> None:
    first = ask(SAID)
    ids = [{"type": "item_reference", "id": item.id} for item in first.output]
    outputs = [{"type": "function_call_output", "call_id": item.call_id, "output": "4"} for item in first.output[2:]]
    ask("Four.", input=[{"role": "user", "content": HI}, *ids, *outputs])
    assert f"<|im_start|>assistant\n{SAID}<|im_end|>" in chat.prompt()
    with pytest.raises(openai.BadRequestError, match="twice"):
        ask("Four.", input=[ids[1], ids[1]])
    with pytest.raises(openai.BadRequestError, match="not known"):
        ask("Four.", input=[{"id": "msg_none"}])


def test_items_of_other_origin_belong_together_by_their_order(ask: Ask, chat: ScriptedChat) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"}
    thought = {"type": "reasoning", "id": "x", "summary": [{"type": "summary_text", "text": "Hm."}]}
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        thought,
        {"role": "assistant", "content": "One."},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "4"}]},
        {"role": "assistant", "content": "Two."},
        {"role": "assistant", "content": "Three."},
        {"role": "user", "content": "c"},
    ]
    ask("Yes.", input=items, tools=[NOW])
    written = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    turns = [
        "user\nab", f"assistant\n<think>\nHm.\n</think>\n\nOne.\n{written}", "tool\n4", "assistant\nTwo.",
        "assistant\nThree.", "user\nc",
    ]  # fmt: skip
    assert "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in turns) in chat.prompt()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", None),
        ("auto", None),
        ("required", {"free_text": False, "at_least_one": True}),
        ({"type": "function", "name": "now"}, {"free_text": False, "at_least_one": True, "stop_after_first": True}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]},
            {"free_text": False, "at_least_one": True},
        ),
    ],
)
def test_tool_choices(ask: Ask, chat: ScriptedChat, choice: Any, expected: dict[str, Any] | None) -> None:
    response = ask("Hi." if expected is None else CALL, tool_choice=choice)
    assert response.model_dump(exclude_unset=True)["tool_choice"] == choice
    assert (chat.asked().params.constraint is None) == (expected is None)
    if expected is not None:
        grammar = grammar_of(chat)
        assert expected.items() <= grammar["options"].items()
        assert ("get_weather" in grammar["text"]) == (choice == "required")
    assert ("get_weather" in chat.prompt()) == (choice != "none")


def test_reasoning_is_turned_off(ask: Ask, chat: ScriptedChat, tiny: LiveServer) -> None:
    response = ask("Hi.", reasoning={"effort": "none"})
    assert chat.prompt().endswith("<think>\n\n</think>\n\n")
    assert (response.reasoning.effort, response.reasoning.summary) == ("none", None)
    answer = httpx.post(f"{tiny.url}/v1/responses", json={"input": "a", "reasoning": {"effort": "high"}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "reasoning.effort")
    assert "reasoning.effort='high'" in answer.json()["error"]["message"]


def test_a_schema_that_no_grammar_can_hold(tiny: LiveServer) -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {"a": {"$ref": "#/no"}}}}
    for more in ({}, {"stream": True}, {"background": True}):
        answer = httpx.post(f"{tiny.url}/v1/responses", json={"input": "a", "text": {"format": form}, **more})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == "text.format.schema"


def test_one_call_at_a_time(ask: Ask) -> None:
    response = ask(CALL + SECOND, parallel_tool_calls=False)
    assert [item.name for item in response.output] == ["get_weather"]
    assert response.parallel_tool_calls is False


def test_what_has_no_effect_is_named(http: httpx.Client, chat: ScriptedChat) -> None:
    chat.says = "Hi."
    body = {
        "input": HI, "service_tier": "auto", "safety_identifier": "x", "prompt_cache_key": "x", "max_tool_calls": 3,
        "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"], "truncation": "disabled",
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "stream_options": {"include_obfuscation": True},
    }  # fmt: skip
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    ResponseAnswer.model_validate(answer.json())
    assert set(answer.headers[IGNORED_HEADER].split(", ")) == {
        "service_tier", "safety_identifier", "prompt_cache_key", "max_tool_calls", "reasoning.summary",
        "include.reasoning.encrypted_content", "stream_options",
    }  # fmt: skip
    assert answer.json()["max_tool_calls"] == 3


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "input", "missing"),
        ({"input": []}, "input", "missing"),
        ({"input": 5}, "input", "input"),
        ({"input": [5]}, "input.0", "no item"),
        ({"input": [{}]}, "input.0.id", "missing"),
        ({"input": [{"role": "nobody", "content": "a"}]}, "input.0.role", "user"),
        ({"input": [{"role": "user", "content": 5}]}, "input.0.content", "list of parts"),
        ({"input": [{"role": "user", "content": ["a"]}]}, "input.0.content.0", "content part"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type", "text only"),
        ({"input": [{"role": "user", "content": "a", "odd": 1}]}, "input.0.odd", "not a field"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input.0.type", "web_search_call"),
        ({"input": [{"type": ["x"]}]}, "input.0.type", "not supported"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "a"}]}, "input", "'c'"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools.0.type", "web_search"),
        ({"input": "a", "tools": [{"type": "function"}]}, "tools.0.name", "missing"),
        ({"input": "a", "tools": [{"type": "function", "name": "f", "odd": 1}]}, "tools.0.odd", "field"),
        ({"input": "a", "tools": [5]}, "tools.0", ""),
        ({"input": "a", "tool_choice": {"type": "file_search"}}, "tool_choice.type", "file_search"),
        ({"input": "a", "tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "'f'"),
        ({"input": "a", "tool_choice": "perhaps"}, "tool_choice", "perhaps"),
        ({"input": "a", "truncation": "auto"}, "truncation", "auto"),
        ({"input": "a", "text": {"format": {"type": "json_schema"}}}, "text.format.schema", "no schema"),
        ({"input": "a", "text": {"format": {"type": "xml"}}}, "text.format.type", "xml"),
        ({"input": "a", "text": {"verbosity": "low"}}, "text.verbosity", "low"),
        ({"input": "a", "text": {"format": {"type": "json_object"}}, "regex": "a"}, "text.format", "one grammar"),
        ({"input": "a", "reasoning": {"mode": "pro"}}, "reasoning.mode", "not supported"),
        ({"input": "a", "include": ["everything"]}, "include.0", "everything"),
        ({"input": "a", "background": True, "store": False}, "store", "background"),
        ({"input": "a", "metadata": {"a": 1}}, "metadata.a", "string"),
        ({"input": "a", "metadata": {str(key): "" for key in range(17)}}, "metadata", "17"),
        ({"input": "a", "metadata": {"a": "b" * 513}}, "metadata", "513"),
        ({"input": "a", "max_output_tokens": -1}, "max_output_tokens", "-1"),
        ({"input": "a", "max_output_tokens": 10**6}, "max_output_tokens", ""),
        ({"input": "a", "temperature": 200}, "temperature", "200"),
        ({"input": "a", "top_logprobs": 99}, "top_logprobs", "99"),
        ({"input": "a", "conversation": "conv_1"}, "conversation", "previous_response_id"),
        ({"input": "a", "prompt": {"id": "p"}}, "prompt", "not kept"),
        ({"input": "a", "odd": 1}, "odd", "not a field"),
        ({"input": "a " * 9000}, "input", "8192"),
    ],
)
def test_refusals(http: httpx.Client, body: dict[str, Any], param: str, words: str) -> None:
    for more in ({}, {"stream": True}, {"background": True}):
        answer = http.post("/v1/responses", json={**more, **body})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["param"] == param, error
        assert words in error["message"]


def test_a_lenient_server_leaves_out_and_names(chat: ScriptedChat) -> None:
    body = {
        "input": [{"role": "user", "content": HI, "odd": 1}], "truncation": "auto", "text": {"verbosity": "high"},
        "tools": [{"type": "web_search", "filters": {}}, NOW], "conversation": "c", "reasoning": {"mode": "pro"},
    }  # fmt: skip
    lenient = ScriptedChat(chat.tokenizer, "Hi.")
    with LiveServer(lenient.frontend, options=ApiOptions(lenient=True)) as server:
        answer = httpx.post(f"{server.url}/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        assert [tool["name"] for tool in answer.json()["tools"]] == ["now"]
        assert set(answer.headers[IGNORED_HEADER].split(", ")) == {
            "input.0.odd", "truncation", "text.verbosity", "tools.0", "conversation", "reasoning.mode",
        }  # fmt: skip


def test_unknown_models_and_responses(http: httpx.Client) -> None:
    assert http.post("/v1/responses", json={"input": "a", "model": "gpt-9"}).status_code == 404
    answer = http.post("/v1/responses", json={"input": "a", "previous_response_id": "resp_none"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "previous_response_id")
    for query in ("limit=0", "limit=101", "order=odd"):
        assert http.get(f"/v1/responses/resp_none/input_items?{query}").status_code == 400
    assert http.get("/v1/responses/resp_none?starting_after=-1").status_code == 400


def test_input_tokens_are_counted(client: openai.OpenAI, ask: Ask) -> None:
    asked = ask("Hi.", instructions="Be brief.")
    counted = client.responses.input_tokens.count(input=HI, instructions="Be brief.", tools=[WEATHER, NOW])  # type: ignore[list-item]
    assert counted.input_tokens == asked.usage.input_tokens


async def test_the_async_client(live: LiveServer, chat: ScriptedChat) -> None:
    chat.says, chat.sizes[:] = SAID, (2,)
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="x") as client:
        whole = await client.responses.create(model="tiny", input=HI, tools=[WEATHER, NOW])  # type: ignore[list-item]
        async with client.responses.stream(model="tiny", input=HI, tools=[WEATHER, NOW]) as stream:  # type: ignore[list-item]
            assert plain(await stream.get_final_response()) == plain(whole)
        assert (await client.responses.retrieve(whole.id)).output == whole.output
        await client.responses.delete(whole.id)
