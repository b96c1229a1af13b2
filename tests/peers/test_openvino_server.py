"""The server that stands in for OpenVINO's own: ids stream, schemas hold, a refusal is told.

They need OpenVINO in its own virtual environment (`python -m benchmarks.run --against openvino --install`); without it
they are skipped.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from palmette.runtime.checkpoint.files import ModelFiles
from palmette.runtime.text.load import load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.peers]

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "old": {"type": "boolean"}},
    "required": ["city", "old"],
    "additionalProperties": False,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["openvino", "openvino-gguf"])
async def test_the_server_answers_as_the_harness_wants(model_files: ModelFiles, tmp_path: Path, name: str) -> None:
    from benchmarks.drivers.protocol import DriverError
    from benchmarks.peers import SYSTEMS
    from benchmarks.peers.base import Setup

    system = SYSTEMS[name]
    if not system.installed():
        pytest.skip("OpenVINO isn't installed: python -m benchmarks.run --against openvino --install")
    tokenizer = load_tokenizer(model_files)
    prompt = tokenizer.encode("The capital of France is", special=False)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, special=False)

    async with system.start(Setup(model_files.path, 2, tmp_path, encode)) as driver:
        first = await driver.complete(prompt, 12)
        assert first.exact_ids
        assert sum(arrival.count for arrival in first.arrivals) == 12
        assert len(first.arrivals) > 4  # they come as they are made
        assert "Paris" in first.text
        again = await asyncio.gather(*(driver.complete(prompt, 12) for _ in range(4)))
        # its numbers depend on the batch, so only what is sure is asked for
        assert all("Paris" in completion.text and len(completion.tokens) == 12 for completion in again)
        held = await driver.complete(prompt, 64, json.dumps(SCHEMA))
        assert set(json.loads(held.text)) == {"city", "old"}
        with pytest.raises(DriverError, match="400"):
            await driver.complete([], 4)
        assert len((await driver.complete(prompt, 3)).tokens) == 3  # one refusal ends one call
