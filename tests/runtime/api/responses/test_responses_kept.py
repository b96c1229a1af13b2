"""Kept responses: in the background, cancelled, followed again, failed, and each for its caller alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from chat_models import QWEN, ScriptedChat, special_tokenizer
from live_server import LiveServer

from palmette.runtime.api.access import Keys
from palmette.runtime.api.responses.answers import ResponseAnswer, ResponseEvent
from palmette.runtime.text.tokenizer import Tokenizer

LONG = "one two three four five six seven eight nine ten"
Create = Callable[..., Any]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return special_tokenizer(tmp_path_factory.mktemp("model"), QWEN)


@pytest.fixture(scope="module")
def chat(tokenizer: Tokenizer) -> ScriptedChat:
    return ScriptedChat(tokenizer, LONG)


@pytest.fixture(scope="module")
def live(chat: ScriptedChat) -> Iterator[LiveServer]:
    with LiveServer(chat.frontend) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def held(live: LiveServer, chat: ScriptedChat) -> Iterator[Callable[[], None]]:
    """Outputs stop after their first reply, until it is called."""
    live.soon(chat.link.go.clear)
    yield lambda: live.soon(chat.link.go.set)
    live.soon(chat.link.go.set)


def create(client: openai.OpenAI, **fields: Any) -> Any:
    return client.responses.create(**{"model": "tiny", "input": "Count.", **fields})


def until(client: openai.OpenAI, response_id: str, *statuses: str) -> Any:
    """The response, once it has one of these."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        response = client.responses.retrieve(response_id)
        ResponseAnswer.model_validate(response.model_dump(exclude_unset=True))
        if response.status in statuses:
            return response
        time.sleep(0.01)
    raise AssertionError(f"{response_id} is still {response.status}")


