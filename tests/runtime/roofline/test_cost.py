"""The cost functions against sums over single tokens, and against figures worked out by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.checkpoint.config import ModelConfig
from palmette.runtime.checkpoint.dequantize import BLOCKS
from palmette.runtime.checkpoint.llama import EMBEDDING, HEAD, tensor_shapes
from palmette.runtime.roofline.bound import step_bound
from palmette.runtime.roofline.cost import StepLoad, kv_overtakes, step_cost
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import BITS, PRESETS, StoredWeights, model_shape

TINY = ModelConfig(
    architecture="llama", vocab_size=100, hidden_size=64, intermediate_size=96, layers=3, heads=6, kv_heads=2,
    head_dim=16, rms_eps=1e-5,
)  # fmt: skip

rows = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 300)), max_size=8)


def test_bits_are_those_of_the_stored_blocks() -> None:
    for kind, (elements, size) in BLOCKS.items():
        assert BITS[kind] == 8 * size / elements, kind


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_those_of_the_tensors(tied: bool) -> None:
    config = ModelConfig(**{name: getattr(TINY, name) for name in TINY.__struct_fields__} | {"tie_embeddings": tied})
    shapes = tensor_shapes(config)
    head = EMBEDDING if tied else HEAD
    elements = {name: shape[0] * shape[1] for name, shape in shapes.items() if len(shape) == 2}
    norms = sum(shape[0] for shape in shapes.values() if len(shape) == 1)
    shape = model_shape(config, "bf16")
    read = sum(count for name, count in elements.items() if name != EMBEDDING or tied)
    assert shape.weight_bytes == 2 * read + 4 * norms
    assert shape.resident_bytes == 2 * sum(elements.values()) + 4 * norms
    assert shape.head_parameters == elements[head]


def test_mixed_formats_count_as_they_are() -> None:
    mixed = model_shape(TINY, StoredWeights("q4_1", 5, 8.5, 8.5))
    blocks, head = mixed.block_parameters, mixed.head_parameters
    norms = 7 * 64 * 4
    assert mixed.weight_bytes == blocks * 5 / 8 + head * 8.5 / 8 + norms
    assert mixed.embedding_row_bytes == 64 * 8.5 / 8


@pytest.mark.parametrize(
    ("kv", "expected"), [("bf16", 2 * 3 * 32 * 2), ("f32", 2 * 3 * 32 * 4), ("int8", 2 * 3 * (32 + 8))]
)
def test_kv_bytes_of_a_token(kv, expected) -> None:
    assert model_shape(TINY, kv=kv).kv_token_bytes == expected


@given(rows)
def test_a_step_is_the_sum_of_its_tokens(rows: list[tuple[int, int]]) -> None:
    """Pairs and operations from their definition: position p of a row attends to p + 1 positions."""
    shape = model_shape(TINY)
    load = StepLoad()
    for new, context in rows:
        load = load.plus(new, context)
    positions = [context + i for new, context in rows for i in range(new)]
    assert load.pairs == sum(position + 1 for position in positions)
    assert (load.rows, load.tokens, load.logits) == (len(rows), len(positions), len(rows))
    cost = step_cost(shape, load)
    per_head = 2 * TINY.head_dim + 2 * TINY.head_dim  # a score, and a weighted value
    assert cost.attention_operations == sum(TINY.layers * TINY.heads * per_head * (p + 1) for p in positions)
    assert cost.linear_operations == 2 * shape.block_parameters * len(positions)
    assert cost.kv_written == len(positions) * shape.kv_token_bytes
    assert cost.kv_read == sum(context for _, context in rows) * shape.kv_token_bytes


@given(rows, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(rows: list[tuple[int, int]], shuffle: random.Random) -> None:
    def of(these: list[tuple[int, int]]) -> StepLoad:
        load = StepLoad()
        for new, context in these:
            load = load.plus(new, context)
        return load

    shuffled = rows[:]
    shuffle.shuffle(shuffled)
    assert of(rows) == of(shuffled)


@given(st.integers(1, 20), st.integers(1, 50), st.integers(0, 300), st.integers(0, 300))
def test_uniform_rows_are_rows_one_by_one(count: int, new: int, context: int, shared: int) -> None:
    shared = min(shared, context)
    load = StepLoad()
    for index in range(count):
        load = load.plus(new, context, shared=shared if index else 0)
    assert StepLoad.uniform(count, new, context, shared=shared) == load


@settings(max_examples=30)
@given(st.integers(1, 64), st.integers(0, 4096), st.sampled_from(sorted(DEVICES)))
def test_more_work_never_takes_less_time(new: int, context: int, device: str) -> None:
    shape = model_shape(PRESETS["llama-3-8b"])
    load = StepLoad().plus(new, context)
    least = step_bound(shape, DEVICES[device], load).seconds
    for more in (load.plus(1, 0), StepLoad().plus(new + 1, context), StepLoad().plus(new, context + 1)):
        assert step_bound(shape, DEVICES[device], more).seconds >= least


@pytest.mark.parametrize("batch", [1, 8, 128])
def test_kv_overtakes_the_weights_there(batch: int) -> None:
    shape = model_shape(PRESETS["llama-3.1-70b"])
    context = int(kv_overtakes(shape, batch))

    def kv_read(context: int) -> float:
        return step_cost(shape, StepLoad.uniform(batch, 1, context)).kv_read

    assert kv_read(context) <= shape.weight_bytes < kv_read(context + 1)
