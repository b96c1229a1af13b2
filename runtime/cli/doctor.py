"""`palmette doctor`: what this machine has, what is missing, and what to do about it.

Every finding is one line. The exit code is 0 unless the main job, running a model, can't be done here.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from palmette.runtime.cli.errors import FAILED, guarded
from palmette.runtime.cli.this_machine import cpu_name, sample_load, wide_console
from palmette.runtime.config import DEFAULT_MODEL, cache_folder
from palmette.runtime.errors import PalmetteError
from palmette.runtime.machine import free_memory, usable_threads

State = Literal["ok", "missing", "unused", "broken"]

PYTHON = (3, 11)
SPARE_DISK = 1 << 30  # bytes that a model, its prepared form and the kernels want
SPARE_MEMORY = 1 << 30  # beyond the model's files: the interpreter, torch, a small KV pool

# Modules whose absence ends everything; torch is looked at on its own.
REQUIRED = ("numpy", "tokenizers", "sentencepiece", "safetensors", "gguf", "filelock", "jinja2", "zmq", "msgspec")
SERVER = ("fastapi", "uvicorn", "httpx", "pydantic", "prometheus_client", "orjson")

# Extra of pyproject.toml → (modules, what they are for, whether this version makes use of them).
EXTRAS: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "gpu": (("triton", "flashinfer"), "kernels for NVIDIA GPUs", False),
    "mooncake": (("mooncake",), "KV pages from other machines, by Mooncake", False),
    "nixl": (("nixl",), "KV pages from other machines, by NIXL", False),
    "cluster": (("ray",), "deployment on a Ray cluster", False),
    "mcp": (("mcp",), "tools of MCP servers", True),
    "otel": (("opentelemetry",), "traces by OpenTelemetry", True),
    "png": (("resvg_py",), "the curves of `palmette simulate` as PNG", True),
    "xgrammar": (("xgrammar",), "JSON schemas by xgrammar (`--grammar-backend xgrammar`)", True),
}


@dataclass(frozen=True)
class Finding:
    """`broken`: the main job can't be done. `missing`: it can, with less. `todo` says what to do about either.

    `unused`: not here, and nothing would use it.
    """

    name: str
    state: State
    what: str
    todo: str = ""


@guarded
def doctor(
    model: Annotated[str, typer.Option("--model", "-m", help="The model that is to run here.")] = DEFAULT_MODEL,
) -> None:
    """What this machine has, what is missing, and what to do about it. Exit code 1 where no model could run."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    colours = {"ok": "green", "missing": "yellow", "unused": "dim", "broken": "red"}
    found = list(examine(model))
    for finding in found:
        mark = "OK" if finding.state == "ok" else finding.state
        words = finding.what + (f" → {finding.todo}" if finding.todo else "")
        table.add_row(Text(mark, colours[finding.state]), finding.name, Text(words))
    wide_console().print(table)
    broken = [finding.name for finding in found if finding.state == "broken"]
    if broken:
        typer.echo(f"No model can run here yet: see {', '.join(broken)}.", err=True)
        raise typer.Exit(FAILED)
    typer.echo("Models can run here.")


def examine(model: str) -> Iterator[Finding]:
    """Everything there is to say, the machine first."""
    yield from _machine()
    yield from _python()
    yield _torch()
    yield from _cache()
    yield from _model(model)
    yield from _kernels(model)
    yield from _extras()


def _machine() -> Iterator[Finding]:
    yield Finding("processor", "ok", f"{cpu_name()}, {platform.system()} {platform.machine()}")
    cores, usable = os.cpu_count() or 1, usable_threads()
    less = "" if usable == cores else f" of {cores} cores: affinity and cgroup quota allow no more"
    yield Finding("threads", "ok", f"{usable} threads{less}")
    load = sample_load()
    wait = "" if load.quiet else "; others keep it busy, so figures measured now are too low"
    yield Finding("load", "ok", f"{load}{wait}")
    free = free_memory()
    if free >= SPARE_MEMORY:
        yield Finding("memory", "ok", f"{_gigabytes(free)} can be taken (cgroup limits counted)")
    else:
        yield Finding("memory", "missing", f"only {_gigabytes(free)} can be taken", "end what else needs memory")


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    if sys.version_info >= PYTHON:
        yield Finding("Python", "ok", f"{version} at {sys.executable}")
    else:
        yield Finding("Python", "broken", version, f"use Python {PYTHON[0]}.{PYTHON[1]} or newer")
    lacking = _lacking(REQUIRED)
    if lacking:
        yield Finding("packages", "broken", f"{', '.join(lacking)} can't be found", "install Palmette again")
    lacking = _lacking(SERVER)
    if lacking:
        yield Finding("server", "missing", f"{', '.join(lacking)} can't be found", "install Palmette again")


def _torch() -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("torch", "broken", f"can't be imported: {error}", "pip install torch==2.13.0")
    return Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads of its own choice")


