"""The worker of one CPU: model, KV store and block tables behind the two calls of a step.

Holds bytes and weights; knows nothing of requests, trees or text. Called by the scheduler's core.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from palmette.radix_cache.store import Store
from palmette.runtime.models.loading import Model
from palmette.runtime.plan import SamplePlan, StepPlan, StepResult
from palmette.runtime.worker.inputs import BlockTables, DrawnTokens
from palmette.runtime.worker.native_sampler import NativeSampler
from palmette.runtime.worker.sampler import sample


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Logits [L, vocabulary] and hidden states [P, hidden size], float32, of one step."""

    step: int
    logits: torch.Tensor
    states: torch.Tensor
    seconds: float


class CpuWorker:
    def __init__(self, model: Model, store: Store, *, slots: int, context_length: int, page_size: int) -> None:
        self._model = model
        self._store = store
        self._tables = BlockTables(slots, -(-context_length // page_size), page_size)
        self._drawn = DrawnTokens()
        self._sample = NativeSampler(model.native) if model.native is not None else sample

    def forward(self, plan: StepPlan) -> Forwarded:
        start = time.perf_counter()
        if len(plan.page_copies):
            self._store.copy_pages(plan.page_copies)
        self._tables.apply(plan)
        batch = self._tables.batch(plan, self._drawn.fill(plan))
        logits, states = self._model.forward_with_states(batch, self._store)
        return Forwarded(plan.step, logits, states, time.perf_counter() - start)

    def sample(self, handle: Forwarded, plan: SamplePlan) -> StepResult:
        start = time.perf_counter()
        drawn = self._sample(handle.logits.numpy(), plan)
        result = StepResult(
            step=handle.step,
            tokens=drawn.tokens,
            logprobs=drawn.logprobs,
            top=drawn.top,
            scored_logprobs=drawn.scored_logprobs,
            scored_top=drawn.scored_top,
            states=handle.states.numpy(),
            sample_errors=drawn.errors,
            forward_seconds=handle.seconds,
            sample_seconds=time.perf_counter() - start,
        )
        self._drawn.keep(result)
        return result
