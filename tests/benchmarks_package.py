"""Makes the folder benchmarks/ importable as a package, without putting the repository root on sys.path.

Imported for that by the conftest.py of tests that want it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if "benchmarks" not in sys.modules:
    folder = Path(__file__).resolve().parents[1] / "benchmarks"
    spec = importlib.util.spec_from_file_location(
        "benchmarks", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["benchmarks"] = package
    spec.loader.exec_module(package)
