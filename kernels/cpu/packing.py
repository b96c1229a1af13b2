"""Weights in the layout that native/linear.h reads: blocks of 16 outputs, groups of 32 inputs. numpy only.

Quantised weights keep their quants; everything else is packed as bfloat16 or float32. gguf_blocks.py makes a Quantised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

LANES = 16
GROUP = 32
QuantisedFormat = Literal["q4", "q8", "q8_min", "q8_16"]
Format = Literal["q4", "q8", "q8_min", "q8_16", "bf16", "f32"]
FORMAT_CODES: dict[Format, int] = {"q4": 0, "q8": 1, "bf16": 2, "f32": 3, "q8_min": 4, "q8_16": 5}
GROUP_BYTES: dict[Format, int] = {"q4": 320, "q8": 544, "q8_min": 576, "q8_16": 576, "bf16": 1024, "f32": 2048}

Bytes = npt.NDArray[np.uint8]
Half = npt.NDArray[np.float16]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Quantised:
    """A weight [outputs, inputs] by groups of 32 inputs.

    "q4": w = scale × quant + minimum, quants 0 … 15; "q8_min": the same, 0 … 255;
    "q8": w = scale × (quant − 128), quants 1 … 255; "q8_16": the same, with a scale for each 16 inputs.
    """

    format: QuantisedFormat
    quants: Bytes  # [outputs, groups, 32]
    scales: Half  # [outputs, groups], for "q8_16" [outputs, groups, 2]
    minima: Half | None = None  # [outputs, groups], for "q4" and "q8_min" only


def concatenate(parts: list[Quantised]) -> Quantised:
    """The outputs of all parts, which have one format, in order."""
    first = parts[0]
    minima = [part.minima for part in parts if part.minima is not None]
    return Quantised(
        first.format,
        np.concatenate([part.quants for part in parts]),
        np.concatenate([part.scales for part in parts]),
        np.concatenate(minima) if minima else None,
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
    if weight.format == "q4":
        halves = quants.reshape(blocks, LANES, groups, 4, 2, 4).transpose(0, 2, 3, 1, 5, 4)
        packed = halves[..., 0] | (halves[..., 1] << 4)
    else:
        packed = quants.reshape(blocks, LANES, groups, 8, 4).transpose(0, 2, 3, 1, 4)
    pieces = [packed.reshape(blocks, groups, -1), _scale_bytes(weight.scales, blocks)]
    if weight.minima is not None:
        pieces.append(_scale_bytes(weight.minima, blocks))
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
    """scales [outputs, groups] or [outputs, groups, n] → [blocks, groups, n × 32 bytes]."""
    groups = scales.shape[1]
    lanes = _pad(scales, blocks * LANES).reshape(blocks, LANES, groups, -1).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(blocks, groups, -1)
