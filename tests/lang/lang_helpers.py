"""Shared by the language's tests: waiting with a limit, and this file's lines by their marker."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for `condition`, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def line_of(function: Callable[..., Any], marker: str) -> int:
    """The file line of `function` that ends with `# marker`."""
    lines, start = inspect.getsourcelines(function)
    return start + next(index for index, line in enumerate(lines) if line.rstrip().endswith(f"# {marker}"))
