"""The least time that a step can take on a device, and what it is spent on: the roofline.

Memory traffic and arithmetic overlap perfectly here, and both run at the device's full rate; nothing real is faster.
Called by `palmette roofline`, `palmette bench`, and whoever wants a step-time model to start from.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from palmette.runtime.roofline.cost import StepCost, StepLoad, step_cost
from palmette.runtime.roofline.device import Device
from palmette.runtime.roofline.shape import ModelShape

Limit = Literal["weights", "KV", "activations", "linears", "attention", "head"]


class Bound(msgspec.Struct, frozen=True):
    """Seconds of one step. `traffic` and `arithmetic` run beside each other."""

    cost: StepCost
    traffic: float
    linears: float
    attention: float
    head: float
    activations_in_cache: bool

    @property
    def arithmetic(self) -> float:
        return self.linears + self.attention + self.head

    @property
    def seconds(self) -> float:
        return max(self.traffic, self.linears + self.attention + self.head)

    @property
    def memory_binds(self) -> bool:
        return self.traffic >= self.arithmetic

    @property
    def limit(self) -> Limit:
        """What the step waits for most: the largest part of the side that binds."""
        parts: dict[Limit, float]
        if self.memory_binds:
            activations = 0.0 if self.activations_in_cache else self.cost.activations
            parts = {"weights": self.cost.weights, "KV": self.cost.kv, "activations": activations}
        else:
            parts = {"linears": self.linears, "attention": self.attention, "head": self.head}
        return max(parts, key=parts.__getitem__)


def step_bound(shape: ModelShape, device: Device, load: StepLoad) -> Bound:
    """The bound of one step of any rows."""
    cost = step_cost(shape, load)
    in_cache = cost.activations <= device.cache * shape.layers
    moved = cost.bytes if in_cache else cost.bytes + cost.activations
    rate = device.rate(shape.weights)
    return Bound(
        cost,
        moved / device.bandwidth,
        cost.linear_operations / rate,
        cost.attention_operations / device.rate(shape.kv),
        cost.head_operations / rate,
        in_cache,
    )


def decode_bound(shape: ModelShape, device: Device, batch: int, context: int) -> Bound:
    """One token for each of `batch` rows behind `context` tokens: at best in `seconds`."""
    return step_bound(shape, device, StepLoad.uniform(batch, 1, context))


def prefill_bound(shape: ModelShape, device: Device, batch: int, prompt: int) -> Bound:
    """`batch` prompts of `prompt` tokens in one step, nothing cached: the best time to the first token."""
    return step_bound(shape, device, StepLoad.uniform(batch, prompt, 0))


def memory_needed(shape: ModelShape, batch: int, context: int) -> float:
    """Bytes of weights and of `batch` rows' KV; room to work in comes on top."""
    return shape.resident_bytes + shape.kv_token_bytes * batch * context
