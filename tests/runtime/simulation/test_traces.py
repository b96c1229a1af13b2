"""Traces in three forms, and rows that make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.recording import RECORDING
from palmette.runtime.simulation.traces import read_trace


def mooncake_row(**changes: Any) -> dict[str, Any]:
    return {"timestamp": 3000, "input_length": 700, "output_length": 20, "hash_ids": [7, 9], **changes}


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_mooncake(tmp_path: Path) -> None:
    trace = read_trace(
        written(
            tmp_path / "a.jsonl",
            mooncake_row(timestamp=4500, hash_ids=[7, 3], input_length=1024),
            "",
            mooncake_row(),
            mooncake_row(timestamp=3000, input_length=5, hash_ids=[11]),
        )
    )
    assert [request.arrival for request in trace.requests] == [0.0, 0.0, 1.5]
    assert (trace.form, trace.block_tokens, trace.distinct_blocks) == ("mooncake", 512, 4)
    assert trace.prompt_tokens == 700 + 5 + 1024
    first, _, last = (trace.tokens(index) for index in range(3))
    assert len(first) == 720
    assert len(last) == 1044
    assert (first[:512] == last[:512]).all()
    assert not set(first[512:].tolist()) & set(last[512:].tolist())
    own = first[700:].tolist()
    assert len(set(own)) == 1
    assert own[0] >= trace.distinct_blocks, "an output is nobody else's"
    assert max(map(int, last)) < trace.vocabulary


def test_azure(tmp_path: Path) -> None:
    trace = read_trace(
        written(
            tmp_path / "a.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            "2023-11-16 18:17:03.9799600,4808,10",
            "2023-11-16 18:17:04.0319600,3180,8",
        )
    )
    assert [(r.arrival, r.prompt_tokens, r.output_tokens) for r in trace.requests] == [(0, 4808, 10), (0.052, 3180, 8)]
    assert not set(trace.tokens(0).tolist()) & set(trace.tokens(1).tolist())


def test_a_recording(tmp_path: Path) -> None:
    trace = read_trace(
        written(
            tmp_path / "a.jsonl",
            {"recording": RECORDING, "block_tokens": 4},
            {"arrival": 2.5, "prompt_tokens": 5, "output_tokens": 2, "blocks": [99, 55], "tenant": "a"},
            {"arrival": 0.5, "prompt_tokens": 3, "output_tokens": 3, "blocks": [99, 44], "priority": 2},
            {"arrival": 3.5, "prompt_tokens": 2, "output_tokens": 1},
        )
    )
    assert [request.arrival for request in trace.requests] == [0.0, 2.0, 3.0]
    assert trace.requests[0].priority == 2
    assert trace.requests[1].tenant == "a"
    assert trace.tokens(0).tolist()[:4] == trace.tokens(1).tolist()[:4]
    assert trace.tokens(0).tolist()[4:] == [trace.requests[0].blocks[1]] * 2, "outputs are known too"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (mooncake_row(input_length=-3), "input_length=-3 must be at least 1"),
        (mooncake_row(output_length=-1), "output_length=-1"),
        (mooncake_row(timestamp=-5), "timestamp=-5"),
        (mooncake_row(hash_ids=[1]), "hash_ids has 1 ids; input_length=700 takes 2 blocks"),
        (mooncake_row(hash_ids=[1, 2, 3]), "hash_ids has 3 ids"),
        (mooncake_row(hash_ids="no"), "hash_ids"),
        ({"timestamp": 0, "input_length": 3, "output_length": 3}, "hash_ids"),
        ({"timestamp": 0, "output_length": 3, "hash_ids": []}, "input_length"),
        ("not JSON", "2"),
        ("[1, 2]", "object"),
    ],
)
def test_a_row_of_nonsense_is_named(tmp_path: Path, row: object, told: str) -> None:
    path = written(tmp_path / "a.jsonl", mooncake_row(), row)
    with pytest.raises(InvalidRequest) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert told in str(error.value)


@pytest.mark.parametrize(
    "row",
    ["2023-11-16 18:17:04,-1,8", "2023-11-16 18:17:04,1", "yesterday,1,2", "2023-11-16 18:17:04,one,2",
     "2022-11-16 18:17:04,1,2", "2023-11-16 18:17:04,0,8"],
)  # fmt: skip
def test_an_azure_row_of_nonsense_is_named(tmp_path: Path, row: str) -> None:
    head = "TIMESTAMP,ContextTokens,GeneratedTokens"
    path = written(tmp_path / "a.csv", head, "2023-11-16 18:17:03.9799600,4808,10", row)
    with pytest.raises(InvalidRequest, match=":3: "):
        read_trace(path)


@pytest.mark.parametrize(
    "row",
    [{"arrival": -1, "prompt_tokens": 5, "output_tokens": 2}, {"arrival": 0, "prompt_tokens": 0, "output_tokens": 2},
     {"arrival": 0, "prompt_tokens": 5, "output_tokens": 2, "blocks": [1]}, {"arrival": 0}],
)  # fmt: skip
def test_a_recorded_row_of_nonsense_is_named(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=":2: "):
        read_trace(written(tmp_path / "a.jsonl", {"recording": RECORDING, "block_tokens": 4}, row))


def test_an_empty_trace_and_a_missing_column_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no requests"):
        read_trace(written(tmp_path / "a.jsonl", ""))
    with pytest.raises(InvalidRequest, match="'GeneratedTokens' is missing"):
        read_trace(written(tmp_path / "a.csv", "TIMESTAMP,ContextTokens"))


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", mooncake_row(), mooncake_row(), "nonsense")
    assert len(read_trace(path, limit=2).requests) == 2
