"""A llama.cpp server on the default model, and what these tests share with others.

They need llama.cpp in its own virtual environment, which `make peers` makes; without it they are skipped.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import benchmarks_package  # noqa: F401
import httpx
import pytest

from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DEFAULT_MODEL

TESTS = Path(__file__).resolve().parents[1]

sys.path.append(str(TESTS / "runtime" / "text"))  # mixed_lines


@pytest.fixture(scope="session")
def model_files() -> ModelFiles:
    return resolve(DEFAULT_MODEL)


@pytest.fixture(scope="session")
def llama_cpp(model_files: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a running llama.cpp server on the same file as ours."""
    with running_llama_cpp(model_files.path, tmp_path_factory.mktemp("llama-cpp")) as client:
        yield client


@pytest.fixture(scope="session")
def llama_cpp_float32(model_files: ModelFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The same on the same weights, dequantised: then llama.cpp doesn't quantise its activations either."""
    from benchmarks.peers.export import export_float32

    with running_llama_cpp(export_float32(model_files.path), tmp_path_factory.mktemp("float32")) as client:
        yield client


@contextlib.contextmanager
def running_llama_cpp(model: Path, folder: Path) -> Iterator[httpx.Client]:
    from benchmarks.peers.llama_cpp import LlamaCppServer

    peer = LlamaCppServer()
    if not peer.installed():
        pytest.skip("llama.cpp isn't installed in .venvs/llama-cpp; `make peers` does it (18 minutes)")
    limits = httpx.Limits(max_keepalive_connections=0)
    with (
        peer.serve(model, threads=1, log=folder / "server.log", slots=1) as url,
        httpx.Client(base_url=url, timeout=300, limits=limits) as client,
    ):
        yield client
