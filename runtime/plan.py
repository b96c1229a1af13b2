"""The step's contract between scheduler and worker: flat arrays, encodable, no object references.

`forward(StepPlan) → handle`, then `sample(handle, SamplePlan) → StepResult`: what depends on the last token (masks)
may be made while the forward runs. The worker keeps only block tables between steps, and they follow from
`table_writes` alone, so every tensor-parallel rank that gets the same plans holds the same state.
A leaf: numpy only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]
Float32 = npt.NDArray[np.float32]


class Purpose(IntEnum):
    """Why a row is in the step. Bits never depend on it; kernels may choose shapes by it."""

    PREFILL = 0
    DECODE = 1
    SCORE = 2


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step. Shapes: R rows, T tokens, L logits.

    Row r computes tokens[row_starts[r]:row_starts[r+1]] at their `positions`, writes their KV to `write_slots`
    (page × page size + offset), and attends to positions 0 … own position through block table `row_slots[r]`.
    Order of effects: page copies, table writes, then the rows.
    """

    step: int
    page_copies: Int32  # [n, 3]: source page, destination page, slots copied from the start of the page
    table_writes: Int32  # [n, 3]: block-table slot, index, page
    row_slots: Int32  # [R]
    row_starts: Int32  # [R + 1]
    row_purposes: Int32  # [R], Purpose
    tokens: Int32  # [T]
    positions: Int32  # [T]
    write_slots: Int32  # [T]
    logits_at: Int32  # [L]: indices into tokens whose next-token logits are needed, ascending


class SamplePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to draw and to report. S samples, K scored positions; CSR = (starts [S + 1], values).

    `logits_rows` and `scored_rows` index the L logits of the StepPlan. Off values: top_k 0, top_p 1, min_p 0,
    repetition 1, frequency and presence 0; temperature 0 is greedy.
    """

    logits_rows: Int32  # [S]
    temperatures: Float32
    top_ks: Int32
    top_ps: Float32
    min_ps: Float32
    seeds: UInt64
    output_indices: Int64  # the RNG counter of each sample
    repetitions: Float32
    frequencies: Float32
    presences: Float32
    bias_starts: Int32  # logit bias, CSR
    bias_tokens: Int32
    bias_values: Float32
    seen_starts: Int32  # tokens that a penalty concerns, CSR; empty for samples without penalties
    seen_tokens: Int32
    seen_output_counts: Int32  # occurrences in the output (0: in the prompt only)
    wants_logprob: npt.NDArray[np.bool_]  # [S]
    top_counts: Int32  # [S]: how many most likely tokens to report
    scored_rows: Int32  # [K]
    scored_targets: Int32  # [K]: the token whose log-probability is reported
    scored_top_counts: Int32  # [K]


class TopTokens(msgspec.Struct, frozen=True):
    """The most likely tokens per position, CSR over positions, best first, ties by token id."""

    starts: Int32
    tokens: Int32
    logprobs: Float32

    def at(self, index: int) -> tuple[tuple[int, float], ...]:
        part = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return tuple(zip(self.tokens[part].tolist(), self.logprobs[part].tolist(), strict=True))


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    step: int
    tokens: Int32  # [S]
    logprobs: Float32  # [S], meaningful where wants_logprob
    top: TopTokens
    scored_logprobs: Float32  # [K]
    scored_top: TopTokens
    sample_errors: dict[int, str] = {}  # sample index → why it could not be drawn (a non-finite logit)
    forward_seconds: float = 0.0
    sample_seconds: float = 0.0


H = TypeVar("H")  # what a worker's forward hands to its own sample: a forward that was started


class Worker(Protocol[H]):
    """One device or rank. Both calls raise only for faults that concern the whole step."""

    def forward(self, plan: StepPlan) -> H: ...

    def sample(self, handle: H, plan: SamplePlan) -> StepResult: ...


def encode(message: StepPlan | SamplePlan | StepResult) -> bytes:
    """msgpack, arrays as (dtype, shape, bytes)."""
    return msgspec.msgpack.encode(message, enc_hook=_encode_array)


M = TypeVar("M", StepPlan, SamplePlan, StepResult)


def decode(data: bytes, kind: type[M]) -> M:
    return msgspec.msgpack.decode(data, type=kind, dec_hook=_decode_array)


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, np.ascontiguousarray(value).data)
    raise NotImplementedError(f"{type(value)!r} has no wire form in a plan")


def _decode_array(kind: type, value: Any) -> Any:
    dtype, shape, data = value
    return np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape)
