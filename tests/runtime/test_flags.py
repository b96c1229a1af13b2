"""The engine's options on the command line: every field of the config has one, with help, and None where not given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from palmette.runtime.config import EngineConfig
from palmette.runtime.flags import HELP, engine_options, options

FIELDS = [field.name for field in msgspec.structs.fields(EngineConfig)]


def parse(*arguments: str) -> dict[str, Any]:
    """What a command gets for `arguments`."""
    seen: dict[str, Any] = {}

    @engine_options
    def command(word: str, *, given: dict[str, Any]) -> None:
        seen.update(given)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["word", *arguments])
    if result.exit_code:
        raise ValueError(result.output)
    return seen


def test_every_field_has_an_option_and_a_help_text() -> None:
    assert [option.name for option in options()] == FIELDS
    assert list(HELP) == FIELDS


def test_what_is_not_given_is_left_to_the_config() -> None:
    assert parse() == {}


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--model", "tiny"], "model", "tiny"),
        (["-m", "tiny"], "model", "tiny"),
        (["--page-size", "1"], "page_size", 1),
        (["--kv-tokens", "4096"], "kv_tokens", 4096),
        (["--policy", "first_come"], "policy", "first_come"),
        (["--dtype", "float32"], "dtype", "float32"),
        (["--no-prefix-cache"], "prefix_cache", False),
        (["--check-invariants"], "check_invariants", True),
    ],
)
def test_given_options_are_the_configs_values(arguments: list[str], field: str, value: object) -> None:
    given = parse(*arguments)
    assert given == {field: value}
    assert msgspec.convert(msgspec.to_builtins(EngineConfig(**given)), EngineConfig) == EngineConfig(**given)


def test_a_word_that_is_not_of_the_set_is_refused() -> None:
    with pytest.raises(ValueError, match="longest_prefix"):
        parse("--policy", "best")
