"""`make schemathesis`: random requests made from the server's OpenAPI document: no 5xx, no hang, and every answer is as
the document says. Schemathesis lives in an environment of its own; the server is a real one over the tiny model.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import httpx
from server_process import ROOT, serving

PROGRAM = ROOT / ".venvs" / "schemathesis" / "bin" / "schemathesis"
SERVER = ("--model", "tiny", "--context-length", "256", "--kv-tokens", "16384")  # short outputs: no time goes into them
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
TIMEOUT_SECONDS = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="make schemathesis")
    parser.add_argument("--examples", type=int, default=50, help="requests an operation, of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    given, others = parser.parse_known_args()
    if not PROGRAM.exists():
        parser.error(f"{Path(PROGRAM).relative_to(ROOT)} is not there; `make schemathesis` installs it")
    with serving(SERVER) as url:
        command = [
            *(str(PROGRAM), "run", f"{url}/openapi.json", "--checks", CHECKS),
            *("--max-examples", str(given.examples), "--seed", str(given.seed), "--workers", str(given.workers)),
            *("--request-timeout", str(TIMEOUT_SECONDS), "--suppress-health-check", "all", "--continue-on-failure"),
            *("--warnings", "off"),
        ]
        code = subprocess.run([*command, *others], check=False).returncode
        health = httpx.get(f"{url}/health", timeout=30).json()
    print(f"health at the end: {health}")
    return code or (health["status"] != "ok") or bool(health["engine_restarts"])


if __name__ == "__main__":
    sys.exit(main())
