"""The `palmette` command: run a program, serve, chat, generate, and look after models.

One of the few modules that know every part; it imports them only when a command needs them, so that help is quick.
Errors are one paragraph on stderr. Exit codes: 0, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palmette.runtime.cli.bench import bench
from palmette.runtime.cli.doctor import doctor
from palmette.runtime.cli.errors import INTERRUPTED, guarded, report, settings
from palmette.runtime.cli.grammar import commands as grammar
from palmette.runtime.cli.models import commands as models
from palmette.runtime.cli.models import fetch_model
from palmette.runtime.cli.roofline import roofline
from palmette.runtime.cli.simulate import simulate
from palmette.runtime.cli.trace import trace
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import InvalidRequest, PalmetteError
from palmette.runtime.flags import engine_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from palmette.lang.backends.base import Backend
    from palmette.runtime.launch import Serving
    from palmette.runtime.messages.sampling import SamplingParams

PORT = 30000

app = typer.Typer(
    name="palmette",
    help="A radix-tree structured generation runtime for multi-call agent programs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(models, name="models")
app.add_typer(grammar, name="grammar")


Url = Annotated[
    str | None,
    typer.Option("--url", help="Use the server at this address instead of an engine in this process."),
]
ApiKey = Annotated[str | None, typer.Option("--api-key", help="The server's key.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Tokens to generate at most.")]
Temperature = Annotated[float, typer.Option("--temperature", "-t", min=0, help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", help="Sample from the likeliest tokens that add up to this.")]
Seed = Annotated[int | None, typer.Option("--seed", help="The same seed gives the same text.")]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="Stop before this text (may be given several times).")]


def main() -> None:
    """The entry point of the `palmette` console script."""
    app(prog_name="palmette")


def print_version(wanted: bool) -> None:
    if wanted:
        import palmette

        typer.echo(f"palmette {palmette.__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=print_version),
    ] = False,
) -> None:
    settings.debug = debug


# Commands


@app.command()
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

    with _backend(url, api_key, given, quiet=False) as backend:
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
            if _is_of_the_engine_start(error):  # this command's options, not the program's line
                raise
            raise typer.Exit(report(f"{_last_line_of(error, file)}{error}")) from None
        except Exception as error:
            where = _last_line_of(error, file)
            hint = "" if settings.debug else "\n`palmette --debug run …` shows the traceback."
            raise typer.Exit(report(f"{where}{type(error).__name__}: {error}{hint}")) from None


@app.command()
@guarded
@engine_options
def serve(
    host: Annotated[str, typer.Option("--host", help="The address to listen on; 0.0.0.0 for every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="The port to listen on.")] = PORT,
    api_key: Annotated[
        list[str] | None,
        typer.Option("--api-key", help="Clients must send it; repeat it for several, whose cached pages stay apart."),
    ] = None,
    admin_key: Annotated[
        str | None, typer.Option("--admin-key", help="Needed to flush or look into the cache, or to abort everything.")
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option("--served-model-name", help="What clients call the model; repeat it for several names."),
    ] = None,
    uds: Annotated[Path | None, typer.Option("--uds", help="Listen on this socket file instead of a port.")] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Write what is asked to this new file, without text, for `palmette simulate`."),
    ] = None,
    lenient: Annotated[
        bool,
        typer.Option(
            "--lenient", help="Leave out fields that are unknown or not supported, instead of refusing the request."
        ),
    ] = False,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Show each request's body; without it no prompt is in the log.")
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin", help="Let web pages of this origin call; repeat it for several. (default: none)"
        ),
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option("--max-body-bytes", min=1024, help="The longest body. (default: 16 MiB)")
    ] = None,
    max_open_requests: Annotated[
        int | None, typer.Option("--max-open-requests", min=1, help="Requests at a time. (default: 4096)")
    ] = None,
    max_queued_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-queued-tokens", min=1, help="Prompt tokens that wait for a first answer. (default: 4,000,000)"
        ),
    ] = None,
    max_connections: Annotated[
        int | None,
        typer.Option("--max-connections", min=1, help="Connections at a time. (default: 8192, or what files allow)"),
    ] = None,
    head_seconds: Annotated[
        float | None, typer.Option("--head-seconds", min=0.1, help="For a request's head to come. (default: 20)")
    ] = None,
    body_seconds: Annotated[
        float | None, typer.Option("--body-seconds", min=0.1, help="Without a byte of a body. (default: 60)")
    ] = None,
    send_seconds: Annotated[
        float | None,
        typer.Option("--send-seconds", min=0.1, help="Before a reader that takes nothing is dropped. (default: 60)"),
    ] = None,
    keep_alive_seconds: Annotated[
        float | None,
        typer.Option("--keep-alive-seconds", min=1, help="A connection stays without a request. (default: 75)"),
    ] = None,
    drain_seconds: Annotated[
        float, typer.Option("--drain-seconds", min=0, help="What runs may take so long when the server is stopped.")
    ] = 30.0,
    *,
    given: dict[str, Any],
) -> None:
    """Serve a model over HTTP, as OpenAI's clients speak it and to programs elsewhere."""
    from palmette.runtime import launch
    from palmette.runtime.api.access import Keys
    from palmette.runtime.api.app import ApiOptions
    from palmette.runtime.api.limits import Limits

    config = EngineConfig(**given)
    bounds = {
        "body_bytes": max_body_bytes,
        "open_requests": max_open_requests,
        "queued_tokens": max_queued_tokens,
        "connections": max_connections,
        "head_seconds": head_seconds,
        "body_seconds": body_seconds,
        "send_seconds": send_seconds,
        "keep_alive_seconds": keep_alive_seconds,
    }
    given_bounds: dict[str, Any] = {name: value for name, value in bounds.items() if value is not None}
    options = ApiOptions(
        lenient=lenient,
        log_requests=log_requests,
        origins=tuple(allow_origin or ()),
        limits=Limits(**given_bounds),
    )
    keys = Keys(tuple(api_key or ()), admin_key)
    fetch_model(config.model)
    code = launch.serve(
        config,
        host,
        port,
        keys=keys,
        names=tuple(served_model_name or ()),
        uds=uds,
        record=record,
        drain_seconds=drain_seconds,
        options=options,
        on_progress=lambda text: typer.echo(text, err=True),
        on_ready=lambda serving: _banner(serving, keyed=bool(api_key)),
    )
    if code:
        raise typer.Exit(code)


