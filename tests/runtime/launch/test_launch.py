"""Two real processes over the tiny model: start, serve, crash, restart, drain, and what must not stay behind."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from launched import Asked, Server, all_gone, complete, open_requests, served, wait_for

from palmette.runtime.launch.server import private_folder

pytestmark = pytest.mark.server


def test_an_engine_that_crashes_fails_what_is_open_and_comes_back(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start(kv_tokens=64_000)
    branch = httpx.post(f"{server.url}/v1/branches", json={}).json()["id"]
    parts = {"parts": [{"type": "Text", "text": "def self"}], "params": {"max_tokens": 4, "temperature": 0}}
    assert '"finish"' in httpx.post(f"{server.url}/v1/branches/{branch}/generate", json=parts).text
    engine = server.engine()
    answers: list[httpx.Response] = []
    long = {"max_tokens": 2000, "ignore_eos": True, "n": 12}
    threads = [
        threading.Thread(target=lambda stream=stream: answers.append(complete(server.url, stream=stream, **long)))
        for stream in (False, True)
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: open_requests(server) == 24)
    engine.send_signal(signal.SIGKILL)
    for thread in threads:
        thread.join(20)
    assert sorted(answer.status_code for answer in answers) == [200, 503]
    assert all("EngineDied" in answer.text for answer in answers)
    wait_for(lambda: httpx.get(f"{server.url}/ready").status_code == 200)
    assert server.engine().pid != engine.pid
    assert complete(server.url).status_code == 200
    assert '"finish"' in httpx.post(f"{server.url}/v1/branches/{branch}/generate", json=parts).text
    assert server.stop() == 0
    assert not any(tmp_path.iterdir()), "a folder stayed behind"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(start: Callable[..., Server], number: int) -> None:
    server = start()
    engine = server.engine()
    with httpx.stream(
        "POST", f"{server.url}/generate", json={"text": "def", "stream": True, "max_tokens": 300, "ignore_eos": True}
    ) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.send_signal(number)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert server.process.wait(20) == 0
    assert not engine.is_running()


@pytest.mark.slow
def test_what_the_drain_does_not_see_end_is_told(start: Callable[..., Server]) -> None:
    server = start(drain=0.5, kv_tokens=64_000)
    body = {"prompt": "def", "stream": True, "max_tokens": 2000, "ignore_eos": True, "n": 24, "logprobs": 20}
    content = json.dumps(body).encode()
    deaf = socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0))
    deaf.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
    with deaf, httpx.stream("POST", f"{server.url}/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "abort"
        assert server.process.wait(20) == 0
    _, log = server.process.communicate()
    assert "Traceback" not in log


def test_the_second_signal_ends_at_once(start: Callable[..., Server]) -> None:
    server = start()
    engine = server.engine()
    with httpx.stream(
        "POST", f"{server.url}/generate", json={"text": "def", "stream": True, "max_tokens": 2000, "ignore_eos": True}
    ) as response:
        next(response.iter_lines())
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        server.process.wait(20)
        assert time.monotonic() - begun < 4
    assert not engine.is_running()


def slow_schema() -> dict[str, Any]:
    """A grammar that takes seconds to compile, in a child process of the engine."""

    def way(number: int) -> dict[str, Any]:
        inner = {"type": "object", "properties": {f"x{number}": {"type": "string"}}, "required": [f"x{number}"]}
        either = {"type": "object", "properties": {"a": {"anyOf": [inner, {"type": "integer"}]}}}
        return {"type": "object", "properties": {f"k{number}": either}, "required": [f"k{number}"]}

    return {"anyOf": [way(number) for number in range(1000)]}


def compiling(start: Callable[..., Server], **options: object) -> tuple[Server, Asked, list[psutil.Process]]:
    """A server whose engine has a grammar compiled in a child process, for a request."""
    server = start(**options)
    asked = Asked(server.url, json_schema=slow_schema())
    wait_for(lambda: len(server.family()) == 2)
    assert asked.is_alive()
    return server, asked, server.family()


@pytest.mark.slow
def test_a_grammar_that_compiles_is_waited_for_as_long_as_the_drain_has(start: Callable[..., Server]) -> None:
    server, asked, family = compiling(start, drain=0.5)
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 8
    asked.join(5)
    assert asked.answer is not None
    assert asked.answer.status_code == 200, asked.answer.text
    assert asked.answer.json()["choices"][0]["finish_reason"] == "abort"
    assert all_gone(family)


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_a_grammar(start: Callable[..., Server]) -> None:
    server, asked, family = compiling(start, drain=60)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 4
    asked.join(5)
    assert not asked.is_alive()
    assert all_gone(family)


@pytest.mark.parametrize(
    ("moment", "signals"),
    [(0.0, 1), (0.5, 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.15, 2), (0.5, 1), (1.2, 1)))],
)
def test_a_signal_while_the_engine_restarts(start: Callable[..., Server], moment: float, signals: int) -> None:
    """In the pause before it, while its process is made, while it loads: whatever was started ends with the server."""
    server = start(drain=2, kv_tokens=64_000)
    asked = Asked(server.url, max_tokens=2000, ignore_eos=True, n=24)
    wait_for(lambda: open_requests(server) == 24)
    server.engine().kill()
    time.sleep(moment)
    refused = complete(server.url) if moment < 1 else None  # behind that it may be up again
    family = server.family()
    begun = time.monotonic()
    for _ in range(signals):
        server.process.send_signal(signal.SIGTERM)
        family += [each for each in server.family() if each not in family]
        time.sleep(0.05)
    assert server.process.wait(20) == 0
    assert time.monotonic() - begun < 8
    asked.join(5)
    assert asked.answer is not None
    assert asked.answer.status_code == 503
    assert "EngineDied" in asked.answer.text
    if refused is not None and refused.status_code != 200:
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
    assert all_gone(family)
    _, log = server.process.communicate()
    assert "Traceback" not in log
    assert "never retrieved" not in log


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_before_the_server_is_ready(start: Callable[..., Server], signals: int) -> None:
    server = start(wait=False)
    wait_for(lambda: bool(server.family()))
    family = server.family()
    for _ in range(signals):
        server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 0
    assert all_gone(family)


@pytest.mark.slow
def test_heads_that_do_not_end_leave_room_for_others_however_few_files_there_are(start: Callable[..., Server]) -> None:
    """600 connections with half a head each, and files for 256: everybody else is served meanwhile, and afterwards."""
    server = start(files=256)
    address = ("127.0.0.1", httpx.URL(server.url).port or 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(600):
            client = held.enter_context(socket.create_connection(address, timeout=10))
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Half: ")
            if number % 100 == 99:
                assert served(server) == 200
        assert [served(server) for _ in range(5)] == [200] * 5
        schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
        assert complete(server.url, json_schema=schema, max_tokens=20).status_code == 200
        assert psutil.Process(server.process.pid).num_fds() <= 256
    assert served(server) == 200
    server.engine().kill()  # a new one needs files too
    wait_for(lambda: httpx.get(f"{server.url}/health").json()["engine_restarts"] == 1)
    wait_for(lambda: httpx.get(f"{server.url}/ready").status_code == 200)
    assert served(server) == 200
    assert server.stop() == 0
    _, log = server.process.communicate()
    assert "Traceback" not in log


def test_the_engine_dies_with_its_front(start: Callable[..., Server]) -> None:
    server = start()
    engine = server.engine()
    server.process.kill()
    wait_for(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, 5)


def test_what_keeps_an_engine_from_starting_is_told(start: Callable[..., Server]) -> None:
    server = start(kv_tokens=3)
    assert server.first["error"] == "NeverFits"
    assert "3 tokens" in server.first["message"]
    assert server.process.wait(10) == 3


def test_the_folder_is_private_and_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with private_folder() as folder:
        assert len(folder) < 80
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)
