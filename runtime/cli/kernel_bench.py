"""The native kernels alone: what a single thread reaches in each weight format, and in the model's own head.

Used by `palmette bench`. The library offers products one by one, not attention: that is seen in decoding at two
contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from palmette.runtime.cli.this_machine import Machine, best_seconds
from palmette.runtime.config import cache_folder

if TYPE_CHECKING:
    from palmette.kernels.cpu.library import Library, Weight
    from palmette.kernels.cpu.limits import Arithmetic
    from palmette.kernels.cpu.packing import Format

INPUTS = 1024
ROW_COUNTS = (1, 32)
ARITHMETIC: dict[Format, Arithmetic] = {
    "q4": "int8", "q8": "int8", "q8_min": "int8", "q8_16": "int8", "bf16": "bf16", "f32": "f32",
}  # fmt: skip


@dataclass(frozen=True)
class KernelFigure:
    """One thread's best time. `bound`: the least it could be, by one thread's bandwidth or rate."""

    kernel: str
    rows: int
    seconds: float
    bytes: float  # of the packed weights
    operations: float
    bound: float
    bound_by: str

    @property
    def share(self) -> float:
        return self.bound / self.seconds


def measure_kernels(model: str, machine: Machine, budget: float = 0.25) -> list[KernelFigure]:
    """Each takes about `budget` seconds. Empty where the machine's native limits aren't known."""
    from palmette.kernels.cpu.build import build, detect_target
    from palmette.kernels.cpu.library import Library
    from palmette.kernels.cpu.packing import GROUP_BYTES

    if machine.limits is None:
        return []
    library = Library(build(cache_folder() / "kernels", detect_target()))
    figures = []
    for form in GROUP_BYTES:
        weights = _filled(form, INPUTS)
        figures += [_measured(f"linear {form}", library, weights, rows, machine, budget) for rows in ROW_COUNTS]
    head_form, outputs, inputs = _head(model)
    if inputs % 32 == 0:
        heads = _filled(head_form, inputs, outputs)
        figures += [_measured(f"head ({head_form})", library, heads, rows, machine, budget) for rows in ROW_COUNTS]
    return figures


def _measured(
    name: str, library: Library, weights: Sequence[Weight], rows: int, machine: Machine, budget: float
) -> KernelFigure:
    """The weights take turns, so that each is read from memory as in a step, not from a cache; outputs stay in one
    place, whose pages are there, as in a step too."""
    import numpy as np

    from palmette.kernels.cpu.packing import LANES

    assert machine.limits is not None, "checked by measure_kernels"
    weight, turns = weights[0], cycle(weights)
    x = np.linspace(-1, 1, rows * weight.inputs, dtype=np.float32).reshape(rows, weight.inputs)
    out = np.zeros((rows, weight.blocks * LANES), dtype=np.float32)
    seconds = best_seconds(lambda: library.linear(next(turns), x, out), budget)
    operations = 2.0 * rows * weight.outputs * weight.inputs
    rates = machine.limits.rates
    rate = rates.get(ARITHMETIC[weight.format], rates["f32"]) / machine.threads
    traffic, arithmetic = weight.data.nbytes / machine.limits.read_small[1], operations / rate
    bound_by = "memory" if traffic >= arithmetic else "arithmetic"
    return KernelFigure(name, rows, seconds, weight.data.nbytes, operations, max(traffic, arithmetic), bound_by)


def _filled(form: Format, inputs: int, outputs: int | None = None) -> list[Weight]:
    """As many packed weights as take the bytes that `read_small` was measured over; all values some harmless one."""
    import numpy as np

    from palmette.kernels.cpu.library import Weight
    from palmette.kernels.cpu.limits import SMALL
    from palmette.kernels.cpu.packing import GROUP, GROUP_BYTES, LANES

    block = inputs // GROUP * GROUP_BYTES[form]
    blocks = SMALL // block if outputs is None else -(-outputs // LANES)
    count = -(-SMALL // (blocks * block)) if outputs is not None else 1
    return [
        Weight(form, outputs or blocks * LANES, inputs, np.full(blocks * block, 0x3C, np.uint8)) for _ in range(count)
    ]


def _head(model: str) -> tuple[Format, int, int]:
    """The packed form and the sizes of a model's output projection."""
    from palmette.runtime.checkpoint.llama import EMBEDDING, HEAD
    from palmette.runtime.checkpoint.open import open_checkpoint
    from palmette.runtime.checkpoint.resolve import resolve

    checkpoint = open_checkpoint(resolve(model))
    raw = checkpoint.tensor(HEAD if HEAD in checkpoint.tensor_names() else EMBEDDING)
    forms: dict[str, Format] = {
        "q4_0": "q4", "q4_1": "q4", "q4_k": "q4", "q8_0": "q8", "q5_0": "q8", "iq4_nl": "q8", "q5_1": "q8_min",
        "q5_k": "q8_min", "q6_k": "q8_16",
    }  # fmt: skip
    return forms.get(raw.dtype, "bf16"), raw.shape[0], raw.shape[1]
