from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from palmette.runtime.cli.app import app

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"minLenght": 3}}, "required": ["b"]}


def check(folder: Path, schema: Any, instance: Any = None, *options: str) -> Result:
    files = [folder / "schema.json"]
    files[0].write_text(json.dumps(schema))
    if instance is not None:
        files.append(folder / "instance.json")
        files[1].write_text(json.dumps(instance))
    return CliRunner().invoke(app, ["grammar", "check", *map(str, files), *options])


def test_a_schema_and_its_instances(tmp_path: Path) -> None:
    said = check(tmp_path, SCHEMA)
    assert said.exit_code == 0
    assert "'minLenght' at #/properties/a" in said.output
    said = check(tmp_path, SCHEMA, {"a": 1, "b": 2})
    assert said.exit_code == 0
    assert '{"b": 2, "a": 1}' in said.output
    assert '{"b":2,"a":1}' in check(tmp_path, SCHEMA, {"a": 1, "b": 2}, "--compact").output
    said = check(tmp_path, SCHEMA, {"b": "x"})
    assert said.exit_code == 1
    assert "/b doesn't meet 'type' at #/properties/b" in said.output


def test_what_cannot_be_enforced(tmp_path: Path) -> None:
    schema = {"type": "array", "items": {"type": "number", "multipleOf": 0.5}, "uniqueItems": True}
    said = check(tmp_path, schema)
    assert said.exit_code != 0
    assert "uniqueItems" in said.output
    said = check(tmp_path, schema, None, "--best-effort")
    assert said.exit_code == 0
    assert "checked afterwards" in said.output


def test_a_regex_and_its_second_reader() -> None:
    said = CliRunner().invoke(app, ["grammar", "regex", "[0-9]{4}", "2026"])
    assert said.exit_code == 0
    assert "interegular reads it alike" in said.output
    assert "'2026' matches" in said.output
    said = CliRunner().invoke(app, ["grammar", "regex", "^[0-9]{4}$", "26-"])
    assert said.exit_code == 1
    assert "No second opinion" in said.output
    assert "position 2" in said.output


def test_the_table() -> None:
    said = CliRunner().invoke(app, ["grammar", "keywords"])
    assert "| `oneOf` | rewritten |" in said.output
