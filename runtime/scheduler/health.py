"""Audits of the tree, and what follows from them: what is damaged is taken out of use, and the engine goes on.

Called by the core after a fault, and by the links while nothing runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from palmette.radix_cache.cache import RadixCache
from palmette.runtime.errors import InternalError, NeverFits
from palmette.runtime.scheduler.audit import inspect, quarantine
from palmette.runtime.scheduler.intake import Intake
from palmette.runtime.scheduler.open_requests import OpenRequests
from palmette.runtime.scheduler.running import RunningSet

ROUNDS = 4
SECONDS = 30.0  # at least, between the audits of an engine that nothing is wrong with

log = logging.getLogger(__name__)


class Health:
    """`settle` returns once no step in flight uses a page any more.

    `emptied` counts how often the tree could not be mended and was emptied.
    """

    def __init__(
        self,
        cache: RadixCache,
        running: RunningSet,
        requests: OpenRequests,
        intake: Intake,
        clock: Callable[[], float],
        settle: Callable[[], None],
    ) -> None:
        self.emptied = 0
        self._cache = cache
        self._running = running
        self._requests = requests
        self._intake = intake
        self._clock = clock
        self._settle = settle
        self._audited_step = 0
        self._next_audit = 0.0

    def upkeep(self, step: int) -> None:
        """An audit, where steps were made since the last one and that is a while ago."""
        now = self._clock()
        if step != self._audited_step and now >= self._next_audit:
            self._audited_step, self._next_audit = step, now + SECONDS
            self.audit()

    def audit(self) -> None:
        """Checks the tree from scratch. Pages of what is wrong are quarantined, its subtrees dropped, and the
        requests that hold them failed."""
        if not self._mended():
            self._start_over()
        self._refuse_what_fits_no_more()

    def _mended(self) -> bool:
        """Whether nothing is wrong any more."""
        for _ in range(ROUNDS):  # what is taken out may show what else is damaged
            try:
                findings = inspect(self._cache, self._running)
                damaged = quarantine(findings, self._cache, self._running) if findings else []
            except Exception:
                log.exception("the radix cache can't be audited")
                return False
            for sequence in damaged:
                self._requests.fail(sequence.request_id, _damaged())
            if not findings:
                return True
        return not inspect(self._cache, self._running)

    def _start_over(self) -> None:
        """The tree can't be mended: it is emptied, and what runs fails."""
        log.error("the radix cache is emptied")
        self._settle()
        self.emptied += 1
        running = list(self._running)
        self._running.forget_all()
        self._cache.reset()
        for sequence in running:
            self._requests.fail(sequence.request_id, _damaged())

    def _refuse_what_fits_no_more(self) -> None:
        """Quarantine has made the pool smaller: what could need all of it would wait, or be retracted, forever."""
        room = (self._cache.pages - self._cache.quarantined_pages) * self._cache.page_size
        self._intake.pool_tokens = room
        for request_id, longest in self._requests.longest():
            if longest > room:
                self._requests.fail(request_id, NeverFits(
                    f"The request may need {longest} tokens; the KV pool has {room} left, since damaged pages were "
                    "taken out of use.",
                    hint="Restart the engine, or send less.",
                ))  # fmt: skip


def _damaged() -> InternalError:
    return InternalError("The cached pages of this request were damaged.", hint="Send it again.")
