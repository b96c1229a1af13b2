"""What a program's executor tells the engine of a prefix's future, so that the right pages are kept."""

from __future__ import annotations

import uuid

import msgspec

from palmette.runtime.errors import InvalidRequest

LONGEST = 86_400.0
"""Seconds that a hint may look ahead."""


class Hint(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag=True):
    """About the cached path of `tokens`; sent when the verb that computed it has ended. Not answered.

    A hint changes what is evicted first, never a result. Fields that are None leave things as they are.
    """

    id: str
    tokens: bytes  # int32 little-endian
    namespace: str = ""
    next_use_seconds: float | None = None  # from now: the path is matched next about then
    last_use: bool = False  # it isn't matched again, as far as is known
    tool_wait_seconds: float | None = None  # its branch waits for a tool, whose result is expected within so long
    pin_seconds: float | None = None  # evict it last for so long; 0: no longer
    priority: int | None = None  # for the priority policy: higher is kept longer


class BranchHint(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A Hint about what a branch holds; the fields are the Hint's."""

    next_use_seconds: float | None = None
    last_use: bool = False
    tool_wait_seconds: float | None = None
    pin_seconds: float | None = None
    priority: int | None = None

    def check(self) -> BranchHint:
        """Returns itself, or raises InvalidRequest for a time that is none."""
        for name in ("next_use_seconds", "tool_wait_seconds", "pin_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds <= LONGEST:
                raise InvalidRequest(
                    f"{name}={seconds!r} is not a number of seconds from 0 to {LONGEST:g}.", param=name
                )
        return self

    def of(self, tokens: bytes, namespace: str) -> Hint:
        """The hint about `tokens` (int32 little-endian)."""
        return Hint(
            id=uuid.uuid4().hex,
            tokens=tokens,
            namespace=namespace,
            next_use_seconds=self.next_use_seconds,
            last_use=self.last_use,
            tool_wait_seconds=self.tool_wait_seconds,
            pin_seconds=self.pin_seconds,
            priority=self.priority,
        )
