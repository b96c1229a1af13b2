"""The tiny random llama that ships for tests: a folder with a tokenizer and a config, weights from a seed.

Every bit of a weight is the same on every machine and numpy version: raw Philox words (a stream that numpy
promises to keep), summed as integers into near-normal numbers, times one float64 scale. Called by open.py.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from palmette.runtime.checkpoint.hf_config import read_config
from palmette.runtime.checkpoint.llama import EMBEDDING, HEAD, check_config, tensor_shapes
from palmette.runtime.checkpoint.protocol import RawTensor

NAME = "tiny"
FOLDER = Path(__file__).parent / "tiny_model"
_WORDS = 3  # of 64 bits a number, each giving four uniform 16-bit summands
_SUMMANDS = 4 * _WORDS
HEAD_GAIN = 2.0  # the standard deviation of the logits
ATTENTION_GAIN = 1.6  # sharpens attention, so that the context matters


class TinyModel:
    """A Checkpoint with `seeded` True. Another seed gives another model of the same shape."""

    seeded = True

    def __init__(self, folder: Path = FOLDER, seed: int = 0) -> None:
        self.config = check_config(read_config(folder), folder)
        self.architecture = self.config.architecture
        self.seed = seed
        self._shapes = tensor_shapes(self.config)

    def tensor_names(self) -> Sequence[str]:
        return tuple(self._shapes)

    def tensor(self, name: str) -> RawTensor:
        shape = self._shapes[name]
        values = np.ones(shape, np.float32) if name.endswith("norm.weight") else self._random(name, shape)
        return RawTensor(shape, "f32", values.reshape(-1).view(np.uint8))

    def _random(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        deviation = 1.0 if name == EMBEDDING else 1.0 / math.sqrt(shape[-1])
        if name == HEAD:
            deviation *= HEAD_GAIN
        if ".q_proj." in name or ".k_proj." in name:
            deviation *= ATTENTION_GAIN
        words = np.random.Philox(key=zlib.crc32(name.encode()) + (self.seed << 32)).random_raw(
            math.prod(shape) * _WORDS
        )
        summands = words.astype("<u8").view("<u2").reshape(-1, _SUMMANDS).astype(np.int64)
        centred = summands.sum(axis=1) * 2 - _SUMMANDS * 0xFFFF
        scale = deviation / (2 * 65536 * math.sqrt(_SUMMANDS / 12))
        values: npt.NDArray[np.float32] = (centred * scale).astype(np.float32)
        return values.reshape(shape)
