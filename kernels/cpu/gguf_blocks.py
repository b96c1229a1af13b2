"""The quants of GGUF's block types in a native form, unchanged. numpy only; called by runtime/models/native.

Scales are halves. Those that a block stores as halves stay as they are; a K-quant's product of a half and a small
integer is rounded to one: at most 2^-11 of it, about a hundredth of the quantisation's own error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from palmette.kernels.cpu.packing import GROUP, Bytes, Half, Quantised

Floats = npt.NDArray[np.float32]
SUPER = 256  # elements of a K-quant's block
_SIGN = np.uint8(0x80)  # q8 stores q + 128
_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def unpack_gguf(kind: str, data: Bytes, shape: tuple[int, int]) -> Quantised | None:
    """The quants of a GGUF tensor's blocks; None for a type that has no native form, or scales that no half holds."""
    found = _TYPES.get(kind)
    if found is None:
        return None
    elements, unpack = found
    outputs, inputs = shape
    with np.errstate(over="ignore"):
        weight = unpack(data.reshape(outputs, inputs // elements, -1))
    finite = np.isfinite(weight.scales).all() and (weight.minima is None or np.isfinite(weight.minima).all())
    return weight if finite else None


def _q4_0(blocks: Bytes) -> Quantised:
    scales = _halves(blocks[..., :2])
    return Quantised("q4", _nibbles(blocks[..., 2:]), scales, (scales.astype(np.float32) * -8).astype(np.float16))


def _q4_1(blocks: Bytes) -> Quantised:
    return Quantised("q4", _nibbles(blocks[..., 4:]), _halves(blocks[..., :2]), _halves(blocks[..., 2:4]))


def _q5_0(blocks: Bytes) -> Quantised:
    quants = _nibbles(blocks[..., 6:]) | _shifted(_bits(blocks[..., 2:6]), 4)
    return Quantised("q8", quants + np.uint8(128 - 16), _halves(blocks[..., :2]))


def _q5_1(blocks: Bytes) -> Quantised:
    quants = _nibbles(blocks[..., 8:]) | _shifted(_bits(blocks[..., 4:8]), 4)
    return Quantised("q8_min", quants, _halves(blocks[..., :2]), _halves(blocks[..., 2:4]))


def _q8_0(blocks: Bytes) -> Quantised:
    return Quantised("q8", blocks[..., 2:] ^ _SIGN, _halves(blocks[..., :2]))


def _iq4_nl(blocks: Bytes) -> Quantised:
    values = (np.array(_IQ4_VALUES) + 128).astype(np.uint8)
    return Quantised("q8", values[_nibbles(blocks[..., 2:])], _halves(blocks[..., :2]))


def _q4_k(blocks: Bytes) -> Quantised:
    scales, minima = _k_scales(blocks)
    return Quantised("q4", _in_groups(_nibbles(_chunks(blocks[..., 16:], 32))), scales, minima)


def _q5_k(blocks: Bytes) -> Quantised:
    scales, minima = _k_scales(blocks)
    low = _in_groups(_nibbles(_chunks(blocks[..., 48:], 32)))
    places = np.arange(SUPER // GROUP, dtype=np.uint8)[:, None]
    fifth = (blocks[..., None, 16:48] >> places) & np.uint8(1)  # bit g of byte i: element i of group g
    return Quantised("q8_min", low | _shifted(_in_groups(fifth), 4), scales, minima)


def _q6_k(blocks: Bytes) -> Quantised:
    low = _nibbles(_chunks(blocks[..., :128], 64))  # of 128 elements at a time
    places = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = (_chunks(blocks[..., 128:192], 32)[..., None, :] >> places) & np.uint8(3)
    quants = _in_groups(low | _shifted(high.reshape(low.shape), 4)) + np.uint8(128 - 32)
    scales = blocks[..., 192:208].view(np.int8).astype(np.float32) * _wide(blocks[..., 208:210])[..., None]
    return Quantised("q8_16", quants, scales.astype(np.float16).reshape(len(blocks), -1, 2))


def _k_scales(blocks: Bytes) -> tuple[Half, Half]:
    """Scales and minima of a Q4_K or Q5_K block's eight groups: six bits each, in twelve bytes, times a half."""
    packed = blocks[..., 4:16]
    first, second, rest = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (rest & 15) | ((first >> 6) << 4)], axis=-1).astype(np.float32)
    minima = np.concatenate([second & 63, (rest >> 4) | ((second >> 6) << 4)], axis=-1).astype(np.float32)
    d, d_min = _wide(blocks[..., :2])[..., None], _wide(blocks[..., 2:4])[..., None]
    by_group = (len(blocks), -1)
    return (d * scales).astype(np.float16).reshape(by_group), (-d_min * minima).astype(np.float16).reshape(by_group)


def _halves(raw: Bytes) -> Half:
    return np.ascontiguousarray(raw).view(np.float16)[..., 0]


def _wide(raw: Bytes) -> Floats:
    return _halves(raw).astype(np.float32)


def _nibbles(raw: Bytes) -> Bytes:
    """GGUF's order: all low nibbles of the last axis, then the high ones."""
    return np.concatenate([raw & np.uint8(15), raw >> 4], axis=-1)


def _shifted(bits: Bytes, places: int) -> Bytes:
    return bits << np.uint8(places)


def _bits(raw: Bytes) -> Bytes:
    return np.unpackbits(raw, axis=-1, bitorder="little")


def _chunks(raw: Bytes, size: int) -> Bytes:
    return raw.reshape(*raw.shape[:-1], -1, size)


def _in_groups(quants: Bytes) -> Bytes:
    """[outputs, …] in element order → [outputs, groups, 32]."""
    return quants.reshape(len(quants), -1, GROUP)


_TYPES: dict[str, tuple[int, Callable[[Bytes], Quantised]]] = {
    "q4_0": (GROUP, _q4_0),
    "q4_1": (GROUP, _q4_1),
    "q5_0": (GROUP, _q5_0),
    "q5_1": (GROUP, _q5_1),
    "q8_0": (GROUP, _q8_0),
    "iq4_nl": (GROUP, _iq4_nl),
    "q4_k": (SUPER, _q4_k),
    "q5_k": (SUPER, _q5_k),
    "q6_k": (SUPER, _q6_k),
}
