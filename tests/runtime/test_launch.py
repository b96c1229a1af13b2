"""Two real processes over the tiny model: start, serve, crash, restart, drain, and what must not stay behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.launch.listening import listen, listen_at, remove
from palmette.runtime.launch.server import private_folder

pytestmark = pytest.mark.server

PROGRAM = """
import json, resource, sys
from pathlib import Path
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import PalmetteError
from palmette.runtime.launch import serve

def ready(serving):
    print(json.dumps({"url": serving.url, "model": serving.engine.model}), flush=True)

options = json.loads(sys.argv[1])
if options["files"]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (options["files"],) * 2)
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
        files: int | None = None,
        **config: object,
    ) -> None:
        """`files`: how many this process may open."""
        given = {"model": "tiny", "threads": 1, "kv_tokens": 4096, **config}
        options = {"config": given, "port": port, "drain": drain, "uds": str(uds or ""), "names": list(names)}
        options["files"] = files
        environment = {**os.environ, "PYTHONPATH": str(root / ".src"), "TMPDIR": str(temporary)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    @cached_property
    def first(self) -> dict[str, Any]:
        """What it says when it can be asked, or can't start."""
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    @property
    def url(self) -> str:
        return str(self.first.get("url", ""))

    def engine(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]

    def family(self) -> list[psutil.Process]:
        """The processes that it has started, and those that these have."""
        children: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return children

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(20)


@pytest.fixture
def start(root: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def make(wait: bool = True, **config: object) -> Server:
        started.append(Server(root, tmp_path, **config))  # type: ignore[arg-type]
        if wait:
            assert started[-1].first
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


def open_requests(server: Server) -> int:
    found = re.search(r"palmette_open_requests (\d+)", httpx.get(f"{server.url}/metrics").text)
    assert found is not None
    return int(found[1])


class Asked(threading.Thread):
    """A request under way. `answer`: once it has come; None where the connection was cut."""

    def __init__(self, url: str, **body: object) -> None:
        super().__init__(daemon=True)
        self._url, self._body = url, body
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with contextlib.suppress(httpx.TransportError):
            self.answer = complete(self._url, **self._body)


def all_gone(processes: Sequence[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=5)
    return not [each for each in alive if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


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


def served(server: Server) -> int:
    """The status of a completion by a client that does as it is told: comes again where it is asked to."""
    for _ in range(20):
        answer = complete(server.url)
        if answer.status_code != 503:
            break
        time.sleep(float(answer.headers["retry-after"]) / 5)
    return answer.status_code


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


def uds_status(path: Path) -> int:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=20) as http:
        return http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).status_code


@pytest.mark.slow
def test_what_lies_at_a_socket_file_s_path(start: Callable[..., Server], tmp_path: Path) -> None:
    """A dead server's file is replaced; a live server's, and what is no socket, stay as they are."""
    path, mine = tmp_path / "palmette.sock", tmp_path / "mine"
    listen_at(path).close()
    mine.write_text("mine")
    server = start(uds=path)
    assert uds_status(path) == 200
    for taken, why in ((path, "listens on"), (mine, "no socket"), (tmp_path, "no socket")):
        other = start(uds=taken)
        assert other.first["error"] == "InvalidRequest"
        assert why in other.first["message"]
        assert other.process.wait(10) == 3
    assert uds_status(path) == 200
    assert mine.read_text() == "mine"
    assert server.stop() == 0
    assert not path.exists()


@pytest.mark.slow
def test_of_two_servers_started_at_once_one_has_the_socket_file(start: Callable[..., Server], tmp_path: Path) -> None:
    path = tmp_path / "palmette.sock"
    listen_at(path).close()  # what a dead one left; both find it
    both = [start(wait=False, uds=path) for _ in range(2)]
    up = [server for server in both if "url" in server.first]
    assert len(up) == 1
    (other,) = (server for server in both if server not in up)
    assert "listens on" in other.first["message"]
    assert other.process.wait(10) == 3
    assert uds_status(path) == 200
    assert up[0].stop() == 0
    assert not path.exists()


def test_one_of_many_has_the_socket_file(tmp_path: Path) -> None:
    path = tmp_path / "palmette.sock"
    for _ in range(10):
        listen_at(path).close()
        got: list[socket.socket | InvalidRequest] = []
        begin = threading.Barrier(8)

        def one(got: list[socket.socket | InvalidRequest] = got, begin: threading.Barrier = begin) -> None:
            begin.wait(10)
            try:
                got.append(listen_at(path))
            except InvalidRequest as error:
                got.append(error)

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        listeners = [each for each in got if isinstance(each, socket.socket)]
        assert len(got) == 8
        assert len(listeners) == 1
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))  # it is the one that is heard of
            listeners[0].settimeout(5)
            listeners[0].accept()[0].close()
        listeners[0].close()


def test_a_server_s_end_leaves_its_successor_s_socket_file(tmp_path: Path) -> None:
    """It has closed its address, and drains; meanwhile another has taken the path. The file of that one may have the
    number of the old one."""
    path = tmp_path / "palmette.sock"
    for _ in range(20):
        first = listen_at(path)
        mine = path.stat()
        first.close()
        time.sleep(0.005)
        with listen_at(path) as second:
            theirs = path.stat()
            remove(path, mine)
            assert path.exists()
            remove(path, theirs)
            assert not path.exists()
            assert second.fileno() >= 0
    remove(path, mine)
    remove(tmp_path / "no such folder" / "x", mine)


def test_a_link_to_a_socket_is_left_alone(tmp_path: Path) -> None:
    path, link, broken = tmp_path / "palmette.sock", tmp_path / "link", tmp_path / "broken"
    listen_at(path).close()
    link.symlink_to(path)
    broken.symlink_to(tmp_path / "nowhere")
    for each in (link, broken):
        with pytest.raises(InvalidRequest, match="no socket"):
            listen_at(each)
        assert each.is_symlink()
