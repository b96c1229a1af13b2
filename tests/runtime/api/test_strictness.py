"""Fields: refused by name, ignored by name, or left out by a lenient server; pages of other origins; what is logged."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import openai
import pytest
from frontends import make_scripted_frontend, tiny_frontend
from live_server import LiveServer
from pydantic import Field

from palmette.runtime.api.app import ApiOptions
from palmette.runtime.api.bodies import IGNORED_HEADER, Body, parse
from palmette.runtime.api.limits import Limits
from palmette.runtime.errors import InvalidRequest, Unsupported

PAGE = "https://page.example"


class Inner(Body):
    known: int = 0
    unsupported: ClassVar[dict[str, str]] = {"inner_later": "it is not built yet"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"inner_note"})


class Outer(Body):
    items: list[Inner] = Field(default_factory=list)
    either: str | list[Inner] = ""
    raw: dict[str, Any] | None = None
    unsupported: ClassVar[dict[str, str]] = {"later": "it is not built yet"}
    without_effect: ClassVar[frozenset[str]] = frozenset({"note"})


def test_what_is_refused_has_its_path() -> None:
    with pytest.raises(InvalidRequest, match=r"'items.1.odd' is not a field"):
        parse({"items": [{}, {"odd": 1}]}, Outer)
    with pytest.raises(Unsupported, match=r"'at\.later' is not supported"):
        parse({"later": 1}, Outer, "at")
    parse({"later": None, "note": 1}, Outer)
    parse({"later": False}, Outer)  # off is what it is anyway


def test_what_is_ignored_is_named_wherever_it_stands() -> None:
    body = parse({"note": 1, "raw": {"inner_note": 2, "known": 3}}, Outer)
    assert body.raw is not None
    assert body.nested(body.raw, Inner, "raw").known == 3
    assert body.headers == {IGNORED_HEADER: "note, raw.inner_note"}
    assert parse({"known": 3}, Inner).headers == {}


def test_a_lenient_server_leaves_out_and_names() -> None:
    given = {"later": 1, "odd": {"a": 1}, "items": [{"known": 1, "odd": 2}, {"odd\r\nx: y": 3}], "note": "x"}
    body = parse(given, Outer, lenient=True)
    assert [item.known for item in body.items] == [1, 0]
    assert body.headers == {IGNORED_HEADER: "note, later, items.0.odd, items.1.odd\\r\\nx: y, odd"}
    inner = body.nested({"inner_later": 1, "odd": 1}, Inner, "raw")
    assert inner.known == 0
    assert "raw.inner_later, raw.odd" in body.headers[IGNORED_HEADER]
    with pytest.raises(InvalidRequest, match="items"):
        parse({"items": 5, "odd": 1}, Outer, lenient=True)  # a wrong value is no name


def test_the_header_stays_short() -> None:
    body = parse({f"é{index}" + "x" * 1000: 1 for index in range(5000)}, Outer, lenient=True)
    assert len(body.headers[IGNORED_HEADER]) < 12_000
    assert body.headers[IGNORED_HEADER].endswith("and 4960 more")
    body.headers[IGNORED_HEADER].encode("ascii")


@pytest.fixture(scope="module")
def lenient() -> Iterator[LiveServer]:
    options = ApiOptions(lenient=True, log_requests=True, origins=(PAGE,))
    with LiveServer(tiny_frontend, options=options) as live:
        yield live


def test_lenient_over_http(lenient: LiveServer, tiny: LiveServer) -> None:
    body = {
        "prompt": "a",
        "max_tokens": 2,
        "suffix": "z",
        "odd": {"deep": [1]},
        "seed": 3,
        "stream_options": {"odd": 1},
    }
    answer = httpx.post(f"{lenient.url}/v1/completions", json=body)
    assert answer.status_code == 200
    assert answer.headers[IGNORED_HEADER] == "suffix, stream_options.odd, odd, stream_options"
    strict = httpx.post(f"{tiny.url}/v1/completions", json=body)
    assert strict.status_code == 400
    params = {"sampling_params": {"max_new_tokens": 2, "odd": 1}, "text": "a"}
    assert httpx.post(f"{lenient.url}/generate", json=params).headers[IGNORED_HEADER] == "sampling_params.odd"
    client = openai.OpenAI(base_url=f"{lenient.url}/v1", api_key="none")
    stream = client.completions.create(model="tiny", prompt="a", max_tokens=2, stream=True, extra_body={"odd": 1})
    assert stream.response.headers[IGNORED_HEADER] == "odd"
    assert list(stream)


@pytest.mark.parametrize("origin", ["", "example.com", "http://", "https://example.com/", "https://a b"])
def test_what_no_browser_sends_is_no_origin(origin: str) -> None:
    with pytest.raises(InvalidRequest, match="no origin"):
        ApiOptions(origins=("https://fine.example:8443", "*", origin))


def test_pages_of_other_origins(lenient: LiveServer, tiny: LiveServer) -> None:
    body = {"prompt": "a", "max_tokens": 1}

    def ask(server: LiveServer, **headers: str) -> httpx.Response:
        return httpx.post(f"{server.url}/v1/completions", json=body, headers=headers)

    assert ask(tiny, origin=PAGE).status_code == 403
    assert ask(tiny, origin="null").status_code == 403
    assert ask(tiny, origin=tiny.url).status_code == 200  # its own pages
    assert "access-control-allow-origin" not in ask(tiny, origin=tiny.url).headers
    allowed = ask(lenient, origin=PAGE)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert ask(lenient, origin="https://other.example").status_code == 403
    wanted = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}
    assert httpx.options(f"{lenient.url}/v1/completions", headers=wanted).status_code == 200


def test_a_name_of_somebody_else_makes_no_administrator(tiny: LiveServer) -> None:
    for host, status in (("evil.example", 403), ("localhost:1", 200), ("[::1]:80", 200), ("127.0.0.1", 200)):
        assert httpx.post(f"{tiny.url}/flush_cache", headers={"host": host}).status_code == status, host


def test_prompts_are_logged_only_where_that_was_asked_for(
    lenient: LiveServer, tiny: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for server, secret in ((tiny, "my secret"), (lenient, "my known secret")):
            httpx.post(f"{server.url}/v1/completions", json={"prompt": secret, "max_tokens": 1})
            httpx.post(f"{server.url}/v1/completions", json={"prompt": secret, "odd": [secret], "top_p": secret})
        for _ in range(500):  # a line is written behind its answer
            ours = [record.getMessage() for record in caplog.records if record.name.startswith(("palmette", "uvicorn"))]
            lines = [line for line in ours if "my known secret" in line]
            if len(lines) == 2:
                break
            time.sleep(0.01)
    assert not any("my secret" in line for line in ours)
    assert len(lines) == 2
    assert lines[0].startswith("POST /v1/completions 200 ")


def test_a_request_stays_in_its_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """No client writes another line, or moves the terminal of whoever reads it."""
    forged = "\n2026-01-01 GET /x 200\r\x1b[2J\x85\u2028"
    options = ApiOptions(log_requests=True)
    with caplog.at_level(logging.INFO), LiveServer(make_scripted_frontend, options=options) as server:
        httpx.get(f"{server.url}/{quote(forged)}")
        httpx.post(f"{server.url}/v1/completions", content=f'{{"prompt": "ä",{forged}}}'.encode())
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("request_log")]
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert '"prompt": "ä",\\x0a2026-01-01 GET' in lines[1]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/completions", {"prompt": [5] * 3000}, "prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 3000}]}, "messages"),
        ("/v1/responses", {"input": "a" * 3000}, "input"),
        ("/generate", {"text": "a" * 3000}, "text"),
        ("/generate", {"input_ids": [5] * 3000}, "input_ids"),
        ("/generate", {"messages": [{"role": "user", "content": "a" * 3000}]}, "messages"),
    ],
)
@pytest.mark.parametrize("limited", [False, True])
def test_what_is_too_long_is_named_as_the_body_has_it(
    tiny: LiveServer, path: str, body: dict[str, Any], field: str, limited: bool
) -> None:
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    answer = httpx.post(f"{tiny.url}{path}", json={**body, **({limit: 20} if limited else {})})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field, answer.text
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("key", ["05", " 5", "+5", "-5", "1_0", "\u0665", "", "5.0", "9" * 5000])
def test_a_bias_is_of_a_token_in_digits(tiny: LiveServer, key: str) -> None:
    """What int() would read, and take for another key's token, is no token id."""
    for biases in ({key: 1}, {"5": 1, key: 2}):
        answer = httpx.post(f"{tiny.url}/v1/completions", json={"prompt": "a", "max_tokens": 1, "logit_bias": biases})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "logit_bias"


def test_limits_that_a_flag_sets() -> None:
    options = ApiOptions(limits=Limits(body_bytes=2000))
    with LiveServer(make_scripted_frontend, options=options) as server:
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "x" * 90}).status_code == 200
        refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x" * 2000})
        assert refused.status_code == 413
        assert "--max-body-bytes" in json.loads(refused.text)["error"]["message"]
