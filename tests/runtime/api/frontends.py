"""Frontends for the tests of the api: over a scripted engine, and over the tiny model."""

from __future__ import annotations

from typing import Any

import msgspec
from scripted_link import ScriptedLink

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink
from palmette.runtime.messages.requests import Request, RequestBatch
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.turns import TurnRenderer

_BATCH = msgspec.msgpack.Decoder(RequestBatch)

SAID = "the tokens of a naïve model — 😀 self"


def make_scripted_frontend(text: str = SAID) -> Frontend:
    tokenizer = load_tokenizer(resolve("tiny"))
    link = ScriptedLink(tokenizer.vocabulary, lambda _: tokenizer.encode(text, special=False))
    frontend = Frontend(link, tokenizer, TurnRenderer.of(tokenizer), model="tiny", context_length=256)
    frontend.scripted = link  # type: ignore[attr-defined]  # for the tests to hold it
    return frontend


def tiny_frontend() -> Frontend:
    return model_frontend("tiny", check_invariants=True)


def wide_frontend() -> Frontend:
    """Over the tiny model, with room for long prompts."""
    return model_frontend("tiny", kv_tokens=65_536)


def model_frontend(model: str, threads: int = 1, **options: Any) -> Frontend:
    tokenizer = load_tokenizer(resolve(model))
    core = build_core(EngineConfig(**{"model": model, "threads": threads, "kv_tokens": 4096, **options}))
    template = TurnRenderer.of(tokenizer)
    return Frontend(WireLink(core), tokenizer, template, model=model, context_length=2048)


class WireLink(LocalLink):
    """Requests go through the wire's form, as between processes: what an engine process couldn't read fails here."""

    def send(self, request: Request) -> None:
        (read,) = _BATCH.decode(msgspec.msgpack.encode(RequestBatch((request,)))).requests
        super().send(read)
