"""What a device can do, as data: bytes a second, operations a second by arithmetic, memory.

Figures of accelerators are their makers' (dense, without sparsity). The machine at hand is measured by runtime/cli.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from palmette.runtime.roofline.shape import KvFormat, WeightFormat

Arithmetic = Literal["f32", "bf16", "fp8", "int8"]

# What is used where the arithmetic wanted isn't there.
WIDER: dict[Arithmetic, Arithmetic] = {"int8": "bf16", "fp8": "bf16", "bf16": "f32"}


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """`rates`: operations a second, a multiply-add being two. `bandwidth` in bytes a second, `memory` in bytes."""

    name: str
    bandwidth: float
    rates: dict[Arithmetic, float]
    memory: float
    cache: float  # bytes: activations of one layer that fit don't count as memory traffic
    integer_weights: bool = False  # quantised weights are multiplied as int8, not widened to bfloat16 first

    def arithmetic(self, stored: WeightFormat | KvFormat) -> Arithmetic:
        """What values stored this way are multiplied in. Raises KeyError where the device has no rate at all for it."""
        wanted: Arithmetic
        if stored in ("f32", "f64"):
            wanted = "f32"
        elif stored in ("bf16", "f16"):
            wanted = "bf16"
        elif stored == "fp8":
            wanted = "fp8"
        else:
            wanted = "int8" if self.integer_weights else "bf16"
        while wanted not in self.rates:
            wanted = WIDER[wanted]
        return wanted

    def rate(self, stored: WeightFormat | KvFormat) -> float:
        return self.rates[self.arithmetic(stored)]

    def times(self, count: int) -> Device:
        """`count` of them side by side, each with its share of everything, at no cost for talking to each other."""
        if count == 1:
            return self
        return Device(
            name=f"{count} × {self.name}",
            bandwidth=count * self.bandwidth,
            rates={kind: count * rate for kind, rate in self.rates.items()},
            memory=count * self.memory,
            cache=count * self.cache,
            integer_weights=self.integer_weights,
        )


def _hopper(name: str, bandwidth: float, memory: float) -> Device:
    rates: dict[Arithmetic, float] = {"f32": 67e12, "bf16": 989e12, "fp8": 1979e12, "int8": 1979e12}
    return Device(name=name, bandwidth=bandwidth, rates=rates, memory=memory, cache=50e6)


def unmeasured_host(threads: int, memory: float) -> Device:
    """A processor of which only the number of threads is known: where a model of its steps may begin to learn."""
    rates: dict[Arithmetic, float] = {"f32": 1e11 * threads, "bf16": 2e11 * threads, "int8": 4e11 * threads}
    name = f"an unmeasured processor, {threads} threads"
    return Device(name=name, bandwidth=1.5e10 * threads, rates=rates, memory=memory, cache=3.2e7, integer_weights=True)


DEVICES: dict[str, Device] = {
    "h100": _hopper("H100 SXM", 3.35e12, 80e9),
    "h200": _hopper("H200 SXM", 4.8e12, 141e9),
}
"""`this`, the machine at hand, is not among them: it is measured."""
