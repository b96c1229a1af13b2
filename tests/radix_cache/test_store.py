"""The KV store: what was written is what lies there, and copies follow their order."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.store import KVStore

LAYERS, PAGES, PAGE_SIZE, KV_HEADS, HEAD_DIM = 2, 6, 4, 2, 8


def new_store(dtype: torch.dtype = torch.float32) -> KVStore:
    return KVStore(LAYERS, PAGES, PAGE_SIZE, KV_HEADS, HEAD_DIM, dtype, poison=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_writes_round_to_the_store_and_touch_nothing_else(dtype: torch.dtype) -> None:
    store = new_store(dtype)
    k, v = torch.randn(3, KV_HEADS, HEAD_DIM), torch.randn(3, KV_HEADS, HEAD_DIM)
    slots = torch.tensor([23, 0, 9])
    store.write(1, slots, k, v)
    for buffer, new in ((store.keys[1], k), (store.values[1], v)):
        assert torch.equal(buffer.flatten(0, 1)[slots], new.to(dtype))
    assert store.keys[0].isnan().all()
    assert store.keys[1].isnan().sum() == (PAGES * PAGE_SIZE - 3) * KV_HEADS * HEAD_DIM


def test_bytes_per_token() -> None:
    assert new_store(torch.bfloat16).bytes_per_token == 2 * LAYERS * KV_HEADS * HEAD_DIM * 2


def test_pages_are_not_resident_before_they_are_written() -> None:
    """A pool of 1 GiB is only reserved."""
    process = psutil.Process()
    before = process.memory_info().rss
    store = KVStore(1, 1 << 14, 16, 8, 64, torch.float32)
    store.write(0, torch.tensor([5]), torch.ones(1, 8, 64), torch.ones(1, 8, 64))
    assert store.keys[0].nbytes + store.values[0].nbytes == 1 << 30
    assert process.memory_info().rss - before < 100 << 20
    assert store.keys[0][0, 5].sum() == 8 * 64


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"pages": 0}, {"page_size": -1}])
def test_sizes_are_checked(wrong: dict[str, int]) -> None:
    sizes = {"layers": 1, "pages": 1, "page_size": 1, **wrong}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        KVStore(**sizes, kv_heads=1, head_dim=8, dtype=torch.float32)


page = st.integers(0, PAGES - 1)
copies = st.lists(st.tuples(page, page, st.integers(0, PAGE_SIZE)).filter(lambda copy: copy[0] != copy[1]), max_size=8)


@given(copies)
def test_copies_happen_in_order(plan: list[tuple[int, int, int]]) -> None:
    store = new_store()
    for index, buffer in enumerate(store.keys + store.values):
        buffer.copy_(torch.arange(buffer.numel()).view(buffer.shape) + 1000.0 * index)
    expected = [buffer.clone() for buffer in store.keys + store.values]
    for source, destination, slots in plan:
        for buffer in expected:
            buffer[destination, :slots] = buffer[source, :slots]
    store.copy_pages(np.array(plan, dtype=np.int32).reshape(-1, 3))
    for found, wanted in zip(store.keys + store.values, expected, strict=True):
        assert torch.equal(found, wanted)
