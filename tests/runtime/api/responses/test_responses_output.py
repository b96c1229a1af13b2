"""Anything that a model may write, as a response: the same however the chunks come, and its events tell it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from chat_models import QWEN, ScriptedChat, special_tokenizer

from palmette.runtime.api.responses.answers import ResponseEvent
from palmette.runtime.api.responses.items import messages_of
from palmette.runtime.api.responses.output import Event, ResponseWriter
from palmette.runtime.frontend import ChatChunk, ChatFinish, ChatMessage, ChatTurn, Frontend
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.parsers.protocol import Tool
from palmette.runtime.text.tokenizer import Tokenizer

TURN = ChatTurn(messages=(ChatMessage(role="user", content="Hi."),), tools=(Tool(name="now"), Tool(name="f")))
PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", '\n{"name": "now", "arguments": {}}\n', '{"name": "f", ',
    '"arguments": {"a": "é😀"}}', "\n", "\n\n", " ", "One", "two 😀", "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
    "<", "</", "{", "}", "ing",
]  # fmt: skip
HEAD = {"id": "resp_" + "0" * 32, "object": "response"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return special_tokenizer(Path(tmp_path_factory.mktemp("model")), QWEN)


def outputs(seed: int, count: int) -> Iterator[str]:
    drawn = random.Random(seed)
    for _ in range(count):
        yield "".join(drawn.choices(PIECES, k=drawn.randrange(12)))


async def written(frontend: Frontend, params: SamplingParams) -> tuple[dict[str, Any], list[Event]]:
    """The response that a generation makes, and its events."""
    prepared = await frontend.chats.prepare(TURN, params)
    writer = ResponseWriter(dict(HEAD), frontend.vocabulary)
    events = writer.begin()
    async for chunk in frontend.chats.submit(prepared):
        events += writer.chunk(chunk)
    assert writer.ended
    return plain(writer.response()), [orjson.loads(orjson.dumps(event)) for event in events]


def plain(response: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between any two."""
    data: dict[str, Any] = orjson.loads(orjson.dumps(response))
    data.pop("completed_at")
    for item in data["output"]:
        item.pop("call_id", None)
    return data


def check(events: Sequence[Event], response: dict[str, Any]) -> None:
    """Items come one after the other, each whole, and hold what their deltas say."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    at, text, told = -1, "", list[Any]()
    is_open = False
    for event in events:
        if event["type"] != "response.created" and "response" not in event:
            ResponseEvent.model_validate(event)
        if event["type"] == "response.output_item.added":
            assert not is_open
            at, text, told, is_open = at + 1, "", [], True
        if "output_index" in event:
            assert is_open
            assert event["output_index"] == at
        text += event.get("delta", "")
        if event["type"] == "response.output_text.delta":
            told += event["logprobs"]
        if event["type"] == "response.output_text.done":
            assert event["text"] == text
            assert told == event["logprobs"][: len(told)]
            data = b"".join(bytes(each["bytes"]) for each in event["logprobs"])
            assert data.decode("utf-8", "replace").split() == text.split()
        if event["type"] == "response.output_item.done":
            is_open = False
            item = dict(event["item"])
            item.pop("call_id", None)
            assert item == response["output"][at]
    assert not is_open
    assert at == len(response["output"]) - 1
    assert plain(events[-1]["response"]) == response


@pytest.mark.parametrize("seed", range(4))
async def test_the_same_response_however_it_comes(tokenizer: Tokenizer, seed: int) -> None:
    chat = ScriptedChat(tokenizer)
    frontend = chat.frontend()
    frontend.start()
    try:
        for text in outputs(seed, 25):
            for stop, most in (((), None), (("two",), None), ((), 7)):
                chat.says = text
                params = SamplingParams(logprobs=True, stop=stop, max_tokens=most)
                made = []
                for sizes in ((0,), (1,), (3, 1, 2)):
                    chat.sizes[:] = sizes
                    response, events = await written(frontend, params)
                    check(events, response)
                    made.append(response)
                assert made[0] == made[1] == made[2], text
    finally:
        await frontend.close()


def test_what_was_cancelled_while_it_waited_was_never_in_progress(tokenizer: Tokenizer) -> None:
    writer = ResponseWriter(dict(HEAD), tokenizer.vocabulary, queued=True)
    finish = ChatFinish(reason="abort", usage=Usage(prompt_tokens=3))
    events = [*writer.begin(), *writer.chunk(ChatChunk(finish=finish))]
    assert [event["type"] for event in events] == ["response.created", "response.queued", "response.incomplete"]
    assert (writer.status, writer.items) == ("cancelled", [])


async def test_items_that_come_back_are_what_the_model_wrote(tokenizer: Tokenizer) -> None:
    """The message of a turn's items is the message of the turn, in whatever order it said and called."""
    chat = ScriptedChat(tokenizer)
    frontend = chat.frontend()
    frontend.start()
    try:
        for text in outputs(9, 40):
            chat.says, chat.sizes[:] = text, (0,)
            prepared = await frontend.chats.prepare(TURN, SamplingParams())
            writer = ResponseWriter(dict(HEAD), frontend.vocabulary)
            said, thought, calls = "", "", list[str]()
            async for chunk in frontend.chats.submit(prepared):
                writer.chunk(chunk)
                for event in chunk.events:
                    match type(event).__name__:
                        case "TextDelta":
                            said += event.text  # type: ignore[union-attr]
                        case "ReasoningDelta":
                            thought += event.text  # type: ignore[union-attr]
                        case "CallBegun":
                            calls.append(event.name)  # type: ignore[union-attr]
            (message,) = messages_of(writer.items)
            assert (message.content or "", message.reasoning or "") == (said, thought)
            assert [call.name for call in message.tool_calls] == calls
    finally:
        await frontend.close()
