"""What a compiled program's executor asks of the engine, and tells it: pieces, hints, priorities, prefixes ahead."""

from __future__ import annotations

import time
from typing import Any

import pytest
from comparing import SEED, told
from lang_helpers import until

from palmette import assistant, function, gen, system, user
from palmette.lang.sharing import shared_parts
from palmette.runtime.messages.branches import BeginRole, EndRole, Text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_outputs_come_in_pieces_where_they_are_watched(real, way: str, stream: bool) -> None:
    @function
    def writing(s):
        s += "Write: " + gen("x", max_tokens=40, ignore_eos=True)

    program = writing.compile() if way == "compiled" else writing
    state = program.run(backend=real, stream=stream, **{**SEED, "max_new_tokens": None})
    pieces = list(state.text_iter("x"))
    assert "".join(pieces) == state["x"]
    assert len(pieces) > 5 if stream else len(pieces) <= 5


@pytest.fixture
def heard(engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the engine's frontend was asked, besides what it answers."""
    frontend, told_ = engine.frontend, {"hints": [], "asked": []}
    hint, submit = frontend.hint, frontend.submit_packed
    monkeypatch.setattr(frontend, "hint", lambda given: (told_["hints"].append(given), hint(given))[1])

    def submitted(prompt: bytes, params: Any, **options: Any) -> Any:
        told_["asked"].append((len(prompt) // 4, params, options.get("scheduling")))
        return submit(prompt, params, **options)

    monkeypatch.setattr(frontend, "submit_packed", submitted)
    return told_


def test_the_cache_hears_of_tool_waits_and_last_uses(engine, heard) -> None:
    @function
    def looking(s):
        s += "Look it up, please: " + gen("what")
        s.call("found", lambda what: (time.sleep(0.1), what)[1], s["what"], seconds=7)
        s += s["found"] + gen("answer")

    looking.compile().run(backend=engine, **SEED).sync()
    hints = heard["hints"]
    until(lambda: bool(hints) and hints[-1].next_use_seconds == 0.0)  # told behind the end
    assert any((hint.tool_wait_seconds or 0) > 7 for hint in hints)
    dead = [len(hint.tokens) for hint in hints if hint.last_use]
    assert len(dead) >= 3
    assert dead == sorted(dead, reverse=True)
    assert hints[-1].next_use_seconds == 0.0
    before = len(hints)
    looking.compile(returns=True).run(backend=engine, **SEED).sync()
    assert not any(hint.last_use for hint in hints[before:])


def test_what_is_certain_is_computed_while_the_rest_is_waited_for(engine, heard) -> None:
    @function
    def waiting(s):
        fork = s.copy()
        fork += "a" + gen("x", max_tokens=40, ignore_eos=True)
        s += system("These are the rules of a long game that has many rules, and they are certain. " * 2)
        s += user("He said: " + fork["x"])
        s += assistant(gen("y"))

    waiting.compile().run(backend=engine, **SEED).sync()
    assert any(params.max_tokens == 0 and length > 32 for length, params, _ in heard["asked"])


@pytest.mark.parametrize(("seconds", "ahead"), [(0.2, True), (0.001, False)])
def test_while_a_function_runs_and_nothing_else_the_text_before_its_result_is_computed(
    engine, heard, seconds: float, ahead: bool
) -> None:
    @function
    def looking(s):
        s += "Look it up, please: " + gen("what")
        s.call("found", lambda what: (time.sleep(0.1), what)[1], s["what"], seconds=seconds)
        s += "\nThat is what was found: " + s["found"] + gen("answer")

    plain, compiled = (told(program.run(backend=engine, **SEED)) for program in (looking, looking.compile()))
    assert compiled == plain
    assert any(params.max_tokens == 0 for _, params, _ in heard["asked"]) == ahead


def test_what_everything_waits_for_goes_first(engine, heard) -> None:
    @function
    def uneven(s):
        s += "a"
        forks = s.fork(2)
        forks[0] += gen("x", max_tokens=2)
        forks[1] += gen("x", max_tokens=9)
        s += forks[0]["x"] + forks[1]["x"] + gen("y", max_tokens=3)

    uneven.compile(critical_first=True).run(backend=engine, **{**SEED, "max_new_tokens": None}).sync()
    priorities = {params.max_tokens: scheduling.priority for _, params, scheduling in heard["asked"]}
    assert priorities == {2: 0, 9: 1, 3: 1}


def test_a_batch_keeps_what_all_of_it_begins_with(engine, heard) -> None:
    @function
    def asking(s, question):
        s += system("You answer questions about the weather in one short sentence, and never more than that.")
        s += user("Now: " + question)
        s += assistant(gen("x"))

    questions = [{"question": f"{word}?"} for word in ("when", "where", "who", "why")]
    states = asking.compile().run_batch(questions, backend=engine, **SEED)
    plain = asking.run_batch(questions, backend=engine, **SEED)
    assert [state.text() for state in states] == [state.text() for state in plain]
    assert any(params.max_tokens == 0 for _, params, _ in heard["asked"])
    deadline = time.monotonic() + 5
    while [hint.pin_seconds for hint in heard["hints"] if hint.pin_seconds is not None][-1:] != [0.0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_plans_begin_with() -> None:
    @function
    def asking(s, question):
        s += system("Answer.") + user("Now: " + question) + gen("x")

    plans = [asking.trace(question=question).plan for question in ("when", "where", "what")]
    alike = (BeginRole("system"), Text("Answer."), EndRole("system"), BeginRole("user"), Text("Now: wh"))
    assert shared_parts([plan.tracks[0][0].parts for plan in plans]) == alike
    assert shared_parts([(Text("on"), Text("ce"), EndRole("x")), (Text("on"), Text("ly"))]) == (Text("on"),)