@app.command()
@guarded
@engine_options
def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads it from standard input.")],
    as_chat: Annotated[bool, typer.Option("--chat", help="Send it as a user's message, through the template.")] = False,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.7,
    top_p: TopP = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    url: Url = None,
    api_key: ApiKey = None,
    *,
    given: dict[str, Any],
) -> None:
    """Continue a prompt; the text is printed as it comes."""
    from palmette.runtime.cli.terminal import Conversation

    text = sys.stdin.read() if prompt == "-" else prompt
    params = _params(max_tokens, temperature, top_p, seed, stop)
    with _backend(url, api_key, given) as backend, Conversation(backend) as conversation:
        complete = conversation.ask(text, params) if as_chat else conversation.continue_(text, params)
        typer.echo()
    if not complete:
        raise typer.Exit(INTERRUPTED)


@app.command()
@guarded
@engine_options
def chat(
    system: Annotated[str | None, typer.Option("--system", help="A system message.")] = None,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.7,
    top_p: TopP = 0.95,
    seed: Seed = None,
    url: Url = None,
    api_key: ApiKey = None,
    *,
    given: dict[str, Any],
) -> None:
    """Talk to a model. Ctrl-C ends a reply and keeps what was said; /exit, or the end of input, ends the chat."""
    from palmette.runtime.cli.terminal import Conversation, converse

    params = _params(max_tokens, temperature, top_p, seed, None)
    with _backend(url, api_key, given) as backend, Conversation(backend) as conversation:
        converse(conversation, params, system)


for measuring in (bench, doctor, roofline, simulate, trace):
    app.command()(measuring)


# Shared by commands


@contextmanager
def _backend(url: str | None, api_key: str | None, given: dict[str, Any], *, quiet: bool = True) -> Iterator[Backend]:
    """The server at `url`, or an engine of this process that starts when it is first needed."""
    if url is not None:
        if given:
            raise InvalidRequest(
                f"--{min(given).replace('_', '-')} is an option of an engine, and --url names a running server.",
                hint="Give one or the other.",
                param=min(given),
            )
        from palmette.lang.backends.http import RuntimeEndpoint

        yield RuntimeEndpoint(url, api_key)
        return
    if api_key is not None:
        raise InvalidRequest("--api-key needs --url: an engine in this process has no key.", param="api_key")
    from palmette.runtime.cli.terminal import EngineOnDemand

    backend = EngineOnDemand(lambda: _start_engine(EngineConfig(**given)))
    if quiet:
        backend.start()
    try:
        yield backend
    finally:
        with _no_second_interrupt():
            backend.stop()


def _start_engine(config: EngineConfig) -> Any:
    """An engine, with what it is doing on stderr (a terminal only)."""
    fetch_model(config.model)
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"Loading {config.model} …") if console.is_terminal else _nothing():
        from palmette.runtime.engine import Engine

        return Engine(config)


def _params(
    max_tokens: int, temperature: float, top_p: float, seed: int | None, stop: list[str] | None
) -> SamplingParams:
    from palmette.runtime.messages.sampling import SamplingParams

    return SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=tuple(stop or ())
    ).check()


def _banner(serving: Serving, *, keyed: bool) -> None:
    from rich.console import Console

    address, ready = serving.url, serving.engine
    key = ' \\\n    -H "Authorization: Bearer $KEY"' if keyed else ""
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"\n  [bold]Palmette[/bold] serves [bold]{ready.model}[/bold] at [bold green]{address}[/bold green]\n"
    )
    console.print(f"  {ready.threads} threads, {ready.kernels} kernels", end="")
    console.print(f"; loaded in {ready.load_seconds:.1f} s")
    console.print(f"  KV pool: {ready.kv_tokens:,} tokens of {ready.kv_dtype} in pages of {ready.page_size}", end="")
    console.print(f"; context {ready.context_length:,} tokens\n")
    console.print("  Try:\n")
    typer.echo(
        f"  curl {_reached(address)}/v1/chat/completions{key} \\\n"
        '    -H "Content-Type: application/json" \\\n'
        '    -d \'{"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32}\'\n'
    )
    console.print("  Ctrl-C stops it once what runs has ended, within 30 s; a second one at once.\n")


def _reached(address: str) -> str:
    """What follows curl to reach a server."""
    kind, _, path = address.partition(":")
    return f"--unix-socket {path} http://localhost" if kind == "unix" else address


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


def _is_of_the_engine_start(error: Exception) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code is _start_engine.__code__ for frame in frames)


@contextmanager
def _no_second_interrupt() -> Iterator[None]:
    """A second Ctrl-C while the engine stops would leave its thread behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
