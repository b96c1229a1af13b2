"""Token ids on the wire: little-endian int32 bytes. Comparing and slicing them runs at memcmp speed."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import NewType

TokenId = NewType("TokenId", int)
TOKEN_BYTES = 4


def pack(tokens: Iterable[int]) -> bytes:
    """Token ids as int32 little-endian bytes. Raises OverflowError for an id outside int32."""
    # array() would take bytes for machine integers, not for one id each.
    packed = array("i", list(tokens) if isinstance(tokens, bytes | bytearray) else tokens)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(data: bytes | bytearray) -> list[int]:
    """The token ids of int32 little-endian bytes. Raises ValueError where the length is not a multiple of 4."""
    unpacked = array("i")
    unpacked.frombytes(data)
    if sys.byteorder == "big":
        unpacked.byteswap()
    return unpacked.tolist()


def count(data: bytes) -> int:
    return len(data) // TOKEN_BYTES
