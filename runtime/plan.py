"""The step's contract between scheduler and worker: flat arrays, encodable, no object references.

`forward(StepPlan) → handle`, then `sample(handle, SamplePlan) → StepResult`: what depends on the last token (masks)
may be made while the forward runs. A plan may be made while the step before it runs (`drawn`). The worker keeps only
block tables and the last step's tokens between steps, and they follow from plans alone, so every tensor-parallel rank
that gets the same ones holds the same state.
A leaf: numpy only.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]
Float32 = npt.NDArray[np.float32]

NOT_FINITE = "The model's logits are not finite numbers, so no token can be drawn from them."  # in StepResult.errors

NO_TRIPLES: Int32 = np.zeros((0, 3), dtype=np.int32)
NO_INDICES: Int32 = np.zeros(0, dtype=np.int32)
NO_STATES: Float32 = np.zeros((0, 0), dtype=np.float32)


class Purpose(IntEnum):
    """Why a row is in the step. Bits never depend on it; kernels may choose shapes by it."""

    PREFILL = 0
    DECODE = 1
    SCORE = 2
    EMBED = 3


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step. Shapes: R rows, T tokens, L logits, P pooled tokens.

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
    states_at: Int32 = NO_INDICES  # [P]: indices into tokens whose hidden states are pooled, ascending
    drawn: Int32 = (
        NO_TRIPLES  # [n, 3]: index into tokens, step, sample: the token is the one which that step drew there
    )


# One sample, as native/sample.h has it. Off values: top_k 0, top_p 1, min_p 0, repetition 1, frequency and presence 0;
# temperature 0 is greedy. What doesn't change over a request comes first, in one piece.
SAMPLE = np.dtype(
    [
        ("seed", "<u8"),
        ("temperature", "<f4"),
        ("top_p", "<f4"),
        ("min_p", "<f4"),
        ("repetition", "<f4"),
        ("frequency", "<f4"),
        ("presence", "<f4"),
        ("top_k", "<i4"),
        ("top_count", "<i4"),  # how many most likely tokens to report
        ("wants_logprob", "<i4"),
        ("reserved", "<i4"),
        ("output_index", "<i8"),  # the RNG counter
        ("logits_row", "<i4"),  # among the logits of the StepPlan
        ("mask", "<i4"),  # 1 + its index among the masks; 0: everything is allowed
    ]
)


class SamplePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to draw and to report. S samples, K scored positions; CSR = (starts [S + 1], values).

    A CSR whose starts are empty has nothing for any sample.
    """

    samples: npt.NDArray[np.void]  # [S] of SAMPLE
    bias_starts: Int32  # logit bias, CSR
    bias_tokens: Int32
    bias_values: Float32
    seen_starts: Int32  # tokens that a penalty concerns, CSR
    seen_tokens: Int32
    seen_output_counts: Int32  # occurrences in the output (0: in the prompt only)
    masks: UInt32  # [M, vocabulary / 32]: tokens that a grammar allows, bit t % 32 of word t // 32
    scored: (
        Int32  # [K, 3]: row among the logits, the token whose log-probability is reported, most likely ones beside it
    )


class TopTokens(msgspec.Struct, frozen=True):
    """The most likely tokens per position, CSR over positions, best first, ties by id. Empty starts: none at all."""

    starts: Int32
    tokens: Int32
    logprobs: Float32

    def at(self, index: int) -> tuple[tuple[int, float], ...]:
        """Those of a position. What the model itself gives no probability at all isn't one of them."""
        if not len(self.starts):
            return ()
        part = slice(int(self.starts[index]), int(self.starts[index + 1]))
        tokens, logprobs = self.tokens[part].tolist(), self.logprobs[part].tolist()
        if logprobs and logprobs[-1] == -math.inf:  # JSON has no such number
            there = logprobs.index(-math.inf)
            del tokens[there:], logprobs[there:]
        return tuple(zip(tokens, logprobs, strict=True))


NO_TOPS = TopTokens(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    step: int
    tokens: Int32  # [S]
    logprobs: Float32  # [S], meaningful where wants_logprob
    top: TopTokens
    scored_logprobs: Float32  # [K]
    scored_top: TopTokens
    states: Float32 = NO_STATES  # [P, hidden size]: behind the final norm
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
        kind = value.dtype.descr if value.dtype.names else value.dtype.str
        return (kind, value.shape, np.ascontiguousarray(value).data)
    raise NotImplementedError(f"{type(value)!r} has no wire form in a plan")


def _decode_array(kind: type, value: Any) -> Any:
    dtype, shape, data = value
    named = dtype if isinstance(dtype, str) else [tuple(field) for field in dtype]
    return np.frombuffer(data, dtype=np.dtype(named)).reshape(shape)
