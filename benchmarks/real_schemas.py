"""Real JSON schemas against our compiler: how many are accepted, why others are not, and whether instances fare right.

    python -m benchmarks.real_schemas --data DIR [--verbose]

DIR holds JSON files, in folders by source (or with names `source---name.json`). A file is a schema, or an object with
`schema` and `tests`, each with `data` and `valid` (as MaskBench has them). Instances are given twice: as the grammar
would write them, and as they stand, which refuses another order of properties, too. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from palmette.runtime.errors import GrammarError, PalmetteError
from palmette.runtime.grammar.compile import ByteSpace
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.schema.compile import build

SPACE = ByteSpace()
OUTSIDE = "outside this schema"


@dataclass
class Tally:
    """Counts of one source. `instances`: of the accepted schemas; `wrong`: as the grammar writes them."""

    schemas: int = 0
    accepted: int = 0
    outside: int = 0  # refer to other documents
    instances: int = 0
    as_given: int = 0  # valid instances that are accepted as they stand
    valid: int = 0
    false_accepts: list[str] = field(default_factory=list)
    false_rejects: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("schemas", "accepted", "outside", "instances", "as_given", "valid"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.false_accepts += other.false_accepts
        self.false_rejects += other.false_rejects
        self.reasons += other.reasons
        self.seconds += other.seconds


def cases(folder: Path) -> Iterator[tuple[str, Path, Any, list[dict[str, Any]]]]:
    """(source, file, schema, tests) of each file."""
    for path in sorted(folder.rglob("*.json")):
        document = json.loads(path.read_text())
        wrapped = isinstance(document, dict) and isinstance(document.get("tests"), list) and "schema" in document
        name = path.name.partition("---")
        source = name[0] if name[1] else path.parent.name
        yield source, path, document["schema"] if wrapped else document, document["tests"] if wrapped else []


def measure(path: Path, schema: Any, tests: list[dict[str, Any]]) -> Tally:
    tally, begun = Tally(schemas=1), time.process_time()
    try:
        grammar = build(GrammarSource(kind="json_schema", text=json.dumps(schema)), SPACE, Limits())
        grammar.accepts("")  # llguidance has read the rules then
    except PalmetteError as error:
        tally.outside = OUTSIDE in error.message
        tally.reasons[plain(error.message)] += 1
        return tally
    tally.accepted = 1
    tally.seconds.append(time.process_time() - begun)
    for test in tests:
        try:
            text = grammar.serialise(test["data"])
            accepted = grammar.accepts(text)
        except (UnicodeEncodeError, GrammarError):
            continue
        tally.instances += 1
        if test["valid"]:
            tally.valid += 1
            tally.as_given += grammar.accepts(json.dumps(test["data"], ensure_ascii=False))
        if accepted != test["valid"]:
            (tally.false_accepts if accepted else tally.false_rejects).append(f"{path}: {text[:200]}")
    return tally


def plain(message: str) -> str:
    """A reason without what is of one schema only."""
    message = re.sub(r"#[^\s,:]*", "#…", message.split(". The pattern")[0])
    message = re.sub(r"'(?:[^']{25,}|[^']*[/:][^']*)'", "'…'", message)
    return re.sub(r"\d[\d,]*", "N", message)[:110]


def table_of(tallies: dict[str, Tally]) -> Table:
    table = Table("source", title="Real schemas")
    columns = ("schemas", "accepted", "share", "but for refs outside", "instances", "false accepts", "false rejects",
               "valid ones as given")  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for source, tally in tallies.items():
        inside = tally.schemas - tally.outside
        table.add_row(
            source,
            f"{tally.schemas:,}",
            f"{tally.accepted:,}",
            _share(tally.accepted, tally.schemas),
            _share(tally.accepted, inside),
            f"{tally.instances:,}",
            str(len(tally.false_accepts)),
            str(len(tally.false_rejects)),
            _share(tally.as_given, tally.valid),
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JSON files")
    parser.add_argument("--verbose", action="store_true", help="all reasons, and every wrong instance")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    tallies: dict[str, Tally] = {}
    total = Tally()
    for source, path, schema, tests in cases(args.data):
        tally = measure(path, schema, tests)
        tallies.setdefault(source, Tally()).add(tally)
        total.add(tally)
    console = Console(width=140, soft_wrap=True)
    console.print(table_of({**tallies, "all": total}))
    for reason, count in total.reasons.most_common(None if args.verbose else 25):
        console.print(f"{count:6} × {reason}", markup=False, highlight=False)
    if total.seconds:
        ordered = sorted(total.seconds)
        shown = " ".join(
            f"p{p} {1_000 * ordered[min(len(ordered) * p // 100, len(ordered) - 1)]:.1f}" for p in (50, 90, 99)
        )
        console.print(f"compile, ms of CPU: {shown} max {1_000 * ordered[-1]:.0f}", markup=False, highlight=False)
    for kind, wrong in (("false accept", total.false_accepts), ("false reject", total.false_rejects)):
        for each in wrong if args.verbose else wrong[:20]:
            console.print(f"{kind}: {each}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
