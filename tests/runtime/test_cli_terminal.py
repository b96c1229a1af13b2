"""A conversation in a terminal: turns, what an interrupt keeps, and an engine that starts when it is needed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest

import palmette as sgl
from palmette.runtime.cli.terminal import Conversation, EngineOnDemand
from palmette.runtime.errors import EngineDied, InvalidRequest
from palmette.runtime.messages.sampling import SamplingParams

PARAMS = SamplingParams(max_tokens=64)


def said(backend: sgl.ScriptedBackend) -> list[str]:
    return [what for verb, what in backend.calls if verb == "close"]


def test_turns_are_kept_and_closed() -> None:
    shown: list[str] = []
    backend = sgl.ScriptedBackend(["Hi.", "Fine."])
    with Conversation(backend, shown.append) as conversation:
        conversation.say("system", "Be kind.")
        assert conversation.ask("Hello", PARAMS)
        assert conversation.ask("How are you?", PARAMS)
    assert "".join(shown) == "Hi.Fine."
    assert said(backend) == [
        b"<system>Be kind.</system><user>Hello</user><assistant>Hi.</assistant>"
        b"<user>How are you?</user><assistant>Fine."
    ]
    assert backend.open_branches == 0


def test_an_interrupt_ends_the_reply_and_the_next_turn_goes_on() -> None:
    async def answer(prompt: str) -> str:
        if "slow" in prompt:  # by now the conversation waits for it, and nothing else is interrupted
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            await asyncio.sleep(60)
        return "done"

    shown: list[str] = []
    backend = sgl.ScriptedBackend(answer)
    with Conversation(backend, shown.append) as conversation:
        start = time.monotonic()
        assert not conversation.ask("slow", PARAMS)
        assert time.monotonic() - start < 10
        assert conversation.ask("again", PARAMS)
    assert "".join(shown) == "done"
    assert said(backend) == [b"<user>again</user><assistant>done"], "a turn without a reply is taken back"


def test_a_failed_turn_leaves_the_conversation_usable() -> None:
    def answer(prompt: str) -> str:
        if prompt.endswith("<user>bad</user><assistant>"):
            raise InvalidRequest("No.")
        return "ok"

    shown: list[str] = []
    backend = sgl.ScriptedBackend(answer)
    with Conversation(backend, shown.append) as conversation:
        with pytest.raises(InvalidRequest):
            conversation.ask("bad", PARAMS)
        assert conversation.ask("good", PARAMS)
    assert "".join(shown) == "ok"
    assert said(backend) == [b"<user>good</user><assistant>ok"]


def test_a_conversation_ends_quietly_when_its_server_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(branch: object) -> None:
        raise EngineDied("The server did not answer.")

    with Conversation(sgl.ScriptedBackend(["Hi.", "Hi again."]), lambda text: None) as conversation:
        assert conversation.ask("Hello", PARAMS)
        monkeypatch.setattr(type(conversation._branch), "close", gone)
        conversation.reset()
        assert conversation.ask("Hello", PARAMS)


def test_the_engine_starts_at_its_first_use_only() -> None:
    started: list[Any] = []

    def start() -> sgl.Engine:
        started.append(sgl.Engine(model="tiny", kv_tokens=2048, threads=1))
        return started[0]

    backend = EngineOnDemand(start)
    sgl.set_default_backend(backend)
    assert started == []

    @sgl.function
    def program(s):
        s += "a" + sgl.gen("x", max_tokens=2, ignore_eos=True)

    assert len(program.run().get_meta_info("x")) > 0
    assert len(program.run().get_meta_info("x")) > 0
    assert len(started) == 1
    backend.stop()
    assert started[0].loop.is_closed()
