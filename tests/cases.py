"""`make cases`: the acceptance cases (taken from public bug reports) against three real servers of the default model.

Starts the default server, one without the prefix cache and one with a tiny KV pool; runs `run_cases.py` of the folder
that holds the cases with all three; stops them. The cases are data beside this repository (CASES=../shared/cases).
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from pathlib import Path

from server_process import ENVIRONMENT, PALMETTE, ROOT, serving

MODEL = "smollm2-135m"
SERVERS = {"default": (), "nocache": ("--no-prefix-cache",), "tinykv": ("--kv-tokens", "1536")}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cases")
    parser.add_argument("--cases", type=Path, default=ROOT.parent / "shared" / "cases", help="folder of run_cases.py")
    given, others = parser.parse_known_args()
    runner = given.cases / "run_cases.py"
    if not runner.exists():
        parser.error(f"{runner} is not there; CASES=FOLDER names the folder that holds it")
    with contextlib.ExitStack() as stack:
        urls = {name: stack.enter_context(serving(options)) for name, options in SERVERS.items()}
        alternatives = [f"--alt={name}={url}" for name, url in urls.items() if name != "default"]
        launch = " ".join(["env", f"PYTHONPATH={ROOT / '.src'}", PALMETTE[0], "-c", f"'{PALMETTE[2]}'"])
        command = [
            *(sys.executable, str(runner), "--base-url", urls["default"], "--model", MODEL),
            *(*alternatives, f"--launch-cmd={launch} serve --port {{port}}", "--dsl-module=palmette"),
        ]
        return subprocess.run([*command, *others], env=ENVIRONMENT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
