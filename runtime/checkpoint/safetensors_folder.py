"""A folder of config.json and safetensors shards as a Checkpoint. Memory-mapped, bounds-checked, no torch.

Called by open.py. The header is read here rather than by the safetensors library so that bf16 needs no torch
and a damaged file says what is wrong with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.checkpoint.hf_config import read_config, read_json
from palmette.runtime.checkpoint.llama import HEAD, check_config, check_tensors, tensor_shapes
from palmette.runtime.checkpoint.protocol import RawTensor, TensorType
from palmette.runtime.errors import DamagedModel

INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000
_TYPES: dict[str, tuple[TensorType, int]] = {
    "F32": ("f32", 4), "F16": ("f16", 2), "BF16": ("bf16", 2), "F64": ("f64", 8),
}  # fmt: skip
_REFETCH = "The file was cut short or changed on its way here: fetch or copy it again."


class SafetensorsFolder:
    """A Checkpoint. Raises UnknownArchitecture or DamagedModel when it is made."""

    seeded = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tensors: dict[str, RawTensor] = {}
        for shard in shards(folder):
            self._tensors.update(read_shard(shard))
        self.config = check_config(read_config(folder), folder)
        if not self.config.tie_embeddings and HEAD not in self._tensors:
            self.config = msgspec.structs.replace(self.config, tie_embeddings=True)
        self.architecture = self.config.architecture
        check_tensors(self.config, {name: raw.shape for name, raw in self._tensors.items()}, folder)
        self._names = tuple(name for name in tensor_shapes(self.config) if name in self._tensors)

    def tensor_names(self) -> Sequence[str]:
        return self._names

    def tensor(self, name: str) -> RawTensor:
        return self._tensors[name]


def shards(folder: Path) -> list[Path]:
    """The weight files of the folder, in order: those that the index names, else every .safetensors file."""
    index = folder / INDEX
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise DamagedModel(f"{str(index)!r} has no weight_map of file names.", hint=_REFETCH)
        found = [folder / Path(name).name for name in sorted(set(weight_map.values()))]
    else:
        found = sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in found if not path.is_file()]
    if missing or not found:
        what = f"lacks {', '.join(missing)}" if missing else "has no .safetensors file"
        raise DamagedModel(f"{str(folder)!r} {what}.", hint="Fetch or copy the whole folder again.")
    return found


def read_shard(path: Path) -> dict[str, RawTensor]:
    """Every tensor of one file, as views of its mapping."""
    size = path.stat().st_size
    if size < 8:
        raise _damaged(path, f"it has {size} bytes, less than a header")
    mapped: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
    length = int(mapped[:8].view("<u8")[0])
    if length > min(size - 8, MAX_HEADER):
        raise _damaged(path, f"its header should have {length} bytes, and the file has {size}")
    try:
        header = msgspec.json.decode(mapped[8 : 8 + length].tobytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _damaged(path, f"its header is no JSON object ({error})") from error
    data = mapped[8 + length :]
    return {name: _tensor(path, name, entry, data) for name, entry in header.items() if name != "__metadata__"}


def _tensor(path: Path, name: str, entry: Any, data: npt.NDArray[np.uint8]) -> RawTensor:
    try:
        parsed = msgspec.convert(entry, _Entry)
    except msgspec.ValidationError as error:
        raise _damaged(path, f"the entry of tensor {name!r} is wrong ({error})") from error
    if parsed.dtype not in _TYPES:
        raise DamagedModel(
            f"{str(path)!r} stores tensor {name!r} as {parsed.dtype!r}, not readable here.",
            hint=f"Take a model stored in one of {', '.join(_TYPES)}, or a GGUF file of it.",
        )
    kind, width = _TYPES[parsed.dtype]
    start, end = parsed.data_offsets
    if not 0 <= start <= end <= data.size:
        raise _damaged(path, f"tensor {name!r} lies at {start} to {end} of {data.size} bytes of data")
    if any(length < 0 for length in parsed.shape) or math.prod(parsed.shape) * width != end - start:
        raise _damaged(path, f"tensor {name!r} of shape {parsed.shape!r} has {end - start} bytes")
    return RawTensor(parsed.shape, kind, data[start:end])


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _damaged(path: Path, what: str) -> DamagedModel:
    return DamagedModel(f"{str(path)!r} is not a sound safetensors file: {what}.", hint=_REFETCH)
