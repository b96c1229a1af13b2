"""Clients that go away at every moment of a request, beside others whose outputs must not change; small (the large one
is `make disconnects`)."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from disconnects import MOMENTS, run
from frontends import make_scripted_frontend
from live_server import LiveServer
from server_process import serving

from palmette.runtime.errors import Overloaded


@pytest.mark.slow
@pytest.mark.server
def test_no_page_stays_behind_and_others_notice_nothing() -> None:
    with serving(("--model", "tiny", "--kv-tokens", "16384", "--check-invariants")) as url:
        outcome = asyncio.run(run(url, count=120, seed=7))
        assert httpx.get(f"{url}/health").json()["engine_restarts"] == 0
    assert outcome.changed == []
    assert not any(outcome.left.values()), outcome.left
    assert {name.split()[1] for name in outcome.cut} == set(MOMENTS)
    assert outcome.answered


def test_too_much_in_the_queue_is_a_429_that_says_when_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveServer(make_scripted_frontend) as server:

        def full(*_: object, **__: object) -> None:
            raise Overloaded("4000000 prompt tokens wait.", hint="Try again soon.")

        monkeypatch.setattr(server.frontend._calls, "open", full)
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["code"] == "Overloaded"
