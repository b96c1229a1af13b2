"""Rotary embedding's table: one row of cosines and sines per absolute position (design rule 1e).

Computed once in float64 and rounded, so that a position's row never depends on the batch or on how long the table is.
Called by the model families.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from palmette.runtime.checkpoint.config import FrequencyRope, LinearRope, Llama3Rope, RopeScaling

CHUNK = 1024  # positions computed at a time


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> npt.NDArray[np.float64]:
    """Radians a position for each of the head_dim / 2 pairs, fastest first.

    Llama 3's scaling keeps short wavelengths, divides long ones by `factor` and blends in between.
    """
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    match scaling:
        case None:
            return frequencies
        case LinearRope(factor):
            return frequencies / factor
        case FrequencyRope(factors):
            return frequencies / np.asarray(factors, dtype=np.float64)
        case Llama3Rope(factor, low, high, original):
            turns = original * frequencies / (2 * math.pi)  # over the context it was trained with
            kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
            return frequencies * (kept + (1.0 - kept) / factor)


class RopeTable:
    """cos and sin [context_length, head_dim / 2] float32."""

    def __init__(self, frequencies: npt.NDArray[np.float64], context_length: int) -> None:
        shape = (-(-context_length // CHUNK) * CHUNK, len(frequencies))
        cos, sin = np.empty(shape, np.float32), np.empty(shape, np.float32)
        for start in range(0, shape[0], CHUNK):
            angles = np.arange(start, start + CHUNK, dtype=np.float64)[:, None] * frequencies
            cos[start : start + CHUNK] = np.cos(angles)
            sin[start : start + CHUNK] = np.sin(angles)
        self.cos = torch.from_numpy(cos)
        self.sin = torch.from_numpy(sin)

    def rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos, sin [T, head_dim / 2] of positions int64 [T]."""
        return self.cos.index_select(0, positions), self.sin.index_select(0, positions)
