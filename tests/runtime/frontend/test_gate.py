"""Programs under way: as many as there is room for, always at least one, each in its turn."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.frontend.programs.gate import FULL, PASSED, Claim, Gate
from palmette.runtime.frontend.programs.opening import Opening
from palmette.runtime.frontend.programs.size import Size

POOL = 1000


def opened(pool: int = POOL) -> Gate:
    gate = Gate()
    gate.open(pool, 1)
    return gate


def claim(tokens: int, opening: str = "", tenant: str = "", priority: int = 0) -> Claim:
    return Claim(Size(0, tokens), Opening(opening), tenant, priority)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_before_an_engine_is_known_and_where_all_fit_nobody_waits() -> None:
    async def run() -> None:
        gate = Gate()
        for _ in range(10):
            await gate.enter(claim(10_000))
        gate = opened()
        for _ in range(9):
            await asyncio.wait_for(gate.enter(claim(100)), 1)
        assert len(gate) == 9

    asyncio.run(run())


def test_the_next_enters_when_one_leaves_and_one_too_large_for_the_pool_enters_alone() -> None:
    async def run() -> None:
        gate, first = opened(), claim(5000)
        await gate.enter(first)
        second = asyncio.ensure_future(gate.enter(claim(800)))
        await settle()
        assert not second.done()
        gate.leave(first)
        await settle()
        assert second.done()
        assert len(gate) == 1

    asyncio.run(run())


def test_who_stops_waiting_is_forgotten_and_leaving_twice_is_nothing() -> None:
    async def run() -> None:
        gate, first, gone, third = opened(), claim(900), claim(900), claim(900)
        await gate.enter(first)
        waits = asyncio.ensure_future(gate.enter(gone))
        last = asyncio.ensure_future(gate.enter(third))
        await settle()
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        gate.leave(gone)
        gate.leave(first)
        gate.leave(first)
        await settle()
        assert last.done()

    asyncio.run(run())


async def entered_after(gate: Gate, first: Claim, others: list[Claim]) -> list[Claim]:
    """The order in which `others` enter, one at a time, each when the one before has left."""
    order: list[Claim] = []

    async def go(each: Claim) -> None:
        await gate.enter(each)
        order.append(each)

    await gate.enter(first)
    tasks = [asyncio.ensure_future(go(each)) for each in others]
    await settle()
    gate.leave(first)
    for number in range(len(others)):
        await settle()
        assert len(order) == number + 1, "one at a time"
        gate.leave(order[-1])
    await asyncio.gather(*tasks)
    return order


def test_higher_priorities_first_then_tenants_with_less_under_way_then_arrival() -> None:
    low, high, other = claim(900), claim(900, priority=1), claim(900, tenant="b")
    order = asyncio.run(entered_after(opened(), claim(900), [low, other, high]))
    assert order == [high, low, other]


def test_a_tenant_with_many_programs_does_not_keep_another_waiting() -> None:
    async def run() -> None:
        gate = opened()
        crowd = [claim(400, tenant="a") for _ in range(10)]
        waits = [asyncio.ensure_future(gate.enter(each)) for each in crowd]
        alone = asyncio.ensure_future(gate.enter(claim(400, tenant="b")))
        await settle()
        assert not alone.done()
        gate.leave(crowd[0])
        await settle()
        assert alone.done()
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    asyncio.run(run())


def test_those_that_begin_alike_go_together_but_the_first_is_passed_over_so_often_only() -> None:
    first = claim(700, opening="x" * 400)
    odd = claim(900, opening="y" * 400)
    alikes = [claim(900, opening="x" * 400 + str(number)) for number in range(PASSED + 5)]

    async def run() -> list[Claim]:
        gate = opened()
        keeper = claim(10, opening="x" * 400)  # stays, and begins as they do
        await gate.enter(keeper)
        return await entered_after(gate, first, [odd, *alikes])

    order = asyncio.run(run())
    assert order.index(odd) == PASSED


def test_programs_that_outgrow_the_pool_stop_but_for_the_first() -> None:
    async def run() -> None:
        gate, first, second = opened(), claim(500), claim(500)
        await gate.enter(first)
        await gate.enter(second)
        for each in (first, second):
            await gate.proceed(each, 100)
            gate.ended(each, 100, 440)
        assert not gate.stops(first, 300)
        assert gate.stops(second, 300)
        await gate.proceed(first, 300)
        waits = asyncio.ensure_future(gate.proceed(second, 300))
        await settle()
        assert not waits.done()
        assert second.paused
        gate.ended(first, 300, 740)
        gate.leave(first)
        await settle()
        assert waits.done()
        assert second.flying == 300

    asyncio.run(run())


def test_what_is_held_for_very_long_waits_is_given_to_others() -> None:
    async def run() -> None:
        gate, first, second = opened(), claim(800), claim(800)
        await gate.enter(first)
        gate.prefilled(100, 0.1)
        assert gate.patience == pytest.approx(FULL * POOL / 1000)
        waits = asyncio.ensure_future(gate.enter(second))
        await settle()
        assert not waits.done()
        gate.holds(first, 700, away=True)
        await settle()
        assert waits.done()
        gate.holds(first, 700)
        assert not gate.stops(first, 500)  # it goes on as it would without a gate

    asyncio.run(run())


def test_an_idle_moment_lets_one_in_at_a_time() -> None:
    async def run() -> None:
        gate, first = opened(), claim(900)
        await gate.enter(first)
        gate.holds(first, 800)
        crowd = [claim(800) for _ in range(20)]
        waits = [asyncio.ensure_future(gate.enter(each)) for each in crowd]
        await settle()
        gate.holds(first, 800, away=True)
        await settle()
        assert len(gate) == 2
        await asyncio.wait_for(gate.proceed(crowd[0], 700), 1)
        gate.holds(first, 800)
        await settle()
        assert len(gate) == 2, "one computes"
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    asyncio.run(run())


def test_a_program_that_may_outgrow_the_pool_leaves_room_for_small_ones() -> None:
    async def run() -> None:
        gate, endless = opened(), claim(1_000_000)
        await gate.enter(endless)
        gate.holds(endless, 50)
        await asyncio.wait_for(gate.enter(claim(100)), 1)

    asyncio.run(run())


def test_openings_are_compared_only_when_a_program_has_come_or_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Claim] = []
    alike = Gate._alike

    def counted(gate: Gate, one: Claim) -> int:
        looked.append(one)
        return alike(gate, one)

    async def run() -> None:
        gate, first = opened(), claim(900)
        await gate.enter(first)
        waits = [asyncio.ensure_future(gate.enter(claim(800))) for _ in range(20)]
        await settle()
        gate.holds(first, 100)
        looked.clear()
        for held in range(100, 150):
            gate.holds(first, held)
        assert len(looked) <= 50, "that of the next one each time, not those of all"
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    monkeypatch.setattr(Gate, "_alike", counted)
    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 4), st.booleans()), min_size=1, max_size=12))
def test_random_programs_all_come_to_their_end(shapes: list[tuple[int, int, bool]]) -> None:
    """Of any sizes, cancelled or not, larger or smaller than they said: none waits for ever, and nothing is left."""

    async def program(gate: Gate, said: int, verbs: int, grows: bool) -> None:
        own, held = claim(said, opening="p" * (said % 7)), 0
        try:
            await gate.enter(own)
            for _ in range(verbs):
                await gate.proceed(own, said // verbs)
                try:
                    await asyncio.sleep(0)
                    held += said // verbs * (2 if grows else 1)
                finally:
                    gate.ended(own, said // verbs, held)
        finally:
            gate.leave(own)

    async def run() -> None:
        gate = opened()
        tasks = [asyncio.ensure_future(program(gate, *shape)) for shape in shapes]
        await settle()
        for task, (said, _, _) in zip(tasks, shapes, strict=True):
            if said % 5 == 0:
                task.cancel()
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in ended)
        assert len(gate) == 0
        assert gate._counted == pytest.approx(0, abs=1e-6)
        assert not gate._waiting
        assert not gate._stopped
        assert not gate._sorted

    asyncio.run(run())
