"""Traces of requests: Mooncake's JSON lines, Azure's CSV, and our own recordings, read into one form.

A request's tokens are known as blocks: equal block ids mean equal tokens, from the start of the request to the block's
end. Knows files and nothing of schedulers. Used by run.py, benchmarks and `palmette simulate`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.recording import RECORDING, RecordedRequest, RecordingHead

MOONCAKE_BLOCK = 512
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

Form = Literal["mooncake", "azure", "recording"]


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `arrival`: seconds from the trace's start.

    `blocks` cover the first `covered` tokens of prompt and output, the last block maybe in part. What they don't cover
    is shared with no other request.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    covered: int = 0
    priority: int = 0
    tenant: str = ""


class Trace(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Requests in order of arrival. Block ids are 0 … distinct_blocks − 1, each of `block_tokens` tokens."""

    name: str
    form: Form
    block_tokens: int
    requests: tuple[TraceRequest, ...]
    distinct_blocks: int

    @cached_property
    def prompt_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @cached_property
    def output_tokens(self) -> int:
        return sum(request.output_tokens for request in self.requests)

    @property
    def vocabulary(self) -> int:
        """Token ids used by `tokens`: one a block, one a request."""
        return self.distinct_blocks + len(self.requests)

    def tokens(self, index: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Stand-ins for the tokens of prompt and output of request `index`: each is the id of its block.

        Blocks are of whole prefixes, so equal ids at equal places mean equal tokens.
        """
        request = self.requests[index]
        total = request.prompt_tokens + request.output_tokens
        tokens = np.full(total, self.distinct_blocks + index, dtype=np.int32)
        known = np.repeat(np.array(request.blocks, dtype=np.int32), self.block_tokens)[: min(request.covered, total)]
        tokens[: len(known)] = known
        return tokens

    def first(self, count: int) -> Trace:
        """Its first `count` requests."""
        return msgspec.structs.replace(self, requests=self.requests[:count])


class _MooncakeRow(msgspec.Struct, frozen=True):
    timestamp: float  # milliseconds
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_trace(path: Path, *, limit: int | None = None) -> Trace:
    """The trace in a file, its form told by its first line; the first `limit` rows where given.

    Raises InvalidRequest naming the line where a row makes no sense, OSError where the file can't be read.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        first = lines.readline()
        rest = islice(lines, limit)
        if first.startswith(AZURE_COLUMNS[0] + ","):
            return _azure(path, first, rest)
        if RECORDING in first:
            return _recording(path, first, rest)
        return _mooncake(path, islice(chain([first], rest), limit))


def _mooncake(path: Path, lines: Iterator[str]) -> Trace:
    decoder, rows, ids = msgspec.json.Decoder(_MooncakeRow), [], _Dense()
    for place, line in _numbered(path, lines, 1):
        row = _decoded(decoder, line, place, "timestamp, input_length, output_length, hash_ids")
        _check(place, "timestamp", row.timestamp, 0)
        _check(place, "input_length", row.input_length, 1)
        _check(place, "output_length", row.output_length, 0)
        wanted = -(-row.input_length // MOONCAKE_BLOCK)
        if len(row.hash_ids) != wanted:
            raise InvalidRequest(
                f"{place}: hash_ids has {len(row.hash_ids)} ids; input_length={row.input_length} takes {wanted} "
                f"blocks of {MOONCAKE_BLOCK} tokens."
            )
        rows.append(
            TraceRequest(
                arrival=row.timestamp / 1000,
                prompt_tokens=row.input_length,
                output_tokens=row.output_length,
                blocks=ids.of(row.hash_ids),
                covered=row.input_length,
            )
        )
    return _trace(path, "mooncake", MOONCAKE_BLOCK, rows, ids)


def _recording(path: Path, first: str, lines: Iterator[str]) -> Trace:
    head = _decoded(msgspec.json.Decoder(RecordingHead), first, f"{path}:1", "recording, block_tokens")
    _check(f"{path}:1", "block_tokens", head.block_tokens, 1)
    decoder, rows, ids = msgspec.json.Decoder(RecordedRequest), [], _Dense()
    for place, line in _numbered(path, lines, 2):
        row = _decoded(decoder, line, place, "arrival, prompt_tokens, output_tokens, blocks")
        _check(place, "arrival", row.arrival, 0)
        _check(place, "prompt_tokens", row.prompt_tokens, 1)
        _check(place, "output_tokens", row.output_tokens, 0)
        total = row.prompt_tokens + row.output_tokens
        wanted = -(-total // head.block_tokens)
        if row.blocks and len(row.blocks) != wanted:
            raise InvalidRequest(
                f"{place}: blocks has {len(row.blocks)} hashes; {total} tokens take {wanted} blocks of "
                f"{head.block_tokens}."
            )
        rows.append(
            TraceRequest(
                arrival=row.arrival,
                prompt_tokens=row.prompt_tokens,
                output_tokens=row.output_tokens,
                blocks=ids.of(row.blocks),
                covered=total if row.blocks else 0,
                priority=row.priority,
                tenant=row.tenant,
            )
        )
    return _trace(path, "recording", head.block_tokens, rows, ids)


def _azure(path: Path, first: str, lines: Iterator[str]) -> Trace:
    columns = next(csv.reader([first.strip()]))
    missing = [name for name in AZURE_COLUMNS if name not in columns]
    if missing:
        raise InvalidRequest(f"{path}:1: the column {missing[0]!r} is missing; there are {', '.join(columns)}.")
    at = [columns.index(name) for name in AZURE_COLUMNS]
    rows: list[TraceRequest] = []
    start: datetime | None = None
    for place, line in _numbered(path, lines, 2):
        cells = next(csv.reader([line.strip()]))
        if len(cells) != len(columns):
            raise InvalidRequest(f"{place}: {len(cells)} cells; the header has {len(columns)}.")
        when, prompt, output = (cells[index] for index in at)
        try:
            time = datetime.fromisoformat(when[:26])  # microseconds: the seventh digit is none
            lengths = int(prompt), int(output)
        except ValueError as error:
            raise InvalidRequest(f"{place}: {line.strip()!r} is not a time and two whole numbers ({error}).") from None
        _check(place, "ContextTokens", lengths[0], 1)
        _check(place, "GeneratedTokens", lengths[1], 0)
        start = start or time
        arrival = (time - start).total_seconds()
        _check(place, "TIMESTAMP behind the first one's", arrival, 0)
        rows.append(TraceRequest(arrival=arrival, prompt_tokens=lengths[0], output_tokens=lengths[1]))
    return _trace(path, "azure", 1, rows, _Dense())


class _Dense:
    """Ids 0, 1, 2 … for whatever ids come."""

    def __init__(self) -> None:
        self._ids: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, ids: Sequence[int]) -> tuple[int, ...]:
        known = self._ids
        return tuple([known.setdefault(each, len(known)) for each in ids])


def _trace(path: Path, form: Form, block_tokens: int, rows: list[TraceRequest], ids: _Dense) -> Trace:
    if not rows:
        raise InvalidRequest(f"{path} has no requests.", hint="Give a trace with at least one row.")
    rows.sort(key=lambda row: row.arrival)  # recordings are in order of ending; equal times stay in the file's order
    start = rows[0].arrival
    if start:
        rows = [msgspec.structs.replace(row, arrival=row.arrival - start) for row in rows]
    return Trace(
        name=path.name, form=form, block_tokens=block_tokens, requests=tuple(rows), distinct_blocks=len(ids)
    )  # fmt: skip


def _numbered(path: Path, lines: Iterator[str], first: int) -> Iterator[tuple[str, str]]:
    """Lines that aren't blank, each behind `path:number`."""
    for number, line in enumerate(lines, first):
        if line.strip():
            yield f"{path}:{number}", line


def _decoded(decoder: msgspec.json.Decoder[Any], line: str, place: str, fields: str) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidRequest(
            f"{place}: {error}.", hint=f"Each line is a JSON object with {fields}."
        ) from None  # fmt: skip


def _check(place: str, name: str, value: float, least: int) -> None:
    if not math.isfinite(value) or value < least:
        raise InvalidRequest(f"{place}: {name}={value!r} must be at least {least}.")
