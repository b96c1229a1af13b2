"""What an engine's cache holds, told to whoever mirrors it (a router, a peer): pages by hashes of their content."""

from __future__ import annotations

import msgspec

HASH_BYTES = 16


class PagesStored(msgspec.Struct, frozen=True, tag=True):
    """Pages that are cached from now on: `hashes` chain onto `parent`, one for each `page_size` tokens of `tokens`.

    The parent of a namespace's first page is the hash of the namespace.
    """

    namespace: str
    page_size: int
    parent: bytes
    hashes: tuple[bytes, ...]
    tokens: bytes  # int32 little-endian


class PagesRemoved(msgspec.Struct, frozen=True, tag=True):
    """Pages that are gone, wherever they were."""

    hashes: tuple[bytes, ...]


class PagesCleared(msgspec.Struct, frozen=True, tag=True):
    """Forget everything: what follows is told from the beginning."""


KvEvent = PagesStored | PagesRemoved | PagesCleared


class KvEventBatch(msgspec.Struct, frozen=True):
    """One message of the event socket. `sequence` counts up by one, so that a gap shows."""

    sequence: int
    time: float  # seconds since the epoch
    events: tuple[KvEvent, ...]
