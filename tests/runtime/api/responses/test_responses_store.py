"""The store of responses: bounded, counted exactly, and turns are kept for as long as a kept response needs them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.api.responses.output import Status
from palmette.runtime.api.responses.store import ENTRY_BYTES, Kept, ResponseStore, Turn, conversation, turns_up_to
from palmette.runtime.errors import InvalidRequest, ResponseNotFound


class Work:
    """A background response that never ends by itself."""

    size = 7

    def __init__(self) -> None:
        self.stops = 0

    def answer(self) -> bytes:
        return b"{}"

    def stop(self) -> None:
        self.stops += 1


def turn(text: str, previous: Turn | None = None) -> Turn:
    return Turn([{"id": "i", "text": text}], [{"id": "o", "text": text.upper()}], previous)


def kept(name: str, at: Turn, status: Status = "completed", tenant: str = "") -> Kept[Work]:
    running = status in ("queued", "in_progress")
    return Kept(name, tenant, at, status, None if running else b"x" * 50, Work() if running else None)


def test_conversations_survive_the_responses_that_made_them() -> None:
    store: ResponseStore[Work] = ResponseStore()
    first = turn("a")
    store.add(kept("1", first))
    second = turn("b", store.turn_behind("1", ""))
    store.add(kept("2", second))
    store.remove("1", "")
    texts = [item["text"] for item in conversation(turns_up_to(store.turn_behind("2", "")))]
    assert texts == ["a", "A", "b", "B"]
    assert store.bytes == ENTRY_BYTES + 50 + first.size + second.size
    store.remove("2", "")
    assert store.bytes == 0


def test_what_runs_stays_and_nothing_follows_it() -> None:
    store: ResponseStore[Work] = ResponseStore(most=2)
    running = kept("run", turn("a"), "in_progress")
    store.add(running)
    for name in "123":
        store.add(kept(name, turn(name)))
    assert len(store) == 2
    with pytest.raises(InvalidRequest, match="still being made"):
        store.turn_behind("run", "")
    store.settle(running, status="failed", answer=b"{}", turn=turn("a"))
    with pytest.raises(InvalidRequest, match="failed"):
        store.turn_behind("run", "")
    store.remove("run", "")
    assert running.work is not None
    assert running.work.stops == 1
    store.settle(running, status="completed", answer=b"{}", turn=turn("a"))  # its end comes after its deletion
    with pytest.raises(ResponseNotFound):
        store.get("run", "")


def test_others_are_not_found() -> None:
    store: ResponseStore[Work] = ResponseStore()
    store.add(kept("1", turn("a"), tenant="ann"))
    for ask in (store.get, store.turn_behind, store.remove):
        with pytest.raises(ResponseNotFound):
            ask("1", "bob")
    assert store.get("1", "ann").answer() == b"x" * 50


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "run", "end", "remove", "touch"]), st.integers(0, 7), st.integers(0, 400)),
    max_size=40,
)


@settings(max_examples=60)
@given(OPERATIONS)
def test_bytes_are_those_of_what_can_be_reached(operations: list[tuple[str, int, int]]) -> None:
    store: ResponseStore[Work] = ResponseStore(most=4, most_bytes=4 * ENTRY_BYTES + 900)
    alive: dict[str, Kept[Work]] = {}
    for number, (verb, which, size) in enumerate(operations):
        names = list(alive)
        name = names[which % len(names)] if names else ""
        if verb in ("add", "run"):
            previous = alive[name].turn if name and which % 2 else None
            status: Status = "in_progress" if verb == "run" else "completed"
            alive[f"r{number}"] = made = kept(f"r{number}", turn("x" * size, previous), status)
            store.add(made)
        elif verb == "end" and name and alive[name].running:
            whole = Turn(alive[name].turn.input(), [{"id": "o", "text": "y" * size}], alive[name].turn.previous)
            store.settle(alive[name], status="completed", answer=b"z" * size, turn=whole)
        elif verb == "remove" and name:
            store.remove(name, "")
        elif verb == "touch" and name:
            store.get(name, "")
        alive = {each: response for each, response in alive.items() if each in store._kept}
        turns = {at for response in alive.values() for at in turns_up_to(response.turn)}
        assert store.bytes == sum(at.size for at in turns) + sum(response.size for response in alive.values())
        ended = [response for response in alive.values() if not response.running]
        assert not ended or (len(store) <= 4 and store.bytes <= 4 * ENTRY_BYTES + 900)
        for response in alive.values():
            assert response.size == ENTRY_BYTES + len(response.ended or b"") + (7 if response.work else 0)
