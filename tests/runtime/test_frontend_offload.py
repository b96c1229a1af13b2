"""The bounded pool beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from palmette.runtime.errors import Overloaded
from palmette.runtime.frontend.offload import Offload


async def test_work_runs_beside_the_loop_and_no_more_than_can_be_held() -> None:
    offload = Offload(threads=1, most=2)
    go = threading.Event()
    held = [asyncio.ensure_future(offload.run(go.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="at most 2"):
        await offload.run(lambda: 1)
    held[1].cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go.set()
    assert await held[0]
    assert await offload.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await offload.run(lambda: 1 // 0)
    offload.close()
