"""The real engine core with two short cuts for simulations: steps without arrays, and many decode steps at once.

Planning, admission, retraction, commits and the tree are the scheduler's own. Called by run.py and benchmarks.
"""

from __future__ import annotations

import math
from typing import Any

from palmette.radix_cache.cache import RadixCache
from palmette.runtime.config import EngineConfig
from palmette.runtime.messages.replies import EngineReady
from palmette.runtime.messages.tokens import TOKEN_BYTES
from palmette.runtime.plan import StepResult
from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.scheduler.batch import StepBatch
from palmette.runtime.scheduler.chunking import step_load
from palmette.runtime.scheduler.core import EngineCore
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.simulation.worker import SimulatedWorker, VirtualTime, result
from palmette.runtime.vocabulary import Vocabulary

LONGEST_LEAP = 1.0  # virtual seconds while requests wait: a policy may go by time


class SimulatedCore(EngineCore):
    """An EngineCore whose worker is a SimulatedWorker and whose clock is virtual."""

    def __init__(
        self,
        config: EngineConfig,
        worker: SimulatedWorker,
        cache: RadixCache,
        *,
        vocabulary: int,
        context: int,
        time: VirtualTime,
        **options: Any,
    ) -> None:
        """`vocabulary`: how many token ids there are; `options` go to EngineCore."""
        ready = EngineReady(
            model="simulated", context_length=context, kv_tokens=cache.pages * cache.page_size,
            page_size=cache.page_size, threads=0, dtype="none", kernels="none", load_seconds=0.0,
        )  # fmt: skip
        pieces = Vocabulary((b"",) * vocabulary, {}, ())
        super().__init__(config, worker, cache, pieces, ready, clock=time, **options)
        self._simulated = worker
        self._time = time
        self._decoded_only = False  # the last step decoded, and neither prefilled nor admitted
        self._ran = 0  # sequences in the running set before the last step's commit

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> int:
        return len(self._running)

    def _execute(self, batch: StepBatch) -> StepResult:
        """As EngineCore does it, but the load is summed up from the rows: no arrays are made."""
        self._steps += 1
        tokens = []
        for row in batch.rows:
            generation = row.sequence.generation
            if generation is not None and row.samples:
                tokens.append(self._simulated.script(generation.seed, generation.output_index))
        load = step_load(batch.rows)
        self._decoded_only = load.tokens == load.rows and all(row.sequence.decoding for row in batch.rows)
        self._ran = len(self._running)
        self._simulated.take(load)
        return result(tokens, sum(row.scores for row in batch.rows))

    def leap(self, until: float) -> int:
        """Takes many steps at once, where all that they do is to decode: no arrival before `until`, no prefill, nobody
        who can be admitted, no output that ends, and pages enough. Returns how many steps it took, maybe none.

        It gives the same times and tokens as single steps, and emits no replies for the tokens.
        """
        if not self._decoded_only or not self._running:
            return 0
        if self._queue:
            if len(self._running) < self._ran:
                return 0  # the next step may admit
            until = min(until, self._time.now + LONGEST_LEAP)
        rows = list(self._running)
        steps = min(map(_left, rows)) - 1  # the last token ends the request, in a step of its own
        if steps < 2 or not all(row.decoding for row in rows):
            return 0
        load = self._load(rows)
        steps = self._steps_before(until, load, steps)
        steps = self._steps_with_pages(rows, steps)
        if steps < 2:
            return 0
        self._simulated.take(_middle(load, steps), steps=steps)
        for row in rows:
            self._decode(row, steps)
        self._steps += steps
        self._tally.steps = self._steps
        return steps

    def _load(self, rows: list[Sequence]) -> StepLoad:
        context = sum(row.computed for row in rows)
        return StepLoad(len(rows), len(rows), context + len(rows), context, len(rows))

    def _steps_before(self, until: float, load: StepLoad, most: int) -> int:
        """Steps that begin before `until`."""
        left = until - self._time.now
        if left <= 0:
            return 0
        if left == math.inf:
            return most
        steps = most
        for _ in range(3):  # a step's time grows with the context, a little and evenly
            steps = max(1, min(most, math.ceil(left / self._simulated.seconds(_middle(load, steps)))))
        return steps

    def _steps_with_pages(self, rows: list[Sequence], steps: int) -> int:
        """At most `steps`, for which there are pages without a retraction."""
        size = self._page_size

        def needed(count: int) -> int:
            return sum(max(0, -(-(row.computed + count) // size) - len(row.pages)) for row in rows)

        available = self._cache.available()
        while steps and needed(steps) > available:
            steps //= 2
        return steps

    def _decode(self, row: Sequence, steps: int) -> None:
        generation = row.generation
        assert generation is not None
        script, seed, first = self._simulated.script, generation.seed, generation.output_index
        missing = -(-(row.computed + steps) // self._page_size) - len(row.pages)
        if missing > 0:
            self._running.extend(row, self._cache.allocate(missing))
        row.tokens += b"".join(
            [script(seed, index).to_bytes(TOKEN_BYTES, "little") for index in range(first, first + steps)]
        )
        row.computed += steps
        generation.outputs += steps


def _left(sequence: Sequence) -> int:
    """Output tokens that are still to come."""
    generation = sequence.generation
    return generation.max_tokens - generation.outputs if generation is not None else 0


def _middle(load: StepLoad, steps: int) -> StepLoad:
    """The load of the middle of `steps` decode steps: each adds a position to every row."""
    grown = load.rows * (steps - 1) // 2
    return StepLoad(load.rows, load.tokens, load.pairs + grown, load.kv_positions + grown, load.logits)
