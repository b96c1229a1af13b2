"""Agent frameworks against a model that says what a test wants: what a tool-calling loop does all day. Calls side by
side, a tool that fails, streams, and a history that comes back as text, whose tokens are those that the model wrote.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_models import QWEN, ScriptedChat, special_tokenizer
from live_server import LiveServer
from server_process import ROOT

from palmette.runtime.messages.requests import Generate
from palmette.runtime.messages.tokens import unpack

PYTHON = ROOT / ".venvs" / "clients" / "bin" / "python"
LOOPS = Path(__file__).parent / "loops"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.skipif(not PYTHON.exists(), reason="no frameworks; make clients installs them"),
]

CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
SAID = (
    "I look.\n" + CALL % ("weather", '{"city": "Oslo"}') + "\n" + CALL % ("weather", '{"city":"Rome"}'),
    CALL % ("convert", '{"degrees": -4}'),
    CALL % ("convert", '{"degrees": 4}'),
    "It is 39 °F in both, naïvely 😀.",
    "You are welcome.",
)
CALLED = [["weather", "Oslo"], ["weather", "Rome"], ["convert", -4], ["convert", 4]]


class Loop(ScriptedChat):
    """Says SAID in turn, in tokens of its own: a character each, as a model may and an encoder doesn't."""

    turn = 0

    def _script(self, request: Generate) -> list[int]:
        text = SAID[min(self.turn, len(SAID) - 1)]
        self.turn += 1
        vocabulary = self.tokenizer.vocabulary
        single = {piece[0]: token for token, piece in enumerate(vocabulary.pieces) if len(piece) == 1}
        ids: list[int] = []
        for token in self.tokenizer.encode(text, special=True):
            ids += [token] if token in vocabulary.special_pieces else [single[b] for b in vocabulary.pieces[token]]
        return [*ids, self.tokenizer.eos_ids[0]]


def run(program: str, url: str, *options: str) -> dict[str, Any]:
    done = subprocess.run([PYTHON, LOOPS / program, f"{url}/v1", *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def reused(asked: Sequence[Generate], tokenizer: Any, turns: Sequence[list[int]]) -> list[bool]:
    """Of each prompt, whether it begins with the one before it and what the model wrote behind that."""
    found = []
    for before, after, wrote in zip(asked, asked[1:], turns, strict=False):
        ids = [*unpack(before.prompt), *wrote]
        found.append(unpack(after.prompt)[: len(ids)] == ids)
    return found


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(special_tokenizer(tmp_path / "model", QWEN), sizes=[2, 1])


@pytest.mark.parametrize("stream", ["whole", "stream"])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("framework", ["openai_agents", "pydantic_ai", "langchain"])
def test_a_loop(loop: Loop, framework: str, api: str, stream: str) -> None:
    with LiveServer(loop.frontend) as live:
        done = run(f"{framework}_loop.py", live.url, api, stream)
    assert sorted(done["called"][:2]) == CALLED[:2]  # side by side
    assert done["called"][2:] == CALLED[2:]
    assert done["answers"] == list(SAID[3:])
    asked = [request for request in loop.link.sent if isinstance(request, Generate)]
    assert len(asked) == len(SAID)
    loop.turn = 0
    wrote = [loop._script(request)[:-1] for request in asked]
    assert reused(asked, loop.tokenizer, wrote) == [True] * 4


def test_objects_side_by_side_and_as_they_come(loop: Loop) -> None:
    spoken = [SAID[0], CALL % ("weather", '{"city": "Oslo"}')]
    loop.says = lambda prompt: spoken["One city" in prompt]
    loop._script = lambda request: ScriptedChat._script(loop, request)  # type: ignore[method-assign]
    with LiveServer(loop.frontend) as live:
        done = run("instructor_loop.py", live.url, "chat", "stream")
    assert done["called"] == CALLED[:2]
    assert done["answers"] == ["Oslo"]
