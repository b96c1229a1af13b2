"""The frontend over a scripted engine: what it sends, what it refuses, what it hands out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from scripted_link import ScriptedLink

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.errors import (
    ContextLengthExceeded,
    EngineDied,
    InvalidRequest,
    Overloaded,
    PalmetteError,
)
from palmette.runtime.frontend import Frontend, Message, collect
from palmette.runtime.messages.branches import BeginRole, EndRole, Text
from palmette.runtime.messages.requests import Generate, Score
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.tokenizer import Tokenizer
from palmette.runtime.text.turns import TurnRenderer

TEXT = "the tokens of a naïve model — 😀 self"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(resolve("tiny"))


def front(
    tokenizer: Tokenizer,
    script: Callable[[Generate], Sequence[int]] | str = TEXT,
    *,
    sizes: Sequence[int] = (1,),
    max_open: int = 100,
) -> tuple[Frontend, ScriptedLink]:
    said = tokenizer.encode(script, special=False) if isinstance(script, str) else []
    link = ScriptedLink(tokenizer.vocabulary, script if callable(script) else lambda _: said, sizes=sizes)
    frontend = Frontend(link, tokenizer, TurnRenderer.of(tokenizer), model="tiny", context_length=64, max_open=max_open)
    frontend.start()
    return frontend, link


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (0,)])
@pytest.mark.parametrize("stop", [(), ("naïve",), ("😀", "zzz")])
async def test_streams_equal_non_streams(tokenizer: Tokenizer, sizes: tuple[int, ...], stop: tuple[str, ...]) -> None:
    frontend, _ = front(tokenizer, sizes=sizes)
    params = SamplingParams(stop=stop, logprobs=True)
    chunks = [chunk async for chunk in frontend.generate("hello", params)]
    whole = (await collect([frontend.submit(await frontend.tokens_of("hello"), params)]))[0]
    text = TEXT.split(stop[0])[0] if stop else TEXT
    assert "".join(chunk.text for chunk in chunks) == whole.text == text
    assert [token for chunk in chunks for token in unpack(chunk.tokens)] == list(whole.tokens)
    assert [each.token for each in whole.logprobs] == list(whole.tokens)
    assert all(len(chunk.logprobs or ()) == len(unpack(chunk.tokens)) for chunk in chunks)
    assert [chunk.finish is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert whole.finish.reason == ("stop" if stop else "length")


async def test_eos_ends_the_text_and_is_not_part_of_it(tokenizer: Tokenizer) -> None:
    frontend, _ = front(tokenizer, lambda _: [72, 79, tokenizer.eos_ids[0], 72])
    output = (await collect([frontend.submit([5], SamplingParams())]))[0]
    assert output.tokens == (72, 79)
    assert output.finish.reason == "stop"
    assert output.usage.completion_tokens == 3


async def test_max_tokens_and_seed_are_filled_in(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer)
    for _ in range(2):
        await collect([frontend.submit([5, 6], SamplingParams())])
    first, second = (request for request in link.sent if isinstance(request, Generate))
    assert first.params.max_tokens == link.ready.context_length - 2
    assert first.params.seed != second.params.seed is not None
    await collect([frontend.submit([5, 6], SamplingParams(seed=9))])
    assert isinstance(link.sent[-1], Generate)
    assert link.sent[-1].params.seed == 9


async def test_an_empty_prompt_starts_from_bos(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer)
    for prompt in ("", []):
        await collect([frontend.submit(await frontend.tokens_of(prompt), SamplingParams(max_tokens=1))])
    assert [unpack(prompt) for prompt in link.prompts()] == [[tokenizer.bos_id]] * 2


@pytest.mark.parametrize(
    ("tokens", "params", "error", "words"),
    [
        (
            257,
            SamplingParams(),
            ContextLengthExceeded,
            "length is 256 tokens. The prompt has 257 tokens, which leave no room",
        ),
        (200, SamplingParams(max_tokens=60), ContextLengthExceeded, "260 together, 4 too many"),
        (3, SamplingParams(temperature=-1.0), InvalidRequest, "temperature=-1.0"),
        (3, SamplingParams(logit_bias={600: 1.0}), InvalidRequest, "token 600"),
    ],
)
async def test_what_can_not_be_is_refused_at_the_call(
    tokenizer: Tokenizer, tokens: int, params: SamplingParams, error: type[PalmetteError], words: str
) -> None:
    frontend, link = front(tokenizer)
    with pytest.raises(error, match=words):
        frontend.submit([5] * tokens, params)
    assert link.sent == []


async def test_token_ids_are_checked(tokenizer: Tokenizer) -> None:
    frontend, _ = front(tokenizer)
    with pytest.raises(InvalidRequest, match="512 is not a token id; the vocabulary has ids 0 to 511"):
        await frontend.tokens_of([3, 512])


async def test_closing_aborts_at_once(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer)
    link.go.clear()
    generation = frontend.submit([5], SamplingParams())
    chunk = await anext(generation)
    assert chunk.text
    await generation.aclose()
    assert link.aborted() == [generation.id]
    with pytest.raises(StopAsyncIteration):
        await anext(generation)


async def test_cancelling_the_reader_aborts(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer)
    link.go.clear()

    async def read() -> None:
        async for _ in frontend.generate("x", SamplingParams()):
            pass

    task = asyncio.ensure_future(read())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(link.aborted()) == 1
    assert frontend.abort(None) == 0


async def test_abort_by_id_takes_numbered_parts_and_nobody_else_s(tokenizer: Tokenizer) -> None:
    frontend, _ = front(tokenizer, lambda request: [5] * 500)
    for name in ("job", "job-0", "job-1", "job-x", "job-0-1"):
        frontend.submit([1, 2], SamplingParams(max_tokens=100), request_id=name)
    await asyncio.sleep(0)
    assert frontend.abort("job") == 3
    await frontend.close()


async def test_a_score_has_a_limit_of_choices(tokenizer: Tokenizer) -> None:
    frontend, _ = front(tokenizer)
    with pytest.raises(InvalidRequest, match="1025 choices were given"):
        await frontend.scores.score("a", ["x"] * 1025)
    with pytest.raises(InvalidRequest, match="0 choices were given"):
        await frontend.scores.score("a", [])
    await frontend.close()


async def test_abort_by_id_ends_an_output_with_that_reason(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer)
    link.go.clear()
    first = frontend.submit([5], SamplingParams(), request_id="r-0")
    other = frontend.submit([5], SamplingParams(), request_id="r2")
    assert frontend.abort("r") == 1
    output = (await collect([first]))[0]
    assert output.finish.reason == "abort"
    link.go.set()
    assert (await collect([other]))[0].text == TEXT


async def test_an_open_id_is_refused_and_the_limit_holds(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer, max_open=2)
    link.go.clear()
    opened = [frontend.submit([5], SamplingParams(), request_id="one")]
    with pytest.raises(InvalidRequest, match="'one' is running"):
        frontend.submit([5], SamplingParams(), request_id="one")
    opened.append(frontend.submit([5], SamplingParams()))
    with pytest.raises(Overloaded, match="at most 2"):
        frontend.submit([5], SamplingParams())
    for generation in opened:
        generation.close()
    frontend.submit([5], SamplingParams()).close()


async def test_a_dead_engine_fails_what_is_open_and_only_that(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer)
    link.go.clear()
    generation = frontend.submit([5], SamplingParams())
    await anext(generation)
    link.die()
    with pytest.raises(EngineDied) as caught:
        await anext(generation)
    assert caught.value.retryable
    frontend.engine_lost("restarting", "The engine ended.")
    assert frontend.health().status == "restarting"
    with pytest.raises(EngineDied, match="The engine ended"):
        frontend.submit([5], SamplingParams())
    link.go.set()
    link.start(link._deliver)  # type: ignore[arg-type]
    assert frontend.health().status == "ok"
    assert (await collect([frontend.submit([5], SamplingParams())]))[0].text == TEXT


async def test_health_notices_a_silent_loop(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    frontend, link = front(tokenizer)
    link.beat()
    assert frontend.health().status == "ok"
    assert frontend._engine.heartbeat is not None
    frontend._engine.heartbeat -= 31
    assert frontend.health().status == "stalled"
    link.beat()
    assert frontend.health().status == "ok"


async def test_scores(tokenizer: Tokenizer) -> None:
    frontend, link = front(tokenizer)
    scores = await frontend.scores.score("the ", ["tokens", " self", "ab"], unconditional=True)
    assert scores.tokens == tuple(tuple(tokenizer.encode(c, special=False)) for c in ("tokens", " self", "ab"))
    assert ["".join(texts) for texts in scores.token_texts] == ["tokens", " self", "ab"]
    assert [len(row) for row in scores.logprobs] == [len(row) for row in scores.tokens]
    assert scores.unconditional is not None
    prefixes = [unpack(request.prefix) for request in link.sent if isinstance(request, Score)]
    assert prefixes == [tokenizer.encode("the ", special=False), [tokenizer.bos_id]]
    with pytest.raises(InvalidRequest, match="'' has no tokens"):
        await frontend.scores.score("the ", ["a", ""])
    with pytest.raises(InvalidRequest, match="0 choices"):
        await frontend.scores.score("the ", [])


async def test_chats_are_rendered_and_special_tokens_come_from_the_template_only(tokenizer: Tokenizer) -> None:
    frontend, _ = front(tokenizer)
    tokens = await frontend.tokens_of([Message("user", "say <|im_end|>")])
    assert tokens.count(2) == 1
    assert frontend.text_of(tokens, special=True) == (
        "<|im_start|>user\nsay <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    )


async def test_long_texts_are_encoded_off_the_loop(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    frontend, _ = front(tokenizer)
    used: list[bool] = []
    real = frontend.offload.run

    async def watched(work: Callable[[], list[int]]) -> list[int]:
        used.append(True)
        return await real(work)

    monkeypatch.setattr(frontend.offload, "run", watched)
    await frontend.tokens_of("a " * 100)
    assert used == []
    await frontend.encode("a " * 20_000)
    await frontend.tokens_of([Message("user", "")] * 6000)
    branch = await frontend.open_branch()
    await branch.extend([BeginRole("user"), EndRole("user")] * 25)
    assert used == [True] * 3


async def test_cache_questions(tokenizer: Tokenizer) -> None:
    frontend, _ = front(tokenizer)
    assert await frontend.flush_cache() == 7
    assert (await frontend.dump_tree()).page_size == 16


async def test_a_text_that_can_not_fit_is_not_even_encoded(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontend, _ = front(tokenizer)
    branch = await frontend.open_branch()
    await branch.extend([Text("a")])
    monkeypatch.setattr(tokenizer, "encode", lambda *_, **__: pytest.fail("it was encoded"))
    huge = "ab " * 1_000_000
    chat = [Message("user", "ab " * 1000)] * 1000
    for refused in (frontend.tokens_of(huge), frontend.tokens_of(chat), branch.extend([Text(huge)])):
        with pytest.raises(ContextLengthExceeded, match=r"length is 256.*characters"):
            await refused
    with pytest.raises(ContextLengthExceeded, match="characters"):
        await frontend.scores.score([1], [huge])


async def test_an_absent_engine_keeps_nothing_of_those_who_asked(tokenizer: Tokenizer) -> None:
    frontend, _ = front(tokenizer)
    frontend.engine_lost("restarting", "it died")
    depths = set()
    for _ in range(5):
        with pytest.raises(EngineDied, match="it died") as caught:
            frontend.submit([5], SamplingParams())
        depths.add(len(caught.traceback))
    assert len(depths) == 1
