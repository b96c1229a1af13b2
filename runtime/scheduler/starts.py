"""Programs under way before new ones: when another may begin, and for how long that may be put off.

Knows tokens as numbers; asks neither queue nor tree. Called by admission.
"""

from __future__ import annotations

TURNS = 2.0  # of each that runs: what one that begins leaves room for
POOLS = 1  # of prefill, since an overdue one began, until the next begins whatever the room
FADING = 1 / 64  # weight of the newest admission


class Starts:
    """A program is known by its calls: one that has all of a cached leaf, which nobody holds, goes on with a program;
    any other begins one. What a program computes stays in the tree for its next call only as long as the pool has room
    for all that are under way; so one that begins leaves room for the next turns of those that run.

    A turn is what running sequences are gone on with, in the mean: 0 for those that nothing follows. Where nothing ever
    goes on, nothing is held back.
    """

    def __init__(self, pool_tokens: int) -> None:
        self._patience = POOLS * pool_tokens
        self._turn = 0.0
        self._admitted = 0
        self._given = 0  # tokens of prefill since an overdue one began

    @property
    def impatient(self) -> bool:
        """Whether an overdue one begins now whatever room it leaves. What that costs those under way, at most about
        what it displaces, is spread over a pool of prefill; so nobody starves, and reuse hardly suffers."""
        return self._given >= self._patience

    def reserve(self, running: int) -> float:
        """Tokens to leave free beside one that begins while so many run."""
        return TURNS * self._turn * (running + 1)

    def admitted(self, turn: float, prefill: int, *, overdue_begins: bool) -> None:
        """`turn`: tokens, prompt and output, by which it goes on with a program; 0 where it begins one."""
        self._admitted += 1
        self._turn += (turn - self._turn) * max(FADING, 1 / self._admitted)
        self._given = 0 if overdue_begins else self._given + prefill
