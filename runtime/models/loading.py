"""From a model's files to a `Model` that the worker can run. Called by the engine's wiring."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from palmette.kernels.protocol import Batch, Kernels
from palmette.kernels.select import KernelName
from palmette.radix_cache.store import Store
from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DType, KvDType, cache_folder
from palmette.runtime.errors import ModelError
from palmette.runtime.models import registry
from palmette.runtime.models.backends import Backend, Decoder, Progress, choose_backend
from palmette.runtime.models.prepared import Prepared, digest, load_or_prepare, prepared_path


class Model:
    """A model that computes. One instance a worker; not to be called from two threads at a time."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, decoder: Decoder, numerics_id: str) -> None:
        self.config = config
        self.dtype = dtype
        self.kv_dtype = decoder.kv
        self.kernels = decoder.name
        self.numerics_id = numerics_id
        self.native = decoder.native
        self._decoder = decoder

    @torch.inference_mode()
    def forward(self, batch: Batch, store: Store) -> Tensor:
        """Writes the step's KV and returns the logits behind the tokens `logits_at`: [L, vocabulary] float32."""
        return self.forward_with_states(batch, store)[0]

    @torch.inference_mode()
    def forward_with_states(self, batch: Batch, store: Store) -> tuple[Tensor, Tensor]:
        """Logits, and the hidden states of the tokens `states_at`, behind the final norm: [P, hidden size] float32."""
        states = torch.empty(len(batch.states_at), self.config.hidden_size)
        return self._decoder.forward(batch, store, states), states

    def new_store(self, pages: int, page_size: int, *, poison: bool = False) -> Store:
        """An empty KV store of the model's shape and dtype."""
        return self._decoder.new_store(pages, page_size, poison=poison)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of KV that one position takes."""
        return self.new_store(1, 1).bytes_per_token


def load_model(
    model: ModelFiles | str,
    dtype: DType = "auto",
    kernels: KernelName | Kernels = "auto",
    *,
    kv_dtype: KvDType = "auto",
    threads: int | None = None,
    cached: bool = True,
    progress: Progress | None = None,
) -> Model:
    """Opens, prepares (once, where `cached`) and builds a model: files that were found, or a name to `resolve`.

    `kernels`: a backend or its name; "auto" is native code where there is a compiler, else plain torch. `threads`:
    of native code (torch has its own setting). Raises ModelNotFound, UnknownArchitecture, DamagedModel, or
    InvalidRequest for a dtype that is none, or for native kernels or a `kv_dtype` that can't be had.
    """
    files = resolve(model) if isinstance(model, str) else model
    backend = choose_backend(
        open_checkpoint(files).config,
        dtype,
        kernels,
        threads or torch.get_num_threads(),
        progress,
        kv_dtype=kv_dtype,
    )

    def prepare_now() -> Prepared:
        if progress is not None:
            progress("Preparing the weights, once …")
        return prepare(open_checkpoint(files), backend)

    if not cached or files.kind == "tiny":  # a seeded model is made faster than it is read
        return build_model(prepare_now(), backend)
    path = prepared_path(cache_folder() / "prepared", files, backend.layout)
    try:
        return build_model(load_or_prepare(path, prepare_now), backend)
    except OSError as error:
        raise ModelError(
            f"The prepared model can't be kept in {str(path.parent)!r}: {error}.",
            hint="Free space there, or set PALMETTE_CACHE to a folder that can be written.",
        ) from error


def prepare(checkpoint: Checkpoint, backend: Backend) -> Prepared:
    """The checkpoint's tensors in the form that `backend` wants. Raises UnknownArchitecture."""
    registry.family(checkpoint.architecture)
    tensors = {name: tensor.contiguous() for name, tensor in backend.prepare(checkpoint)}
    return Prepared(checkpoint.config, tensors, digest(tensors))


def build_model(prepared: Prepared, backend: Backend) -> Model:
    decoder = backend.build(prepared)
    numerics = _numerics_id(prepared.digest, backend.dtype, decoder)
    return Model(prepared.config, backend.dtype, decoder, numerics)


def _numerics_id(weights: str, dtype: torch.dtype, decoder: Decoder) -> str:
    """Names the function from tokens to bits: KV of another id must not be used (design rule 1a)."""
    parts = (weights, str(dtype), decoder.name, decoder.numerics, torch.__version__)
    capabilities = sorted(f"{key}={value}" for key, value in torch.cpu.get_capabilities().items() if "cache" not in key)
    return hashlib.sha256("\n".join((*parts, *capabilities)).encode()).hexdigest()[:32]
