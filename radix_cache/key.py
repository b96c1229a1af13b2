"""Token keys: int32 little-endian bytes, compared at memcmp speed.

Every function takes the bytes as they are; none unpacks a token. Knows nothing of nodes or pages. Called by
tree and oracle.
"""

from __future__ import annotations

from hashlib import blake2b

from palmette.runtime.messages.kv_events import HASH_BYTES
from palmette.runtime.messages.tokens import TOKEN_BYTES


def common_tokens(part: bytes, key: bytes, at: int = 0) -> int:
    """How many leading tokens of `part` equal the tokens of `key` from byte `at` on.

    One memcmp where all of `part` is there; else a bisection by halves, whose compared slices add up to one
    more pass. Byte runs are floored to whole tokens: ids that differ in their last byte only share nothing.
    """
    if key.startswith(part, at):
        return len(part) // TOKEN_BYTES
    if part[:TOKEN_BYTES] != key[at : at + TOKEN_BYTES]:
        return 0
    low, high = 1, min(len(part), len(key) - at) // TOKEN_BYTES  # low tokens agree, more than high can't
    while low < high:
        middle = (low + high + 1) // 2
        start = low * TOKEN_BYTES
        if key.startswith(part[start : middle * TOKEN_BYTES], at + start):
            low = middle
        else:
            high = middle - 1
    return low


def reusable_part(key: bytes) -> bytes:
    """All of `key` but its last token: that one must be computed, since its logits are wanted."""
    return key[: max(0, len(key) - TOKEN_BYTES)]


def root_hash(namespace: str) -> bytes:
    """What the hash of a namespace's first page chains onto."""
    return blake2b(namespace.encode(), digest_size=HASH_BYTES, person=b"kv-root").digest()


def page_hashes(parent: bytes, key: bytes, page_bytes: int) -> list[bytes]:
    """One hash for each whole page of `key`, over its tokens and, through `parent`, all before them."""
    hashes = []
    for at in range(0, len(key) - page_bytes + 1, page_bytes):
        parent = blake2b(parent + key[at : at + page_bytes], digest_size=HASH_BYTES).digest()
        hashes.append(parent)
    return hashes
