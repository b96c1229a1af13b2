"""`palmette generate` and `palmette chat`: text from a model in a terminal (terminal.py). Used by app.py."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palmette.runtime.cli.backends import ApiKey, Url, engine_or_server
from palmette.runtime.cli.errors import INTERRUPTED, guarded
from palmette.runtime.flags import engine_options

if TYPE_CHECKING:
    from palmette.runtime.messages.sampling import SamplingParams

MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="Tokens to generate at most.")]
Temperature = Annotated[float, typer.Option("--temperature", "-t", min=0, help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", help="Sample from the likeliest tokens that add up to this.")]
Seed = Annotated[int | None, typer.Option("--seed", help="The same seed gives the same text.")]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="Stop before this text (may be given several times).")]


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
    with engine_or_server(url, api_key, given) as backend, Conversation(backend) as conversation:
        complete = conversation.ask(text, params) if as_chat else conversation.continue_(text, params)
        typer.echo()
    if not complete:
        raise typer.Exit(INTERRUPTED)


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
    with engine_or_server(url, api_key, given) as backend, Conversation(backend) as conversation:
        converse(conversation, params, system)


def _params(
    max_tokens: int, temperature: float, top_p: float, seed: int | None, stop: list[str] | None
) -> SamplingParams:
    from palmette.runtime.messages.sampling import SamplingParams

    return SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed, stop=tuple(stop or ())
    ).check()
