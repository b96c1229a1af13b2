"""The watch over an engine process, with processes that only pretend."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from palmette.runtime.config import EngineConfig
from palmette.runtime.launch import engine_process
from palmette.runtime.launch.engine_process import EngineProcess
from palmette.runtime.link import ZmqLink


class Front:
    """What EngineProcess needs of a frontend; no engine ever gets ready."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, str]] = []

    def expect_engine(self, on_progress: object) -> None: ...

    async def wait_ready(self) -> None:
        await asyncio.Event().wait()

    def engine_lost(self, status: str, detail: str) -> None:
        self.lost.append((status, detail))

    def health(self) -> Any:
        return SimpleNamespace(status="restarting")


async def test_a_machine_without_processes_to_spare_is_tried_again_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    async def no_process(*_: object, **__: object) -> None:
        tries.append(1)
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)
    monkeypatch.setattr(engine_process, "FIRST_PAUSE", 0.001)
    link, front = ZmqLink(str(tmp_path)), Front()
    link.start(lambda replies: None)
    engine = EngineProcess(EngineConfig(), link, front, lambda text: None)  # type: ignore[arg-type]
    gave_up = []
    async with asyncio.timeout(10):
        await engine.keep_up(lambda: gave_up.append(True))
    assert (gave_up, engine.given_up, len(tries)) == ([True], True, engine_process.MOST_RESTARTS)
    assert front.lost[-1][0] == "failed"
    assert "Resource temporarily unavailable" in front.lost[-1][1]
    await link.close()
