"""Whole programs in virtual time: the real language, frontend, scheduler and tree; the model's steps last as predicted.

The steps are those of the default model on one thread of a server's processor, as measured (log of 30 November). Its
outputs are words that follow from seed and position, so that all runs of a program say the same. Used by compiled.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.compiled_programs import Workload, tool
from palmette.lang.backends.engine import EngineBackend
from palmette.lang.sampling import derive_seed
from palmette.radix_cache.cache import Lease, RadixCache
from palmette.radix_cache.eviction import eviction_policy
from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.frontend import Frontend
from palmette.runtime.messages.programs import CallResult, Choose, Plan, ProgramEvent, RunProgram
from palmette.runtime.messages.replies import Generated, Reply, Scored, Usage
from palmette.runtime.messages.requests import Generate, Score
from palmette.runtime.messages.tokens import count, unpack
from palmette.runtime.roofline.device import DEVICES, Device
from palmette.runtime.roofline.shape import PRESETS, model_shape
from palmette.runtime.scheduler.scoring import ChoiceTree
from palmette.runtime.simulation.core import SimulatedCore
from palmette.runtime.simulation.loop import SimulatedLink, VirtualLoop
from palmette.runtime.simulation.worker import SimulatedWorker, VirtualTime
from palmette.runtime.step_time import StepTimeModel
from palmette.runtime.text.load import load_tokenizer

# One thread: 3.5 ms for a step of one row, 11 ms for 16, 0.54 ms for a token of prefill.
ONE_THREAD = Device(
    name="one thread of an AMD EPYC (Zen 5)",
    bandwidth=4.3e10,
    rates={"f32": 1.4e11, "bf16": 2.8e11, "int8": 5.6e11},
    memory=4e9,
    cache=3.2e7,
    integer_weights=True,
)
SMOLLM2 = ModelConfig(
    architecture="llama", vocab_size=49_152, hidden_size=576, intermediate_size=1536, layers=30, heads=9, kv_heads=3,
    head_dim=64, rms_eps=1e-5, context_length=8192, tie_embeddings=True,
)  # fmt: skip
CONTEXT = 8192


def cpu() -> StepTimeModel:
    return StepTimeModel(model_shape(SMOLLM2, "q4_1"), ONE_THREAD)


def gpu() -> StepTimeModel:
    """An 8B model on one H100 at 0.7 of its roofline."""
    return StepTimeModel(model_shape(PRESETS["llama-3.1-8b"]), DEVICES["h100"])


@dataclass
class Asked:
    """What an engine was asked: `usages` of all requests; `paths`: their tokens, in order of execution; `spared`: those
    of choices that nobody has to compute, with a cache or without."""

    usages: list[Usage] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    spared: int = 0

    def note(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Generated) and reply.finish is not None:
                self.usages.append(reply.finish.usage)
            elif isinstance(reply, Scored):
                self.usages.append(reply.usage)

    @property
    def computed(self) -> int:
        """Prompt tokens that were computed, ahead of time or again as well."""
        return sum(usage.computed_tokens for usage in self.usages)

    @property
    def prompt_tokens(self) -> int:
        return sum(usage.prompt_tokens for usage in self.usages)


def choices_of(request: Score) -> ChoiceTree:
    return ChoiceTree(count(request.prefix), request.continuations)


def spared_by(request: Any) -> int:
    return sum(scoring.spared for _, scoring in choices_of(request).stems) if isinstance(request, Score) else 0


def is_ahead(request: Any) -> bool:
    """Whether a request only has something computed that another will need."""
    return isinstance(request, Generate) and request.params.max_tokens == 0


class _RecordedCache(RadixCache):
    """A cache that remembers who was let in, in order."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.admitted: dict[Lease, bytes] = {}

    def match(self, key: bytes, namespace: str, *, priority: int = 0) -> Lease:
        lease = super().match(key, namespace, priority=priority)
        self.admitted[lease] = b""
        return lease

    def finish(self, lease: Lease, key: bytes, pages: Any, *, generated: int | None = None) -> None:
        self.admitted[lease] = bytes(key)
        super().finish(lease, key, pages, generated=generated)


@dataclass(frozen=True)
class Outcome:
    """`requests`: the tokens of all that were asked for, sorted; those computed ahead are not among them."""

    seconds: float
    latencies: list[float]
    asked: Asked
    outputs: list[str]
    retractions: int
    busy: float = 0.0


