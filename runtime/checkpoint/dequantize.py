"""Stored tensors to float32, and how many bytes each stored form takes.

The block formats are the gguf library's. Knows nothing of files. Called by loaders and gguf_file.
"""

from __future__ import annotations

import math
from typing import get_args

import gguf
import numpy as np
import numpy.typing as npt

from palmette.runtime.checkpoint.protocol import RawTensor, TensorType

_PLAIN: dict[TensorType, tuple[int, int]] = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "f64": (1, 8)}

_KINDS: tuple[TensorType, ...] = get_args(TensorType)

# stored form → (elements of a block, bytes of a block)
BLOCKS: dict[TensorType, tuple[int, int]] = {
    kind: _PLAIN.get(kind) or gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.upper()]] for kind in _KINDS
}


def stored_bytes(shape: tuple[int, ...], kind: TensorType) -> int | None:
    """Bytes of a tensor of `shape`; None where its rows don't divide into blocks."""
    elements, size = BLOCKS[kind]
    if elements > 1 and (not shape or shape[-1] % elements):
        return None
    return math.prod(shape) // elements * size


def to_float32(raw: RawTensor) -> npt.NDArray[np.float32]:
    """The tensor's values, shape `raw.shape`. Exact for f32, f16 and bf16; a copy for all but f32."""
    data = raw.data
    if raw.dtype == "f32":
        return _aligned(data, 4).view("<f4").reshape(raw.shape)
    if raw.dtype == "f16":
        return _aligned(data, 2).view("<f2").astype(np.float32).reshape(raw.shape)
    if raw.dtype == "bf16":
        widened = _aligned(data, 2).view("<u2").astype(np.uint32) << np.uint32(16)
        return widened.view(np.float32).reshape(raw.shape)
    if raw.dtype == "f64":
        return _aligned(data, 8).view("<f8").astype(np.float32).reshape(raw.shape)
    elements, size = BLOCKS[raw.dtype]
    rows = data.reshape(*raw.shape[:-1], raw.shape[-1] // elements * size)
    values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[raw.dtype.upper()])
    return np.ascontiguousarray(values, dtype=np.float32).reshape(raw.shape)


def _aligned(data: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """A view where the address allows it, else a copy (a safetensors header may have any length)."""
    return data if data.ctypes.data % size == 0 else data.copy()
