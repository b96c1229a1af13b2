"""How long a step takes: seconds from its load, seeded from the roofline and corrected by what steps really took.

Knows a model's shape, a device's limits and StepLoads; nothing of schedulers, workers or clocks. Microseconds a call.
Called by whoever decides by time: chunked prefill, the simulator, and later tiers and router.
"""

from __future__ import annotations

import math
from typing import Literal

from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.roofline.device import Device
from palmette.runtime.roofline.shape import ModelShape

Part = Literal["fixed", "weights", "linears", "KV", "attention"]
PARTS: tuple[Part, ...] = ("fixed", "weights", "linears", "KV", "attention")

FIXED_SECONDS = 2e-4  # of a step without rows, at first: launches, planning, sampling
REACHED = 0.7  # share of the roofline that good kernels reach: the seed
SLOWEST, FASTEST = 64.0, 1 / 8  # corrections stay within these multiples of the seed
FADING = 0.995  # weight of what was observed one step earlier
TRUST = 0.02  # weight of the seed, in observations of each part alone
EVERY = 16  # observations between corrections
SWEEPS = 8  # of coordinate descent a correction; it starts where the last one ended
OUTLIER = 3.0  # residuals beyond so many mean ones count as if they were as small

Features = tuple[float, float, float, float, float]


class StepTimeModel:
    """seconds = fixed + max(weights, linears) + KV + attention: factors × what the roofline says of each part.

    Linears (the head for each logit among them) wait for the weights or for the arithmetic, whichever takes longer;
    KV is read and written, attention multiplies pairs. No factor is ever negative or far from its seed, so that a
    prediction is positive and never falls when the load grows. Factors minimise the relative error of recent
    observations; one that waited for the arithmetic says nothing about the weights, and the other way round.
    """

    def __init__(self, shape: ModelShape, device: Device, *, reached: float = REACHED) -> None:
        """`reached`: the share of the device's roofline to expect before anything was observed."""
        assert 0 < reached <= 1, f"a share of {reached} of the roofline"
        rate = device.rate(shape.weights)
        self._weights = shape.weight_bytes / device.bandwidth  # seconds at full rate, as all of these
        self._linear = 2 * shape.block_parameters / rate  # a token
        self._kv = shape.kv_token_bytes / device.bandwidth  # a position read or written
        self._pair = shape.pair_operations / device.rate(shape.kv)
        self._logit = 2 * shape.head_parameters / rate  # a linear too
        self._seeds = (1.0, *[1 / reached] * 4)
        self._factors = list(self._seeds)
        self._squares = [[0.0] * 5 for _ in range(5)]  # faded sums of products of parts; the upper half is kept
        self._targets = [0.0] * 5
        self._spread = 0.5  # faded mean size of relative residuals
        self._pending = 0
        self.observations = 0

    @property
    def factors(self) -> dict[Part, float]:
        """What each part's roofline time is multiplied by."""
        return dict(zip(PARTS, self._factors, strict=True))

    @property
    def error(self) -> float:
        """Mean relative error of recent predictions."""
        return self._spread

    def seconds(self, load: StepLoad) -> float:
        """The predicted time of a step. A step without rows takes the fixed time and a read of the weights."""
        fixed, weights, linears, kv, attention = self._factors
        return (
            fixed * FIXED_SECONDS
            + max(weights * self._weights, linears * (self._linear * load.tokens + self._logit * load.logits))
            + kv * self._kv * (load.kv_positions + load.tokens)
            + attention * self._pair * load.pairs
        )

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step of this load took so long. What is no positive, finite time is not taken."""
        if not 0 < seconds < math.inf:
            return
        predicted = self.seconds(load)
        residual = min(max(seconds / predicted - 1, -0.9), 9.0)
        size = abs(residual)
        usual = OUTLIER * self._spread
        self._spread += (min(size, 4 * usual + 0.05) - self._spread) * 0.05
        weight = 1.0 if size <= usual else usual / size
        target = (1 + residual) * weight
        scale = 1 / predicted  # errors are relative
        linears = self._linear * load.tokens + self._logit * load.logits
        reading = self._factors[1] * self._weights >= self._factors[2] * linears
        parts = (
            FIXED_SECONDS * scale,
            self._weights * scale if reading else 0.0,
            0.0 if reading else linears * scale,
            self._kv * (load.kv_positions + load.tokens) * scale,
            self._pair * load.pairs * scale,
        )
        self._add(parts, weight, target)
        self.observations += 1
        self._pending += 1
        if self._pending >= EVERY or self.observations < EVERY:
            self._correct()

    def tokens_within(self, seconds: float, base: StepLoad, context: int) -> int:
        """The most tokens that one more row, behind `context` cached ones, may compute so that the step stays in time.

        0 where even one token is too much.
        """
        _, weights, linears, kv, attention = self._factors
        pair, token = attention * self._pair, linears * self._linear
        weighing = weights * self._weights
        multiplying = token * base.tokens + linears * self._logit * (base.logits + 1)
        rest = seconds - self.seconds(base.plus(0, context)) + max(weighing, multiplying)
        square, slope = pair / 2, kv * self._kv + pair * (context + 0.5)
        # The tokens fit while both do: those that wait for the weights, and those that wait for the arithmetic.
        waiting = _largest(square, slope, rest - weighing)
        return int(min(waiting, _largest(square, slope + token, rest - multiplying)) + 1e-9)

    def _add(self, parts: Features, weight: float, target: float) -> None:
        """Into the faded sums: `parts` should add up, by the factors, to `target` / `weight`."""
        a, b, c, d, e = parts
        targets = self._targets
        for row, part in zip(self._squares, parts, strict=True):
            share = weight * part
            row[:] = [
                row[0] * FADING + share * a,
                row[1] * FADING + share * b,
                row[2] * FADING + share * c,
                row[3] * FADING + share * d,
                row[4] * FADING + share * e,
            ]
        targets[:] = [
            targets[0] * FADING + target * a,
            targets[1] * FADING + target * b,
            targets[2] * FADING + target * c,
            targets[3] * FADING + target * d,
            targets[4] * FADING + target * e,
        ]

    def _correct(self) -> None:
        """Coordinate descent on the squared relative error and a pull to the seed, within the bounds."""
        self._pending = 0
        factors, seeds = self._factors, self._seeds
        for _ in range(SWEEPS):
            for index, row in enumerate(self._squares):
                own = row[index]
                pull = TRUST / (seeds[index] * seeds[index])
                others = sum(map(float.__mul__, row, factors)) - own * factors[index]
                best = (self._targets[index] - others + pull * seeds[index]) / (own + pull)
                factors[index] = min(max(best, FASTEST * seeds[index]), SLOWEST * seeds[index])


def _largest(square: float, slope: float, room: float) -> float:
    """The largest n ≥ 0 with square·n² + slope·n ≤ room; 0 where there is none."""
    if room <= 0:
        return 0.0
    return 2 * room / (slope + math.sqrt(slope * slope + 4 * square * room))
