"""A scripted default backend for every test of the language."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import palmette as sgl
from palmette.lang import default

sys.path.append(str(Path(__file__).parent))

from lang_helpers import until


@pytest.fixture(autouse=True)
def backend() -> Iterator[sgl.ScriptedBackend]:
    """Answers `<n>` to the n-th byte-length of the prompt, so that each answer tells what came before it."""
    scripted = sgl.ScriptedBackend(lambda prompt: f"[{len(prompt)}]")
    sgl.set_default_backend(scripted)
    yield scripted
    default._default.clear()
    until(lambda: scripted.open_branches == 0)  # no program leaves its branch open
