"""The sampler in native code, all rows of a step at once: sampler.py's meaning, at the speed that a batch needs.

Draws invert cumulative weights that are summed in another order than numpy's, so a seed's tokens are those of this
sampler; like the other's they are a function of the row's own logits, seed and output index. Made by the worker.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palmette.kernels.cpu.library import Library, NativeEngine
from palmette.runtime.plan import Int32, SamplePlan, TopTokens
from palmette.runtime.worker.sampler import NOT_FINITE, Sampled, uniform_noise

# native/sample.h's Failure
_FAILURES = {1: NOT_FINITE, 2: "No token could be drawn with these sampling parameters: none is left."}


class NativeSampler:
    """Over the threads of an engine, or in the caller's thread with a library alone."""

    def __init__(self, native: NativeEngine | Library) -> None:
        self._native = native

    def __call__(self, logits: npt.NDArray[np.float32], plan: SamplePlan) -> Sampled:
        """See sampler.sample."""
        count, scores = len(plan.logits_rows), len(plan.scored_rows)
        starts = np.zeros(count + scores + 1, dtype=np.int32)
        wanted = np.concatenate([plan.top_counts, plan.scored_top_counts])
        np.cumsum(np.minimum(wanted, logits.shape[1]), out=starts[1:])
        noise = [
            uniform_noise(seed, index)
            for seed, index in zip(plan.seeds.tolist(), plan.output_indices.tolist(), strict=True)
        ]
        tokens, failed = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.uint8)
        logprobs, scored = np.zeros(count, dtype=np.float32), np.zeros(scores, dtype=np.float32)
        top_tokens = np.zeros(int(starts[-1]), dtype=np.int32)
        top_logprobs = np.zeros(int(starts[-1]), dtype=np.float32)
        self._native.sample(
            logits=logits,
            rows=plan.logits_rows,
            temperatures=plan.temperatures,
            top_ps=plan.top_ps,
            min_ps=plan.min_ps,
            repetitions=plan.repetitions,
            frequencies=plan.frequencies,
            presences=plan.presences,
            top_ks=plan.top_ks,
            noise=np.array(noise, dtype=np.float64),
            bias_starts=plan.bias_starts,
            bias_tokens=plan.bias_tokens,
            bias_values=plan.bias_values,
            seen_starts=plan.seen_starts,
            seen_tokens=plan.seen_tokens,
            seen_counts=plan.seen_output_counts,
            wants_logprob=plan.wants_logprob.view(np.uint8),
            scored_rows=plan.scored_rows,
            scored_targets=plan.scored_targets,
            tokens=tokens,
            logprobs=logprobs,
            failed=failed,
            top_starts=starts,
            top_tokens=top_tokens,
            top_logprobs=top_logprobs,
            scored_logprobs=scored,
        )

        def top(begin: int, end: int) -> TopTokens:
            part: Int32 = starts[begin : end + 1]
            entries = slice(int(part[0]), int(part[-1]))
            return TopTokens(part - part[0], top_tokens[entries], top_logprobs[entries])

        errors = {int(index): _FAILURES[int(failed[index])] for index in np.flatnonzero(failed)}
        return Sampled(tokens, logprobs, top(0, count), scored, top(count, count + scores), errors)