class VirtualEngine:
    """An engine as programs see it (lang/backends/engine.py's EngineLike)."""

    def __init__(self, config: EngineConfig, model: StepTimeModel, pool_tokens: int) -> None:
        self.clock = VirtualTime()
        self.loop = VirtualLoop(self.clock)
        self.cache = _RecordedCache(
            pool_tokens // config.page_size, config.page_size, eviction=eviction_policy(config.eviction),
            clock=self.clock,
        )  # fmt: skip
        tokenizer = load_tokenizer(resolve(DEFAULT_MODEL))
        pieces = tokenizer.vocabulary.pieces
        plain = [token for token, piece in enumerate(pieces) if piece[:1] == b" " and piece[1:].isalpha()]
        self.worker = SimulatedWorker(model, self.clock, lambda seed, index: plain[hash((seed, index)) % len(plain)])
        self.core = SimulatedCore(
            config, self.worker, self.cache, vocabulary=len(pieces), context=min(CONTEXT, pool_tokens),
            time=self.clock, step_time=model,
        )  # fmt: skip
        self.frontend = Frontend(
            SimulatedLink(self.core, self.loop), tokenizer, None, model="simulated", context_length=CONTEXT
        )
        self.frontend.offload = _AtOnce()  # type: ignore[assignment]
        self.asked = Asked()
        self.ahead: set[bytes] = set()  # prompts that were computed before anybody needed them
        deliver, opened = self.frontend._calls.deliver, self.frontend._calls.open

        def open_(request: Any) -> Any:
            if is_ahead(request):
                self.ahead.add(request.prompt)
            self.asked.spared += spared_by(request)
            return opened(request)

        def heard(replies: Any) -> None:
            self.asked.note(replies)
            deliver(replies)

        self.frontend._calls.deliver, self.frontend._calls.open = heard, open_  # type: ignore[method-assign]

    def close(self) -> None:
        self.loop.close()


class _AtOnce:
    """In virtual time no thread may be waited for."""

    async def run(self, work: Any) -> Any:
        return work()

    def close(self) -> None:
        """Nothing runs."""


def run(
    workload: Workload,
    config: EngineConfig,
    model: StepTimeModel,
    pool: int,
    *,
    compiled: bool,
    at_once: int,
    seed: int = 1,
) -> Outcome:
    """All programs of a workload on a fresh engine, at most `at_once` at a time."""
    engine = VirtualEngine(config, model, pool)
    backend = EngineBackend(engine)
    plans = _plans(workload, seed) if compiled else []
    latencies: list[float] = []
    outputs = [""] * len(workload.arguments)

    async def interpreted(index: int) -> str:
        given = workload.arguments[index]
        state = await workload.program.arun(**given, backend=backend, seed=derive_seed(seed, index))
        return str(await state.atext())

    async def one(index: int, room: asyncio.Semaphore) -> None:
        async with room:
            begun = engine.clock.now
            if compiled:
                outputs[index] = await _compiled(engine, plans[index], workload.arguments[index].get("wait", 0.0))
            else:
                outputs[index] = await interpreted(index)
            latencies.append(engine.clock.now - begun)

    async def every() -> None:
        engine.frontend.start()
        room = asyncio.Semaphore(at_once)
        await asyncio.gather(*(one(index, room) for index in range(len(workload.arguments))))

    asyncio.set_event_loop(engine.loop)
    engine.loop.run_until_complete(every())
    paths = [key for key in engine.cache.admitted.values() if key and key not in engine.ahead]
    engine.asked.paths = [list(unpack(key)) for key in paths]
    outcome = Outcome(
        engine.clock.now, latencies, engine.asked, outputs, engine.core.counters().retractions, engine.worker.busy
    )
    engine.close()
    return outcome


def _plans(workload: Workload, seed: int) -> list[Plan]:
    return [
        workload.program.trace(**given, seed=derive_seed(seed, index)).plan
        for index, given in enumerate(workload.arguments)
    ]


async def _compiled(engine: VirtualEngine, plan: Plan, wait: float) -> str:
    """One run of a plan; its tools are called here. Gives the text of its own state."""
    running = engine.frontend.run_program(RunProgram(plan=plan))
    text: list[str] = []
    tasks = []

    async def call(event: Any) -> None:
        found = await tool(wait)(str(event.arguments[0]))
        await running.answer(CallResult(track=event.track, operation=event.operation, text=found))

    async for event in running.events():
        assert event.error is None, event
        if event.arguments is not None:
            tasks.append(asyncio.ensure_future(call(event)))
        if event.chunk is not None and event.track == 0:
            text.append(event.chunk.appended + event.chunk.text)
        if event.scores is not None:
            text.append(event.scores.appended + _choices(plan, event)[event.scores.chosen or 0])
    return "".join(text)


def _choices(plan: Plan, event: ProgramEvent) -> tuple[str, ...]:
    operation = plan.tracks[event.track][event.operation]
    assert isinstance(operation, Choose)
    return operation.choices
