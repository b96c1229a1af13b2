"""Token ids on the wire."""

from __future__ import annotations

import pytest

from palmette.runtime.messages.tokens import count, pack, unpack


def test_ids_come_back_from_any_iterable() -> None:
    ids = [0, 1, 255, 49_151, 2**31 - 1]
    assert unpack(pack(ids)) == unpack(pack(iter(ids))) == ids
    assert count(pack(ids)) == len(ids)
    assert pack([1]) == b"\x01\0\0\0"


def test_bytes_are_one_id_each() -> None:
    assert unpack(pack(b"abc")) == [97, 98, 99]


def test_what_is_no_id_is_refused() -> None:
    with pytest.raises(OverflowError):
        pack([2**31])
    with pytest.raises(ValueError):
        unpack(b"abc")
