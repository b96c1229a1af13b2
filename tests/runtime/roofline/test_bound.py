"""Bounds against figures worked out by hand, and the figures that the field quotes."""

from __future__ import annotations

import time

import pytest

from palmette.runtime.roofline.bound import decode_bound, memory_needed, prefill_bound, step_bound
from palmette.runtime.roofline.cost import StepLoad
from palmette.runtime.roofline.device import DEVICES, Device
from palmette.runtime.roofline.shape import PRESETS, model_shape

LLAMA = model_shape(PRESETS["llama-3-70b"])


def test_a_70b_model_in_bfloat16_on_an_h100() -> None:
    """About 42 ms and 24 tokens/s for one stream; 320 KiB of KV a token; the weights need two devices."""
    bound = decode_bound(LLAMA, DEVICES["h100"], batch=1, context=0)
    assert bound.seconds == pytest.approx(0.0415, abs=0.0005)
    assert 1 / bound.seconds == pytest.approx(24, abs=0.2)
    assert bound.memory_binds
    assert bound.limit == "weights"
    assert LLAMA.kv_token_bytes == 320 << 10
    assert LLAMA.resident_bytes == pytest.approx(141.1e9, rel=1e-3)
    assert memory_needed(LLAMA, 1, 8192) == LLAMA.resident_bytes + 8192 * LLAMA.kv_token_bytes
    assert memory_needed(LLAMA, 1, 0) > DEVICES["h100"].memory


def test_what_binds_changes_with_the_work() -> None:
    device = DEVICES["h200"]
    assert decode_bound(LLAMA, device, 1, 1024).limit == "weights"
    assert decode_bound(LLAMA, device, 128, 8192).limit == "KV"
    assert decode_bound(LLAMA, device, 1024, 64).limit == "linears"
    assert prefill_bound(LLAMA, device, 1, 8192).limit == "linears"
    assert prefill_bound(LLAMA, device, 1, 200_000).limit == "attention"


def test_prefill_is_two_operations_a_weight_and_token() -> None:
    bound = prefill_bound(LLAMA, DEVICES["h100"], 1, 2048)
    linears = 2 * 2048 * LLAMA.block_parameters / 989e12
    attention = 4 * 80 * 64 * 128 * (2048 * 2049 / 2) / 989e12
    assert bound.linears == pytest.approx(linears)
    assert bound.attention == pytest.approx(attention)
    assert bound.head == pytest.approx(2 * 8192 * 128_256 / 989e12)
    assert bound.seconds == bound.arithmetic == pytest.approx(linears + attention + bound.head)


def test_many_devices_share_everything() -> None:
    one, two = (decode_bound(LLAMA, DEVICES["h100"].times(count), 16, 2000) for count in (1, 2))
    assert two.seconds == pytest.approx(one.seconds / 2)
    assert DEVICES["h100"].times(1) is DEVICES["h100"]


def device(**changes: object) -> Device:
    given = {"bandwidth": 1e10, "rates": {"f32": 1e11, "int8": 1e12}, "memory": 1e9, "cache": 1e7}
    return Device(**{"name": "some", **given, **changes})  # type: ignore[arg-type]


def test_the_arithmetic_of_a_format() -> None:
    assert device(integer_weights=True).arithmetic("q4_1") == "int8"
    assert device().arithmetic("q4_1") == "f32", "widened to bfloat16, which is computed as f32 here"
    assert DEVICES["h100"].arithmetic("q4_k") == "bf16"
    assert DEVICES["h100"].arithmetic("fp8") == "fp8"
    assert DEVICES["h100"].arithmetic("f32") == "f32"
    assert device(rates={"f32": 1.0, "bf16": 2.0}, integer_weights=True).rate("q8_0") == 2.0


def test_activations_count_only_beyond_the_cache() -> None:
    load = StepLoad.uniform(1, 512, 0)
    inside, beyond = (step_bound(LLAMA, device(cache=size), load) for size in (1e12, 1.0))
    assert inside.activations_in_cache
    assert inside.traffic == inside.cost.bytes / 1e10
    assert beyond.traffic == (beyond.cost.bytes + beyond.cost.activations) / 1e10


def test_cheap_enough_to_ask_before_every_step() -> None:
    """Tens of microseconds would be seen beside a step; the limit here leaves room for a busy machine."""
    load = StepLoad.uniform(64, 1, 1000)
    best = min(_seconds(lambda: step_bound(LLAMA, DEVICES["h100"], load.plus(1, 10)).seconds) for _ in range(200))
    assert best < 50e-6


def _seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
