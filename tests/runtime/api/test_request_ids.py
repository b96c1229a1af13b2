"""Every answer says what its request is called; the log, the ids of answers and the engine's agree with it."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from frontends import make_scripted_frontend
from live_server import LiveServer

from palmette.runtime.api.access import Keys
from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.limits import Limits
from palmette.runtime.api.request_ids import LONGEST
from palmette.runtime.launch.connections import Connections

OURS = re.compile(r"req_[0-9a-f]{32}")
SHORT = {"max_tokens": 2}
CHAT = {"messages": [{"role": "user", "content": "a"}], **SHORT}
SURFACES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "a", **SHORT}),
    ("/v1/chat/completions", CHAT),
    ("/v1/messages", {"model": "tiny", **CHAT}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 16}),
    ("/generate", {"text": "a", **SHORT}),
]
STREAMS = [(path, {**body, "stream": True}) for path, body in SURFACES]
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/score", {"text_1": "a", "text_2": "b"}),
    ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ("/v1/embeddings", {"input": "a"}),
    ("/tokenize", {"prompt": "a"}),
    ("/v1/branches", {}),
]


@pytest.fixture
def http(tiny: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


def test_every_route_names_what_it_answers(http: httpx.Client) -> None:
    """Be it an answer or an error; and the document says so."""
    names = set()
    asked = 0
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method, each in methods.items():
            answer = http.request(method, path.replace("{", "").replace("}", ""))
            assert OURS.fullmatch(answer.headers["x-request-id"]), path
            names.add(answer.headers["x-request-id"])
            asked += 1
            assert all("x-request-id" in response["headers"] for response in each["responses"].values())
    assert asked > 30
    assert len(names) == asked
    for path in ("/no/such/path", "/docs", "/openapi.json"):
        assert OURS.fullmatch(http.get(path).headers["x-request-id"])
    assert OURS.fullmatch(http.put("/v1/completions").headers["x-request-id"])


@pytest.mark.parametrize(("path", "body"), [*STREAMS, *SURFACES, *OTHERS])
def test_a_client_s_own_name_is_kept(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    answer = http.post(path, json=body, headers={"X-Request-ID": "turn-7/of.chat:3"})
    assert answer.status_code == 200, answer.text
    assert answer.headers.get_list("x-request-id") == ["turn-7/of.chat:3"]
    named = ["turn-7/of.chat:3"] if path == "/v1/messages" else []
    assert answer.headers.get_list("request-id") == named
    wrong = http.post(path, json={**body, "no_such_field": 1}, headers={"X-Request-ID": "again"})
    assert wrong.status_code == (400 if path != "/v1/branches" else wrong.status_code)
    assert wrong.headers.get_list("x-request-id") == ["again"]


@pytest.mark.parametrize(
    "given", ["", "a b", "-a", "a,b", "a;b", "ä", "a\tb", '"a"', "<a>", "a" * (LONGEST + 1), "a%0d", "{a}", "\x7f"]
)
def test_a_name_that_is_not_well_formed_is_not_repeated(http: httpx.Client, given: str) -> None:
    answer = http.get("/health", headers=[(b"x-request-id", given.encode("latin-1"))])
    assert OURS.fullmatch(answer.headers["x-request-id"])


def test_names_at_their_limit_and_several(http: httpx.Client) -> None:
    longest = "a" * LONGEST
    assert http.get("/health", headers={"x-request-id": longest}).headers["x-request-id"] == longest
    several = http.get("/health", headers=[("x-request-id", "a"), ("x-request-id", "a")])
    assert OURS.fullmatch(several.headers["x-request-id"])


def test_the_clients_find_it(tiny: LiveServer) -> None:
    ours = openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0)
    answer = ours.chat.completions.create(model="tiny", **CHAT)  # type: ignore[call-overload]
    assert answer._request_id == f"req_{answer.id.removeprefix('chatcmpl-')}"
    completion = ours.completions.create(model="tiny", prompt="a", max_tokens=1)
    assert completion._request_id == f"req_{completion.id.removeprefix('cmpl-')}"
    response = ours.responses.create(model="tiny", input="a", max_output_tokens=16)
    assert response._request_id == f"req_{response.id.removeprefix('resp_')}"
    own = ours.completions.create(model="tiny", prompt="a", max_tokens=1, extra_headers={"x-request-id": "mine"})
    assert own._request_id == "mine"
    with pytest.raises(openai.NotFoundError) as missing:
        ours.completions.create(model="none", prompt="a")
    assert OURS.fullmatch(missing.value.request_id or "")
    theirs = anthropic.Anthropic(base_url=tiny.url, api_key="none", max_retries=0)
    message = theirs.messages.create(model="tiny", **CHAT)  # type: ignore[call-overload]
    assert message._request_id == f"req_{message.id.removeprefix('msg_')}"
    with pytest.raises(anthropic.NotFoundError) as unknown:
        theirs.messages.create(model="none", **CHAT)  # type: ignore[call-overload]
    assert OURS.fullmatch(unknown.value.request_id or "")


@pytest.mark.usefixtures("slow_steps")
def test_the_engine_s_request_bears_our_part_and_two_clients_may_choose_one_name(tiny: LiveServer) -> None:
    long = {"text": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    named = {"x-request-id": "same"}
    with (
        httpx.Client(base_url=tiny.url, timeout=30) as http,
        http.stream("POST", "/generate", json=long, headers=named) as first,
        http.stream("POST", "/generate", json=long, headers=named) as second,
    ):
        assert first.status_code == second.status_code == 200
    with httpx.Client(base_url=tiny.url, timeout=30) as http, http.stream("POST", "/generate", json=long) as answer:
        own = answer.headers["x-request-id"].removeprefix("req_")
        assert http.post("/abort", json={"rid": own}).json() == {"aborted": 1}
        answer.read()
        assert f'"id":"{own}"' in answer.text
        assert '"type":"abort"' in answer.text


def test_the_log_names_requests(caplog: pytest.LogCaptureFixture) -> None:
    options = ApiOptions(log_requests=True)
    with caplog.at_level(logging.INFO), LiveServer(make_scripted_frontend, options=options) as server:
        ours = httpx.get(f"{server.url}/health").headers["x-request-id"]
        httpx.post(f"{server.url}/tokenize", json={"prompt": "secret"}, headers={"x-request-id": "mine"})
    lines = [record.getMessage() for record in caplog.records if record.name == "palmette.runtime.api.request_log"]
    assert len(lines) == 2
    assert re.fullmatch(rf"GET /health 200 \d+ ms {ours} ", lines[0])
    assert re.fullmatch(rf'POST /tokenize 200 \d+ ms mine \({OURS.pattern}\) \{{"prompt":"secret"\}}', lines[1])


def test_a_fault_is_logged_under_the_name_that_its_client_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with LiveServer(make_scripted_frontend) as server:

        def broken(*given: Any, **more: Any) -> Any:
            raise KeyError("x")

        monkeypatch.setattr(server.frontend, "submit_packed", broken)
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"})
    assert answer.status_code == 500
    name = answer.headers["x-request-id"]
    assert name in answer.json()["error"]["message"]
    assert any(f"request {name} failed" in record.getMessage() for record in caplog.records)


def raw(server: LiveServer, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0), timeout=10) as client:
        client.sendall(sent)
        got = b""
        while part := client.recv(1 << 16):
            got += part
        return got


def test_what_is_refused_before_any_route_has_a_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no HTTP, a head that is late, a wrong key, a page of another origin, and too many connections."""
    name = re.compile(rb"\r\nx-request-id: req_[0-9a-f]{32}\r\n", re.IGNORECASE)
    options = ApiOptions(limits=Limits(head_seconds=0.3), origins=("https://one.example",))
    with LiveServer(make_scripted_frontend, options=options, keys=Keys(api=("k",))) as server:
        for sent, status in ((b"nonsense\r\n\r\n", b"400"), (b"GET /health HT", b"408")):
            got = raw(server, sent)
            assert status in got.split(b"\r\n")[0]
            assert name.search(got)
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        assert OURS.fullmatch(httpx.get(f"{server.url}/v1/models").headers["x-request-id"])
        origin = {"origin": "https://two.example", "authorization": "Bearer k"}
        assert OURS.fullmatch(httpx.get(f"{server.url}/v1/models", headers=origin).headers["x-request-id"])
        origin["origin"] = "https://one.example"
        allowed = httpx.get(f"{server.url}/v1/models", headers=origin)
        assert "x-request-id" in allowed.headers["access-control-expose-headers"]
        assert OURS.fullmatch(allowed.headers["x-request-id"])
        full = threading.Event()
        monkeypatch.setattr(Connections, "admit", _only_spare(full))
        busy = httpx.get(f"{server.url}/v1/models", headers={"authorization": "Bearer k", "x-request-id": "mine"})
        assert busy.status_code == 503
        assert busy.headers.get_list("x-request-id") == ["mine"]
        health = httpx.get(f"{server.url}/health", headers={"x-request-id": "mine"})
        assert health.status_code == 200
        assert health.headers.get_list("x-request-id") == ["mine"]
        full.set()
        assert name.search(raw(server, b""))


def _only_spare(full: threading.Event) -> Any:
    def admit(house: Any, connection: Any, now: float) -> bool:
        connection.serve_operators_only()
        return not full.is_set()

    return admit
