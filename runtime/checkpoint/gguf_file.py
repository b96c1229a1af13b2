"""Reads a GGUF file (versions 2, 3): its metadata and where its tensors lie. Memory-mapped, bounds-checked.

The gguf library's reader walks every array element in Python and takes seconds for a vocabulary; this one
takes 40 ms. Whatever is damaged raises DamagedModel with the file, the place and what to do. Knows nothing of
architectures: llama_gguf.py gives the tensors their canonical names. Called by open.py and runtime/text.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, get_args

import gguf
import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.checkpoint.dequantize import stored_bytes, to_float32
from palmette.runtime.checkpoint.protocol import RawTensor, TensorType
from palmette.runtime.errors import DamagedModel

MAGIC = b"GGUF"
MAX_DIMENSIONS = 4
MAX_NESTING = 4
MAX_ALIGNMENT = 1 << 20
_REFETCH = "The file was cut short or changed on its way here: fetch or copy it again."

# GGUF value type → (struct format, numpy type)
_SCALARS = {
    0: ("<B", "<u1"), 1: ("<b", "<i1"), 2: ("<H", "<u2"), 3: ("<h", "<i2"), 4: ("<I", "<u4"),
    5: ("<i", "<i4"), 6: ("<f", "<f4"), 7: ("<?", "|b1"), 10: ("<Q", "<u8"), 11: ("<q", "<i8"),
    12: ("<d", "<f8"),
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_SMALLEST = {_STRING: 8, _ARRAY: 12}  # bytes an element takes at least
_TENSOR_TYPES: dict[int, TensorType] = {
    int(gguf.GGMLQuantizationType[name.upper()]): name for name in get_args(TensorType)
}


class TensorInfo(msgspec.Struct, frozen=True):
    """A tensor of the file: row-major `shape` (numpy order), stored form, and its bytes in the mapping."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    data: npt.NDArray[np.uint8]

    def raw(self) -> RawTensor:
        return RawTensor(self.shape, self.type, self.data)


class GgufFile:
    """An opened GGUF file. Tensor data stays on disk until read; the mapping lives as long as its views."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _Reader(path)
        version, tensor_count, pair_count = self._reader.header()
        self.version = version
        self.metadata: dict[str, Any] = self._read_metadata(pair_count)
        self.tensors: dict[str, TensorInfo] = self._read_tensors(tensor_count)

    def dequantize(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor's values. Raises KeyError for a name the file doesn't have."""
        return to_float32(self.tensors[name].raw())

    def _read_metadata(self, count: int) -> dict[str, Any]:
        reader = self._reader
        reader.expect(count * 13, f"{count} metadata entries")
        metadata: dict[str, Any] = {}
        for index in range(count):
            key = reader.string(f"the name of metadata entry {index}")
            if not key or key in metadata:
                raise reader.damaged(f"metadata entry {index} has the name {key!r}, empty or a second time")
            metadata[key] = reader.value(reader.scalar(4, f"the type of {key!r}"), f"{key!r}")
        return metadata

    def _read_tensors(self, count: int) -> dict[str, TensorInfo]:
        reader = self._reader
        reader.expect(count * 24, f"{count} tensors")
        entries: dict[str, tuple[tuple[int, ...], TensorType, int, int]] = {}
        for index in range(count):
            name = reader.string(f"the name of tensor {index}")
            if name in entries:
                raise reader.damaged(f"tensor {index} has the name {name!r}, which is there already")
            entries[name] = reader.tensor_entry(name)
        start = reader.data_start(self.metadata.get("general.alignment", 32))
        end_of_last = 0
        tensors: dict[str, TensorInfo] = {}
        for name, (shape, kind, offset, size) in sorted(entries.items(), key=lambda entry: entry[1][2]):
            if offset < end_of_last:
                raise reader.damaged(f"tensor {name!r} at offset {offset} overlaps the one before it")
            end_of_last = offset + size
            tensors[name] = TensorInfo(name, shape, kind, reader.data(name, start + offset, size))
        return {name: tensors[name] for name in entries}


