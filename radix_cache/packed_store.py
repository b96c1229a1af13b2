"""The bytes of the KV cache in the layout of the native kernels (kernels/cpu/native/attention.h).

Like store.py it knows pages and slots only. The kernels write it themselves; here pages are made and copied.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

VALUE_UNIT = 32  # a position's value dims are padded to a multiple of it
SCALE_BYTES = {torch.int8: 4}  # a float behind a head's keys and behind its values, per position


class PackedKVStore:
    """KV of every layer: keys [pages, kv_heads × head_dim × page_size], values [pages, kv_heads × padded × page_size].

    `dtype` is bfloat16, float32, or int8, which has room for a float32 scale per position and head beside both. The
    memory is reserved, not touched; `poison` fills it with NaN (tests; of int8 the scales).
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
        self.pages = pages
        self.page_size = page_size
        padded = -(-head_dim // VALUE_UNIT) * VALUE_UNIT
        wide_key, wide_value = (dims + SCALE_BYTES.get(dtype, 0) // dtype.itemsize for dims in (head_dim, padded))
        self.keys = tuple(torch.empty(pages, kv_heads * wide_key * page_size, dtype=dtype) for _ in range(layers))
        self.values = tuple(torch.empty(pages, kv_heads * wide_value * page_size, dtype=dtype) for _ in range(layers))
        self.bytes_per_token = layers * kv_heads * (wide_key + wide_value) * dtype.itemsize
        self.key_addresses = _addresses(self.keys)
        self.value_addresses = _addresses(self.values)
        if poison:
            for buffer in self.keys + self.values:
                buffer.view(torch.uint8).fill_(255)  # a NaN in every float type

    def copy_pages(self, copies: npt.NDArray[np.int32]) -> None:
        """Copies in every layer: [n, 3] of source page, destination page, slots from the start.

        Whole pages are copied: what lies behind the slots is written by the destination's owner before it is read.
        """
        for source, destination, _ in copies.tolist():
            for buffer in self.keys + self.values:
                buffer[destination].copy_(buffer[source])


def _addresses(buffers: tuple[torch.Tensor, ...]) -> npt.NDArray[np.uint64]:
    return np.array([buffer.data_ptr() for buffer in buffers], dtype=np.uint64)
