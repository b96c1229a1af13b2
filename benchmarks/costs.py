"""What a workload costs at least: bytes and operations from the model's shape. Lower bounds, formulas stated.

With perfect reuse and perfect batching: a prompt token that an earlier sequence computed costs nothing, a
decode step reads the weights once for everybody. Called by run.py, which compares the sum with measured
limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.reuse import Reuse
from benchmarks.workloads import Workload


@dataclass(frozen=True)
class ModelShape:
    """Sizes that costs depend on. Bytes as stored in the model's file; KV in the engine's KV dtype."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    layer_parameters: int  # of the linear layers of all blocks
    head_parameters: int  # of the output projection
    weight_bytes: int  # what one decode step reads: blocks and output projection
    kv_element_bytes: int = 2

    @property
    def kv_bytes(self) -> int:
        """Of one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_element_bytes


@dataclass(frozen=True)
class Costs:
    """Of one run. The limits are bytes and operations a second; a multiply-add is two operations."""

    prefill_tokens: int  # with perfect reuse
    prefill_operations: float
    prefill_bytes: float  # weights, read once a step; a step takes any number of tokens
    decode_tokens: int
    decode_steps: int
    decode_operations: float
    decode_bytes: float  # weights once a step; KV sequence by sequence

    def prefill_seconds(self, bytes_per_second: float, operations_per_second: float) -> float:
        return max(self.prefill_bytes / bytes_per_second, self.prefill_operations / operations_per_second)

    def decode_seconds(self, bytes_per_second: float, operations_per_second: float) -> float:
        return max(self.decode_bytes / bytes_per_second, self.decode_operations / operations_per_second)

    def seconds(self, bytes_per_second: float, operations_per_second: float) -> float:
        """The two after each other, each at whichever limit binds it."""
        limits = (bytes_per_second, operations_per_second)
        return self.prefill_seconds(*limits) + self.decode_seconds(*limits)


def costs(workload: Workload, shape: ModelShape, reused: Reuse) -> Costs:
    """`reused.reusable` prompt tokens needn't be computed; a first output token comes out of its prefill."""
    prompts, outputs = workload.prompt_lengths, [call.max_tokens for call in workload.calls]
    prefill_tokens = sum(prompts) - reused.reusable
    decode_tokens = sum(outputs) - len(outputs)
    attended = sum(_attended(prompt, output) for prompt, output in zip(prompts, outputs, strict=True))
    share = prefill_tokens / sum(prompts)
    attention = 4 * shape.layers * shape.heads * shape.head_dim  # operations for one query and one key
    linear = 2 * shape.layer_parameters
    head = 2 * shape.head_parameters
    steps = workload.decode_steps
    return Costs(
        prefill_tokens=prefill_tokens,
        prefill_operations=linear * prefill_tokens
        + head * len(outputs)
        + attention * share * sum(prompt * (prompt + 1) / 2 for prompt in prompts),
        prefill_bytes=float(workload.prefill_steps * shape.weight_bytes),
        decode_tokens=decode_tokens,
        decode_steps=steps,
        decode_operations=(linear + head) * decode_tokens + attention * attended,
        decode_bytes=float(steps * shape.weight_bytes + attended * shape.kv_bytes),
    )


def _attended(prompt: int, output: int) -> int:
    """Keys that the decode steps of one call read: its context grows from prompt + 1."""
    steps = output - 1
    return steps * (prompt + 1) + steps * (steps - 1) // 2
