"""What an opened model offers, whichever files it lies in, and the form of its tensors.

Tensor names are Hugging Face's (`model.layers.0.self_attn.q_proj.weight`), shapes row-major ([out, in] for a
linear), q and k in the halves layout of rotary embedding. Implemented by gguf_file, safetensors_folder and
tiny; read by runtime/models, which turns tensors into torch's. dequantize.py widens a RawTensor to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.checkpoint.config import ModelConfig

TensorType = Literal[
    "f32", "f16", "bf16", "f64",
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs",
]  # fmt: skip


class RawTensor(msgspec.Struct, frozen=True):
    """A tensor as stored.

    `data` is a flat uint8 array, little-endian, not to be written to, usually a view of a memory-mapped file.
    Quantised types hold GGUF blocks along the last dimension: 32 (or 256 for K-quants) elements a block, rows
    behind each other.
    """

    shape: tuple[int, ...]
    dtype: TensorType
    data: npt.NDArray[np.uint8]


class Checkpoint(Protocol):
    """An opened model. Tensors are read when asked for."""

    @property
    def architecture(self) -> str: ...

    @property
    def config(self) -> ModelConfig: ...

    @property
    def seeded(self) -> bool:
        """True where the weights are random, made from a seed, not read."""
        ...

    def tensor_names(self) -> Sequence[str]:
        """Canonical names, every one readable with `tensor`. A tied model has no `lm_head.weight`."""
        ...

    def tensor(self, name: str) -> RawTensor:
        """Raises KeyError for a name that `tensor_names` doesn't have."""
        ...
