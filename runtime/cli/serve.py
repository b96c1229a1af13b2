"""`palmette serve`: a model over HTTP, and what is said when it is ready. Used by app.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palmette.runtime.cli.errors import guarded
from palmette.runtime.cli.models import fetch_model
from palmette.runtime.config import EngineConfig
from palmette.runtime.flags import engine_options

if TYPE_CHECKING:
    from palmette.runtime.launch import Serving

PORT = 30000


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
