"""The example programs: their structure on a scripted backend and the tiny model; the demo whole."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import palmette as sgl

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def tiny() -> Iterator[sgl.Engine]:
    with sgl.Engine(model="tiny", kv_tokens=32768, threads=1) as engine:
        yield engine


def test_few_shot_select_sorts_by_the_likeliest_topic() -> None:
    from few_shot_select import MESSAGES, TOPICS, classify

    def knows(prompt: str, choice: str) -> float:
        message = prompt.rsplit("Message: ", 1)[1].split("\n")[0]
        return 0.0 if (message, choice.strip()) in MESSAGES else -5.0

    states = classify.run_batch(
        [{"message": message} for message, _ in MESSAGES], backend=sgl.ScriptedBackend(score=knows)
    )
    assert [(state["topic"]) for state in states] == [topic for _, topic in MESSAGES]
    assert set(TOPICS) == {topic for _, topic in MESSAGES}


def test_few_shot_prompts_share_their_examples(tiny: sgl.Engine) -> None:
    from few_shot_select import MESSAGES, TOPICS, classify

    first, *others = (classify.run(message, backend=tiny) for message, _ in MESSAGES[:6])
    assert first["topic"] in TOPICS
    for state in others:
        assert state["topic"] in TOPICS
        assert state.usage().cached_tokens > 0.8 * state.usage().prompt_tokens


def test_tree_of_thought_grows_and_votes() -> None:
    from tree_of_thought import QUESTIONS, solve

    answers = iter([" 12\n", " 16\n", " 16 cars\n"] * 3)
    scripted = sgl.ScriptedBackend(lambda prompt: next(answers) if prompt.endswith("Answer:") else " x")
    state = solve.run(QUESTIONS[1][0], backend=scripted)
    assert state["vote"] == 16
    assert [len(answers) for answers in state["answer"]] == [3, 3, 3]
    assert state["first"] == [" x"] * 3
    assert [call[0] for call in scripted.calls].count("generate") == 3 + 9 + 9


def test_the_vote() -> None:
    from tree_of_thought import vote

    assert vote(["12", " 7 apples", "5 + 2 = 7"]) == 7
    assert vote(["none", ""]) is None


def test_multi_turn_chat_reuses_every_turn(tiny: sgl.Engine) -> None:
    from multi_turn_chat import TURNS, chat

    state = chat.run(TURNS, temperature=0.0, backend=tiny)
    roles = [message["role"] for message in state.messages()]
    assert roles == ["system"] + ["user", "assistant"] * len(TURNS)
    usage = state.usage()
    assert usage.calls == len(TURNS)
    assert usage.reuse == 1.0


@pytest.mark.parametrize("width", [80, 100])
def test_the_demo_shows_its_programs_and_the_tree(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import demo

    monkeypatch.setattr(demo, "WIDTH", width)
    monkeypatch.setattr(demo, "console", Console(width=width, highlight=False))
    demo.main("tiny")
    shown = capsys.readouterr().out
    for text in (
        "First token",
        "few-shot batch",
        "tree of thought",
        "multi-turn chat",
        "radix tree:",
        "share",
    ):
        assert text in shown
    lines = shown.splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("program  "))
    assert lines[table].split()[-2:] == ["out/s", "time"], "no heading is cut"
    assert max(len(line) for line in lines[table:]) <= width
    assert max(len(line) for line in lines) <= 110


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        if path.name != "demo.py":
            assert len(path.read_text().splitlines()) < 80, path.name


@pytest.mark.slow
def test_the_demo_on_the_default_model() -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")],
        capture_output=True, text=True, timeout=290, env={"PYTHONPATH": str(EXAMPLES.parent / ".src"), **_home()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 240
    total = next(line for line in done.stdout.splitlines() if line.strip().startswith("all "))
    calls, share = int(total.split()[1].replace(",", "")), float(total.split()[5].rstrip("%"))
    assert calls >= 40
    assert share >= 99.0


def _home() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "PALMETTE_CACHE")}
