"""Two real processes over the tiny model: start, serve, crash, restart, drain, and what must not stay behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import psutil
import pytest

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.launch.listening import listen, listen_at
from palmette.runtime.launch.server import private_folder

pytestmark = pytest.mark.server

PROGRAM = """
import json, sys
from pathlib import Path
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import PalmetteError
from palmette.runtime.launch import serve

def ready(serving):
    print(json.dumps({"url": serving.url, "model": serving.engine.model}), flush=True)

options = json.loads(sys.argv[1])
try:
    config = EngineConfig(**options["config"])
    uds = Path(options["uds"]) if options["uds"] else None
    names = options["names"]
    sys.exit(serve(
        config, port=options["port"], drain_seconds=options["drain"], on_ready=ready, uds=uds, names=names
    ))
except PalmetteError as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
    sys.exit(3)
"""


class Server:
    """A server in a process of its own."""

    def __init__(
        self,
        root: Path,
        temporary: Path,
        *,
        port: int = 0,
        drain: float = 5,
        uds: Path | None = None,
        names: Sequence[str] = (),
        **config: object,
    ) -> None:
        given = {"model": "tiny", "threads": 1, "kv_tokens": 4096, **config}
        options = {"config": given, "port": port, "drain": drain, "uds": str(uds or ""), "names": list(names)}
        environment = {**os.environ, "PYTHONPATH": str(root / ".src"), "TMPDIR": str(temporary)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.first = json.loads(self.process.stdout.readline())
        self.url = self.first.get("url", "")

    def engine(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def make(**config: object) -> Server:
        started.append(Server(root, tmp_path, **config))  # type: ignore[arg-type]
        return started[-1]

    yield make
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate(timeout=20)


def wait_for(found: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.05)


def complete(url: str, **body: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json={"prompt": "def", "max_tokens": 4, **body}, timeout=20)


def test_an_engine_that_crashes_fails_what_is_open_and_comes_back(start: Callable[..., Server], tmp_path: Path) -> None:
    server = start()
    branch = httpx.post(f"{server.url}/v1/branches", json={}).json()["id"]
    parts = {"parts": [{"type": "Text", "text": "def self"}], "params": {"max_tokens": 4, "temperature": 0}}
    assert '"finish"' in httpx.post(f"{server.url}/v1/branches/{branch}/generate", json=parts).text
    engine = server.engine()
    answers: list[httpx.Response] = []
    long = {"max_tokens": 1500, "ignore_eos": True}
    threads = [
        threading.Thread(target=lambda stream=stream: answers.append(complete(server.url, stream=stream, **long)))
        for stream in (False, True)
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: "palmette_open_requests 2.0" in httpx.get(f"{server.url}/metrics").text)
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


def test_a_port_in_use_is_one_clear_error(start: Callable[..., Server]) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    server = start(port=port)
    assert server.first["error"] == "InvalidRequest"
    assert f"127.0.0.1:{port}: Address already in use" in server.first["message"]
    taken.close()


def test_hosts_that_are_not_ours() -> None:
    with pytest.raises(InvalidRequest, match=r"203\.0\.113\.1"):
        listen("203.0.113.1", 0)
    with pytest.raises(InvalidRequest, match="Host 'no such host'"):
        listen("no such host", 0)


def test_the_folder_is_private_and_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with private_folder() as folder:
        assert len(folder) < 80
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)


def test_a_socket_file_and_several_names(start: Callable[..., Server], tmp_path: Path) -> None:
    path = tmp_path / "palmette.sock"
    server = start(uds=path, names=["small", "gpt-4o-mini"])
    assert server.url == f"unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=20) as http:
        assert [card["id"] for card in http.get("/v1/models").json()["data"]] == ["small", "gpt-4o-mini"]
        body = {"model": "gpt-4o-mini", "prompt": "x", "max_tokens": 1}
        assert http.post("/v1/completions", json=body).json()["model"] == "small"
        unknown = http.post("/v1/completions", json={**body, "model": "tiny"})
        assert unknown.status_code == 404
        assert "'small', 'gpt-4o-mini'" in unknown.text
        assert http.post("/flush_cache", json={}).status_code == 200  # who may open the file is an administrator
        with pytest.raises(InvalidRequest, match="listens on"):
            listen_at(path)
    assert server.stop() == 0
    assert not path.exists()


def test_a_socket_file_that_a_dead_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "old.sock"
    listen_at(path).close()
    listen_at(path).close()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidRequest, match="no socket"):
        listen_at(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(InvalidRequest, match="Can't listen"):
        listen_at(tmp_path / "no such folder" / "x")