class _Reader:
    """A cursor over the mapped file. Every read is checked against the file's end first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0
        try:
            self.size = path.stat().st_size
            if self.size < 24:
                raise self.damaged(f"it has {self.size} bytes, less than a header")
            self.map: npt.NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        except OSError as error:
            raise DamagedModel(
                f"{str(path)!r} can't be read: {error.strerror or error}.",
                hint="Check the path and its permissions.",
            ) from error
        self.bytes = self.map.data

    def damaged(self, what: str) -> DamagedModel:
        return DamagedModel(f"{str(self.path)!r} is not a sound GGUF file: {what}.", hint=_REFETCH)

    def expect(self, count: int, what: str) -> None:
        if count > self.size - self.at:
            raise self.damaged(f"{what} need {count} bytes at offset {self.at}, and the file ends at {self.size}")

    def header(self) -> tuple[int, int, int]:
        """Version, number of tensors, number of metadata entries."""
        magic = bytes(self.bytes[:4])
        if magic != MAGIC:
            raise DamagedModel(
                f"{str(self.path)!r} is no GGUF file: it begins with {magic!r} and not with {MAGIC!r}.",
                hint="Give a .gguf file or a model's folder; if it should be one, fetch or copy it again.",
            )
        self.at = 4
        version = self.scalar(4, "the version")
        if version & 0xFFFF == 0:
            raise DamagedModel(
                f"{str(self.path)!r} is a big-endian GGUF file.", hint="Convert it to little-endian first."
            )
        if version not in (2, 3):
            raise DamagedModel(
                f"{str(self.path)!r} has GGUF version {version}; versions 2 and 3 can be read.",
                hint="Convert it with a current llama.cpp.",
            )
        return (
            version,
            self.scalar(10, "the number of tensors"),
            self.scalar(10, "the number of metadata entries"),
        )

    def scalar(self, kind: int, what: str) -> Any:
        layout, _ = _SCALARS[kind]
        size = struct.calcsize(layout)
        self.expect(size, what)
        (value,) = struct.unpack_from(layout, self.bytes, self.at)
        self.at += size
        return value

    def string(self, what: str) -> str:
        length = self.scalar(10, f"the length of {what}")
        self.expect(length, what)
        raw = bytes(self.bytes[self.at : self.at + length])
        self.at += length
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8: {raw[:40]!r}") from error

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.scalar(kind, what)
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self.array(what, depth)
        raise self.damaged(f"{what} has the unknown value type {kind!r}")

    def array(self, what: str, depth: int) -> list[Any]:
        if depth >= MAX_NESTING:
            raise self.damaged(f"{what} nests arrays more than {MAX_NESTING} deep")
        kind = self.scalar(4, f"the element type of {what}")
        count = self.scalar(10, f"the length of {what}")
        if kind in _SCALARS:
            layout, dtype = _SCALARS[kind]
            size = count * struct.calcsize(layout)
            self.expect(size, what)
            values: list[Any] = np.frombuffer(self.bytes, dtype, count, self.at).tolist()
            self.at += size
            return values
        if kind not in _SMALLEST:
            raise self.damaged(f"{what} has the unknown element type {kind!r}")
        self.expect(count * _SMALLEST[kind], f"{count} elements of {what}")
        if kind == _STRING:
            return self.strings(count, what)
        return [self.array(what, depth + 1) for _ in range(count)]

    def strings(self, count: int, what: str) -> list[str]:
        """What `string` does `count` times, without a call each: vocabularies have 100,000 and more."""
        data, at, end = self.bytes, self.at, self.size
        length_at = struct.Struct("<Q").unpack_from
        values: list[str] = []
        try:
            for _ in range(count):
                (length,) = length_at(data, at)
                start = at + 8
                at = start + length
                if at > end:
                    break
                values.append(str(data[start:at], "utf-8"))
        except (struct.error, UnicodeDecodeError) as error:
            raise self.damaged(f"element {len(values)} of {what} is no string: {error}") from error
        if len(values) < count:
            raise self.damaged(f"element {len(values)} of {what} goes beyond the end of the file at {end}")
        self.at = at
        return values

    def tensor_entry(self, name: str) -> tuple[tuple[int, ...], TensorType, int, int]:
        """Shape, stored form, offset in the data part, bytes."""
        what = f"the entry of tensor {name!r}"
        dimensions = self.scalar(4, what)
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise self.damaged(f"tensor {name!r} has {dimensions} dimensions; 1 to {MAX_DIMENSIONS} are possible")
        shape = tuple(reversed([self.scalar(10, what) for _ in range(dimensions)]))
        number = self.scalar(4, what)
        offset = self.scalar(10, what)
        kind = _TENSOR_TYPES.get(number)
        if kind is None:
            raise DamagedModel(
                f"{str(self.path)!r} stores tensor {name!r} as {_type_name(number)}, not readable here.",
                hint=f"Take a file in one of {', '.join(_TENSOR_TYPES.values())}.",
            )
        size = stored_bytes(shape, kind)
        if not size:
            raise self.damaged(f"tensor {name!r} has the shape {shape!r}, impossible for {kind}")
        return shape, kind, offset, size

    def data_start(self, alignment: Any) -> int:
        fits = isinstance(alignment, int) and 0 < alignment <= MAX_ALIGNMENT and alignment % 8 == 0
        if not fits:
            raise self.damaged(f"general.alignment={alignment!r} is not a multiple of 8 up to {MAX_ALIGNMENT}")
        start: int = -(-self.at // alignment) * alignment
        return start

    def data(self, name: str, start: int, size: int) -> npt.NDArray[np.uint8]:
        if start + size > self.size:
            raise self.damaged(f"tensor {name!r} should end at {start + size}, and the file ends at {self.size}")
        return self.map[start : start + size]


def _type_name(number: int) -> str:
    try:
        return str(gguf.GGMLQuantizationType(number).name.lower())
    except ValueError:
        return f"number {number}"
