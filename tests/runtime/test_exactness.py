"""Bit by bit: random programs of requests on a real (tiny, random) model against one at a time without a cache.

The model has three query heads a KV head; contexts reach beyond two attention blocks. KV is poisoned with NaN, so
reading a slot that nobody wrote shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import pytest
import torch
from engine_harness import Harness, Workload, generate, run_workload, workloads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palmette.kernels.portable import PortableKernels
from palmette.kernels.protocol import set_threads
from palmette.kernels.select import KernelName
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DType, KvDType
from palmette.runtime.messages.requests import Asked, Embed, PoolingKind, Request
from palmette.runtime.messages.tokens import pack
from palmette.runtime.models.loading import Model, load_model
from palmette.runtime.plan import Worker
from palmette.runtime.scheduler.overlap import OverlappingCore
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.vocabulary import Vocabulary
from palmette.runtime.worker.worker import CpuWorker


@dataclass(frozen=True)
class Numerics:
    """What may differ between two runs that must agree is not in here: threads are a matter of speed."""

    kernels: KernelName = "portable"
    dtype: DType = "float32"
    kv_dtype: KvDType = "auto"


NUMERICS = [
    *[Numerics(kernels, dtype) for kernels in ("portable", "cpu") for dtype in ("float32", "bfloat16")],
    Numerics("cpu", "bfloat16", "int8"),
]
NAMES = [f"{n.kernels}-{n.dtype}-{n.kv_dtype}" for n in NUMERICS]


@cache
def model(numerics: Numerics, threads: int) -> Model:
    return load_model(resolve("tiny"), numerics.dtype, numerics.kernels, kv_dtype=numerics.kv_dtype, threads=threads)


@cache
def vocabulary() -> Vocabulary:
    return load_tokenizer(resolve("tiny")).vocabulary.sized(model(Numerics(), 1).config.vocab_size)


class ModelHarness(Harness):
    def __init__(
        self, numerics: Numerics = Numerics(), threads: int = 1, *, use: Model | None = None, **options: Any
    ) -> None:
        chosen = use or model(numerics, threads)

        def make(pages: int, page_size: int, *, slots: int, context: int) -> Worker[Any]:
            store = chosen.new_store(pages, page_size, poison=True)
            return CpuWorker(chosen, store, slots=slots, context_length=context, page_size=page_size)

        super().__init__(make, vocabulary(), **options)


def alone(request: Request, numerics: Numerics, context: int = 400) -> Any:
    """One request, its whole prompt in one chunk, nothing cached, one thread."""
    threads = torch.get_num_threads()
    set_threads(1)
    try:
        harness = ModelHarness(
            numerics, pages=context, page_size=1, context=context, prefix_cache=False, step_tokens=context
        )
        harness.run(request)
    finally:
        set_threads(threads)
    assert isinstance(request, Asked)
    return harness.answer(request.id)


def check(workload: Workload, aborts: list[bool], threads: int, numerics: Numerics, **more: Any) -> None:
    options, requests, _ = workload
    set_threads(threads)
    harness = ModelHarness(numerics, threads, **options, **more)
    aborted = run_workload(harness, workload, aborts[: len(requests)])
    for request in requests:
        assert isinstance(request, Asked)
        if request.id not in aborted:
            assert harness.answer(request.id) == alone(request, numerics), request


ABORTS = st.lists(st.sampled_from([False] * 9 + [True]), min_size=9, max_size=9)
STOPS: list[tuple[str, ...]] = [(), ("e",), (" the",)]


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(workloads(300, STOPS, [1, 16, 64]), ABORTS, st.integers(1, 3), st.sampled_from(NUMERICS))
def test_any_program_of_requests_is_bit_identical(
    workload: Workload, aborts: list[bool], threads: int, numerics: Numerics
) -> None:
    check(workload, aborts, threads, numerics)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(workloads(300, STOPS, [1, 16, 64]), ABORTS, st.integers(1, 3), st.sampled_from(NUMERICS))
def test_steps_planned_while_others_run_are_bit_identical(
    workload: Workload, aborts: list[bool], threads: int, numerics: Numerics
) -> None:
    check(workload, aborts, threads, numerics, make_core=OverlappingCore)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(workloads(300, STOPS, [1, 16, 64]), ABORTS, st.integers(1, 3), st.sampled_from(NUMERICS))
def test_many_programs_of_requests_are_bit_identical(
    workload: Workload, aborts: list[bool], threads: int, numerics: Numerics
) -> None:
    check(workload, aborts, threads, numerics)


@pytest.mark.parametrize("numerics", NUMERICS, ids=NAMES)
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_long_contexts_with_eviction_and_retraction(numerics: Numerics, page_size: int) -> None:
    """Two attention blocks and more; a pool that holds hardly more than the longest request."""
    stem = [1 + (7 * i) % 290 for i in range(260)]
    requests = [
        generate(f"r{i}", [*stem[: 150 + 20 * i], i + 1, 5], max_tokens=12, temperature=float(i % 2), seed=i,
                 logprobs=True, top_logprobs=2, ignore_eos=True, prompt_logprobs_from=140 if i % 2 else None)
        for i in range(6)
    ]  # fmt: skip
    harness = ModelHarness(
        numerics, 2, pages=-(-300 // page_size) + 2, page_size=page_size, context=300, step_tokens=37, max_running=4
    )
    harness.run(*requests)
    for request in requests:
        assert harness.answer(request.id) == alone(request, numerics), request.id
    assert harness.core.counters().evicted_pages > 0


@pytest.mark.parametrize("numerics", NUMERICS, ids=NAMES)
def test_embeddings_with_eviction_and_retraction(numerics: Numerics) -> None:
    """In chunks, beside outputs that grow until somebody must give way, with and without a cached prefix."""
    stem = [1 + (7 * i) % 290 for i in range(140)]
    requests: list[Asked] = [
        generate(f"r{i}", [*stem[: 40 + i], i + 1], max_tokens=70, temperature=0.0, ignore_eos=True) for i in range(3)
    ]
    requests += [
        Embed(id=f"{kind}{i}", inputs=tuple(pack([*stem[: 60 + at + i], at + 2, 9]) for at in (0, 70)), pooling=kind)
        for i in range(2)
        for kind in get_args(PoolingKind)
    ]
    harness = ModelHarness(numerics, 2, pages=16, page_size=16, context=256, step_tokens=19, max_running=5)
    harness.run(*requests)
    for request in requests:
        assert harness.answer(request.id) == alone(request, numerics), request.id
    assert harness.core.counters().retractions > 0
    harness.run(*(replace(request, id=f"again {request.id}") for request in requests))
    for request in requests:
        assert harness.answer(f"again {request.id}") == harness.answer(request.id)


@pytest.mark.parametrize("numerics", NUMERICS, ids=NAMES)
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_rows_that_share_a_long_prefix_decode_together(numerics: Numerics, page_size: int) -> None:
    """Shared KV beyond two attention splits is read once for several rows (cascade); some leave the prefix early."""
    stem = [1 + (11 * i) % 290 for i in range(580)]
    lengths = [580, 580, 300, 580, 530, 260, 580, 40]
    requests = [
        generate(
            f"r{i}", [*stem[:length], 5 + i], max_tokens=9, temperature=1.0, seed=i, logprobs=True, ignore_eos=True
        )
        for i, length in enumerate(lengths)
    ]
    harness = ModelHarness(
        numerics, 2, pages=4000 // page_size, page_size=page_size, context=700, step_tokens=200, max_running=8
    )
    harness.run(*requests)
    for request in requests:
        assert harness.answer(request.id) == alone(request, numerics, context=700), request.id


class BatchDependent(PortableKernels):
    """A linear layer that is right, and quick for one row, but whose bits depend on how many rows there are."""

    name = "batch dependent"

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.functional.linear  # type: ignore[assignment]


def test_a_kernel_that_depends_on_its_batch_is_caught() -> None:
    dependent = load_model(resolve("tiny"), "float32", BatchDependent())
    requests = [generate(f"r{i}", [1 + i, 2, 3, 4], max_tokens=20, logprobs=True, ignore_eos=True) for i in range(4)]
    together = ModelHarness(use=dependent, pages=64, step_tokens=64)
    together.run(*requests)
    answers = []
    for request in requests:
        single = ModelHarness(use=dependent, pages=64, step_tokens=64)
        single.run(request)
        answers.append(single.answer(request.id))
    assert [together.answer(request.id) for request in requests] != answers
