"""One file over HTTP, resumable and checked. Called by fetch.py; knows nothing of models or indexes."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

import httpx
import msgspec

ATTEMPTS = 4
TIMEOUT = httpx.Timeout(60.0, connect=15.0)
_CHUNK = 1 << 20


class Progress(msgspec.Struct, frozen=True):
    """How far a fetch is. Bytes; `total` is 0 where it isn't known."""

    stage: Literal["waiting", "asking", "downloading", "checking", "unpacking"]
    done: int = 0
    total: int = 0


Report = Callable[[Progress], None]


class DownloadFailed(Exception):
    """The network or the server: another way, or another time, may work."""


class WrongChecksum(Exception):
    """The whole file arrived and is not the one that was asked for."""


def download(url: str, to: Path, *, size: int, sha256: str, report: Report, retry_seconds: float = 1.0) -> None:
    """Brings `url` to the file `to`, of `size` bytes and this hash.

    What arrived is kept in `to`.part, and a later call goes on from there. Raises DownloadFailed, WrongChecksum, or
    OSError (a full disk).
    """
    part = to.with_name(to.name + ".part")
    if urlsplit(url).scheme == "file":
        shutil.copyfile(url2pathname(urlsplit(url).path), part)
    else:
        resumed = part.exists()
        _attempts(url, part, size, report, retry_seconds)
        if resumed and _sha256(part, report) != sha256:
            part.unlink()  # it was the part of another file, or the server has changed it
            _attempts(url, part, size, report, retry_seconds)
    found = _sha256(part, report)
    if found != sha256:
        part.unlink()
        raise WrongChecksum(f"{url} has the SHA-256 {found}, not {sha256}")
    part.replace(to)


def _attempts(url: str, part: Path, size: int, report: Report, retry_seconds: float) -> None:
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT) as client:
        for attempt in range(ATTEMPTS):
            try:
                _once(client, url, part, size, report)
                return
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status < 500 and status != 429:
                    raise DownloadFailed(f"{url} answered {status}") from error
                failure: Exception = error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = error
            time.sleep(retry_seconds * 2**attempt if attempt + 1 < ATTEMPTS else 0)
    raise DownloadFailed(f"{url}: {failure or type(failure).__name__}") from failure


def _once(client: httpx.Client, url: str, part: Path, size: int, report: Report) -> None:
    """One request for what is still missing. Raises httpx errors; a short body is one of them."""
    have = part.stat().st_size if part.exists() else 0
    if have == size:
        return
    if have > size:
        part.unlink()
        have = 0
    # Only the identity encoding has byte ranges that mean the file's own.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", url, headers=headers) as response:
        response.raise_for_status()
        resumed = response.status_code == 206
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise httpx.RemoteProtocolError("the server sent another range than it was asked for")
        have = have if resumed else 0
        with part.open("ab" if resumed else "wb") as file:
            for chunk in response.iter_raw():
                have += len(chunk)
                if have > size:
                    raise httpx.RemoteProtocolError(f"the server sent more than {size} bytes")
                file.write(chunk)
                report(Progress("downloading", have, size))
    if have < size:
        raise httpx.RemoteProtocolError(f"the connection closed after {have} of {size} bytes")


def _sha256(path: Path, report: Report) -> str:
    digest = hashlib.sha256()
    total, done = path.stat().st_size, 0
    with path.open("rb") as file:
        while chunk := file.read(4 * _CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report(Progress("checking", done, total))
    return digest.hexdigest()
