"""`palmette bench` on the tiny model: every figure is there, and says what it is a share of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palmette.kernels.cpu.build import BuildError, find_compiler
from palmette.kernels.cpu.limits import Limits
from palmette.kernels.cpu.packing import GROUP_BYTES
from palmette.runtime.cli import bench
from palmette.runtime.cli.app import app
from palmette.runtime.cli.bench import Figure, Workload, attention_line, workloads
from palmette.runtime.cli.kernel_bench import measure_kernels
from palmette.runtime.cli.roofline import shape_of
from palmette.runtime.cli.this_machine import Machine
from palmette.runtime.frontend.generation import Output
from palmette.runtime.messages.replies import Finish, Usage
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import PRESETS, model_shape


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["bench", *arguments], env={"NO_COLOR": "1", "COLUMNS": "200"})


def test_the_figures_of_the_tiny_model(tmp_path: Path) -> None:
    record_file = tmp_path / "bench.json"
    result = invoke(
        "-m",
        "tiny",
        "--kernels",
        "portable",
        "--repeats",
        "1",
        "--json",
        str(record_file),
        "--kv-tokens",
        "4096",
    )
    assert result.exit_code == 0, result.output
    assert "load average" in result.stdout
    assert "Attention" in result.stdout
    record = json.loads(record_file.read_text())
    assert [each["workload"] for each in record["figures"]] == [each.name for each in workloads(2048)]
    shape = shape_of("tiny")
    for each in record["figures"]:
        assert each["runs"] == 1
        assert each["tokens_per_second"] > 0
        assert each["share"] == each["tokens_per_second"] / each["limit"]
    single = record["figures"][0]
    context = 64 + 33 // 2
    traffic = shape.weight_bytes + shape.embedding_row_bytes + (context + 1) * shape.kv_token_bytes
    if single["bound_by"] in ("weights", "KV"):
        assert single["limit"] == pytest.approx(record["bandwidth"] / traffic, rel=0.1)
    assert record["kernels_alone"] == []
    assert record["load_before"]["average"] is not None


@pytest.mark.slow
def test_a_pool_too_small_for_a_workload_leaves_it_out(tmp_path: Path) -> None:
    record_file = tmp_path / "bench.json"
    result = invoke("-m", "tiny", "--kernels", "portable", "--repeats", "1", "--json", str(record_file),
                    "--kv-tokens", "512")  # fmt: skip
    assert result.exit_code == 0, result.output
    names = [each["workload"] for each in json.loads(record_file.read_text())["figures"]]
    assert len(names) == 3
    assert not any(name.startswith("32 decodes") for name in names)
    assert "not enough" in result.stdout


def test_short_models_get_shorter_work() -> None:
    for context in (8, 128, 512, 2048, 131_072):
        for each in workloads(context):
            assert each.prompt + each.output <= context
            assert each.prompt > 0
    assert [each.prompt for each in workloads(8192)] == [64, 1024, 1024, 64]


def test_attention_is_what_more_context_costs() -> None:
    shape, device = model_shape(PRESETS["llama-3-8b"]), DEVICES["h100"]

    def decode(context: int, seconds: float) -> Figure:
        return Figure("", context, 1, True, 1, 1 / seconds, 0, 0, 1, "weights")

    at_full_rate = 1000 * shape.kv_token_bytes / device.bandwidth
    line = attention_line([decode(80, 0.01), decode(1080, 0.01 + 2 * at_full_rate)], shape, device)
    assert "1,000 more positions" in line
    assert "50% of the limit" in line
    assert "no time" in attention_line([decode(80, 0.01), decode(1080, 0.009)], shape, device)
    assert attention_line([decode(80, 0.01)], shape, device) == ""


def test_decoding_is_counted_from_the_moment_when_all_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has its first token at 1 s, the other at 3 s; both have 11 at 5 s: 5 + 10 tokens fall into the last 2 s."""

    def output(first: float) -> Output:
        usage = Usage(completion_tokens=11, first_token_seconds=first, total_seconds=5.0)
        return Output("", (), (), Finish(reason="length", usage=usage, kept_tokens=11))

    monkeypatch.setattr(bench, "_outputs", lambda *_: [output(1.0), output(3.0)])
    measured = bench._measured_decode(None, Workload("", 2, 4, 11), None)  # type: ignore[arg-type]
    assert measured == pytest.approx((10 * 2 / 4 + 10) / 2)


def test_every_kernel_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_compiler()
    except BuildError:
        pytest.skip("no C++ compiler")
    monkeypatch.setattr("palmette.kernels.cpu.limits.SMALL", 1 << 20)
    limits = Limits("some", 2, {1: 1e11, 2: 2e11}, {1: 1e11, 2: 2e11}, 1e11, {"f32": 1e15})
    figures = measure_kernels("tiny", Machine(2, limits, 1e11, {"f32": 1e15}), budget=0.001)
    assert [each.kernel for each in figures[::2]][:-1] == [f"linear {form}" for form in GROUP_BYTES]
    assert figures[-1].kernel.startswith("head")
    for each in figures:
        assert each.bound_by == "memory", "nothing beats 1 P operations a second"
        assert each.bound == each.bytes / 1e11
        assert each.seconds > 0
    assert measure_kernels("tiny", Machine(2, None, 1e11, {"f32": 1e15})) == []
