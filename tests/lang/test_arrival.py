"""Arrivals: one value, any number of readers in threads and on loops, the first call counts."""

from __future__ import annotations

import asyncio
import threading

import pytest

from palmette.lang.arrival import Arrival


def test_readers_in_threads_get_the_value_and_the_first_call_counts() -> None:
    arrival: Arrival[int] = Arrival()
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(arrival.result())) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert not arrival.done()
    arrival.set_result(1)
    arrival.set_result(2)
    arrival.set_exception(RuntimeError("late"))
    for thread in threads:
        thread.join(5)
    assert got == [1] * 8
    assert arrival.exception() is None


async def test_readers_on_loops_get_it_from_any_thread_and_may_give_up() -> None:
    arrival: Arrival[str] = Arrival()

    async def reader() -> str:
        return await arrival

    gave_up = asyncio.ensure_future(reader())
    others = [asyncio.ensure_future(reader()) for _ in range(3)]
    await asyncio.sleep(0)
    gave_up.cancel()
    elsewhere = asyncio.to_thread(lambda: asyncio.run(reader()))
    threading.Timer(0.02, arrival.set_result, ["there"]).start()
    assert await asyncio.gather(*others, elsewhere) == ["there"] * 4
    assert gave_up.cancelled()
    assert await arrival == "there"


async def test_failures_are_raised_for_everybody() -> None:
    arrival: Arrival[None] = Arrival()
    called: list[bool] = []
    arrival.on_done(lambda: called.append(arrival.done()))
    arrival.set_exception(LookupError("lost"))
    arrival.on_done(lambda: called.append(True))
    assert called == [True, True]
    for _ in range(2):
        with pytest.raises(LookupError):
            arrival.result()
        with pytest.raises(LookupError):
            await arrival


def test_a_loop_that_was_closed_before_the_value_came_is_no_trouble() -> None:
    arrival: Arrival[int] = Arrival()

    async def gives_up() -> None:
        async def reader() -> int:
            return await arrival

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader(), 0.01)

    asyncio.run(gives_up())
    arrival.set_result(3)
    assert arrival.result() == 3


def test_many_values_from_many_threads() -> None:
    for _ in range(200):
        arrival: Arrival[int] = Arrival()
        setters = [threading.Thread(target=arrival.set_result, args=(n,)) for n in range(2)]
        for thread in setters:
            thread.start()
        first = arrival.result()
        for thread in setters:
            thread.join()
        assert arrival.result() == first