def _cache() -> Iterator[Finding]:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Finding(
            "cache", "broken", f"{folder} can't be written: {error.strerror}", "set PALMETTE_CACHE to a folder that can"
        )
        return
    parts = [f"{part.name} {_gigabytes(_size(part))}" for part in sorted(folder.iterdir()) if part.is_dir()]
    yield Finding("cache", "ok", f"{folder}" + (f": {', '.join(parts)}" if parts else ", empty"))
    free = shutil.disk_usage(folder).free
    if free < SPARE_DISK:
        yield Finding("disk", "missing", f"only {_gigabytes(free)} free there", "free some, or set PALMETTE_CACHE")


def _model(model: str) -> Iterator[Finding]:
    from palmette.runtime.checkpoint.catalogue import CATALOGUE

    for other in CATALOGUE.values():
        if other.is_fetched and other.name != model:
            yield Finding("model", "ok", f"{other.name} is here")
    entry = CATALOGUE.get(model)
    if entry is not None and not entry.is_fetched:
        todo = f"palmette models fetch {model} (or let the first command that needs it fetch it)"
        yield Finding("model", "missing", f"{model} is not here ({_gigabytes(entry.file_bytes)})", todo)
        return
    from palmette.runtime.checkpoint.open import open_checkpoint
    from palmette.runtime.checkpoint.resolve import resolve

    try:
        files = resolve(model)
        open_checkpoint(files)
    except PalmetteError as error:
        yield Finding("model", "broken", error.message, error.hint or "palmette models lists those that have a name")
        return
    size = _size(files.path)
    need = size + SPARE_MEMORY
    if need > free_memory():
        yield Finding(
            "model",
            "missing",
            f"{model} wants about {_gigabytes(need)} of memory",
            "take a smaller one, or free memory",
        )
    else:
        yield Finding("model", "ok", f"{model} is here: {files.path} ({_gigabytes(size)})")


def _kernels(model: str) -> Iterator[Finding]:
    from palmette.kernels.cpu.build import BuildError, detect_target, find_compiler, library_path

    target = detect_target()
    slower = "" if target.name != "portable" else "; the native kernels use plain vectors, which is slower"
    yield Finding("instructions", "ok", f"path {target.name}{slower}")
    try:
        compiler = find_compiler()
        library = library_path(cache_folder() / "kernels", target)
    except BuildError as error:
        yield Finding("compiler", "missing", "none: plain torch computes, several times slower", str(error))
        return
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    yield Finding("compiler", "ok", f"{compiler}: {version.partition(chr(10))[0]}")
    reason = _refused(model)
    if reason is not None:
        yield Finding(
            "kernels", "missing", f"plain torch computes {model}, several times slower: {reason}", "take another model"
        )
    elif library.exists():
        yield _loaded(library)
    else:
        yield Finding("kernels", "ok", "not built yet: the first start does it, in less than a minute")


def _loaded(library: Path) -> Finding:
    from palmette.kernels.cpu.library import Library

    try:
        Library(library)
    except OSError as error:
        todo = f"delete it to have it built again; where {library.parent} may not hold programs, set PALMETTE_CACHE"
        return Finding("kernels", "missing", f"plain torch computes, several times slower: {error}", todo)
    return Finding("kernels", "ok", f"built: {library}")


def _refused(model: str) -> str | None:
    """Why the native kernels can't compute a model that is here, or None."""
    from palmette.kernels.cpu.library import unsupported
    from palmette.runtime.checkpoint.catalogue import CATALOGUE
    from palmette.runtime.checkpoint.open import open_checkpoint
    from palmette.runtime.checkpoint.resolve import resolve

    if model in CATALOGUE and not CATALOGUE[model].is_fetched:
        return None
    try:
        config = open_checkpoint(resolve(model)).config
    except PalmetteError:
        return None  # said already
    return unsupported(
        hidden=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
    )


def _extras() -> Iterator[Finding]:
    for extra, (modules, purpose, used) in EXTRAS.items():
        name, lacking = f"extra {extra}", _lacking(modules)
        if not used:
            here = "not here" if lacking else "here"
            yield Finding(name, "unused", f"{purpose}: {here}, and this version makes no use of it")
        elif lacking:
            yield Finding(
                name, "missing", f"{purpose}: {', '.join(lacking)} can't be found", f"install the extra {extra!r}"
            )
        else:
            versions = ", ".join(f"{module} {_version(module)}".rstrip() for module in modules)
            yield Finding(name, "ok", f"{purpose}: {versions}")


def _lacking(modules: Iterable[str]) -> list[str]:
    return [module for module in modules if importlib.util.find_spec(module) is None]


def _version(module: str) -> str:
    names = metadata.packages_distributions().get(module, ())
    return metadata.version(names[0]) if names else ""


def _size(path: Path) -> int:
    """Bytes of a file, or of everything in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"
