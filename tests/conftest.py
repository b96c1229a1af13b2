"""Shared by all tests: our packages come from `.src` (the import name is palmette), never from the root."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A bare `import lang` would make a second copy of the package beside palmette.lang.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
