"""A worker without a model: a step takes the predicted time, in virtual time, and draws the tokens of a script.

Knows plans and the step-time model. Called by the real core, as a device's worker would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from palmette.runtime.plan import SamplePlan, StepPlan, StepResult, TopTokens
from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.step_time import StepTimeModel

Script = Callable[[int, int], int]
"""(seed, output index) → the output token. Requests are told apart by their seeds."""


class VirtualTime:
    """A clock that only a simulation moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SimulatedWorker:
    """Predicts, waits in virtual time, answers. `busy`: seconds of all steps; `steps` and `load` likewise."""

    def __init__(self, model: StepTimeModel, time: VirtualTime, script: Script) -> None:
        self._model = model
        self._time = time
        self.script = script
        self.busy = 0.0
        self.steps = 0
        self.tokens = 0

    def forward(self, plan: StepPlan) -> StepLoad:
        starts = plan.row_starts[:-1]
        return StepLoad(
            rows=len(plan.row_slots),
            tokens=len(plan.tokens),
            pairs=int(plan.positions.sum(dtype=np.int64)) + len(plan.positions),
            kv_positions=int(plan.positions[starts].sum(dtype=np.int64)),
            logits=len(plan.logits_at),
        )

    def sample(self, handle: StepLoad, plan: SamplePlan) -> StepResult:
        self.take(handle)
        drawn = zip(plan.samples["seed"].tolist(), plan.samples["output_index"].tolist(), strict=True)
        return result([self.script(seed, index) for seed, index in drawn], len(plan.scored))

    def seconds(self, load: StepLoad) -> float:
        return self._model.seconds(load)

    def take(self, load: StepLoad, *, steps: int = 1) -> None:
        """So many steps of this load pass."""
        seconds = steps * self._model.seconds(load)
        self._time.now += seconds
        self.busy += seconds
        self.steps += steps
        self.tokens += steps * load.tokens


def result(tokens: Sequence[int], scored: int = 0) -> StepResult:
    """A step's answer: these tokens, and scores of 0."""
    return StepResult(
        step=0,
        tokens=np.array(tokens, dtype=np.int32),
        logprobs=np.zeros(len(tokens), dtype=np.float32),
        top=_no_tops(len(tokens)),
        scored_logprobs=np.zeros(scored, dtype=np.float32),
        scored_top=_no_tops(scored),
    )


def _no_tops(count: int) -> TopTokens:
    return TopTokens(np.zeros(count + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
