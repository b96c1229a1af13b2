"""Runs the native kernels' tests on a library built with the address and undefined-behaviour sanitizers.

`make sanitize`. Python itself is not instrumented, so the sanitizer's runtime is preloaded (behind it the C++ library,
whose exceptions it wants to know) and leaks aren't looked for. The library is built first: that takes minutes, and a
test has a limit of time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from palmette.kernels.cpu import build
from palmette.runtime.config import cache_folder

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1")
TESTS = (
    "tests/kernels/test_cpu.py",
    "tests/kernels/test_cpu_attention.py",
    "tests/runtime/test_exactness.py",
    "tests/runtime/models/test_llama.py",
)


def main() -> int:
    build.FLAGS = (*build.FLAGS, *FLAGS)  # as conftest.py does it, whence the tests find the same library
    build.build(cache_folder() / "kernels", build.detect_target(), progress=lambda text: print(text, flush=True))
    libraries = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PALMETTE_TEST_NATIVE_FLAGS": " ".join(FLAGS),
    }
    command = [sys.executable, "-m", "pytest", "-s", "-m", "not slow", *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
