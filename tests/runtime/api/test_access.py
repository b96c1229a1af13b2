"""Keys: who gets in, who may do what concerns everybody, and that tenants see nothing of one another."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from frontends import make_scripted_frontend, tiny_frontend
from live_server import LiveServer
from starlette.types import Message, Receive, Scope, Send

from palmette.runtime.api.access import SCOPE_KEY, Access, Caller, Keys
from palmette.runtime.errors import InvalidRequest

KEYS = Keys(("ann's key", "bob's key"), admin="root's key")


async def caller(
    keys: Keys, *, key: str = "", header: str = "authorization", client: Any = ("10.0.0.7", 1), **more: str
) -> Any:
    """The Caller that the application sees, or the status that the middleware answers with."""
    seen: list[Caller] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope[SCOPE_KEY])

    async def send(message: Message) -> None:
        sent.append(message)

    value = f"Bearer {key}" if header == "authorization" else key
    headers = [(header.encode(), value.encode())] if key else []
    headers += [(name.encode(), given.encode()) for name, given in more.items()]
    scope = {"type": "http", "path": "/v1/models", "headers": headers, "client": client}
    await Access(app, KEYS if keys is KEYS else keys)(scope, None, send)  # type: ignore[arg-type]
    return seen[0] if seen else sent[0]["status"]


@pytest.mark.parametrize("key", ["", " ", " a", "a ", "a\nb", "clé", "\x00"])
def test_a_key_that_nobody_or_everybody_bears_is_refused_at_the_start(key: str) -> None:
    """An unset variable on the command line is an empty key, which a request without one would bear."""
    with pytest.raises(InvalidRequest, match="--api-key"):
        Keys(("good", key))
    with pytest.raises(InvalidRequest, match="--admin-key"):
        Keys(("good",), admin=key)


async def test_a_wrong_or_missing_key_is_kept_out() -> None:
    assert await caller(KEYS) == 401
    assert await caller(KEYS, key="ann's ke") == 401
    assert await caller(KEYS, key="ann's key ") != 401  # surrounding blanks are no part of a key
    assert isinstance(await caller(KEYS, key="bob's key"), Caller)
    assert isinstance(await caller(KEYS, key="bob's key", header="x-api-key"), Caller)


async def test_a_client_that_bears_two_keys_needs_one_that_is_right() -> None:
    bob = await caller(KEYS, key="bob's key")
    for given in (
        {"authorization": "Bearer bob's key"},
        {"authorization": "Bearer stale"},
        {"authorization": "Basic x"},
    ):
        assert await caller(KEYS, key="bob's key", header="x-api-key", **given) == bob
    assert await caller(KEYS, key="ann's ke", header="x-api-key", authorization="Bearer stale") == 401
    both = await caller(KEYS, key="ann's key", header="x-api-key", authorization="Bearer bob's key")
    assert both == bob  # as before there were two


async def test_each_of_several_keys_has_pages_of_its_own() -> None:
    ann, bob = await caller(KEYS, key="ann's key"), await caller(KEYS, key="bob's key")
    assert len({ann.tenant, bob.tenant, ""}) == 3
    assert "ann" not in ann.tenant
    assert len({each.namespace(name) for each in (ann, bob) for name in ("", "x", "y")}) == 6
    assert ann.namespace("x") == (await caller(KEYS, key="ann's key")).namespace("x")


async def test_a_single_key_shares_with_nobody_so_needs_no_salt() -> None:
    alone = await caller(Keys(("k",)), key="k")
    assert alone.namespace() == Caller().namespace() == ""
    assert alone.tenant


@pytest.mark.parametrize(
    ("keys", "key", "client", "is_admin"),
    [
        (KEYS, "root's key", ("10.0.0.7", 1), True),
        (KEYS, "ann's key", ("127.0.0.1", 1), False),  # where there is an admin key, only that will do
        (Keys(("a", "b")), "a", ("10.0.0.7", 1), False),
        (Keys(("a", "b")), "a", ("127.0.0.1", 1), True),
        (Keys(("a",)), "a", ("10.0.0.7", 1), True),
        (Keys(), "", ("10.0.0.7", 1), False),
        (Keys(), "", ("127.0.0.1", 1), True),
        (Keys(), "", ("::1", 1), True),
        (Keys(), "", None, True),  # a socket file
        (Keys(admin="x"), "", ("127.0.0.1", 1), False),
        (Keys(admin="x"), "x", ("10.0.0.7", 1), True),
    ],
)
async def test_administrators(keys: Keys, key: str, client: Any, is_admin: bool) -> None:
    assert (await caller(keys, key=key, client=client)).admin is is_admin


def test_admin_verbs_are_refused_to_others() -> None:
    with LiveServer(tiny_frontend, keys=KEYS) as live, httpx.Client(base_url=live.url) as http:
        for key, status in (("ann's key", 403), ("root's key", 200)):
            headers = {"authorization": f"Bearer {key}"}
            assert http.post("/flush_cache", json={}, headers=headers).status_code == status
            assert http.get("/cache", headers=headers).status_code == status
            assert http.post("/abort", json={"abort_all": True}, headers=headers).status_code == status
        refused = http.get("/cache", headers={"authorization": "Bearer ann's key"}).json()["error"]
        assert refused["type"] == "permission_error"
        assert "--admin-key" in refused["message"]


def test_keys_and_salts_keep_cached_pages_apart() -> None:
    def cached(http: httpx.Client, key: str, **fields: Any) -> int:
        body = {"input_ids": list(range(5, 45)), "max_tokens": 1, **fields}
        answer = http.post("/generate", json=body, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["meta_info"]["cached_tokens"])

    with LiveServer(tiny_frontend, keys=KEYS) as live, httpx.Client(base_url=live.url, timeout=30) as http:
        assert cached(http, "ann's key") == 0
        assert cached(http, "ann's key") == 39
        assert cached(http, "bob's key") == 0
        assert cached(http, "ann's key", cache_salt="s") == 0
        assert cached(http, "ann's key", namespace="s") == 39
        both = {"namespace": "a", "cache_salt": "b", "text": "x"}
        refused = http.post("/generate", json=both, headers={"authorization": "Bearer ann's key"})
        assert refused.status_code == 400
        assert "two names of one thing" in refused.text


def test_how_soon_a_request_is_wanted_reaches_the_engine() -> None:
    with LiveServer(make_scripted_frontend) as live, httpx.Client(base_url=live.url, timeout=30) as http:
        wanted = {"priority": 3, "deadline": 60.0, "ttft_target": 30.0, "tpot_target": 10.0}
        answer = http.post("/generate", json={"text": "x", "max_tokens": 2, "user": "ann", **wanted})
        assert answer.status_code == 200
        sent = live.frontend.scripted.sent[-1]  # type: ignore[attr-defined]
        assert {name: getattr(sent, name) for name in wanted} == wanted
        assert sent.tenant == "ann"
        refused = http.post("/generate", json={"text": "x", "deadline": 0})
        assert refused.status_code == 400
        assert "deadline" in refused.text
