"""The benchmark of real schemas on three files: what it counts, and what it calls wrong."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.real_schemas import Tally, cases, measure


def test_files_are_counted(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}}
    tests = [
        {"valid": True, "data": {"b": None, "a": 1}},  # not in the schema's order
        {"valid": False, "data": {"a": "x"}},
        {"valid": True, "data": {"a": "wrongly said to be valid"}},
    ]
    (tmp_path / "mine---one.json").write_text(json.dumps({"schema": schema, "tests": tests}))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "two.json").write_text(json.dumps({"$ref": "other.json"}))
    (tmp_path / "tools" / "three.json").write_text(json.dumps({"type": "null"}))
    tallies: dict[str, Tally] = {}
    for source, path, given, instances in cases(tmp_path):
        tallies.setdefault(source, Tally()).add(measure(path, given, instances))
    mine, tools = tallies["mine"], tallies["tools"]
    assert (mine.schemas, mine.accepted, mine.instances, mine.valid, mine.as_given) == (1, 1, 3, 2, 0)
    assert (len(mine.false_rejects), len(mine.false_accepts)) == (1, 0)
    assert (tools.schemas, tools.accepted, tools.outside, sum(tools.reasons.values())) == (2, 1, 1, 1)
