"""Addresses: ports and socket files that are free, taken, or left by a server that died."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from launched import Server

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.launch.listening import listen, listen_at, remove

pytestmark = pytest.mark.server


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
