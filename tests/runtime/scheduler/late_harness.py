"""An engine core that overlaps, on a worker that answers one step late and watches what happens to its pages.

A late worker does nothing until it is waited for: by then the next step has been planned, handed over, and all that
was to be freed or reused in the meantime has been. So whatever lets go of a page too early shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from hash_harness import HashHarness

from palmette.runtime.messages.tokens import unpack
from palmette.runtime.plan import StepPlan
from palmette.runtime.scheduler.overlap import OverlappingCore

T = TypeVar("T")


class Late(Generic[T]):
    """A call that is made when somebody waits for it, after all that were handed over before."""

    def __init__(self, queue: deque[Late[Any]], call: Callable[[], T]) -> None:
        self._queue = queue
        self._call = call
        self._answer: T | None = None
        self._problem: Exception | None = None
        queue.append(self)

    def exception(self) -> Exception | None:
        while self in self._queue:
            self._queue.popleft()._make()
        return self._problem

    def result(self) -> T:
        problem = self.exception()
        if problem is not None:
            raise problem
        return self._answer  # type: ignore[return-value]

    def _make(self) -> None:
        try:
            self._answer = self._call()
        except Exception as problem:
            self._problem = problem


class LateThread:
    """Steps that were handed over and are not finished name pages, which nobody may free or hand out meanwhile."""

    def __init__(self) -> None:
        self._queue: deque[Late[Any]] = deque()
        self._tables: dict[int, dict[int, int]] = {}
        self._named: dict[int, set[int]] = {}  # by step
        self._ran: set[int] = set()
        self.most = 0  # steps in flight at once
        self.early: list[str] = []
        self.page_size = 0

    def submit(self, call: Callable[..., T], /, *args: Any) -> Late[T]:
        plan = next((each for each in args if isinstance(each, StepPlan)), None)
        if plan is None:
            return Late(self._queue, partial(call, *args))
        self._named[plan.step] = self._names(plan)
        self.most = max(self.most, len(self._named))

        def forward() -> T:
            self._ran.add(plan.step)
            return call(*args)

        return Late(self._queue, forward)

    def watch(self, harness: HashHarness) -> None:
        """Frees and allocations are looked at from now on."""
        pool, cache = harness.cache.pool, harness.cache
        give_back, allocate, finished = pool.give_back, cache.allocate, harness.core._running.finished
        self.page_size = cache.page_size

        def given_back(pages: Any) -> None:
            pages = list(pages)
            self._look(pages, "freed")
            give_back(pages)

        def allocated(count: int) -> Any:
            pages = allocate(count)
            self._look(pages, "handed out")
            return pages

        def told(batch: Any) -> None:
            if self._named.pop(batch.step, None) is not None and batch.step not in self._ran:
                self.early.append(f"step {batch.step} was taken to be finished before it ran")
            finished(batch)

        pool.give_back = given_back  # type: ignore[method-assign]
        cache.allocate = allocated  # type: ignore[method-assign]
        harness.core._running.finished = told  # type: ignore[method-assign]

    def _look(self, pages: list[int], what: str) -> None:
        for step, named in self._named.items():
            if common := named.intersection(pages):
                self.early.append(f"pages {sorted(common)} were {what} while step {step} was in flight")

    def _names(self, plan: StepPlan) -> set[int]:
        for slot, index, page in plan.table_writes.tolist():
            self._tables.setdefault(slot, {})[index] = page
        named = {page for source, target, _ in plan.page_copies.tolist() for page in (source, target)}
        named |= {slot // self.page_size for slot in plan.write_slots.tolist()}
        for row, slot in enumerate(plan.row_slots.tolist()):
            last = int(plan.positions[plan.row_starts[row + 1] - 1])
            named |= {self._tables[slot][index] for index in range(last // self.page_size + 1)}
        return named


class LateHarness(HashHarness):
    def __init__(self, *model: Any, **options: Any) -> None:
        """`model`: worker and vocabulary, where they aren't HashHarness's."""
        self.thread = LateThread()
        super().__init__(*model, make_core=partial(OverlappingCore, thread=self.thread), **options)
        self.thread.watch(self)

    def run(self, *requests: Any) -> None:
        super().run(*requests)
        assert self.thread.early == []
        assert self.thread.most <= 2
        assert not self.core._running._flights
        self.check_tree()

    def check_tree(self) -> None:
        """Each slot of the tree holds its own token: nothing of a row too many is in it."""
        size = self.cache.page_size
        for node in self.cache.tree.nodes():
            tokens = unpack(node.key)
            before = sum(len(unpack(each.key)) for each in node.path()) - len(tokens)
            for index, token in enumerate(tokens):
                slot = node.pages[index // size] * size + index % size
                assert self.worker.kv[slot].tolist() == [token, before + index]

    @property
    def ahead(self) -> int:
        """Steps that were planned for tokens still to be drawn."""
        return sum(len(plan.drawn) > 0 for plan in self.worker.steps)
