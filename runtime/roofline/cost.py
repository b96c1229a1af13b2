"""What one step costs: bytes moved and operations, from the model's shape and what the step's rows hold.

Microseconds a call: meant for the scheduler too, which asks before every step. Knows no device. Called by bound.py.
"""

from __future__ import annotations

import msgspec

from palmette.runtime.roofline.shape import ModelShape

ACTIVATION_BYTES = 2
LOGIT_BYTES = 4


class StepLoad(msgspec.Struct, frozen=True):
    """What a step's rows add up to. Grows row by row; order doesn't matter."""

    rows: int = 0
    tokens: int = 0  # computed in this step
    pairs: int = 0  # (query position, key position) that attend
    kv_positions: int = 0  # positions whose KV is read
    logits: int = 0  # positions whose logits are computed

    def plus(self, new: int, context: int, *, logits: int = 1, shared: int = 0) -> StepLoad:
        """With one more row: `new` tokens behind `context` cached ones, whose last `logits` positions give logits.

        `shared`: leading positions that another row of the step reads anyway, and a cascade kernel reads once.
        """
        return StepLoad(
            self.rows + 1,
            self.tokens + new,
            self.pairs + new * context + new * (new + 1) // 2,
            self.kv_positions + context - shared,
            self.logits + logits,
        )

    @classmethod
    def uniform(cls, rows: int, new: int, context: int, *, logits: int = 1, shared: int = 0) -> StepLoad:
        """`rows` equal rows, `shared` leading positions of whose context are the same, and read once."""
        one = cls().plus(new, context, logits=logits)
        return cls(rows, rows * new, rows * one.pairs, rows * context - max(0, rows - 1) * shared, rows * logits)


class StepCost(msgspec.Struct, frozen=True):
    """Bytes that must move between memory and processor at least once, and operations (a multiply-add is two)."""

    weights: float
    kv_read: float
    kv_written: float
    activations: float  # every linear's inputs and outputs; they stay in a cache where it is large enough
    linear_operations: float
    attention_operations: float
    head_operations: float

    @property
    def kv(self) -> float:
        return self.kv_read + self.kv_written

    @property
    def bytes(self) -> float:
        """All but activations."""
        return self.weights + self.kv_read + self.kv_written

    @property
    def operations(self) -> float:
        return self.linear_operations + self.attention_operations + self.head_operations

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.bytes


def step_cost(shape: ModelShape, load: StepLoad) -> StepCost:
    """The cost of one step of a model."""
    return StepCost(
        shape.weight_bytes + load.tokens * shape.embedding_row_bytes,
        load.kv_positions * shape.kv_token_bytes,
        load.tokens * shape.kv_token_bytes,
        load.tokens * shape.activation_elements * ACTIVATION_BYTES + load.logits * shape.vocabulary * LOGIT_BYTES,
        2 * shape.block_parameters * load.tokens,
        shape.pair_operations * load.pairs,
        2 * shape.head_parameters * load.logits,
    )


def kv_overtakes(shape: ModelShape, batch: int) -> float:
    """The context from which on a decode step of `batch` rows reads more KV than weights."""
    return shape.weight_bytes / (shape.kv_token_bytes * batch)
