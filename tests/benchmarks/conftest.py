"""The folder benchmarks/ as a package."""

from __future__ import annotations

import benchmarks_package  # noqa: F401