def wait_for(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_background_response_goes_on_alone(client: openai.OpenAI, held: Callable[[], None]) -> None:
    response = create(client, background=True)
    assert response.status == "queued"
    assert response.background is True
    begun = until(client, response.id, "in_progress")
    wait_for(lambda: client.responses.retrieve(response.id).output_text != "")
    assert LONG.startswith(client.responses.retrieve(response.id).output_text)
    assert begun.usage is None
    with pytest.raises(openai.BadRequestError, match="still being made"):
        create(client, previous_response_id=response.id)
    held()
    ended = until(client, response.id, "completed")
    assert ended.output_text == LONG
    assert ended.usage.output_tokens > 0
    follows = create(client, previous_response_id=response.id)
    assert [item.type for item in client.responses.input_items.list(follows.id)] == ["message"] * 3


def test_a_background_response_is_cancelled_once(
    client: openai.OpenAI, held: Callable[[], None], chat: ScriptedChat
) -> None:
    response = create(client, background=True)
    until(client, response.id, "in_progress")
    cancelled = client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    assert LONG.startswith(cancelled.output_text)
    assert all(item.status == "incomplete" for item in cancelled.output)  # type: ignore[union-attr]
    assert chat.link.aborted() == [response.id]
    assert client.responses.cancel(response.id) == cancelled
    assert client.responses.retrieve(response.id) == cancelled
    assert chat.link.aborted() == [response.id]
    held()
    assert create(client, previous_response_id=response.id).status == "completed"


def test_only_background_responses_are_cancelled(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(create(client).id)
    done = until(client, create(client, background=True).id, "completed")
    assert client.responses.cancel(done.id) == done


def test_deleting_ends_what_runs(client: openai.OpenAI, held: Callable[[], None], chat: ScriptedChat) -> None:
    response = create(client, background=True)
    client.responses.delete(response.id)
    wait_for(lambda: response.id in chat.link.aborted())
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_background_stream_is_followed_again(client: openai.OpenAI, held: Callable[[], None]) -> None:
    stream = create(client, background=True, stream=True)
    first = [next(stream) for _ in range(6)]
    assert [event.type for event in first[:3]] == ["response.created", "response.queued", "response.in_progress"]
    response_id = first[0].response.id
    stream.close()
    held()
    ended = until(client, response_id, "completed")
    rest = list(client.responses.retrieve(response_id, stream=True, starting_after=5))
    assert [event.sequence_number for event in (*first, *rest)] == list(range(6 + len(rest)))
    assert rest[-1].response == ended  # type: ignore[union-attr]
    for event in (*first, *rest):
        ResponseEvent.model_validate(event.model_dump(mode="json", exclude_unset=True))
    again = list(client.responses.retrieve(response_id, stream=True))
    assert again == [*first, *rest]
    assert list(client.responses.retrieve(response_id, stream=True, starting_after=10**9)) == []
    with client.responses.stream(response_id=response_id, starting_after=5) as helped:
        assert helped.get_final_response().output_text == LONG


def test_who_follows_what_runs_hears_its_end(client: openai.OpenAI, held: Callable[[], None]) -> None:
    stream = create(client, background=True, stream=True)
    response_id = next(stream).response.id
    stream.close()
    followed = client.responses.retrieve(response_id, stream=True)
    assert next(followed).sequence_number == 0
    client.responses.cancel(response_id)
    last = list(followed)[-1]
    assert last.type == "response.incomplete"
    assert last.response.status == "cancelled"


def test_events_of_other_responses_were_not_kept(client: openai.OpenAI) -> None:
    for response in (create(client), until(client, create(client, background=True).id, "completed")):
        with pytest.raises(openai.BadRequestError, match="not kept"):
            client.responses.retrieve(response.id, stream=True)
    with pytest.raises(openai.BadRequestError, match="stream=true"):
        client.responses.retrieve(response.id, starting_after=3)  # type: ignore[call-overload]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_its_response(
    client: openai.OpenAI, live: LiveServer, held: Callable[[], None], chat: ScriptedChat, stream: bool
) -> None:
    before = len(chat.link.aborted())
    if stream:
        events = create(client, stream=True)
        response_id = next(events).response.id
        events.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            create(client.with_options(timeout=0.3))
    wait_for(lambda: len(chat.link.aborted()) > before)
    if stream:
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response_id)


def test_a_response_that_fails(
    client: openai.OpenAI, live: LiveServer, held: Callable[[], None], chat: ScriptedChat
) -> None:
    events = create(client, stream=True)
    response_id = next(events).response.id
    background = create(client, background=True)
    until(client, background.id, "in_progress")
    live.soon(chat.link.die)
    last = list(events)[-1]
    assert last.type == "response.failed"
    assert last.response.error.code == "server_error"
    assert "died" in last.response.error.message
    failed = until(client, background.id, "failed")
    assert failed.error.code == "server_error"
    for each in (response_id, background.id):
        assert client.responses.retrieve(each).status == "failed"
        with pytest.raises(openai.BadRequestError, match="failed"):
            create(client, previous_response_id=each)
    assert client.responses.cancel(background.id) == failed
    live.soon(lambda: chat.link.reply(chat.link.ready))  # the engine is back


def test_callers_see_their_own(tokenizer: Tokenizer) -> None:
    chat = ScriptedChat(tokenizer, LONG)
    with LiveServer(chat.frontend, keys=Keys(("ann's", "bob's"))) as server:
        ann, bob = (
            openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0) for key in ("ann's", "bob's")
        )
        with ann, bob:
            hers = create(ann, background=True, stream=True)
            response_id = next(hers).response.id
            list(hers)
            assert ann.responses.retrieve(response_id).output_text == LONG
            for ask in (
                bob.responses.retrieve,
                bob.responses.cancel,
                bob.responses.delete,
                bob.responses.input_items.list,
                lambda each: bob.responses.retrieve(each, stream=True),
                lambda each: create(bob, previous_response_id=each),
            ):
                with pytest.raises(openai.NotFoundError, match="not known"):
                    ask(response_id)
            item = ann.responses.retrieve(response_id).output[0].id
            with pytest.raises(openai.BadRequestError, match="not known"):
                create(bob, input=[{"type": "item_reference", "id": item}])
            assert create(ann, input=[{"type": "item_reference", "id": item}]).status == "completed"


