"""OpenAI's own client against our server: what it parses is what we say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from live_server import LiveServer

SAID = "the tokens of a naïve model — 😀 self"


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(server: LiveServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").object == "model"
    with pytest.raises(openai.NotFoundError, match="'nope' is not served"):
        client.models.retrieve("nope")


def test_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="hello", max_tokens=60)
    assert answer.choices[0].text == SAID
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 1


def test_without_max_tokens_a_completion_has_the_rest_of_the_context(tiny: LiveServer) -> None:
    with httpx.Client(base_url=tiny.url, timeout=60) as http:
        prompt = [7] * 2040  # of a context of 2,048
        usage = http.post("/v1/completions", json={"prompt": prompt, "ignore_eos": True}).json()["usage"]
        assert usage["completion_tokens"] == 8
        refused = http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 9})
        assert refused.status_code == 400
        assert "2040 tokens and max_tokens is 9: 2049 together, 1 too many" in refused.text
        assert "This model's maximum context length is 2048 tokens." in refused.text  # frameworks go by it
        assert refused.json()["error"]["code"] == "context_length_exceeded"


def test_completion_stream_equals_non_stream(client: openai.OpenAI) -> None:
    for stop in (None, "naïve", ["zz", "😀"]):
        whole = client.completions.create(model="tiny", prompt="x", max_tokens=60, stop=stop, logprobs=1)
        chunks = list(
            client.completions.create(
                model="tiny", prompt="x", max_tokens=60, stop=stop, logprobs=1, stream=True,
                stream_options={"include_usage": True},
            )
        )  # fmt: skip
        parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
        assert (
            "".join(part.text for part in parts)
            == whole.choices[0].text
            == (SAID.split(stop if isinstance(stop, str) else stop[-1])[0] if stop else SAID)
        )
        assert parts[-1].finish_reason == whole.choices[0].finish_reason
        assert all(part.finish_reason is None for part in parts[:-1])
        assert chunks[-1].choices == []
        assert chunks[-1].usage == whole.usage
        assert whole.choices[0].logprobs is not None
        seen = [token for part in parts if part.logprobs for token in part.logprobs.tokens or ()]
        offsets = [offset for part in parts if part.logprobs for offset in part.logprobs.text_offset or ()]
        assert seen == whole.choices[0].logprobs.tokens
        assert len(offsets) == len(seen)


def test_several_prompts_and_choices(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    ids = client.completions.create(model="tiny", prompt=[[5, 6], [7]], max_tokens=3)
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 3
    stream = client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=3, stream=True)
    assert {chunk.choices[0].index for chunk in stream} == {0, 1, 2, 3}
    best = client.completions.create(model="tiny", prompt="a", best_of=3, n=1, max_tokens=3)
    assert len(best.choices) == 1


def test_echo(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="hello ", max_tokens=60, echo=True)
    assert answer.choices[0].text == "hello " + SAID
    stream = client.completions.create(model="tiny", prompt="hello ", max_tokens=60, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "hello " + SAID


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": " there"}]},
        ],
        logprobs=True,
        top_logprobs=2,
    )
    choice = answer.choices[0]
    assert choice.message.content == SAID
    assert choice.message.role == "assistant"
    assert choice.logprobs is not None
    content = choice.logprobs.content
    assert content is not None
    assert bytes(byte for each in content for byte in each.bytes or ()).decode() == SAID
    assert all(len(each.top_logprobs) == 2 for each in content)


async def test_chat_stream(async_client: openai.AsyncOpenAI) -> None:
    stream = await async_client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        n=2,
        logprobs=True,
        stream_options={"include_usage": True},
    )
    texts = {0: "", 1: ""}
    ends = []
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends += [choice.finish_reason] if choice.finish_reason else []
    assert texts == {0: SAID, 1: SAID}
    assert ends == ["length", "length"]
    assert usage is not None
    assert usage.completion_tokens % 2 == 0


async def test_the_chat_stream_helper_accumulates(async_client: openai.AsyncOpenAI) -> None:
    async with async_client.chat.completions.stream(
        model="tiny", messages=[{"role": "user", "content": "Hi"}], stop=" self"
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == SAID.removesuffix(" self")


@pytest.mark.parametrize(
    ("options", "words", "param"),
    [
        ({"extra_body": {"foo": 1}}, "'foo' is not a field", "foo"),
        ({"temperature": 200.0}, "temperature=200.0", "temperature"),
        ({"max_tokens": 5000}, "context length is 256 tokens", "max_tokens"),
        ({"top_logprobs": 3}, "top_logprobs needs logprobs", "top_logprobs"),
        ({"n": 1000}, "1000 outputs", "n"),
        ({"extra_body": {"functions": [{"name": "f"}]}}, "'functions' is not supported", "functions"),
        ({"extra_body": {"stop_token_ids": ["x"]}}, "stop_token_ids.0", "stop_token_ids.0"),
        ({"messages": []}, "'messages' is empty", "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "content of type 'image_url'",
            "messages.0.content.0.type",
        ),
        ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "'messages.0.colour'", "messages.0.colour"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests_name_the_field(
    client: openai.OpenAI, options: dict[str, object], words: str, param: str, stream: bool
) -> None:
    given = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stream": stream, **options}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**given)  # type: ignore[call-overload]
    assert words in caught.value.message
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="'gpt-4' is not served here"):
        client.completions.create(model="gpt-4", prompt="x")


def test_fields_without_effect_are_named(client: openai.OpenAI) -> None:
    raw = client.completions.with_raw_response.create(
        model="tiny", prompt="x", extra_body={"store": True}, max_tokens=2
    )
    assert raw.headers["x-palmette-ignored"] == "store"
    assert raw.parse().choices[0].finish_reason == "length"


def test_an_engine_that_dies_ends_a_stream_with_an_error_event(client: openai.OpenAI, server: LiveServer) -> None:
    link = server.frontend.scripted  # type: ignore[attr-defined]
    server.soon(link.go.clear)
    try:
        stream = client.completions.create(model="tiny", prompt="x", stream=True, max_tokens=9)
        next(iter(stream))
        server.soon(link.die)
        with pytest.raises(openai.APIError, match="The engine died"):
            list(stream)
    finally:
        server.soon(link.go.set)


def test_without_engine_the_answer_is_503(client: openai.OpenAI, server: LiveServer) -> None:
    link = server.frontend.scripted  # type: ignore[attr-defined]
    server.soon(lambda: server.frontend.engine_lost("restarting", "The engine ended."))
    try:
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as caught:
                client.completions.create(model="tiny", prompt="x", stream=stream)
            assert caught.value.status_code == 503
            assert caught.value.code == "EngineDied"
    finally:
        server.soon(lambda: link.start(link._deliver))


def test_a_client_that_leaves_aborts_its_request(client: openai.OpenAI, server: LiveServer) -> None:
    link = server.frontend.scripted  # type: ignore[attr-defined]
    before = len(link.aborted())
    server.soon(link.go.clear)
    try:
        stream = client.completions.create(model="tiny", prompt="x", stream=True, max_tokens=9, n=2)
        next(iter(stream))
        stream.close()
        with pytest.raises(openai.APITimeoutError):
            client.completions.create(model="tiny", prompt="x", max_tokens=9, timeout=0.2)
        for _ in range(100):
            if len(link.aborted()) == before + 3:
                break
            server.soon(lambda: None)
        assert len(link.aborted()) == before + 3
    finally:
        server.soon(link.go.set)


def test_the_tiny_model_answers_the_same_streamed_or_not(tiny: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        ask = {"model": "tiny", "prompt": "def tokens", "max_tokens": 24, "seed": 3, "logprobs": 2}
        whole = client.completions.create(**ask)  # type: ignore[call-overload]
        chunks = [chunk.choices[0] for chunk in client.completions.create(**ask, stream=True)]  # type: ignore[call-overload]
        assert "".join(chunk.text for chunk in chunks) == whole.choices[0].text
        values = [value for chunk in chunks if chunk.logprobs for value in chunk.logprobs.token_logprobs]
        assert values == whole.choices[0].logprobs.token_logprobs
        echoed = client.completions.create(
            model="tiny", prompt="def tokens", echo=True, logprobs=1, max_tokens=2, temperature=0
        )
        logprobs = echoed.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.token_logprobs is not None
        assert logprobs.token_logprobs[0] is None
        assert all(isinstance(value, float) for value in logprobs.token_logprobs[1:])
        assert echoed.usage is not None
        assert len(logprobs.token_logprobs) == echoed.usage.total_tokens
        assert echoed.usage.prompt_tokens_details is not None


def test_text_offsets_do_not_depend_on_the_chunks(tiny: LiveServer) -> None:
    """The tiny model's random bytes begin many characters that no token completes."""
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="x") as client:
        for seed in range(4):
            asked: dict[str, Any] = {
                "model": "tiny", "prompt": "a", "max_tokens": 40, "seed": seed, "temperature": 2.0, "logprobs": 1
            }  # fmt: skip
            choice = client.completions.create(**asked).choices[0]
            assert choice.logprobs is not None
            streamed: list[int] = []
            for chunk in client.completions.create(**asked, stream=True):
                logprobs = chunk.choices[0].logprobs
                streamed += (logprobs.text_offset or []) if logprobs is not None else []
            assert streamed == choice.logprobs.text_offset
            placed = zip(choice.logprobs.tokens or [], streamed, strict=True)
            assert all(choice.text.startswith(token, offset) for token, offset in placed if token.isascii())


def test_text_offsets_of_an_echo_count_the_prompt_s_characters(tiny: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="x") as client:
        choice = client.completions.create(
            model="tiny", prompt="<é😀>", max_tokens=2, temperature=0, echo=True, logprobs=0
        ).choices[0]
    assert choice.logprobs is not None
    offsets, tokens = choice.logprobs.text_offset or [], choice.logprobs.tokens or []
    assert offsets[-2] == len("<é😀>")
    assert choice.text[offsets[tokens.index(">")]] == ">"
