"""The native kernels against float64, and row by row: a row's bits never depend on how many rows there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_paths import COMPILES_LONG, native_library, native_paths

from palmette.kernels.cpu.build import PORTABLE, BuildError, build, find_compiler
from palmette.kernels.cpu.library import Floats, Library, Weight
from palmette.kernels.cpu.packing import (
    Format,
    Quantised,
    QuantisedFormat,
    concatenate,
    gate_up_order,
    pack_float,
    pack_quantised,
    take,
)

Doubles = npt.NDArray[np.float64]
ALL: tuple[str, ...] = get_args(Format)
QUANTISED: tuple[str, ...] = get_args(QuantisedFormat)


def _params() -> list[Any]:
    """The path that is used here, always; the others compile for long."""
    *others, best = native_paths()
    return [best, *[pytest.param(target, marks=COMPILES_LONG) for target in others]]


@pytest.fixture(scope="session", params=_params(), ids=lambda target: target.name)
def library(request: pytest.FixtureRequest) -> Library:
    return native_library(request.param)


def meaning(weight: Quantised) -> Doubles:
    """The weights [outputs, inputs] that quants, scales and minima stand for."""
    outputs, groups, _ = weight.quants.shape
    scales = weight.scales.astype(np.float64).reshape(outputs, groups, -1)
    scales = scales.repeat(32 // scales.shape[2], axis=2)
    exact = (weight.quants.astype(np.float64) - (128 if weight.minima is None else 0)) * scales
    if weight.minima is not None:
        exact += weight.minima[..., None].astype(np.float64)
    return exact.reshape(outputs, -1)


def random_weight(kind: str, outputs: int, inputs: int, seed: int) -> tuple[Weight, Doubles]:
    """A packed weight and what it means."""
    generator = np.random.default_rng(seed)
    groups = inputs // 32
    if kind in QUANTISED:
        form: QuantisedFormat = kind  # type: ignore[assignment]
        low, high = {"q4": (0, 16), "q8_min": (0, 256)}.get(kind, (1, 256))
        quants = generator.integers(low, high, (outputs, groups, 32)).astype(np.uint8)
        by_scale = (outputs, groups, 2) if kind == "q8_16" else (outputs, groups)
        scales = (generator.standard_normal(by_scale) * 0.05).astype(np.float16)
        with_minima = kind in ("q4", "q8_min")
        minima = (generator.standard_normal((outputs, groups)) * 0.1).astype(np.float16) if with_minima else None
        weight = Quantised(form, quants, scales, minima)
        return Weight(form, outputs, inputs, pack_quantised(weight)), meaning(weight)
    values = generator.standard_normal((outputs, inputs)).astype(np.float32)
    if kind == "bf16":
        values = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        return Weight("bf16", outputs, inputs, pack_float(values, "bf16")), values.astype(np.float64)
    return Weight("f32", outputs, inputs, pack_float(values, "f32")), values.astype(np.float64)


def as_int8_sees_it(x: Floats) -> Doubles:
    """x rounded to int8 per group of 32, as quantised products take it."""
    groups = x.reshape(len(x), -1, 32)
    most = np.abs(groups).max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        inverse = np.where(most > 0, np.float32(127) / most, np.float32(0)).astype(np.float32)
    quants = np.rint(groups * inverse).astype(np.float64)
    return (quants * (most / np.float32(127)).astype(np.float64)).reshape(x.shape)


def as_bf16_sees_it(x: Floats) -> Doubles:
    """x rounded to bfloat16, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def as_seen(library: Library, kind: str, x: Floats) -> Doubles:
    """The inputs that a product with weights of this kind multiplies."""
    if kind in QUANTISED:
        return as_int8_sees_it(x)
    return as_bf16_sees_it(x) if kind == "bf16" and "bf16" in library.path.name else x.astype(np.float64)


KINDS = st.sampled_from(ALL)


@settings(max_examples=40)
@given(
    KINDS,
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 30),
    st.integers(0, 1000),
    st.sampled_from([1e-20, 1.0, 1e10]),
)
def test_linear_is_close_to_float64(
    library: Library, kind: str, outputs: int, groups: int, rows: int, seed: int, spread: float
) -> None:
    weight, exact = random_weight(kind, outputs, groups * 32, seed)
    x = (np.random.default_rng(seed + 1).standard_normal((rows, groups * 32)) * spread).astype(np.float32)
    seen = as_seen(library, kind, x)
    bound = (np.abs(seen) @ np.abs(exact).T) * 3e-6 + 1e-37
    assert (np.abs(library.linear(weight, x) - seen @ exact.T) <= bound).all()


@settings(max_examples=25)
@given(KINDS, st.integers(1, 70), st.integers(1, 6), st.integers(2, 40), st.integers(0, 1000))
def test_a_row_of_linear_has_the_same_bits_in_any_batch(
    library: Library, kind: str, outputs: int, groups: int, rows: int, seed: int
) -> None:
    weight, _ = random_weight(kind, outputs, groups * 32, seed)
    x = np.random.default_rng(seed).standard_normal((rows, groups * 32)).astype(np.float32)
    together = library.linear(weight, x)
    for row in range(rows):
        assert (library.linear(weight, x[row : row + 1]).view(np.int32) == together[row].view(np.int32)).all()