def test_odd_ids_and_queries(live: LiveServer) -> None:
    with httpx.Client(base_url=live.url, timeout=30) as http:
        for odd in ("resp_" + "0" * 32, "%00", "..%2f..", "x" * 5000, "%F0%9F%98%80", "resp_%0d%0ax"):
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
                answer = http.request(method, f"/v1/responses/{odd}{path}")
                assert answer.status_code == 404, answer.text
                assert len(answer.text) < 3000
        made = http.post("/v1/responses", json={"input": "a"}).json()["id"]
        for query in ("after=nothing", "limit=x", "limit=-1", "order=up"):
            assert http.get(f"/v1/responses/{made}/input_items?{query}").status_code == 400
        for query in ("?before=x", "?stream=false&odd=1", "/input_items?before=x", "/input_items?stream=true"):
            answer = http.get(f"/v1/responses/{made}{query}")
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] in ("before", "odd", "stream")
        assert http.get(f"/v1/responses/{made}?stream=perhaps").status_code == 400
        assert http.get(f"/v1/responses/{made}?include=x").headers["x-palmette-ignored"] == "include"
        for odd in ("resp_" + "0" * 32, "x" * 100_000, "\x00"):
            answer = http.post("/v1/responses", json={"input": "a", "previous_response_id": odd})
            assert answer.status_code == 404
            assert len(answer.text) < 3000


@pytest.mark.parametrize("large", [False, True])  # bodies are read in two ways
@pytest.mark.parametrize("schema", ['{"not":' * 260 + "{}" + "}" * 260, '{"maximum":' + "9" * 30 + "}"])
def test_what_can_be_read_and_not_written(live: LiveServer, schema: str, large: bool) -> None:
    """Whatever the answer is, it is one."""
    user = "x" * (70_000 if large else 1)
    tool = '{"type": "function", "name": "f", "parameters": %s}'
    form = '{"type": "json_schema", "name": "f", "schema": %s}'
    with httpx.Client(base_url=live.url, timeout=30) as http:
        for fields in (
            f'"tools": [{tool % schema}], "tool_choice": "none"',
            f'"text": {{"format": {form % schema}}}',
            f'"chat_template_kwargs": {schema}',
            f'"max_tool_calls": {"9" * 30}',
        ):
            for more in ("", ', "stream": true', ', "background": true'):
                body = f'{{"input": "a", "user": "{user}", {fields}{more}}}'
                answer = http.post("/v1/responses", content=body, headers={"content-type": "application/json"})
                assert answer.status_code in (200, 400), answer.text
                assert "response.failed" not in answer.text


def test_many_items_hold_nobody_up(live: LiveServer) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    bodies: list[Any] = [
        [{"role": "user", "content": ""}] * 4000,
        [call] * 4000,
        [{"id": "msg_" + "0" * 36}] * 4000,
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}] * 4000}],
        [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * 10_000}],
    ]
    with httpx.Client(base_url=live.url, timeout=60) as http:
        for given in bodies:
            answer = http.post("/v1/responses", json={"input": given, "max_output_tokens": 2})
            assert answer.status_code == 400, answer.text[:300]


async def test_the_async_client_in_the_background(live: LiveServer) -> None:
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="x") as client:
        stream = await client.responses.create(model="tiny", input="Count.", background=True, stream=True)
        events = [event async for event in stream]
        assert events[-1].response.output_text == LONG  # type: ignore[union-attr]
        cancelled = await client.responses.cancel(events[0].response.id)  # type: ignore[union-attr]
        assert cancelled.status == "completed"
