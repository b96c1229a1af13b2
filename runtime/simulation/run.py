"""Requests at their times against the real scheduler and tree, in virtual time: traces, or programs that go on.

Called by `palmette simulate` and benchmarks/trie_bound.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count

import msgspec

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.eviction import EvictionPolicy, eviction_policy
from palmette.runtime.config import EngineConfig
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.replies import Failed, Generated, Reply, Usage
from palmette.runtime.messages.requests import Generate
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.simulation.core import SimulatedCore
from palmette.runtime.simulation.traces import Trace
from palmette.runtime.simulation.worker import SimulatedWorker, VirtualTime
from palmette.runtime.step_time import StepTimeModel

Progress = Callable[[int], None]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to come. `output`: the tokens that it will draw, at least one for each of its output tokens."""

    name: str
    prompt: bytes
    output: Sequence[int]
    priority: int = 0
    namespace: str = ""
    tenant: str = ""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request. Times are virtual seconds; `error` names what failed it."""

    name: str
    arrival: float
    first_token: float  # seconds from arrival
    finished: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    reusable_tokens: int
    retractions: int = 0
    error: str = ""

    @property
    def per_token(self) -> float | None:
        """Seconds between output tokens behind the first; None where there are none."""
        if self.output_tokens < 2:
            return None
        return (self.finished - self.arrival - self.first_token) / (self.output_tokens - 1)


class Simulation:
    """Calls enter by `at`, in any order, also while it runs; `run` serves all of them."""

    def __init__(
        self,
        config: EngineConfig,
        model: StepTimeModel,
        *,
        pages: int,
        vocabulary: int,
        context: int,
        eviction: EvictionPolicy | None = None,
        leaps: bool = True,
    ) -> None:
        """`vocabulary`: token ids are below it; `context`: the longest prompt and output together."""
        self.time = VirtualTime()
        self.cache = RadixCache(
            pages, config.page_size, eviction=eviction, clock=self.time, enabled=config.prefix_cache
        )
        self._outputs: dict[int, Sequence[int]] = {}
        self._open: dict[str, tuple[int, float, float]] = {}  # number, arrival, when it was submitted
        self.worker = SimulatedWorker(model, self.time, lambda seed, index: self._outputs[seed][index])
        self.core = SimulatedCore(
            config, self.worker, self.cache, vocabulary=vocabulary, context=context, time=self.time, step_time=model
        )
        self._coming: list[tuple[float, int, Callable[[], Call]]] = []
        self._numbers = count()
        self._leaps = leaps

    def at(self, arrival: float, make: Callable[[], Call]) -> None:
        """A call that arrives then; it is made at that moment, so that a long trace needn't be in memory."""
        heappush(self._coming, (arrival, next(self._numbers), make))

    def run(self, ended: Callable[[Served], None]) -> None:
        """Until nothing is left. `ended` hears of each call once, and may add more."""
        core, time = self.core, self.time
        while self._coming or core.has_work:
            if not core.has_work:
                time.now = max(time.now, self._coming[0][0])
            while self._coming and self._coming[0][0] <= time.now:
                arrival, number, make = heappop(self._coming)
                self._submit(arrival, number, make())
            for reply in core.step():
                served = self._served(reply)
                if served is not None:
                    ended(served)
            if self._leaps:
                core.leap(self._coming[0][0] if self._coming else math.inf)

    def _submit(self, arrival: float, number: int, call: Call) -> None:
        self._outputs[number] = call.output
        self._open[call.name] = (number, arrival, self.time.now)
        params = SamplingParams(max_tokens=len(call.output), temperature=0, seed=number, ignore_eos=True)
        self.core.submit(
            Generate(id=call.name, prompt=call.prompt, params=params, priority=call.priority, namespace=call.namespace)
        )

    def _served(self, reply: Reply) -> Served | None:
        if isinstance(reply, Generated):
            if reply.finish is None:
                return None
            usage, error = reply.finish.usage, ""
        elif isinstance(reply, Failed):
            usage, error = Usage(), f"{reply.error.kind}: {reply.error.message}"
        else:
            return None
        number, arrival, submitted = self._open.pop(reply.id)
        del self._outputs[number]
        waited = submitted - arrival  # a step was under way when it arrived
        return Served(
            name=reply.id,
            arrival=arrival,
            first_token=waited + usage.first_token_seconds,
            finished=arrival + waited + usage.total_seconds,
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            reusable_tokens=usage.reusable_tokens,
            retractions=usage.retractions,
            error=error,
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One replay. `duration`: virtual seconds from the first arrival to the last answer; `busy`: those in steps."""

    policy: str
    eviction: str
    pool_tokens: int
    served: tuple[Served, ...]
    duration: float
    busy: float
    steps: int
    retractions: int

    @property
    def answered(self) -> list[Served]:
        return [each for each in self.served if not each.error]

    @property
    def prompt_tokens(self) -> int:
        return sum(each.prompt_tokens for each in self.answered)

    @property
    def hit_rate(self) -> float:
        """Prompt tokens that weren't computed, of all."""
        return sum(each.cached_tokens for each in self.answered) / max(1, self.prompt_tokens)

    @property
    def reusable_rate(self) -> float:
        """What an infinite pool would have given in the same order of execution."""
        return sum(each.reusable_tokens for each in self.answered) / max(1, self.prompt_tokens)

    def goodput(self, first_token: float, per_token: float) -> float:
        """Requests a second whose first token came in time and whose other tokens did, in the mean."""
        good = sum(each.first_token <= first_token and (each.per_token or 0.0) <= per_token for each in self.answered)
        return good / self.duration if self.duration else 0.0


def replay(
    trace: Trace,
    config: EngineConfig,
    model: StepTimeModel,
    *,
    pool_tokens: int,
    eviction: str = "lru",
    speed: float = 1.0,
    leaps: bool = True,
    progress: Progress = lambda done: None,
) -> Outcome:
    """The whole trace, arrivals `speed` times as fast. Raises InvalidRequest for a cache without a page."""
    pages = pool_tokens // config.page_size
    longest = max(request.prompt_tokens + request.output_tokens for request in trace.requests)
    if pages < 1:
        raise InvalidRequest(
            f"A cache of {pool_tokens} tokens is less than one page of {config.page_size}.",
            hint="Give a larger --cache or a smaller --page-size.", param="cache",
        )  # fmt: skip
    simulation = Simulation(
        config,
        model,
        pages=pages,
        vocabulary=trace.vocabulary,
        context=longest + 1,
        leaps=leaps,
        eviction=eviction_policy(eviction),
    )
    served: list[Served] = []

    def call(index: int) -> Call:
        request, tokens = trace.requests[index], trace.tokens(index)
        return Call(
            name=str(index),
            prompt=tokens[: request.prompt_tokens].tobytes(),
            output=tokens[request.prompt_tokens :].tolist(),
            priority=request.priority,
            tenant=request.tenant,
        )

    def ended(each: Served) -> None:
        served.append(each)
        progress(len(served))

    for index, request in enumerate(trace.requests):
        simulation.at(request.arrival / speed, partial(call, index))
    simulation.run(ended)
    return Outcome(
        policy=config.policy,
        eviction=eviction,
        pool_tokens=pages * config.page_size,
        served=tuple(served),
        duration=simulation.time.now,
        busy=simulation.worker.busy,
        steps=simulation.worker.steps,
        retractions=simulation.core.counters().retractions,
    )
