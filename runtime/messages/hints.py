"""What a program's executor tells the engine of a prefix's future, so that the right pages are kept."""

from __future__ import annotations

import msgspec


class Hint(msgspec.Struct, frozen=True, kw_only=True, tag=True):
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
