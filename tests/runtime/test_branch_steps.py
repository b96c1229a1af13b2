"""Several steps of a branch in one message: the same as the verbs one by one; reasoning kept apart; over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_server import LiveServer

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import Engine, build_core, build_frontend
from palmette.runtime.errors import BranchLost, InvalidRequest
from palmette.runtime.frontend.thinking import ThinkingSplitter
from palmette.runtime.link import LocalLink
from palmette.runtime.messages.branches import (
    BeginRole,
    ChoiceScores,
    Chunk,
    EndRole,
    ExtendStep,
    GenerateStep,
    RunBranch,
    ScoreStep,
    Step,
    StepReply,
    Text,
    Tokens,
)
from palmette.runtime.messages.choices import DECIDE
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack

PARAMS = SamplingParams(max_tokens=6, seed=3)
STEPS: tuple[Step, ...] = (
    ExtendStep(parts=(BeginRole("user"), Text("Hi"), EndRole("user"))),
    GenerateStep(parts=(BeginRole("assistant"), Text("I say ")), params=PARAMS),
    ScoreStep(parts=(Text(" or "),), choices=("one", "two"), method="greedy_token_selection"),
    GenerateStep(parts=(Text(" then"),), params=PARAMS),
    ExtendStep(parts=(EndRole("assistant"),)),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(model="tiny", kv_tokens=8192, threads=1, check_invariants=True) as engine:
        yield engine


def test_steps_are_the_verbs_one_by_one(engine: Engine) -> None:
    async def together() -> bytes:
        branch = await engine.frontend.open_branch()
        numbers = [number async for number, _ in branch.run(STEPS)]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(len(STEPS)))
        return branch.state.tokens

    async def one_by_one() -> bytes:
        branch = await engine.frontend.open_branch()
        for step in STEPS:
            match step:
                case ExtendStep(parts=parts):
                    await branch.extend(parts)
                case GenerateStep():
                    _ = [chunk async for chunk in branch.generate(step.parts, step.params)]
                case ScoreStep():
                    scores = await branch.score(step.parts, step.choices)
                    assert step.method is not None
                    await branch.extend([Tokens(pack(scores.tokens[DECIDE[step.method](scores)]))])
        return branch.state.tokens

    assert engine.run(together()) == engine.run(one_by_one())


def test_an_error_stops_the_steps_and_keeps_those_before(engine: Engine) -> None:
    async def main() -> None:
        branch = await engine.frontend.open_branch()
        steps = (STEPS[0], ExtendStep(parts=(EndRole("user"),)), STEPS[1])
        with pytest.raises(InvalidRequest, match="no role is open"):
            _ = [result async for result in branch.run(steps)]
        assert [turn.role for turn in branch.state.turns] == ["user"]

    engine.run(main())


@pytest.mark.usefixtures("slow_steps")
def test_the_last_steps_close_the_branch_however_they_end(engine: Engine) -> None:
    async def main() -> None:
        branch = await engine.frontend.open_branch()
        async for _ in branch.run(STEPS[:2], last=True):
            pass
        with pytest.raises(BranchLost):
            await branch.extend([Text("x")])
        early = await engine.frontend.open_branch()
        results = early.run([GenerateStep(params=SamplingParams(max_tokens=500, ignore_eos=True))], last=True)
        await anext(results)
        await results.aclose()
        with pytest.raises(BranchLost):
            await early.extend([Text("x")])

    engine.run(main())


def test_a_step_has_a_priority_of_its_own(engine: Engine) -> None:
    async def main() -> None:
        branch = await engine.frontend.open_branch()
        step = GenerateStep(params=PARAMS, priority=7, deadline=2.5)
        wanted = branch._wanted(step)
        assert (wanted.priority, wanted.deadline) == (7, 2.5)
        assert branch._wanted(GenerateStep(params=PARAMS)) == branch._scheduling

    engine.run(main())


@settings(max_examples=40)
@given(st.text("<>/think abé\n", max_size=60), st.integers(1, 9), st.booleans())
def test_reasoning_is_split_alike_for_every_chunking(text: str, size: int, opened: bool) -> None:
    prompt = "<think>\n" if opened else ""

    def split(pieces: list[str]) -> tuple[str, str]:
        splitter = ThinkingSplitter.of("auto", None, prompt=prompt)
        said = [splitter.push(piece) for piece in pieces] + [splitter.push("", ended=True)]
        return "".join(thought for thought, _ in said), "".join(answer for _, answer in said)

    whole = split([text])
    assert split([text[start : start + size] for start in range(0, len(text), size)]) == whole
    if not opened and "<think>" not in text:
        assert whole == ("", text)


def test_reasoning_and_answer_of_known_tags() -> None:
    splitter = ThinkingSplitter.of("<a>...</a>", None)
    assert splitter.push("<a>hm</a>yes", ended=True) == ("hm", "yes")
    with pytest.raises(InvalidRequest, match="not known"):
        ThinkingSplitter.of("nothing", None)


def test_steps_over_http() -> None:
    config = EngineConfig(model="tiny", threads=1, kv_tokens=8192, check_invariants=True)
    with LiveServer(lambda: build_frontend(config, resolve("tiny"), LocalLink(build_core(config)))) as server:
        import httpx

        def run(body: RunBranch) -> list[StepReply]:
            answer = httpx.post(f"{server.url}/v1/branches/run", content=msgspec.json.encode(body))
            assert answer.status_code == 200, answer.text
            *events, done, rest = answer.content.split(b"\n\n")
            assert (done, rest) == (b"data: [DONE]", b"") or b'"error"' in done
            kept = events if done == b"data: [DONE]" else [*events, done]
            return [msgspec.json.decode(event.removeprefix(b"data: "), type=StepReply) for event in kept]

        first, *replies = run(RunBranch(steps=STEPS))
        assert first.branch is not None
        scores = next(reply.scores for reply in replies if reply.scores is not None)
        assert scores.chosen in (0, 1)
        finishes = [reply for reply in replies if reply.chunk is not None and reply.chunk.finish is not None]
        assert [reply.step for reply in finishes] == [1, 3]
        more = run(RunBranch(steps=(ExtendStep(parts=(Text("x"),)),), branch=first.branch, close=True))
        assert [reply.chunk for reply in more] == [Chunk(appended="x")]
        gone = httpx.post(
            f"{server.url}/v1/branches/run", content=msgspec.json.encode(RunBranch(steps=(), branch=first.branch))
        )
        assert gone.status_code == 410
        bad = run(RunBranch(steps=(ExtendStep(parts=(EndRole("user"),)),)))
        assert bad[-1].error is not None
        assert bad[-1].error.kind == "InvalidRequest"
        kept = [run(RunBranch(steps=()))[0].branch for _ in range(3)]
        closed = httpx.post(f"{server.url}/v1/branches/close", json={"ids": [*kept[:2], "unknown"]}).json()
        assert closed == {"closed": 2}
        run(RunBranch(steps=(), close=True, ended=(kept[2],)))
        for wrong in (b"{", b"[]", b'{"steps": [{"type": "Dance"}]}', b'{"steps": [{"type": "Extend", "parts": 3}]}'):
            refused = httpx.post(f"{server.url}/v1/branches/run", content=wrong)
            assert refused.status_code == 400
            assert "wrong form" in refused.json()["error"]["message"]
        tokens = RunBranch(steps=(ExtendStep(parts=(Tokens(pack([10**6])),)),))
        assert httpx.post(f"{server.url}/v1/branches/run", content=msgspec.json.encode(tokens)).status_code == 400


def test_results_are_scores_and_chunks(engine: Engine) -> None:
    async def kinds() -> list[type]:
        branch = await engine.frontend.open_branch()
        return [type(result) async for _, result in branch.run(STEPS)]

    assert set(engine.run(kinds())) == {Chunk, ChoiceScores}
    assert asyncio.iscoroutinefunction(engine.frontend.open_branch)


def test_tags_that_are_special_tokens_part_reasoning_and_answer(engine: Engine) -> None:
    """The tiny model's turn marks, taken as tags: their tokens spell nothing in other outputs."""
    editor = engine.frontend.editor
    begin, end = "<|im_start|>", "<|im_end|>"
    spelled = editor.spelled({begin, end})
    assert set(spelled.values()) == {begin.encode(), end.encode()}
    tokens = [token for token, piece in spelled.items() if piece == begin.encode()]
    biased = SamplingParams(max_tokens=4, logit_bias=dict.fromkeys(tokens, 100.0), ignore_eos=True, temperature=0)

    async def main() -> list[Chunk]:
        branch = await engine.frontend.open_branch()
        step = GenerateStep(parts=(Text("x"),), params=biased, reasoning=f"{begin}...{end}")
        return [chunk async for _, chunk in branch.run([step]) if isinstance(chunk, Chunk)]

    chunks = engine.run(main())
    assert "".join(chunk.text for chunk in chunks).startswith(begin)
    assert begin not in "".join(chunk.answer for chunk in chunks)
