"""Branches over HTTP, with the language's own client and without; expiry of idle ones."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from live_server import LiveServer

from palmette.lang.backends.http import HttpBackend
from palmette.runtime.api.native.branches import BranchTable
from palmette.runtime.errors import BranchLost, Overloaded
from palmette.runtime.messages.branches import (
    BeginRole,
    ChoiceScores,
    Chunk,
    EndRole,
    ExtendStep,
    GenerateStep,
    ScoreStep,
    Text,
    Tokens,
)
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack, unpack

SAID = "the tokens of a naïve model — 😀 self"


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


async def test_steps_through_the_language_s_client(server: LiveServer) -> None:
    backend = HttpBackend(server.url)
    branch = await backend.open(namespace="n")
    params = SamplingParams(stop=("naïve",), logprobs=True, logit_bias={7: 1.5}, seed=4)
    steps = (
        ExtendStep(parts=(BeginRole("user"), Text("Hi"), EndRole("user"))),
        GenerateStep(parts=(BeginRole("assistant"),), params=params),
        ScoreStep(parts=(Text("so "),), choices=("yes", "no"), unconditional=True),
    )
    results = [result async for result in branch.run(steps)]
    assert [step for step, _ in results] == sorted(step for step, _ in results)
    (said,) = [result for step, result in results if step == 0]
    assert said.appended == "<|im_start|>user\nHi<|im_end|>\n"
    chunks = [result for step, result in results if step == 1 and isinstance(result, Chunk)]
    assert chunks[0].appended == "<|im_start|>assistant\n"
    assert "".join(chunk.text for chunk in chunks) == "the tokens of a "
    finish = chunks[-1].finish
    assert finish is not None
    assert (finish.reason, finish.matched) == ("stop", "naïve")
    tokens = [token for chunk in chunks for token in unpack(chunk.tokens)]
    assert len(tokens) == finish.kept_tokens
    assert [p.token for chunk in chunks for p in chunk.logprobs or ()] == tokens
    (scores,) = [result for step, result in results if step == 2]
    assert isinstance(scores, ChoiceScores)
    assert scores.appended == "so "
    assert scores.unconditional is not None
    forks = await branch.fork([], 2)
    (appended,) = [result async for _, result in forks[0].run([ExtendStep(parts=(Tokens(pack([5])),))])]
    assert appended.appended != ""
    for each in (branch, *forks):
        await each.close()
    await backend.close()


def test_errors_before_and_inside_a_stream(http: httpx.Client) -> None:
    lost = http.post("/v1/branches/branch-unknown/extend", json={"parts": []})
    assert lost.status_code == 410
    assert lost.json()["error"]["code"] == "BranchLost"
    branch = http.post("/v1/branches", json={}).json()["id"]
    bad = http.post(f"/v1/branches/{branch}/extend", json={"parts": [{"type": "Picture"}]})
    assert bad.status_code == 400
    assert bad.json()["error"]["param"] == "parts.0"
    wrong = http.post(f"/v1/branches/{branch}/generate", json={"params": {"temperature": -1}})
    assert wrong.status_code == 400
    inside = http.post(f"/v1/branches/{branch}/generate", json={"params": {"max_tokens": 5000}})
    error = json.loads(inside.text.split("\n\n")[0].removeprefix("data: "))["error"]
    assert error["kind"] == "ContextLengthExceeded"
    assert set(error) == {"kind", "message", "hint", "param"}
    assert http.delete(f"/v1/branches/{branch}").json() == {"closed": True}
    assert http.delete(f"/v1/branches/{branch}").json() == {"closed": False}


def test_leaving_a_branch_s_stream_aborts_it_and_keeps_the_branch(http: httpx.Client, server: LiveServer) -> None:
    link = server.frontend.scripted  # type: ignore[attr-defined]
    branch = http.post("/v1/branches", json={}).json()["id"]
    before = len(link.aborted())
    server.soon(link.go.clear)
    try:
        with http.stream("POST", f"/v1/branches/{branch}/generate", json={}) as response:
            next(response.iter_lines())
        assert http.post(f"/v1/branches/{branch}/extend", json={"parts": []}).json() == {"appended": ""}
        assert len(link.aborted()) == before + 1
    finally:
        server.soon(link.go.set)


class FakeBranch:
    def __init__(self, *, busy: bool = False) -> None:
        self.busy = busy
        self.closed = False

    async def close(self) -> None:
        self.closed = True


async def test_idle_branches_expire_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("palmette.runtime.api.native.branches.time.monotonic", lambda: now[0])
    table = BranchTable(idle_seconds=10, limit=2)
    old, busy, new = FakeBranch(), FakeBranch(busy=True), FakeBranch()
    first = await table.add(old)  # type: ignore[arg-type]
    now[0] += 11
    second = await table.add(busy)  # type: ignore[arg-type]
    assert old.closed
    with pytest.raises(BranchLost):
        table.get(first)
    third = await table.add(new)  # type: ignore[arg-type]
    now[0] += 1
    fourth = await table.add(FakeBranch(busy=True))  # type: ignore[arg-type]
    assert new.closed
    assert not busy.closed
    with pytest.raises(BranchLost):
        table.get(third)
    with pytest.raises(Overloaded):
        await table.add(FakeBranch())  # type: ignore[arg-type]
    assert table.get(second) is busy
    assert await table.remove(fourth)


async def test_forks_are_kept_all_or_none() -> None:
    table = BranchTable(limit=4)
    for _ in range(2):
        await table.add(FakeBranch(busy=True))  # type: ignore[arg-type]
    with pytest.raises(Overloaded, match="at most 4"):
        await table.add_all([FakeBranch() for _ in range(3)])  # type: ignore[misc]
    assert len(table) == 2
    assert len(await table.add_all([FakeBranch(), FakeBranch()])) == 2  # type: ignore[list-item]
