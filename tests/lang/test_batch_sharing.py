"""What a batch's programs begin with is computed once and kept; texts in any order are put so that they begin alike,
where that is asked for; both are reported, and neither changes what plain runs give."""

from __future__ import annotations

import time
from typing import Any

import pytest
from lang_helpers import until
from live_server import LiveServer

import palmette as sgl
from palmette import agent, any_order, function, gen, system, tool, user
from palmette.lang.batches import Batch
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink
from palmette.runtime.messages.hints import Hint

LONG = "A common beginning that is worth keeping, since everybody has it. "


@function
def asking(s, question):
    s += system(LONG) + user("Now: " + question)
    s += sgl.assistant(gen("x", max_tokens=3))
    s["x"]
    s += user("More") + sgl.assistant(gen("y", max_tokens=2))


questions = [{"question": f"wh{word}"} for word in ("en", "ere", "o", "y", "at")]


@pytest.mark.parametrize("kind", ["plain", "compiled", "coroutine", "forking"])
def test_the_beginning_is_computed_once_pinned_and_reported(
    engine: sgl.Engine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    hints: list[Hint] = []
    tell = engine.frontend.hint
    monkeypatch.setattr(engine.frontend, "hint", lambda hint: (hints.append(hint), tell(hint)))

    @function
    async def coroutine(s, question):
        s += system(LONG) + user("Now: " + question) + sgl.assistant(gen("x", max_tokens=3))
        await s.aget("x")

    @function
    def forking(s, question):
        s += system(LONG)
        forks = s.fork(2)
        forks += user("Now: " + question) + sgl.assistant(gen("x", max_tokens=3))
        s["all"] = forks["x"]

    program = {"plain": asking, "compiled": asking.compile(), "coroutine": coroutine, "forking": forking}[kind]
    sgl.flush_cache(engine)
    batch = program.run_batch(questions, backend=engine, temperature=0)
    assert all(state.error() is None for state in batch)
    assert isinstance(batch, Batch)
    assert batch.shared is not None
    assert LONG.strip() in batch.shared.text
    assert ("Now: wh" in batch.shared.text) == (kind != "forking")
    assert batch.shared.tokens >= len(LONG) // 8
    assert f"{batch.shared.tokens} tokens shared" in str(batch.shared)
    until(lambda: [hint.pin_seconds for hint in hints if hint.pin_seconds is not None][-1:] == [0.0])
    assert sum(state.usage().cached_tokens for state in batch) >= 2 * batch.shared.tokens


def test_no_code_of_a_plain_program_runs_twice(engine: sgl.Engine) -> None:
    ran: list[int] = []

    @function
    def counting(s, number):
        ran.append(number)
        s += LONG + f"{number}" + gen("x", max_tokens=2)

    assert counting.run_batch([[number] for number in range(4)], backend=engine).shared is not None
    assert sorted(ran) == [0, 1, 2, 3]


def test_nothing_is_reported_where_there_is_nothing(engine: sgl.Engine) -> None:
    @function
    def different(s, start):
        s += start + LONG + gen("x", max_tokens=2)

    assert different.run_batch([["a"], ["b"], ["c"]], backend=engine).shared is None
    assert asking.run_batch(questions[:1], backend=engine).shared is None
    assert asking.run_batch([], backend=engine) == []
    assert asking.run_batch(questions, backend=sgl.ScriptedBackend(lambda prompt: "x")).shared is None

    @function
    def failing(s, question):
        raise ValueError(question)

    assert failing.run_batch(questions, backend=engine).shared is None
    running = asking.run_batch(questions, backend=engine, generator_style=True)
    assert len(list(running)) == len(questions)
    assert running.shared is not None
    stopped = asking.run_batch(questions, backend=engine, generator_style=True)
    next(stopped)
    stopped.close()


def _frontend() -> Frontend:
    config = EngineConfig(model="tiny", kv_tokens=4096, threads=1)
    return build_frontend(config, resolve("tiny"), LocalLink(build_core(config, resolve("tiny"))))


@pytest.mark.server
def test_a_servers_cache_is_told_too() -> None:
    with LiveServer(_frontend) as server:
        endpoint = sgl.RuntimeEndpoint(server.url)
        shared = asking.run_batch(questions, backend=endpoint, temperature=0).shared
        assert shared is not None
        assert LONG.strip() in shared.text
        endpoint.shutdown()


# Order

DOCUMENTS = [f"Document {number} says much of the thing with the number {number}. " for number in range(6)]


@function
def reading(s, which):
    s += "Documents: " + any_order([DOCUMENTS[number] for number in which]) + "Answer: "
    s += gen("x", max_tokens=2)
    if s["x"] != "never":
        s += any_order(["end", "ing"])


picked = [{"which": which} for which in ((5, 0, 1), (4, 1, 0), (1, 3), (2, 0, 1))]


def test_order_is_kept_unless_asked(engine: sgl.Engine) -> None:
    for batch in (reading.run_batch(picked, backend=engine), reading.run_batch(picked, backend=engine, reorder=False)):
        assert batch.reordered is None
        assert [state.text().index(DOCUMENTS[5]) for state in batch[:1]] == [len("Documents: ")]
    assert reading.run([1, 0], backend=engine).text().startswith("Documents: Document 1")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_what_is_in_any_order_is_put_so_that_more_is_shared(engine: sgl.Engine, kind: str) -> None:
    @function
    async def awaiting(s, which):
        s += "Documents: " + any_order([DOCUMENTS[number] for number in which]) + "Answer: "
        s += gen("x", max_tokens=2)
        await s.aget("x")
        s += "ending"

    program = reading if kind == "plain" else awaiting
    cached = []
    for reorder in (False, True):
        sgl.flush_cache(engine)
        batch = program.run_batch(picked, backend=engine, temperature=0, reorder=reorder)
        texts = [state.text() for state in batch]
        assert all(
            DOCUMENTS[number] in text for text, item in zip(texts, picked, strict=True) for number in item["which"]
        )
        cached.append(sum(state.usage().cached_tokens for state in batch))
    assert batch.reordered is not None
    assert batch.reordered.groups == 4
    assert batch.reordered.changed == 3
    assert batch.reordered.shared_after > batch.reordered.shared_before
    assert cached[1] > cached[0]
    assert [text.index(DOCUMENTS[1]) for text in texts] == [len("Documents: ")] * 4, "all have it"
    again = program.run_batch(picked, backend=engine, temperature=0, reorder=True)
    assert [state.text() for state in again] == texts, "the order depends on nothing else"


def test_forks_write_in_the_same_order(engine: sgl.Engine) -> None:
    @function
    def forking(s, which):
        forks = s.fork(2)
        forks += any_order([DOCUMENTS[number] for number in which]) + gen("x", max_tokens=1)
        forks.join("concate_and_append")

    batch = forking.run_batch([[[0, 1]], [[2, 1]]], backend=engine, reorder=True)
    assert batch.reordered.groups == 4
    assert all(state.text().startswith(DOCUMENTS[1]) for state in batch)


def test_what_is_no_list_of_texts() -> None:
    for wrong in ("text", 5, [gen("x")], ["a", 1]):
        with pytest.raises(InvalidRequest, match="any_order"):
            any_order(wrong)  # type: ignore[arg-type]

    @tool
    def now(zone: str) -> str:
        """The time."""
        return zone

    with pytest.raises(InvalidRequest, match="reorders nothing"):
        agent([now]).run_batch(["x"], reorder=True)


# Side by side


@pytest.mark.usefixtures("slow_steps")
@pytest.mark.parametrize("way", ["forks", "copies", "compiled"])
def test_independent_gens_of_one_state_run_side_by_side(engine: sgl.Engine, way: str) -> None:
    """Gens that don't stand in each other's text."""

    @function
    def program(s):
        s += "Once "
        if way == "forks":
            forks = s.fork(2)
            forks += gen("a", max_tokens=20, ignore_eos=True, timeout=60)
        else:
            with s.copy() as one:
                one += "one " + gen("a", max_tokens=20, ignore_eos=True)
            with s.copy() as other:
                other += "two " + gen("b", max_tokens=20, ignore_eos=True)
        s += gen("c", max_tokens=20, ignore_eos=True)

    start = time.monotonic()
    state = (program.compile() if way == "compiled" else program).run(backend=engine)
    state.sync()
    assert state.error() is None
    calls: list[Any] = [call for call in state.trace() if call.kind == "gen"]
    assert len(calls) == 3
    assert max(call.start for call in calls) < min(call.end for call in calls), "each runs while the others do"
    assert time.monotonic() - start < 60
