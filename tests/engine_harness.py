"""Drives an engine core step by step, and draws random programs of requests, for tests of scheduler and exactness."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args

from hypothesis import strategies as st

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.invariants import check_invariants
from palmette.runtime.config import EngineConfig, Policy
from palmette.runtime.grammar.compile import Compiler
from palmette.runtime.messages.replies import Embedded, EngineReady, Failed, Generated, Reply, Scored
from palmette.runtime.messages.requests import Abort, Embed, Generate, PoolingKind, Request, Score
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack, unpack
from palmette.runtime.plan import Worker
from palmette.runtime.scheduler.chunking import StepTime
from palmette.runtime.scheduler.core import EngineCore
from palmette.runtime.vocabulary import Vocabulary


class MakeWorker(Protocol):
    def __call__(self, pages: int, page_size: int, *, slots: int, context: int) -> Worker[Any]: ...


class Harness:
    """An engine core on any worker; collects what each request was answered."""

    def __init__(
        self,
        make_worker: MakeWorker,
        vocabulary: Vocabulary,
        *,
        pages: int = 64,
        page_size: int = 4,
        context: int = 128,
        clock: Callable[[], float] = time.monotonic,
        step_time: StepTime | None = None,
        compiler: Compiler | None = None,
        make_core: Callable[..., EngineCore] = EngineCore,
        **options: Any,
    ) -> None:
        options = {"max_running": 8, "step_tokens": 16, "check_invariants": True, **options}
        self.config = EngineConfig(page_size=page_size, **options)
        self.cache = RadixCache(pages, page_size, enabled=self.config.prefix_cache, clock=clock)
        self.worker = make_worker(pages, page_size, slots=self.config.max_running, context=context)
        ready = EngineReady(
            model="test", context_length=context, kv_tokens=pages * page_size, page_size=page_size, threads=1,
            dtype="test", kernels="test", load_seconds=0.0,
        )  # fmt: skip
        self.core = make_core(
            self.config, self.worker, self.cache, vocabulary, ready, clock=clock, step_time=step_time, compiler=compiler
        )
        self.replies: dict[str, list[Reply]] = defaultdict(list)

    def step(self) -> None:
        for reply in self.core.step():
            self.replies[getattr(reply, "id", "")].append(reply)

    def run(self, *requests: Request) -> None:
        """Submits and steps until nothing is left to do; then nothing may be held."""
        self.run_steps(*requests)
        assert self.cache.leases == set()
        assert self.cache.cached_pages + self.cache.free_count + self.cache.quarantined_pages == self.cache.pages, (
            "a page leaked"
        )
        assert check_invariants(self.cache, []) == []

    def run_steps(self, *requests: Request, limit: int = 3000) -> None:
        for request in requests:
            self.core.submit(request)
        for _ in range(limit):
            if not self.core.has_work:
                break
            self.step()
        assert not self.core.has_work, "no progress"

    def tokens(self, request_id: str) -> list[int]:
        return [t for r in self.replies[request_id] if isinstance(r, Generated) for t in unpack(r.tokens)]

    def answer(self, request_id: str) -> Any:
        """Everything a client sees but the figures of usage."""
        replies = self.replies[request_id]
        last = replies[-1]
        if isinstance(last, Scored):
            return last.logprobs
        if isinstance(last, Embedded):
            return last.vectors
        if isinstance(last, Failed):
            return last.error.kind
        assert isinstance(last, Generated)
        assert last.finish is not None
        logprobs = [p for r in replies if isinstance(r, Generated) and r.logprobs for p in r.logprobs]
        finish = last.finish
        return (
            self.tokens(request_id), logprobs, finish.reason, finish.kept_tokens, finish.kept_bytes,
            finish.matched, finish.prompt_logprobs,
        )  # fmt: skip


SCHEDULING = (
    "namespace", "prompt_logprobs_from", "priority", "tenant", "ttft_target", "tpot_target", "deadline", "under_way",
)  # fmt: skip


def generate(name: str, prompt: list[int], **options: Any) -> Generate:
    extra = {key: options.pop(key) for key in SCHEDULING if key in options}
    return Generate(id=name, prompt=pack(prompt), params=SamplingParams(**{"seed": 1, **options}), **extra)


Workload = tuple[dict[str, Any], list[Request], list[int]]


@st.composite
def workloads(draw: st.DrawFn, size: int, stops: Sequence[tuple[str, ...]], page_sizes: Sequence[int]) -> Workload:
    """Engine options, requests with shared prefixes, and how many steps are taken after each is submitted.

    `size`: token ids are below it. The pool is at least as large as the longest request, often hardly larger.
    """
    page_size = draw(st.sampled_from(page_sizes))
    stems = [[draw(st.integers(1, size - 1)) for _ in range(draw(st.integers(1, 20)))] for _ in range(2)]
    requests: list[Request] = []
    for index in range(draw(st.integers(1, 9))):
        stem = draw(st.sampled_from(stems))
        prompt = stem[: draw(st.integers(1, len(stem)))] + draw(st.lists(st.integers(1, size - 1), max_size=6))
        if draw(st.integers(0, 3)) == 0:
            tails = draw(st.lists(st.lists(st.integers(1, size - 1), min_size=1, max_size=4), min_size=1, max_size=3))
            requests.append(Score(id=f"r{index}", prefix=pack(prompt), continuations=tuple(map(pack, tails))))
            continue
        if draw(st.integers(0, 5)) == 0:
            inputs = [prompt, *draw(st.lists(st.lists(st.integers(1, size - 1), min_size=1, max_size=12), max_size=2))]
            pooling = draw(st.sampled_from(get_args(PoolingKind)))
            requests.append(Embed(id=f"r{index}", inputs=tuple(map(pack, inputs)), pooling=pooling))
            continue
        max_tokens = draw(st.integers(0, 14))
        requests.append(
            generate(
                f"r{index}", prompt,
                max_tokens=max_tokens,
                min_tokens=draw(st.integers(0, min(3, max_tokens))),
                stop_token_ids=draw(st.sampled_from([(), (1, 2)])),
                frequency_penalty=draw(st.sampled_from([0.0, 0.5])),
                priority=draw(st.sampled_from([0, 0, 1])),
                temperature=draw(st.sampled_from([0.0, 1.0])),
                seed=draw(st.integers(0, 5)),
                repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
                stop=draw(st.sampled_from(stops)),
                logprobs=draw(st.booleans()),
                prompt_logprobs_from=draw(st.sampled_from([None, 0, 3])),
                namespace=draw(st.sampled_from(["", "", "n"])),
                tenant=draw(st.sampled_from(["a", "b"])),
                ttft_target=draw(st.sampled_from([None, 1e-6, 10.0])),
            )
        )  # fmt: skip
    longest = 42
    options = {
        "page_size": page_size,
        "pages": -(-longest // page_size) + draw(st.integers(0, 40)),
        "context": 64,
        "step_tokens": draw(st.integers(1, 24)),
        "max_running": draw(st.integers(1, 6)),
        "policy": draw(st.sampled_from(get_args(Policy))),
        "aging_beta": draw(st.sampled_from([0, 10, 16384])),
    }
    return options, requests, [draw(st.integers(0, 3)) for _ in requests]


def run_workload(harness: Harness, workload: Workload, aborts: Sequence[bool]) -> set[str]:
    """Submits and steps; returns the ids that were aborted. Every request has exactly one last reply."""
    _, requests, waits = workload
    aborted = set()
    for request, wait, abort in zip(requests, waits, aborts, strict=True):
        assert isinstance(request, Generate | Score | Embed)
        harness.core.submit(request)
        for _ in range(wait):
            harness.step()
        if abort:
            aborted.add(request.id)
            harness.core.submit(Abort(request.id))
    harness.run()
    for replies in harness.replies.values():
        assert sum(_final(reply) for reply in replies) == 1
    return aborted


def _final(reply: Reply) -> bool:
    return not isinstance(reply, Generated) or reply.finish is not None
