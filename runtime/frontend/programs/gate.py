"""Which compiled programs are under way: as many as the engine's pool has room for, so that what they compute is still
there when they go on.

A program that waits here has asked the engine for nothing yet; nothing but compiled programs waits here. Knows sizes
and beginnings, no tokens and no plans. One for each front, in its event loop; called by run.py and track.py.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from palmette.runtime.frontend.programs.opening import Opening
from palmette.runtime.frontend.programs.size import USUAL, Size

GROWTH = 0.6  # of what programs under way are still to grow by, for which there is room when another begins: not all
# of them are at their largest at once
FULL = 0.9  # of the pool may be held; the rest is for what the engine itself needs to move
LOOK = 64  # waiting programs of a tenant that are compared for what they share with those under way
PASSED = 16  # times that the first of a tenant's may be passed over for that
PREFILL = 32  # tokens of a prefill that says how long prefills take
FADING = 1 / 64  # weight of the newest measurement
PATIENCE = 30.0  # seconds for which room is held until a prefill has been measured


@dataclass(eq=False, slots=True)
class Claim:
    """What a program needs of the pool. `size`: at most, about; `opening`: what it begins with.

    The gate keeps the rest. `held`: tokens of its live branches, None: not known yet; `away`: they wait for so long
    that nothing is kept for them, and `loose`: they did so once; `flying`: what its verbs in flight add; `stopped`:
    its verbs that wait for room; `shared`: characters that another program under way holds already.
    """

    size: Size
    opening: Opening
    tenant: str = ""
    priority: int = 0
    held: int | None = None
    away: bool = False
    loose: bool = False
    flying: int = 0
    stopped: int = 0
    shared: int = 0
    passed: int = 0
    counted: float = 0.0  # of its largest size, in the gate's sum

    @property
    def paused(self) -> bool:
        """Nothing of it runs, and its pages may go: it waits for room, or for very long."""
        return (self.away or self.stopped > 0) and not self.flying


@dataclass(eq=False, slots=True)
class _Waiting:
    claim: Claim
    number: int
    entered: asyncio.Future[None]
    alike: int = 0  # characters of its opening that are under way already
    looked: int = -1  # how many had come and gone by then


@dataclass(eq=False, slots=True)
class _Stopped:
    claim: Claim
    tokens: int
    goes_on: asyncio.Future[None]


_opening = attrgetter("opening")


class Gate:
    """Programs enter in order of arrival, higher priorities first; of several tenants the one with the fewest under
    way. Of one tenant's, those go together that begin alike, since they share what they begin with.

    Where those under way outgrow the pool all the same, the ones that came last stop before their next verb until the
    first have ended. The first under way never waits, so there is always progress. Programs that wait for the client's
    functions for longer than their room is worth hold none meanwhile, and never stop.
    """

    def __init__(self) -> None:
        self._capacity = 0  # tokens; 0: not known, nobody waits
        self._page = 0
        self._under_way: dict[Claim, None] = {}  # in the order in which they entered
        self._sorted: list[Claim] = []  # the same, by opening
        self._counted = 0.0  # tokens of all that are under way, each at its largest
        self._waiting: dict[str, list[_Waiting]] = {}  # by tenant; no list is empty
        self._stopped: list[_Stopped] = []
        self._arrivals = 0
        self._passages = 0  # of programs, in and out
        self._characters: float | None = None  # that make a token
        self._token_seconds = 0.0  # to prefill one

    def __len__(self) -> int:
        """Programs under way."""
        return len(self._under_way)

    def open(self, pool_tokens: int, page_size: int) -> None:
        """An engine is there, with such a pool."""
        self._capacity, self._page = int(FULL * pool_tokens), page_size
        self._changed()

    # What is measured

    def encoded(self, characters: int, tokens: int) -> None:
        """So much text made so many tokens."""
        if characters and tokens:
            found = characters / tokens
            self._characters = (
                found if self._characters is None else self._characters + (found - self._characters) * FADING
            )

    def prefilled(self, tokens: int, seconds: float) -> None:
        """So many tokens were computed in so long, others perhaps beside them: the fastest count."""
        if tokens < PREFILL or seconds <= 0:
            return
        one = seconds / tokens
        weight = 1.0 if not self._token_seconds or one < self._token_seconds else FADING
        self._token_seconds += (one - self._token_seconds) * weight

    def tokens_of(self, characters: int) -> int:
        return round(characters / self._ratio)

    @property
    def patience(self) -> float:
        """Seconds for which pages that are needed again are worth the room: to hold a share of the pool for as long as
        it takes to fill all of it costs others what computing that share again would cost."""
        return self._capacity * self._token_seconds if self._token_seconds else PATIENCE

    # A program

    async def enter(self, claim: Claim) -> None:
        """Returns once the program may begin. `leave` must follow, also where this was cancelled."""
        if not self._waiting and self._fits(claim):
            self._enter(claim)
            return
        self._arrivals += 1
        waiting = _Waiting(claim, self._arrivals, asyncio.get_running_loop().create_future())
        insort(self._waiting.setdefault(claim.tenant, []), waiting, key=_place)
        try:
            await waiting.entered
        finally:
            self._forget(waiting)

    def leave(self, claim: Claim) -> None:
        """The program is over, or was never let in."""
        if claim not in self._under_way:
            return
        del self._under_way[claim]
        self._passages += 1
        self._counted -= claim.counted
        at = self._index(claim)
        del self._sorted[at]
        self._share(at)
        self._changed()

    # Its verbs

    def stops(self, claim: Claim, tokens: int) -> bool:
        """Whether a verb that adds so many tokens would have to wait."""
        if claim.loose or not self._is_crowded or next(iter(self._under_way)) is claim or self._is_idle(but=claim):
            return False
        held = 0.0
        for each in self._under_way:
            if each is claim:
                return held + self._held(each) + tokens > self._capacity
            held += 0.0 if each.paused else self._held(each)
        return False  # it has left

    async def proceed(self, claim: Claim, tokens: int) -> None:
        """Returns once a verb may run that adds so many tokens. `ended` must follow, where this wasn't cancelled."""
        if self.stops(claim, tokens):
            stopped = _Stopped(claim, tokens, asyncio.get_running_loop().create_future())
            self._stopped.append(stopped)
            claim.stopped += 1
            try:
                self._changed()  # what it holds is others' now
                await stopped.goes_on
            except BaseException:
                if stopped.goes_on.done() and not stopped.goes_on.cancelled():
                    claim.flying -= tokens
                raise
            finally:
                if stopped in self._stopped:
                    self._stopped.remove(stopped)
                    claim.stopped -= 1
            return
        claim.flying += tokens

    def ended(self, claim: Claim, tokens: int, held: int) -> None:
        """A verb is over that was to add `tokens`; the program's branches hold `held` tokens now."""
        claim.flying -= tokens
        self.holds(claim, held)

    def holds(self, claim: Claim, held: int, *, away: bool = False) -> None:
        """The program's live branches have so many tokens now. `away`: they are needed so late that they may go."""
        claim.held, claim.away, claim.loose = held, away, claim.loose or away
        if claim in self._under_way and held > claim.counted:
            self._counted += held - claim.counted
            claim.counted = held
        if self._waiting or self._stopped:
            self._changed()

    # Inside

    @property
    def _ratio(self) -> float:
        """Characters that make a token."""
        return USUAL if self._characters is None else self._characters

    @property
    def _is_crowded(self) -> bool:
        return bool(self._capacity) and self._counted > self._capacity

    def _is_idle(self, but: Claim | None = None) -> bool:
        """Nobody else computes or has just entered, and some wait longer than their room is worth: better to compute
        things again."""
        every = self._under_way
        busy = any(each.flying or each.held is None for each in every if each is not but)
        return not busy and any(each.loose for each in every)

    def _begun(self, claim: Claim) -> float:
        return len(claim.opening) / self._ratio if claim.held is None else claim.held

    def _held(self, claim: Claim) -> float:
        """Tokens of the pool that are there for the program alone; the last page is half empty in the mean."""
        return self._begun(claim) + claim.flying - claim.shared / self._ratio + self._page / 2

    def _largest(self, claim: Claim) -> float:
        """No program holds more than the pool: one that may grow beyond it doesn't keep all others out for that."""
        return min(claim.size.in_tokens(self._ratio), self._capacity)

    def _grows(self, claim: Claim) -> float:
        return max(0.0, self._largest(claim) - self._begun(claim) - claim.flying)

    def _fits(self, claim: Claim) -> bool:
        """Whether it may begin beside those under way."""
        if not self._capacity or not self._under_way or self._counted + self._largest(claim) <= self._capacity:
            return True
        if self._is_idle():
            return True
        if self._stopped:
            return False
        claim.shared = self._alike(claim)
        present = [each for each in self._under_way if not each.paused]
        return sum(self._held(each) + GROWTH * self._grows(each) for each in (*present, claim)) <= self._capacity

    def _enter(self, claim: Claim) -> None:
        self._under_way[claim] = None
        self._passages += 1
        claim.counted = self._largest(claim)
        self._counted += claim.counted
        insort(self._sorted, claim, key=_opening)
        at = self._index(claim)
        self._share(at)
        self._share(at + 1)

    def _index(self, claim: Claim) -> int:
        at = bisect_left(self._sorted, claim.opening, key=_opening)
        return self._sorted.index(claim, at)

    def _share(self, at: int) -> None:
        """What is shared counts as the one's that stands before, in order of the openings."""
        if at < len(self._sorted):
            claim = self._sorted[at]
            claim.shared = claim.opening.alike(self._sorted[at - 1].opening) if at else 0

    def _alike(self, claim: Claim) -> int:
        """Characters that it begins with as another does that is under way."""
        at = bisect_left(self._sorted, claim.opening, key=_opening)
        return max((claim.opening.alike(each.opening) for each in self._sorted[max(0, at - 1) : at + 1]), default=0)

    def _alike_of(self, waiting: _Waiting) -> int:
        """The same, looked up once until another has come or gone."""
        if waiting.looked != self._passages:
            waiting.alike, waiting.looked = self._alike(waiting.claim), self._passages
        return waiting.alike

    def _changed(self) -> None:
        """There may be room: for verbs that wait, in the order of their programs, then for programs."""
        if self._stopped:
            order = {claim: number for number, claim in enumerate(self._under_way)}
            for stopped in sorted(self._stopped, key=lambda each: order.get(each.claim, 0)):
                if not self.stops(stopped.claim, stopped.tokens):
                    self._stopped.remove(stopped)
                    stopped.claim.stopped -= 1
                    if not stopped.goes_on.done():
                        stopped.claim.flying += stopped.tokens
                        stopped.goes_on.set_result(None)
        while (first := self._next()) is not None and self._fits(first.claim):
            if first.entered.done():  # cancelled, and about to be forgotten
                self._forget(first)
                continue
            head = self._waiting[first.claim.tenant][0]
            head.claim.passed += head is not first
            self._forget(first)
            self._enter(first.claim)
            first.entered.set_result(None)

    def _next(self) -> _Waiting | None:
        """Who is to enter next."""
        if not self._waiting:
            return None
        under_way: dict[str, int] = {}
        for claim in self._under_way:
            under_way[claim.tenant] = under_way.get(claim.tenant, 0) + 1
        first = min(
            (waiting[0] for waiting in self._waiting.values()),
            key=lambda each: (-each.claim.priority, under_way.get(each.claim.tenant, 0), each.number),
        )
        if first.claim.passed >= PASSED:
            return first
        return max(self._peers(first), key=self._alike_of)

    def _peers(self, first: _Waiting) -> Iterator[_Waiting]:
        """The first of its tenant that wait with its priority."""
        for each in self._waiting[first.claim.tenant][:LOOK]:
            if each.claim.priority == first.claim.priority:
                yield each

    def _forget(self, waiting: _Waiting) -> None:
        line = self._waiting.get(waiting.claim.tenant, [])
        if waiting in line:
            line.remove(waiting)
            if not line:
                del self._waiting[waiting.claim.tenant]


def _place(waiting: _Waiting) -> tuple[int, int]:
    return (-waiting.claim.priority, waiting.number)
