"""The model that all systems of a comparison serve: file, tokenizer, sizes. Called by run.py and peers/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.costs import ModelShape
from benchmarks.text import Encode
from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.checkpoint.open import open_checkpoint
from palmette.runtime.checkpoint.protocol import Checkpoint
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DEFAULT_MODEL
from palmette.runtime.text.load import load_tokenizer

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class LocalModel:
    name: str
    path: Path  # the .gguf file
    encode: Encode
    shape: ModelShape


def open_model(name: str | None) -> LocalModel:
    """A catalogue name (fetched if it must be) or a .gguf file. Raises ModelError."""
    files = resolve(name or DEFAULT_MODEL)
    tokenizer = load_tokenizer(files)
    return LocalModel(
        name=files.path.name,
        path=files.path,
        encode=lambda text: tokenizer.encode(text, special=False),
        shape=shape_of(open_checkpoint(files)),
    )


def files_of(path: Path) -> ModelFiles:
    """A .gguf file as the loaders want it."""
    return ModelFiles(name=str(path), kind="gguf", path=path)


def shape_of(checkpoint: Checkpoint) -> ModelShape:
    """Sizes from the tensors themselves, so that mixed quantisations are counted as they are."""
    config = checkpoint.config
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.tensor_names()}
    head = tensors[HEAD] if HEAD in tensors else tensors[EMBEDDING]
    blocks = [tensor for name, tensor in tensors.items() if name not in (HEAD, EMBEDDING)]
    return ModelShape(
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        layer_parameters=sum(rows * columns for rows, columns in (t.shape for t in blocks if len(t.shape) == 2)),
        head_parameters=head.shape[0] * head.shape[1],
        weight_bytes=head.data.nbytes + sum(tensor.data.nbytes for tensor in blocks),
    )
