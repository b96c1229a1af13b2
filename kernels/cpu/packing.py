"""Weights in the layout that native/linear.h reads: blocks of 16 outputs, groups of 32 inputs. numpy only.

Q4_0, Q4_1 and Q8_0 keep their quants and scales; everything else is packed as bfloat16 or float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

LANES = 16
GROUP = 32
Format = Literal["q4", "q8", "bf16", "f32"]
FORMAT_CODES: dict[Format, int] = {"q4": 0, "q8": 1, "bf16": 2, "f32": 3}
GROUP_BYTES: dict[Format, int] = {"q4": 320, "q8": 544, "bf16": 1024, "f32": 2048}

Bytes = npt.NDArray[np.uint8]
Half = npt.NDArray[np.float16]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Quantised:
    """A weight [outputs, inputs] as w = scale × (quant − zero) + minimum, per output and group of 32 inputs.

    "q4": quants 0 … 15 with scales and minima; "q8": quants + 128 in 1 … 255 with scales.
    """

    format: Literal["q4", "q8"]
    quants: Bytes  # [outputs, groups, 32]
    scales: Half  # [outputs, groups]
    minima: Half | None  # [outputs, groups], "q4" only


def unpack_gguf(kind: str, data: Bytes, shape: tuple[int, int]) -> Quantised | None:
    """The quants of a GGUF tensor's blocks; None for a type that has no native form."""
    outputs, inputs = shape
    groups = inputs // GROUP
    if kind == "q8_0":
        blocks = data.reshape(outputs, groups, 34)
        return Quantised("q8", blocks[:, :, 2:] ^ np.uint8(0x80), _halves(blocks[:, :, :2]), None)
    if kind == "q4_1":
        blocks = data.reshape(outputs, groups, 20)
        return Quantised("q4", _nibbles(blocks[:, :, 4:]), _halves(blocks[:, :, :2]), _halves(blocks[:, :, 2:4]))
    if kind == "q4_0":
        blocks = data.reshape(outputs, groups, 18)
        scales = _halves(blocks[:, :, :2])
        return Quantised("q4", _nibbles(blocks[:, :, 2:]), scales, (scales.astype(np.float32) * -8).astype(np.float16))
    return None


def concatenate(parts: list[Quantised]) -> Quantised:
    """The outputs of all parts, which have one format, in order."""
    first = parts[0]
    minima = (
        np.concatenate([part.minima for part in parts if part.minima is not None]) if first.format == "q4" else None
    )
    return Quantised(
        first.format,
        np.concatenate([part.quants for part in parts]),
        np.concatenate([part.scales for part in parts]),
        minima,
    )


def take(weight: Quantised, order: npt.NDArray[np.intp]) -> Quantised:
    """The same with its outputs in another order."""
    minima = None if weight.minima is None else weight.minima[order]
    return Quantised(weight.format, weight.quants[order], weight.scales[order], minima)


def pack_quantised(weight: Quantised) -> Bytes:
    """→ flat bytes, see native/linear.h. Outputs are padded with zero weights to a multiple of 16."""
    outputs, groups, _ = weight.quants.shape
    blocks = -(-outputs // LANES)
    quants = _pad(weight.quants, blocks * LANES).reshape(blocks, LANES, groups, GROUP)
    scales = _pad(weight.scales, blocks * LANES)
    if weight.format == "q4":
        assert weight.minima is not None
        halves = quants.reshape(blocks, LANES, groups, 4, 2, 4).transpose(0, 2, 3, 1, 5, 4)
        packed = (halves[..., 0] | (halves[..., 1] << 4)).reshape(blocks, groups, 256)
        pieces = [packed, _scale_bytes(scales, blocks), _scale_bytes(_pad(weight.minima, blocks * LANES), blocks)]
    else:
        words = quants.reshape(blocks, LANES, groups, 8, 4).transpose(0, 2, 3, 1, 4)
        pieces = [words.reshape(blocks, groups, 512), _scale_bytes(scales, blocks)]
    return np.concatenate(pieces, axis=-1).reshape(-1)


def pack_float(weight: npt.NDArray[np.float32], kind: Literal["bf16", "f32"]) -> Bytes:
    """weight [outputs, inputs] → flat bytes; bfloat16 rounds to nearest even."""
    outputs, inputs = weight.shape
    blocks = -(-outputs // LANES)
    values = _pad(np.ascontiguousarray(weight), blocks * LANES).reshape(blocks, LANES, inputs)
    if kind == "f32":
        return np.ascontiguousarray(values.transpose(0, 2, 1)).view(np.uint8).reshape(-1)
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    pairs = rounded.reshape(blocks, LANES, inputs // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(pairs).view(np.uint8).reshape(-1)


def gate_up_order(inner: int) -> npt.NDArray[np.intp]:
    """Output order of a fused gate_up ([gates; ups], 2 × inner): 32 gates, then the 32 ups of the same columns."""
    gates = np.arange(inner).reshape(-1, 32)
    return np.stack([gates, gates + inner], axis=1).reshape(-1)


def _pad(array: Array, outputs: int) -> Array:
    missing = outputs - len(array)
    return array if not missing else np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])


def _scale_bytes(scales: Half, blocks: int) -> Bytes:
    groups = scales.shape[1]
    lanes = np.ascontiguousarray(scales.reshape(blocks, LANES, groups).transpose(0, 2, 1))
    return lanes.view(np.uint8).reshape(blocks, groups, 2 * LANES)


def _halves(raw: Bytes) -> Half:
    return np.ascontiguousarray(raw).view(np.float16)[..., 0]


def _nibbles(raw: Bytes) -> Bytes:
    """GGUF's order: the low nibbles are elements 0 … 15 of a block, the high ones 16 … 31."""
    return np.concatenate([raw & np.uint8(15), raw >> 4], axis=-1)
