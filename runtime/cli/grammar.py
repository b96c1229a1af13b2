"""`palmette grammar`: whether a JSON schema or a regex can be enforced, and what meets it; the keyword table."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from palmette.runtime.cli.errors import guarded
from palmette.runtime.errors import InvalidRequest

commands = typer.Typer(help="Check grammars for structured generation.", no_args_is_help=True)


@commands.command()
@guarded
def check(
    schema: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A file with a JSON schema.")],
    instance: Annotated[
        Path | None, typer.Argument(exists=True, dir_okay=False, help="A file with a value in JSON to check.")
    ] = None,
    best_effort: Annotated[
        bool, typer.Option("--best-effort", help="Take what can't be enforced too, and say what that is.")
    ] = False,
    compact: Annotated[bool, typer.Option("--compact", help="No spaces after commas and colons.")] = False,
    formats: Annotated[bool, typer.Option(help="Enforce the known formats.")] = True,
) -> None:
    """Whether every keyword of a schema can be enforced; with an instance, whether it would be generated as it is."""
    from palmette.runtime.grammar.compile import compile
    from palmette.runtime.grammar.schema.compile import SchemaGrammar

    start = time.perf_counter()
    grammar = compile("json_schema", _read(schema), best_effort=best_effort, compact=compact, formats=formats)
    assert isinstance(grammar, SchemaGrammar)
    milliseconds = (time.perf_counter() - start) * 1000
    rules = grammar.lark.count("\n")
    typer.echo(f"{schema}: can be generated ({rules:,} rules, {milliseconds:.1f} ms).")
    for approximated in grammar.approximated:
        typer.echo(f"  Not enforced, checked afterwards: {approximated}")
    for path, keyword in list(grammar.document.ignored.items())[:20]:
        typer.echo(f"  Says nothing about a value: {keyword!r} at #{path}")
    if instance is None:
        return
    try:
        value = json.loads(_read(instance))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{instance} is not JSON: {error}.") from None
    fault = grammar.validate(value)
    if fault is not None:
        where = fault.instance_path or "the value"
        typer.echo(f"{instance}: not valid: {where} doesn't meet {fault.keyword!r} at {fault.schema_path}.")
        raise typer.Exit(1)
    text = grammar.serialise(value)
    typer.echo(f"{instance}: valid; it would be generated as")
    typer.echo(f"  {text}")
    explained = grammar.explain(text)
    if not explained.matches:  # never, unless there is a fault in the compiler
        raise InvalidRequest(f"The grammar doesn't take it: {explained.message}")


@commands.command()
@guarded
def regex(
    pattern: Annotated[str, typer.Argument(help="A regular expression, read as Python's re reads it.")],
    text: Annotated[str | None, typer.Argument(help="A text to try.")] = None,
) -> None:
    """What a regular expression compiles to, whether a second reader agrees, and where a text fails."""
    from palmette.runtime.grammar.automaton.grammar import AutomatonGrammar
    from palmette.runtime.grammar.compile import compile
    from palmette.runtime.grammar.regex.second_opinion import second_opinion

    start = time.perf_counter()
    grammar = compile("regex", pattern)
    milliseconds = (time.perf_counter() - start) * 1000
    states = f"{grammar.automaton.states:,} states" if isinstance(grammar, AutomatonGrammar) else "llguidance"
    typer.echo(f"{pattern}: can be generated ({states}, {milliseconds:.1f} ms).")
    opinion = second_opinion(pattern)
    if opinion.agrees is None:
        typer.echo(f"  No second opinion: {opinion.why}.")
    elif opinion.agrees:
        typer.echo("  interegular reads it alike: both automata take the same texts.")
    else:
        typer.echo(f"  interegular reads it otherwise: only one of both takes {opinion.text!r}.")
    if text is not None:
        explained = grammar.explain(text)
        typer.echo(f"  {text!r} matches." if explained.matches else f"  {text!r}: {explained.message}")
        if not explained.matches:
            raise typer.Exit(1)


@commands.command()
@guarded
def keywords() -> None:
    """What becomes of each keyword of JSON Schema, as a Markdown table."""
    from palmette.runtime.grammar.schema.keywords import table

    typer.echo(table())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path} is not a text in UTF-8.") from None
