"""What computes a model, and in which form it wants the weights: native code, or a torch backend of kernels/select.

`choose_backend` turns the options of an engine into one. Called by loading.py.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol, get_args

import torch
from torch import Tensor

from palmette.kernels.cpu.build import BuildError, build, detect_target
from palmette.kernels.cpu.library import KvStorage, Library, NativeEngine, unsupported
from palmette.kernels.protocol import Batch, Kernels
from palmette.kernels.select import KernelName, select
from palmette.radix_cache.store import KVStore, Store
from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.config import DType, KvDType, cache_folder
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.models import native, registry
from palmette.runtime.models.prepared import Prepared

log = logging.getLogger(__name__)

Progress = Callable[[str], None]

_DTYPES: dict[DType, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Decoder(Protocol):
    """A model's weights on a backend. `numerics`: what, beside the weights, decides bits."""

    @property
    def name(self) -> str: ...

    @property
    def kv(self) -> str:
        """How keys and values are kept: "float32", "bfloat16" or "int8"."""
        ...

    @property
    def numerics(self) -> str: ...

    @property
    def native(self) -> NativeEngine | None:
        """The native engine that computes it, where one does."""
        ...

    def forward(self, batch: Batch, store: Any, states: Tensor) -> Tensor:
        """Writes the step's KV and returns the logits behind the tokens `logits_at`: [L, vocabulary] float32.

        Fills `states` [P, hidden size] float32 with the hidden states of the tokens `states_at`, behind the final norm.
        """
        ...

    def new_store(self, pages: int, page_size: int, *, poison: bool = False) -> Store: ...


class Backend(Protocol):
    """`layout` names the form of the prepared weights, `dtype` is that of KV and of weights that aren't quantised."""

    @property
    def layout(self) -> str: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def prepare(self, checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]: ...

    def build(self, prepared: Prepared) -> Decoder: ...


class TorchBackend:
    """A model family's own forward on a set of kernels."""

    def __init__(self, kernels: Kernels, dtype: torch.dtype) -> None:
        self.kernels = kernels
        self.dtype = dtype
        self.layout = str(dtype).removeprefix("torch.")

    def prepare(self, checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
        """The checkpoint's tensors, fused and in `dtype`."""

        def read(name: str) -> Tensor:
            values = to_float32(checkpoint.tensor(name))
            return torch.from_numpy(values if values.flags.writeable else values.copy())

        names = frozenset(checkpoint.tensor_names())
        return registry.family(checkpoint.architecture).fuse(checkpoint.config, read, names, self.dtype)

    def build(self, prepared: Prepared) -> Decoder:
        return TorchDecoder(prepared, self.kernels, self.dtype)


class TorchDecoder:
    native = None

    def __init__(self, prepared: Prepared, kernels: Kernels, dtype: torch.dtype) -> None:
        self.name = kernels.name
        self.numerics = f"{kernels.numerics} {_sources(type(kernels))}"
        self.config = prepared.config
        self.dtype = dtype
        self.kv = str(dtype).removeprefix("torch.")
        self._forward = registry.family(self.config.architecture).build(self.config, prepared.tensors, kernels).forward

    def forward(self, batch: Batch, store: KVStore, states: Tensor) -> Tensor:
        return self._forward(batch, store, states)

    def new_store(self, pages: int, page_size: int, *, poison: bool = False) -> KVStore:
        config = self.config
        return KVStore(config.layers, pages, page_size, config.kv_heads, config.head_dim, self.dtype, poison=poison)


class NativeBackend:
    """kernels/cpu: a whole step as one call."""

    def __init__(self, library: Library, dtype: torch.dtype, threads: int, kv_dtype: KvDType = "auto") -> None:
        self.library = library
        self.dtype = dtype
        auto: KvStorage = "float32" if dtype == torch.float32 else "bfloat16"
        self.kv: KvStorage = auto if kv_dtype == "auto" else kv_dtype
        self.threads = threads
        self.layout = f"native-{str(dtype).removeprefix('torch.')}"

    def prepare(self, checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
        return native.pack(checkpoint, self.dtype)

    def build(self, prepared: Prepared) -> Decoder:
        return native.NativeDecoder(prepared.config, prepared.tensors, self.library, kv=self.kv, threads=self.threads)


def choose_backend(
    config: ModelConfig,
    dtype: DType,
    kernels: KernelName | Kernels,
    threads: int,
    progress: Progress | None = None,
    *,
    kv_dtype: KvDType = "auto",
) -> Backend:
    """Raises InvalidRequest for a dtype that is none, and for kernels="cpu" or a KV dtype that can't be had."""
    if kv_dtype not in get_args(KvDType):
        raise InvalidRequest(
            f"kv_dtype={kv_dtype!r} is not known.",
            hint=f"Use one of {', '.join(map(repr, get_args(KvDType)))}.",
            param="kv_dtype",
        )
    if kernels in ("auto", "cpu"):
        reason = unsupported(
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
        )
        if reason is None:
            try:
                library = Library(build(cache_folder() / "kernels", detect_target(), progress=progress))
            except (BuildError, OSError) as error:
                reason = str(error)
            else:
                # Native code reads bfloat16 everywhere, so "auto" asks nothing of the processor.
                wide = resolve_dtype("bfloat16" if dtype == "auto" else dtype)
                return NativeBackend(library, wide, threads, kv_dtype)
        if kernels == "cpu":
            raise InvalidRequest(
                f"The native kernels can't compute this model: {reason}.", hint="Use kernels='auto'.", param="kernels"
            )
        log.warning("The model runs on plain torch, which is slower: %s", reason)
    backend = select("portable" if kernels == "auto" else kernels) if isinstance(kernels, str) else kernels
    resolved = resolve_dtype(dtype)
    if kv_dtype not in ("auto", str(resolved).removeprefix("torch.")):
        raise InvalidRequest(
            f"kv_dtype={kv_dtype!r} needs the native kernels; on {backend.name!r} keys and values are kept in the "
            f"model's own type, {resolved}.",
            hint="Use kv_dtype='auto', or kernels='cpu'.",
            param="kv_dtype",
        )
    return TorchBackend(backend, resolved)


def resolve_dtype(dtype: DType) -> torch.dtype:
    """ "auto" is bfloat16 where the CPU multiplies it natively (AVX512_BF16, AMX or ARM's BF16), else float32."""
    if dtype == "auto":
        return torch.bfloat16 if multiplies_bfloat16() else torch.float32
    if dtype not in _DTYPES:
        raise InvalidRequest(
            f"dtype={dtype!r} is not known.", hint="Use 'auto', 'float32' or 'bfloat16'.", param="dtype"
        )
    return _DTYPES[dtype]


def multiplies_bfloat16() -> bool:
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16"))


@cache
def _sources(backend: type) -> str:
    """A digest of the backend's sources and of the model families'."""
    found = hashlib.sha256()
    for folder in (Path(inspect.getfile(backend)).parent, Path(__file__).parent):
        for source in sorted(folder.glob("*.py")):
            found.update(source.name.encode() + source.read_bytes())
    return found.hexdigest()
