"""What one key's clients open, another key's can neither read nor end, even where they know its id."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from frontends import tiny_frontend
from live_server import LiveServer

from palmette.runtime.api.access import Keys

KEYS = Keys(("ann's key", "bob's key"), admin="root's key")
LONG = {"text": "hello", "rid": "job", "stream": True, "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LiveServer(tiny_frontend, keys=KEYS) as server:
        yield server.url


@pytest.fixture
def ann(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=30, headers={"x-api-key": "ann's key"}) as client:
        yield client


@pytest.fixture
def bob(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=30, headers={"x-api-key": "bob's key"}) as client:
        yield client


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("extend", {"parts": [{"type": "Text", "text": "a"}]}),
        ("generate", {"params": {"max_tokens": 2}}),
        ("score", {"choices": ["a", "b"]}),
        ("fork", {"count": 1}),
        ("truncate", {"position": 0}),
    ],
)
def test_branches(ann: httpx.Client, bob: httpx.Client, verb: str, body: dict[str, object]) -> None:
    branch = ann.post("/v1/branches", json={}).json()["id"]
    assert bob.post(f"/v1/branches/{branch}/{verb}", json=body).status_code == 410
    assert bob.delete(f"/v1/branches/{branch}").json() == {"closed": False}
    assert bob.post("/v1/branches/close", json={"ids": [branch]}).json() == {"closed": 0}
    steps = {"branch": branch, "steps": [], "ended": [branch]}
    assert bob.post("/v1/branches/run", json=steps).status_code == 410
    assert ann.post(f"/v1/branches/{branch}/{verb}", json=body).status_code == 200
    fork = ann.post(f"/v1/branches/{branch}/fork", json={"count": 1}).json()["ids"][0]
    assert ann.delete(f"/v1/branches/{fork}").json() == {"closed": True}
    assert ann.delete(f"/v1/branches/{branch}").json() == {"closed": True}


@pytest.mark.usefixtures("slow_steps")
def test_ids_that_clients_choose(ann: httpx.Client, bob: httpx.Client) -> None:
    """Both may use the same one; ending it ends one's own."""
    with ann.stream("POST", "/generate", json=LONG) as running:
        lines = running.iter_lines()
        next(lines)
        assert bob.post("/abort", json={"rid": "job"}).json() == {"aborted": 0}
        assert bob.post("/abort", json={"rid": "admin/job"}).json() == {"aborted": 0}
        short = {"text": "a", "rid": "job", "sampling_params": {"max_new_tokens": 1}}
        assert bob.post("/generate", json=short).json()["meta_info"]["id"] == "job"
        assert ann.post("/abort", json={"rid": "job"}).json() == {"aborted": 1}
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    meta = events[-1]["meta_info"]
    assert (meta["id"], meta["finish_reason"]["type"]) == ("job", "abort")
