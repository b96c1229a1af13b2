"""`--record`: what is written, that it hides what was said, and that a simulation reads it back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.errors import ErrorInfo, InvalidRequest
from palmette.runtime.frontend import Output, collect
from palmette.runtime.link import LocalLink
from palmette.runtime.messages.recording import RECORDING
from palmette.runtime.messages.replies import Failed, Finish, Generated, Scored, Usage
from palmette.runtime.messages.requests import FlushCache, Generate, Score
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.recording import Recorder, RecordingLink
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.shape import PRESETS, model_shape
from palmette.runtime.simulation.run import replay
from palmette.runtime.simulation.traces import read_trace
from palmette.runtime.step_time import StepTimeModel


def generate(name: str, prompt: list[int], **more: object) -> Generate:
    return Generate(id=name, prompt=pack(prompt), params=SamplingParams(max_tokens=3), **more)


def ended(name: str, *tokens: int, **usage: float) -> Generated:
    finish = Finish(reason="length", usage=Usage(**usage), kept_tokens=len(tokens))
    return Generated(id=name, tokens=pack(tokens), finish=finish)


def recorded(path: Path, *events: object, block_tokens: int = 4) -> list[dict[str, object]]:
    times = iter(range(10**6))
    recorder = Recorder(path, block_tokens=block_tokens, clock=lambda: float(next(times)))
    for event in events:
        sent = isinstance(event, Generate | Score | FlushCache)
        recorder.sent(event) if sent else recorder.answered(event)  # type: ignore[arg-type, func-returns-value]
    recorder.close()
    recorder.close()
    head, *lines = map(json.loads, path.read_text().splitlines())
    assert head == {"recording": RECORDING, "block_tokens": block_tokens}
    return lines


def test_lines_of_requests_that_ended(tmp_path: Path) -> None:
    lines = recorded(
        tmp_path / "a",
        generate("a", [1, 2, 3, 4, 5], priority=2, tenant="somebody"),
        generate("b", [1, 2, 3, 4, 6, 7]),
        generate("open", [1]),
        FlushCache("f"),
        Generated(id="a", tokens=pack([8, 9])),
        ended("b", 5, cached_tokens=4, first_token_seconds=0.25, total_seconds=0.5),
        ended("a", 10),
        ended("nobody's", 1),
    )
    b, a = lines
    assert (a["arrival"], a["prompt_tokens"], a["output_tokens"], a["priority"]) == (1.0, 5, 3, 2)
    assert (b["arrival"], b["prompt_tokens"], b["output_tokens"], b["tenant"]) == (2.0, 6, 1, "")
    assert (b["cached_tokens"], b["first_token"], b["total"], b["finish"]) == (4, 0.25, 0.5, "length")
    assert len(a["blocks"]) == len(b["blocks"]) == 2  # type: ignore[arg-type]
    assert a["blocks"][0] == b["blocks"][0]  # type: ignore[index]
    assert a["blocks"][1] != b["blocks"][1]  # type: ignore[index]


def test_failures_and_scores(tmp_path: Path) -> None:
    score = Score(id="s", prefix=pack([1, 2, 3, 4]), continuations=(pack([5]), pack([6, 7])))
    lines = recorded(
        tmp_path / "a", generate("a", [1, 2, 3, 4]), score, Failed("a", ErrorInfo("NeverFits", "too long")),
        Scored(id="s", logprobs=((-1.0,), (-1.0, -2.0)), usage=Usage(cached_tokens=3, total_seconds=2.0)),
    )  # fmt: skip
    assert [(line["finish"], line["prompt_tokens"], line["total"]) for line in lines] == [
        ("NeverFits", 4, 2.0), ("score", 5, 2.0), ("score", 6, 2.0)
    ]  # fmt: skip
    assert all(line["cached_tokens"] is None for line in lines)
    assert lines[0]["blocks"] == lines[1]["blocks"][:1] == lines[2]["blocks"][:1]  # type: ignore[index]


def test_nothing_of_what_was_said_can_be_looked_up(tmp_path: Path) -> None:
    """The same requests give other hashes in another recording; tenants and namespaces are hidden too."""
    events = generate("a", [1, 2, 3, 4], tenant="key-123", namespace="n"), ended("a", 5)
    first, second = recorded(tmp_path / "a", *events)[0], recorded(tmp_path / "b", *events)[0]
    assert first["blocks"] != second["blocks"]
    assert first["tenant"] != second["tenant"]
    assert "key-123" not in (tmp_path / "a").read_text()
    apart = recorded(tmp_path / "c", generate("a", [1, 2, 3, 4], namespace="x"), ended("a", 5),
                     generate("b", [1, 2, 3, 4], namespace="y"), ended("b", 5))  # fmt: skip
    assert apart[0]["blocks"] != apart[1]["blocks"], "namespaces share nothing"


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(InvalidRequest, match="Give the name of a new file"):
        Recorder(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "mine"
    with pytest.raises(InvalidRequest, match="No such file"):
        Recorder(tmp_path / "nowhere" / "a")


def test_a_full_disk_disturbs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    recorder = Recorder(tmp_path / "a")
    recorder._file.close()
    recorder._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    for number in range(3):
        recorder.sent(generate(f"{number}", [1, 2]))
        recorder.answered(ended(f"{number}", 1))
    recorder.close()
    assert caplog.text.count("recording ends here") == 1


def test_little_is_done_in_the_event_loop(tmp_path: Path) -> None:
    recorder, prompt = Recorder(tmp_path / "a"), pack(range(8000))
    requests = [Generate(id=f"{n}", prompt=prompt, params=SamplingParams(max_tokens=3)) for n in range(300)]
    start = time.thread_time()
    for request in requests:
        recorder.sent(request)
        recorder.answered(ended(request.id, 1))
    spent = time.thread_time() - start
    recorder.close()
    assert spent / len(requests) < 100e-6


def test_a_real_engine_is_recorded_and_replayed(tmp_path: Path) -> None:
    """The same prefix in two requests is found again by the simulation, as it was by the engine."""
    path = tmp_path / "recording.jsonl"
    config = EngineConfig(model="tiny", threads=1, kv_tokens=4096)
    files = resolve("tiny")

    async def serve() -> list[Output]:
        link = RecordingLink(LocalLink(build_core(config, files)), Recorder(path))
        frontend = build_frontend(config, files, link)
        frontend.start()
        await frontend.wait_ready()
        params = SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
        shared = [5 + index % 50 for index in range(96)]
        outputs = await collect([frontend.submit([*shared, 60, 61], params)])
        follow_up = [*shared, 60, 61, *outputs[0].tokens, 7, 8]  # the next turn of the first
        for prompt in ([*shared, 70], follow_up):
            outputs += await collect([frontend.submit(prompt, params)])
        await frontend.close()
        return outputs

    outputs = asyncio.run(serve())
    usages = [output.finish.usage for output in outputs]
    trace = read_trace(path)
    assert [request.prompt_tokens for request in trace.requests] == [98, 97, 120]
    assert [request.output_tokens for request in trace.requests] == [20] * 3
    model = StepTimeModel(model_shape(PRESETS["llama-3.1-8b"]), DEVICES["h100"])
    outcome = replay(trace, EngineConfig(page_size=16), model, pool_tokens=4096)
    cached = [each.cached_tokens for each in sorted(outcome.served, key=lambda each: int(each.name))]
    assert cached[0] == usages[0].cached_tokens == 0
    for ours, theirs in zip(cached[1:], usages[1:], strict=True):
        assert theirs.cached_tokens - 32 <= ours <= theirs.cached_tokens, "to a block"
    assert cached[2] >= 96


@pytest.mark.server
@pytest.mark.timeout(60)
def test_the_server_records(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "recording.jsonl"
    command = [sys.executable, "-c", "from palmette.runtime.cli import main; main()", "serve", "--model", "tiny",
               "--port", "0", "--threads", "1", "--kv-tokens", "4096", "--record", str(path)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(root / ".src"), "NO_COLOR": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "http://" in line)
            for _ in range(2):
                body = {"model": "tiny", "prompt": "the model reads a long text again " * 8, "max_tokens": 4}
                assert httpx.post(f"{line.split()[-1]}/v1/completions", json=body, timeout=20).status_code == 200
            server.send_signal(signal.SIGINT)
            server.stdout.read()
            assert server.wait(20) == 0
        finally:
            server.kill()
    trace = read_trace(path)
    assert len(trace.requests) == 2
    assert trace.requests[0].blocks[0] == trace.requests[1].blocks[0]
