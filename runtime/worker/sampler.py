"""From logits to tokens and log-probabilities, one row at a time in numpy: a row's bits never depend on the batch.

Order: logit bias, penalties, mask, temperature, top-k, top-p, min-p. Log-probabilities are of the raw logits. Noise is
a function of (seed, output index) alone; ties break by token id. Knows plans only; called by the worker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from palmette.runtime.plan import NOT_FINITE, Float32, Int32, SamplePlan, TopTokens

Row = npt.NDArray[np.float32]

# Top-p and min-p look at this many of the most likely tokens first, and at all only where these do not suffice.
NUCLEUS = 1024


@dataclass(frozen=True, slots=True)
class Sampled:
    tokens: npt.NDArray[np.int32]
    logprobs: Float32
    top: TopTokens
    scored_logprobs: Float32
    scored_top: TopTokens
    errors: dict[int, str]


def sample(logits: npt.NDArray[np.float32], plan: SamplePlan) -> Sampled:
    """`logits` [L, vocabulary] float32, C-contiguous; not changed."""
    count = len(plan.samples)
    tokens = np.zeros(count, dtype=np.int32)
    logprobs = np.zeros(count, dtype=np.float32)
    top: list[list[tuple[int, float]]] = []
    errors: dict[int, str] = {}
    for index, row in enumerate(plan.samples["logits_row"].tolist()):
        raw = logits[row]
        best = int(raw.argmax())
        if not np.isfinite(raw[best]):
            errors[index] = NOT_FINITE
            top.append([])
            continue
        try:
            tokens[index] = _draw(raw, plan, index)
        except Exception as fault:  # the boundary of a request: whatever is odd about it, the others get their tokens
            errors[index] = f"No token could be drawn with these sampling parameters ({type(fault).__name__}: {fault})."
            top.append([])
            continue
        if plan.samples["wants_logprob"][index]:
            normaliser = _log_normaliser(raw)
            logprobs[index] = raw[tokens[index]] - normaliser
            top.append(_most_likely(raw, normaliser, int(plan.samples["top_count"][index])))
        else:
            top.append([])
    scored, scored_top = _score(logits, plan)
    return Sampled(tokens, logprobs, _csr(top), scored, scored_top, errors)


def _score(logits: npt.NDArray[np.float32], plan: SamplePlan) -> tuple[Float32, TopTokens]:
    scored = np.zeros(len(plan.scored), dtype=np.float32)
    top: list[list[tuple[int, float]]] = []
    normalisers: dict[int, float] = {}  # of a row, which many choices may share
    for index, (row, target, top_count) in enumerate(plan.scored.tolist()):
        if row not in normalisers:
            normalisers[row] = _log_normaliser(logits[row])
        normaliser = normalisers[row]
        scored[index] = logits[row, target] - normaliser
        top.append(_most_likely(logits[row], normaliser, top_count))
    return scored, _csr(top)


def _draw(raw: Row, plan: SamplePlan, index: int) -> int:
    row = _adjusted(raw, plan, index)
    params = plan.samples[index]
    temperature, top_k = float(params["temperature"]), int(params["top_k"])
    if temperature == 0 or top_k == 1:
        return int(row.argmax())  # the first of equals: ties break by token id
    scaled = row.astype(np.float64)
    scaled -= scaled.max()
    scaled /= temperature
    uniform = uniform_noise(int(params["seed"]), int(params["output_index"]))
    top_p, min_p = float(params["top_p"]), float(params["min_p"])
    if not top_k and top_p >= 1 and min_p <= 0:
        return _invert(np.exp(scaled), uniform)
    candidates = _filtered(scaled, top_k, top_p, min_p)
    return int(candidates[_invert(np.exp(scaled[candidates]), uniform)])


def _adjusted(raw: Row, plan: SamplePlan, index: int) -> Row:
    """`raw` after logit bias, penalties and mask; `raw` itself where there are none."""
    params = plan.samples[index]
    bias, seen, mask = _part(plan.bias_starts, index), _part(plan.seen_starts, index), int(params["mask"])
    if bias.start == bias.stop and seen.start == seen.stop and not mask:
        return raw
    row = raw.copy()
    row[plan.bias_tokens[bias]] += plan.bias_values[bias]
    tokens = plan.seen_tokens[seen]
    if len(tokens):
        values = row[tokens]
        repetition = params["repetition"]
        values = np.where(values > 0, values / repetition, values * repetition)
        counts = plan.seen_output_counts[seen].astype(np.float32)
        values = values - counts * params["frequency"] - (counts > 0) * params["presence"]
        row[tokens] = values
    if mask:
        allowed = np.unpackbits(plan.masks[mask - 1].view(np.uint8), count=len(row), bitorder="little")
        row[allowed == 0] = -np.inf
    return row


def _part(starts: Int32, index: int) -> slice:
    return slice(int(starts[index]), int(starts[index + 1])) if len(starts) else slice(0, 0)


def _filtered(scaled: npt.NDArray[np.float64], top_k: int, top_p: float, min_p: float) -> npt.NDArray[np.int64]:
    """Ids that pass top-k, then top-p, then min-p, in descending order of likelihood, ties by id."""
    size = len(scaled)
    if top_k and top_k < size:
        order = _largest(scaled, top_k)
        mass = float(np.exp(scaled[order]).sum())
    else:
        mass = float(np.exp(scaled).sum())
        order = _largest(scaled, min(NUCLEUS, size))
        nucleus_cut = top_p < 1 and np.exp(scaled[order]).sum() >= top_p * mass
        floor_cut = min_p > 0 and np.exp(scaled[order[-1]]) < min_p
        if not (nucleus_cut or floor_cut):
            order = _largest(scaled, size)
    weights = np.exp(scaled[order])
    keep = len(order)
    if top_p < 1:
        # The smallest set whose mass reaches top_p: the token that crosses it is in.
        keep = int(np.searchsorted(np.cumsum(weights), top_p * mass)) + 1
    kept = order[:keep]
    return kept[weights[:keep] >= min_p * weights[0]] if min_p > 0 else kept


def _largest(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Ids of the `count` largest values, descending, ties by id."""
    if count < len(values):
        threshold = np.partition(values, len(values) - count)[len(values) - count]
        ids = np.flatnonzero(values >= threshold)
    else:
        ids = np.arange(len(values))
    order = np.argsort(-values[ids], kind="stable")
    return ids[order][:count]


