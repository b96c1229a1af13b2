"""The sampler in native code, all rows of a step at once: sampler.py's meaning, at the speed that a batch needs.

Draws invert cumulative weights that are summed in another order than numpy's, so a seed's tokens are those of this
sampler; like the other's they are a function of the row's own logits, seed and output index. Made by the worker.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palmette.kernels.cpu.library import Library, NativeEngine
from palmette.runtime.plan import NO_TOPS, NOT_FINITE, Int32, SamplePlan, TopTokens
from palmette.runtime.worker.sampler import Sampled

DRAWN = np.dtype([("token", "<i4"), ("logprob", "<f4"), ("failed", "<i4")])  # native/sample.h's Drawn
# … and its Failure
_FAILURES = {1: NOT_FINITE, 2: "No token could be drawn with these sampling parameters: none is left."}


class NativeSampler:
    """Over the threads of an engine, or in the caller's thread with a library alone."""

    def __init__(self, native: NativeEngine | Library) -> None:
        self._native = native

    def __call__(self, logits: npt.NDArray[np.float32], plan: SamplePlan) -> Sampled:
        """See sampler.sample."""
        count = len(plan.samples)
        drawn = np.zeros(count, dtype=DRAWN)
        scored = np.zeros(len(plan.scored), dtype=np.float32)
        starts = _starts(plan, logits.shape[1])
        listed = int(starts[-1]) if len(starts) else 0
        top_tokens, top_logprobs = np.zeros(listed, dtype=np.int32), np.zeros(listed, dtype=np.float32)
        self._native.sample(
            logits=logits,
            samples=plan.samples,
            bias_starts=plan.bias_starts,
            bias_tokens=plan.bias_tokens,
            bias_values=plan.bias_values,
            seen_starts=plan.seen_starts,
            seen_tokens=plan.seen_tokens,
            seen_counts=plan.seen_output_counts,
            masks=plan.masks,
            scored=plan.scored,
            drawn=drawn,
            top_starts=starts,
            top_tokens=top_tokens,
            top_logprobs=top_logprobs,
            scored_logprobs=scored,
        )

        def top(begin: int, end: int) -> TopTokens:
            if not len(starts):
                return NO_TOPS
            part: Int32 = starts[begin : end + 1]
            entries = slice(int(part[0]), int(part[-1]))
            return TopTokens(part - part[0], top_tokens[entries], top_logprobs[entries])

        failed = drawn["failed"]
        errors = {int(index): _FAILURES[int(failed[index])] for index in np.flatnonzero(failed)} if failed.any() else {}
        return Sampled(drawn["token"], drawn["logprob"], top(0, count), scored, top(count, count + len(scored)), errors)


def _starts(plan: SamplePlan, vocabulary: int) -> Int32:
    """Where the most likely tokens of each sample, then of each score, begin; empty where none are wanted."""
    wanted = np.concatenate([plan.samples["top_count"], plan.scored[:, 2]])
    if not wanted.any():
        return NO_TOPS.starts
    starts = np.zeros(len(wanted) + 1, dtype=np.int32)
    np.cumsum(np.minimum(wanted, vocabulary), out=starts[1:])
    return starts
