"""`palmette run`: a program file, on an engine that starts when the program first needs it, or on a server.

What the program raises is told at its own line. Used by app.py.
"""

from __future__ import annotations

import ast
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from palmette.runtime.cli.backends import ApiKey, Url, engine_or_server, is_of_the_engine_start
from palmette.runtime.cli.errors import guarded, report, settings
from palmette.runtime.errors import PalmetteError
from palmette.runtime.flags import engine_options


@guarded
@engine_options
def run(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A Python file with a program.")],
    args: Annotated[list[str] | None, typer.Argument(help="The program's own arguments (after `--`).")] = None,
    url: Url = None,
    api_key: ApiKey = None,
    *,
    given: dict[str, Any],
) -> None:
    """Run a program file. Its default backend is an engine in this process, started when it is first needed."""
    import runpy

    from palmette.lang.default import set_default_backend
    from palmette.lang.errors import ProgramError, TraceError, UnknownVariable  # have their line already

    with engine_or_server(url, api_key, given, quiet=False) as backend:
        set_default_backend(backend)
        sys.argv = [str(file), *(args or [])]
        sys.path.insert(0, str(file.resolve().parent))
        try:
            if names := _only_defines(file, runpy.run_path(str(file), run_name="__main__")):
                typer.echo(
                    f"{file} defines {', '.join(names)} and runs nothing. Run it at the end of the file:"
                    f" {names[0]}.run(…)",
                    err=True,
                )
        except (ProgramError, TraceError, KeyboardInterrupt, SystemExit):
            raise
        except UnknownVariable as error:
            raise typer.Exit(report(str(error))) from None
        except PalmetteError as error:
            if is_of_the_engine_start(error):  # this command's options, not the program's line
                raise
            raise typer.Exit(report(f"{_last_line_of(error, file)}{error}")) from None
        except Exception as error:
            where = _last_line_of(error, file)
            hint = "" if settings.debug else "\n`palmette --debug run …` shows the traceback."
            raise typer.Exit(report(f"{where}{type(error).__name__}: {error}{hint}")) from None


def _only_defines(file: Path, defined: dict[str, Any]) -> list[str]:
    """The programs and agents of a file that has been run and has nothing in it that runs one."""
    from palmette.lang.agents.agent import Agent
    from palmette.lang.program import Program

    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign)
    names = {name: value for name, value in defined.items() if isinstance(value, Program | Agent)}
    for statement in ast.parse(file.read_bytes()).body:
        text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        made = isinstance(statement, ast.Assign) and all(
            isinstance(target, ast.Name) and target.id in names for target in statement.targets
        )
        calls = any(isinstance(node, ast.Call) for node in ast.walk(statement))
        if not (text or isinstance(statement, definitions)):
            return []
        if isinstance(statement, ast.Assign) and calls and not made:
            return []
    return list(names)


def _last_line_of(error: Exception, file: Path) -> str:
    """`file:line: ` of the program's own innermost line, where the error came through the program or is its syntax."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}: "
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(frame.filename) == str(file.resolve())
    ]
    return f"{file}:{lines[-1]}: " if lines else f"{file}: "