def _invert(weights: npt.NDArray[np.float64], uniform: float) -> int:
    """The index at which the cumulative weight passes `uniform` (in [0, 1)) of the total."""
    cumulative = np.cumsum(weights)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(weights)[-1]))


def _log_normaliser(raw: Row) -> float:
    peak = float(raw.max())
    return peak + float(np.log(np.exp(raw.astype(np.float64) - peak).sum()))


def _most_likely(raw: Row, normaliser: float, count: int) -> list[tuple[int, float]]:
    if not count:
        return []
    ids = _largest(raw.astype(np.float64), count)
    return [(int(token), float(np.float32(raw[token] - normaliser))) for token in ids]


def _csr(top: list[list[tuple[int, float]]]) -> TopTokens:
    starts = np.zeros(len(top) + 1, dtype=np.int32)
    np.cumsum([len(entries) for entries in top], out=starts[1:])
    flat = [entry for entries in top for entry in entries]
    return TopTokens(
        starts,
        np.array([token for token, _ in flat], dtype=np.int32),
        np.array([logprob for _, logprob in flat], dtype=np.float32),
    )


def uniform_noise(seed: int, index: int) -> float:
    """A number in [0, 1) with 53 random bits, from (seed, index) alone: two rounds of the SplitMix64 finaliser
    (Steele, Lea and Flood, 2014) over the seed, then over the seed's hash and the index."""
    return (_mix(_mix(seed & _MASK) ^ (index & _MASK)) >> 11) * 2.0**-53


_MASK = 0xFFFF_FFFF_FFFF_FFFF


def _mix(value: int) -> int:
    value = (value + 0x9E37_79B9_7F4A_7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return value ^ (value >> 31)
