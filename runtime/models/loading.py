"""From a model's files to a `Model` that the worker can run. Called by the engine's wiring."""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from palmette.kernels.protocol import Batch, Kernels
from palmette.kernels.select import KernelName, select
from palmette.radix_cache.store import KVStore
from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.checkpoint.dequantize import to_float32
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DType, cache_folder
from palmette.runtime.errors import InvalidRequest, ModelError
from palmette.runtime.models import registry
from palmette.runtime.models.prepared import Prepared, digest, load_or_prepare, prepared_path

_DTYPES: dict[DType, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Model:
    """A model that computes. One instance a worker; not to be called from two threads at a time."""

    def __init__(self, prepared: Prepared, dtype: torch.dtype, kernels: Kernels) -> None:
        self.config: ModelConfig = prepared.config
        self.dtype = dtype
        self.kernels = kernels
        self.numerics_id = _numerics_id(prepared.digest, dtype, kernels)
        self._decoder = registry.family(self.config.architecture).build(self.config, prepared.tensors, kernels)

    @torch.inference_mode()
    def forward(self, batch: Batch, store: KVStore) -> Tensor:
        """Writes the step's KV and returns the logits behind the tokens `logits_at`: [L, vocabulary] float32."""
        return self._decoder.forward(batch, store)

    def new_store(self, pages: int, page_size: int, *, poison: bool = False) -> KVStore:
        """An empty KV store of the model's shape and dtype."""
        config = self.config
        return KVStore(config.layers, pages, page_size, config.kv_heads, config.head_dim, self.dtype, poison=poison)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of KV that one position takes."""
        config = self.config
        return 2 * config.layers * config.kv_heads * config.head_dim * self.dtype.itemsize


def load_model(
    model: ModelFiles | str, dtype: DType = "auto", kernels: KernelName | Kernels = "auto", *, cached: bool = True
) -> Model:
    """Opens, prepares (once, where `cached`) and builds a model: files that were found, or a name to `resolve`.

    `kernels`: a backend or its name. Raises ModelNotFound, UnknownArchitecture, DamagedModel, or InvalidRequest for
    a dtype that is none.
    """
    torch_dtype = resolve_dtype(dtype)
    files = resolve(model) if isinstance(model, str) else model
    backend = select(kernels) if isinstance(kernels, str) else kernels

    def prepare_now() -> Prepared:
        return prepare(open_checkpoint(files), torch_dtype)

    if not cached or files.kind == "tiny":  # a seeded model is made faster than it is read
        return Model(prepare_now(), torch_dtype, backend)
    path = prepared_path(cache_folder() / "prepared", files, torch_dtype)
    try:
        return Model(load_or_prepare(path, prepare_now), torch_dtype, backend)
    except OSError as error:
        raise ModelError(
            f"The prepared model can't be kept in {str(path.parent)!r}: {error}.",
            hint="Free space there, or set PALMETTE_CACHE to a folder that can be written.",
        ) from error


def prepare(checkpoint: Checkpoint, dtype: torch.dtype) -> Prepared:
    """The checkpoint's tensors, fused and in `dtype`."""
    family = registry.family(checkpoint.architecture)

    def read(name: str) -> Tensor:
        values = to_float32(checkpoint.tensor(name))
        return torch.from_numpy(values if values.flags.writeable else values.copy())

    names = frozenset(checkpoint.tensor_names())
    tensors = {name: tensor.contiguous() for name, tensor in family.fuse(checkpoint.config, read, names, dtype)}
    return Prepared(checkpoint.config, tensors, digest(tensors))


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


def _numerics_id(weights: str, dtype: torch.dtype, kernels: Kernels) -> str:
    """Names the function from tokens to bits: KV of another id must not be used (design rule 1a)."""
    parts = (weights, str(dtype), kernels.name, kernels.numerics, _sources(type(kernels)), torch.__version__)
    capabilities = sorted(f"{key}={value}" for key, value in torch.cpu.get_capabilities().items() if "cache" not in key)
    return hashlib.sha256("\n".join((*parts, *capabilities)).encode()).hexdigest()[:32]


@cache
def _sources(backend: type) -> str:
    """A digest of the backend's sources and of the model families'."""
    found = hashlib.sha256()
    for folder in (Path(inspect.getfile(backend)).parent, Path(__file__).parent):
        for source in sorted(folder.glob("*.py")):
            found.update(source.name.encode() + source.read_bytes())
    return found.hexdigest()
