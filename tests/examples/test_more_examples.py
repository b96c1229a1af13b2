"""The examples of typed outputs, forks and streams, run whole: on the tiny model, and on the default one (slow).

What a model says is its own; looked at is the structure of what the programs make of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import palmette as sgl

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def shared(state: sgl.ProgramState) -> float:
    """Of the prompt tokens that could be reused, the part that was."""
    return state.usage().reuse


def test_skeleton_of_thought(engine: sgl.Engine) -> None:
    from skeleton_of_thought import QUESTIONS, answer

    for state in answer.run_batch([{"question": question} for question in QUESTIONS], seed=1, backend=engine):
        assert len(state["sentence"]) == 3
        assert re.match(r"1\. .*^2\. .*^3\. ", state["answer"], re.DOTALL | re.MULTILINE)
        assert all(state[f"point{number}"] in state.text() for number in (1, 2, 3))
        assert shared(state) > 0.99


def test_branch_solve_merge(engine: sgl.Engine) -> None:
    from branch_solve_merge import CASES, CRITERIA, judge

    for state in judge.run_batch(CASES, seed=2, backend=engine):
        assert len(state["mark_a"]) == len(state["mark_b"]) == len(state["thought"]) == len(CRITERIA)
        assert all(mark in range(1, 6) for mark in state["mark_a"] + state["mark_b"])
        assert state["totals"] == {"A": sum(state["mark_a"]), "B": sum(state["mark_b"])}
        assert state["winner"] in ("A", "B")
        assert [message["role"] for message in state.messages()] == ["system", "user", "user", "assistant"]


def test_self_consistency(engine: sgl.Engine) -> None:
    from self_consistency import QUESTIONS, consistent

    for state in consistent.run_batch([{"question": question} for question, _ in QUESTIONS], seed=3, backend=engine):
        assert len(state["answer"]) == 5
        assert all(isinstance(answer, int) for answer in state["answer"])
        assert state["answer"].count(state["vote"]) == 5 * state["agreement"] >= 1
        assert len(set(state["reasoning"])) > 1, "the ways differ"


def test_json_extraction(engine: sgl.Engine) -> None:
    from json_extraction import TEXTS, Event, extract

    states = extract.run_batch([{"text": text} for text in TEXTS], backend=engine)
    for state in states:
        assert isinstance(state["event"], Event)
        assert 1 <= state["event"].day <= 31
    if engine.config.model == "smollm2-135m":
        assert [state["event"].day for state in states] == [12, 3, 28]


def test_rag_chat(engine: sgl.Engine) -> None:
    from rag_chat import PASSAGES, QUESTIONS, best, chat

    assert best("Who is the keeper of the goats?") == [PASSAGES[1]]
    assert best("When do boats leave?", 2)[0] == PASSAGES[2]
    state = chat.run(QUESTIONS, temperature=0.0, backend=engine)
    roles = [message["role"] for message in state.messages()]
    assert roles == ["system"] + ["user", "assistant"] * len(QUESTIONS)
    for number in range(len(QUESTIONS)):
        assert set(state[f"passages{number}"]) <= set(PASSAGES)
        assert state[f"passages{number}"][0] in state.messages()[1 + 2 * number]["content"]
    if engine.config.model == "smollm2-135m":
        assert "Mary Hale" in state["answer0"]
        assert "31" in state["answer1"]
    assert shared(state) > 0.99


def test_code_edit_loop(engine: sgl.Engine) -> None:
    from code_edit_loop import EXPRESSION, TASKS, failures, repair

    assert failures("area", "w + h", TASKS[0][3])[0] == "area(2, 3) returned 5, expected 6"
    for task in TASKS:
        state = repair.run(*task, rounds=2, seed=7, backend=engine)
        edits = state["tried"][1:]
        assert 4 <= len(edits) <= 8
        assert all(re.fullmatch(EXPRESSION, edit) for edit in edits)
        assert state["passes"] == (not failures(task[0], state["expression"], task[3]))
        assert state["expression"] in edits


def test_society(engine: sgl.Engine) -> None:
    from society import AGENTS, Act, society

    state = society.run(AGENTS, seed=4, backend=engine)
    assert [(day, name) for day, name, _, _ in state["history"]] == [(day, name) for day in (1, 2) for name in AGENTS]
    assert {act for _, _, act, _ in state["history"]} <= set(Act.__args__)
    for _, name, act, said in state["history"]:
        assert f'{name} decided to {act} and said: "{said}"' in state.text()
    assert state["mood"] in ("happy", "worried", "divided")
    assert shared(state) > 0.99


def test_the_streaming_command_line(engine: sgl.Engine) -> None:
    from stream_cli import replies

    asked: list[str] = []
    pieces: list[list[str]] = []

    def lines() -> Iterator[str]:
        for line in ("Hello, who are you?", "And what do you like?"):
            asked.append(line)
            yield line
            assert len(pieces) == len(asked), "a line is asked for once the reply before it has come"

    for reply in replies(lines(), seed=5, backend=engine):
        pieces.append(list(reply))
    assert asked == ["Hello, who are you?", "And what do you like?"]
    assert all(len(reply) > 1 for reply in pieces), "replies come in pieces"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_says_how_it_is_run(path: Path) -> None:
    text = path.read_text()
    assert f"examples/{path.name}" in text
    assert len(text.splitlines()) < 80 or path.name == "demo.py"


def test_nothing_is_scripted() -> None:
    """On the default path a model writes every output."""
    sources: dict[str, Any] = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert not [name for name, text in sources.items() if "Scripted" in text]
