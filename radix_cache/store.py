"""The bytes of the KV cache: per layer a tensor of pages for keys and one for values.

The worker's side of radix_cache: knows pages and slots, not tokens, requests or trees. Called by runtime/models (writes
of a step) and by the worker (page copies of a StepPlan). A slot is page × page_size + offset.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Store(Protocol):
    """What the worker needs of any store."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position takes over all layers, keys and values."""
        ...

    def copy_pages(self, copies: npt.NDArray[np.int32]) -> None:
        """Copies in every layer, row by row in order: [n, 3] of source page, destination page, slots from the start."""
        ...


class KVStore:
    """KV of every layer in `keys[layer]` and `values[layer]`, [pages, page_size, kv_heads, head_dim].

    The memory is reserved, not touched: a page becomes resident when it is first written. `poison` fills it with NaN
    instead, so that reading a slot that nobody wrote shows (tests).
    """

    def __init__(
        self,
        layers: int,
        pages: int,
        page_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        *,
        poison: bool = False,
    ) -> None:
        for name, value in (("layers", layers), ("pages", pages), ("page_size", page_size)):
            if value < 1:
                raise ValueError(f"{name}={value!r} must be at least 1.")
        self.pages = pages
        self.page_size = page_size
        shape = (pages, page_size, kv_heads, head_dim)
        self.keys = tuple(torch.empty(shape, dtype=dtype) for _ in range(layers))
        self.values = tuple(torch.empty(shape, dtype=dtype) for _ in range(layers))
        if poison:
            for buffer in self.keys + self.values:
                buffer.fill_(float("nan"))

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position takes over all layers, keys and values."""
        one = self.keys[0][0, 0]
        return 2 * len(self.keys) * one.numel() * one.element_size()

    def write(self, layer: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Puts k and v [T, kv_heads, head_dim] into `slots`, int64 [T], all different; rounds to the store's dtype."""
        for buffer, new in ((self.keys[layer], k), (self.values[layer], v)):
            buffer.flatten(0, 1).index_copy_(0, slots, new.to(buffer.dtype))

    def copy_pages(self, copies: npt.NDArray[np.int32]) -> None:
        """Copies in every layer, row by row in order: [n, 3] of source page, destination page, slots from the start."""
        sources, destinations = set(copies[:, 0].tolist()), copies[:, 1].tolist()
        if sources.isdisjoint(destinations) and len(set(destinations)) == len(destinations):
            self._copy_at_once(copies)
        else:  # a copy of a copy: the order matters
            for index in range(len(copies)):
                self._copy_at_once(copies[index : index + 1])

    def _copy_at_once(self, copies: npt.NDArray[np.int32]) -> None:
        """One gather and one scatter a buffer, however many pages."""
        copied = np.arange(self.page_size) < copies[:, 2:]
        offsets = np.broadcast_to(np.arange(self.page_size), copied.shape)
        from_slots = torch.from_numpy((copies[:, :1].astype(np.int64) * self.page_size + offsets)[copied])
        to_slots = torch.from_numpy((copies[:, 1:2].astype(np.int64) * self.page_size + offsets)[copied])
        for buffer in self.keys + self.values:
            slots = buffer.flatten(0, 1)
            slots.index_copy_(0, to_slots, slots.index_select(0, from_slots))
