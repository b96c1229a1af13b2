"""The limit loops: they compile for every path, do the work that they say, and their figures make sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_paths import native_paths

from palmette.kernels.cpu.build import BuildError, Target, build, detect_target, find_compiler, library_path
from palmette.kernels.cpu.limits import SOURCE, LimitLoops, Limits, measure_limits

try:
    find_compiler()
except BuildError:
    pytest.skip("no C++ compiler", allow_module_level=True)


@pytest.mark.parametrize("target", native_paths(), ids=lambda target: target.name)
def test_every_path_compiles_and_measures(target: Target, tmp_path_factory: pytest.TempPathFactory) -> None:
    loops = LimitLoops(build(tmp_path_factory.getbasetemp() / "limits", target, source=SOURCE))
    assert 1e8 < loops.read(4 << 20, 1, 0.01) < 1e13
    assert 1e8 < loops.copy(4 << 20, 2, 0.01) < 1e13  # checks that the copy is one
    single = loops.rate("f32", 1, 0.02)
    assert single is not None
    assert 1e8 < single < 1e13
    if target.name == "portable":
        assert loops.rate("int8", 1, 0.01) is None, "plain C++ has no byte dot product"
    if target.name.startswith("avx512-vnni"):
        bytes_, floats = loops.rate("int8", 1, 0.02), loops.rate("f32", 1, 0.02)
        assert bytes_ is not None
        assert floats is not None
        assert 1.5 < bytes_ / floats < 10, "four times as many operations an instruction"


def test_a_library_of_its_own(tmp_path: Path) -> None:
    target = detect_target()
    main, limits = library_path(tmp_path, target), library_path(tmp_path, target, source=SOURCE)
    assert main.name.startswith("palmette-")
    assert limits.name.startswith("palmette-limits-")
    assert library_path(tmp_path, target, source=SOURCE, extra=("-g",)) != limits
    assert build(tmp_path, target, source=SOURCE) == limits
    assert limits.exists()
    assert not main.exists(), "the kernels needn't be built to measure"
    stamp = limits.stat().st_mtime_ns
    assert build(tmp_path, target, source=SOURCE) == limits
    assert limits.stat().st_mtime_ns == stamp


def test_all_limits_of_a_machine(tmp_path: Path) -> None:
    told: list[str] = []
    limits = measure_limits(tmp_path, 3, large=8 << 20, small=4 << 20, budget=0.01, progress=told.append)
    assert set(limits.read) == set(limits.read_small) == {1, 2, 3}
    assert limits.target == detect_target().name
    assert "f32" in limits.rates
    assert len(told) == 1


def test_few_bytes_may_be_read_from_caches() -> None:
    limits = Limits("portable", 2, {1: 10.0, 2: 20.0}, {1: 15.0, 2: 18.0}, 1.0, {"f32": 1.0})
    assert limits.bandwidth(1 << 40) == 20.0
    caching = Limits("portable", 2, {1: 10.0, 2: 20.0}, {1: 15.0, 2: 30.0}, 1.0, {"f32": 1.0})
    assert caching.bandwidth(100_000_000) == 30.0
    assert caching.bandwidth(1 << 40) == 20.0