@settings(max_examples=25)
@given(
    st.lists(st.tuples(KINDS, st.integers(1, 5)), min_size=2, max_size=4),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(0, 1000),
)
def test_parts_of_any_formats_give_the_bits_that_they_give_alone(
    library: Library, parts: list[tuple[str, int]], groups: int, rows: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    weights = tuple(
        replace(
            random_weight(kind, blocks * 16, groups * 32, seed + index)[0],
            bias=generator.standard_normal(blocks * 16).astype(np.float32) if index % 2 else None,
        )
        for index, (kind, blocks) in enumerate(parts)
    )
    x = generator.standard_normal((rows, groups * 32)).astype(np.float32)
    alone = np.concatenate([library.linear(weight, x) for weight in weights], axis=1)
    assert (library.linear(weights, x).view(np.int32) == alone.view(np.int32)).all()
    without = np.concatenate([library.linear(replace(weight, bias=None), x) for weight in weights], axis=1)
    biases = [np.zeros(weight.outputs, np.float32) if weight.bias is None else weight.bias for weight in weights]
    assert (alone == without + np.concatenate(biases)).all()
    tokens = np.arange(0, alone.shape[1], 7, dtype=np.int32)
    rows_of = np.concatenate([library.embed(weight, np.arange(weight.outputs, dtype=np.int32)) for weight in weights])
    assert (library.embed(weights, tokens) == rows_of[tokens]).all()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_paths_give_the_same_bits() -> None:
    """Integer sums are exact and every lane does the same operations, so the paths agree bit for bit.

    All but one: products with bfloat16 weights where there are bfloat16 dot products.
    """
    libraries = [native_library(target) for target in native_paths()]
    for kind in ALL:
        weight, _ = random_weight(kind, 48, 128, 7)
        x = np.random.default_rng(3).standard_normal((13, 128)).astype(np.float32)
        alike = [library for library in libraries if kind != "bf16" or "bf16" not in library.path.name]
        results = [library.linear(weight, x) for library in alike]
        assert all((result.view(np.int32) == results[0].view(np.int32)).all() for result in results), kind


@pytest.mark.parametrize("kind", ALL)
def test_embedding_rows_are_the_weights(library: Library, kind: str) -> None:
    weight, exact = random_weight(kind, 37, 96, 5)
    tokens = np.array([0, 36, 17, 17, 1], dtype=np.int32)
    assert np.allclose(library.embed(weight, tokens), exact[tokens], rtol=1e-6, atol=1e-7)


def test_rms_norm(library: Library) -> None:
    generator = np.random.default_rng(0)
    for width in (16, 96, 576):
        x = (generator.standard_normal((5, width)) * np.array([[1e-12], [1e-3], [1], [1e3], [1e12]])).astype(np.float32)
        weight = generator.standard_normal(width).astype(np.float32)
        wide = x.astype(np.float64)
        exact = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * weight
        assert np.allclose(library.rms_norm(x, weight, 1e-5), exact, rtol=3e-6, atol=0)


def test_exp(library: Library) -> None:
    x = np.concatenate([np.linspace(-87, 88, 100_001), [0.0, -0.0]]).astype(np.float32)
    assert np.abs(library.exp(x) / np.exp(x.astype(np.float64)) - 1).max() < 2e-7
    assert library.exp(np.array([-np.inf, -1000.0, -87.5], np.float32)).tolist() == [0.0] * 3
    assert library.exp(np.zeros(3, np.float32)).tolist() == [1.0] * 3
    assert np.isnan(library.exp(np.full(3, np.nan, np.float32))).all()


def test_parts_and_orders() -> None:
    generator = np.random.default_rng(1)

    def part(outputs: int) -> Quantised:
        quants = generator.integers(0, 16, (outputs, 2, 32)).astype(np.uint8)
        scales = generator.standard_normal((outputs, 2)).astype(np.float16)
        return Quantised("q4", quants, scales, scales)

    gate, up = part(64), part(64)
    fused = take(concatenate([gate, up]), gate_up_order(64))
    assert (fused.quants[:32] == gate.quants[:32]).all()
    assert (fused.quants[32:64] == up.quants[:32]).all()
    assert (fused.quants[64:96] == gate.quants[32:]).all()


def test_a_build_is_kept_and_a_refused_source_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    said: list[Any] = []
    first = build(tmp_path / "k", PORTABLE, extra=("-O0",), progress=said.append)
    again = build(tmp_path / "k", PORTABLE, extra=("-O0",), progress=said.append)
    assert first == again
    assert len(said) == 1
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o700
    with pytest.raises(BuildError, match="could not compile"):
        build(tmp_path / "k", PORTABLE, extra=("-fno-such-flag",))
    monkeypatch.setattr("palmette.kernels.cpu.build.COMPILERS", ("no-such-compiler",))
    with pytest.raises(BuildError, match="No C\\+\\+ compiler"):
        build(tmp_path / "k", PORTABLE)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 5, 31])
def test_what_is_no_number_is_not_lost_in_quantising(library: Library, bad: float, place: int) -> None:
    """An input that is none makes every output none, so that its request fails instead of going on with a guess."""
    rng = np.random.default_rng(1)
    weight = Weight("q4", 32, 64, rng.integers(0, 60, 2 * 2 * 320, dtype=np.uint8))
    x = rng.standard_normal((3, 64)).astype(np.float32)
    good = library.linear(weight, x)
    x[1, 32 + place] = bad
    out = library.linear(weight, x)
    assert np.isnan(out[1]).all()
    assert np.array_equal(out[[0, 2]], good[[0, 2]])
