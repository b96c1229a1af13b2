"""Architecture → model family. A new family is one module and one line here. Called by loading.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from palmette.kernels.protocol import Batch, Kernels
from palmette.radix_cache.store import KVStore
from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.errors import UnknownArchitecture
from palmette.runtime.models import llama
from palmette.runtime.models.layers import Tensors


class Forward(Protocol):
    """A family on a set of torch kernels."""

    def forward(self, batch: Batch, store: KVStore, states: Tensor) -> Tensor:
        """See backends.Decoder."""
        ...


@dataclass(frozen=True)
class Family:
    """`fuse` gives the tensors to store, `build` a decoder on them."""

    fuse: Callable[[ModelConfig, llama.Read, frozenset[str], torch.dtype], Iterator[tuple[str, Tensor]]]
    build: Callable[[ModelConfig, Tensors, Kernels], Forward]


FAMILIES = {"llama": Family(llama.fuse, llama.LlamaModel)}


def family(architecture: str) -> Family:
    """Raises UnknownArchitecture."""
    found = FAMILIES.get(architecture)
    if found is None:
        raise UnknownArchitecture(
            f"The architecture {architecture!r} is not supported.",
            hint=f"Supported: {', '.join(sorted(FAMILIES))}.",
        )
    return found
