"""Prepared models: the fused tensors of a model in one dtype, one safetensors file each, mapped at the next start.

A file is named by what it was made from (the sources' paths, sizes and times; dtype; layout) and says in its metadata
the model's configuration and a digest of the tensors, so that a second start opens nothing else. Called by loading.py.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.checkpoint.files import ModelFiles

ALIGNMENT = 64  # bytes
LAYOUT = 3  # raise it when a family stores its tensors otherwise
_TYPE_NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.uint8: "U8"}
_SOURCES = ("*.safetensors", "*.json")


@dataclass(frozen=True)
class Prepared:
    """`digest`: hex SHA-256 of names, dtypes, shapes and bytes of the tensors."""

    config: ModelConfig
    tensors: Mapping[str, Tensor]
    digest: str


def digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(_bytes(tensor))
    return found.hexdigest()


def prepared_path(folder: Path, files: ModelFiles, layout: str) -> Path:
    """Where the prepared form of these files lies. Changes when a source file does."""
    sources = [files.path] if files.path.is_file() else [f for glob in _SOURCES for f in files.path.glob(glob)]
    lines = [f"{LAYOUT} {layout} {files.kind}"]
    for source in sorted(sources):
        status = source.stat()
        lines.append(f"{source.resolve()} {status.st_size} {status.st_mtime_ns}")
    key = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return folder / f"{files.path.stem}-{layout}-{key}.safetensors"


def load_or_prepare(path: Path, prepare: Callable[[], Prepared]) -> Prepared:
    """The prepared model at `path`, made there first where it is missing or damaged. Safe among processes."""
    from filelock import FileLock

    found = _load(path)
    if found is not None:
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        found = _load(path)  # another process may have made it while we waited
        if found is None:
            _store(path, prepare())
            found = _load(path)
    if found is None:
        raise OSError(f"The prepared model {str(path)!r} can't be read back just after it was written.")
    return found


def _store(path: Path, prepared: Prepared) -> None:
    """Writes a safetensors file whose tensors start at multiples of ALIGNMENT where their sizes allow it.

    The safetensors library aligns to 8 bytes only; a mapped weight should lie as torch would have allocated it.
    """
    named = sorted(prepared.tensors.items(), key=lambda item: (item[1].nbytes % ALIGNMENT != 0, item[0]))
    metadata = {"config": msgspec.json.encode(prepared.config).decode(), "digest": prepared.digest}
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, tensor in named:
        place = [offset, offset + tensor.nbytes]
        header[name] = {"dtype": _TYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
        offset = place[1]
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-(8 + len(encoded)) % ALIGNMENT)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(len(encoded).to_bytes(8, "little") + encoded)
            for _, tensor in named:
                file.write(_bytes(tensor))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().view(torch.uint8).numpy().data


def _aligned(tensor: Tensor) -> Tensor:
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _load(path: Path) -> Prepared | None:
    """The mapped tensors; None where there is no file, or one that was cut short or belongs to another version."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: _aligned(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        config = msgspec.json.decode(metadata["config"], type=ModelConfig)
    except (SafetensorError, msgspec.DecodeError, KeyError, TypeError, OSError):
        return None
    return Prepared(config, tensors, metadata["digest"])
