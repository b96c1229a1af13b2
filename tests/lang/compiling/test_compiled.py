"""Compiled programs on a real engine with the tiny model, in process and over HTTP: the same as interpreted, bit for
bit, whatever the program."""

from __future__ import annotations

import gc
import time
from typing import Literal

import pytest
from comparing import SEED, both

import palmette as sgl
from palmette import TraceError, assistant, function, gen, match, repeat, select, system, user, when
from palmette.lang.backends.http import RuntimeEndpoint
from palmette.lang.compiling.recording import Tracer
from palmette.lang.errors import UnknownVariable


@function
def everything(s, question):
    s += system("You think.") + user(question)
    forks = s.fork(3)
    for number, fork in enumerate(forks):
        fork += assistant(f"Plan {number}: " + gen("plan", max_tokens=3 + 2 * number))
    forks.join()
    s += assistant("Of " + s["plan"][0] + f" and {s['plan'][1]}, " + select("best", ["the first", "the second"]))
    with s.var_scope("end"):
        s += user("How many? ")
        s += gen("count", type=int) + " " + gen("sure", type=Literal["yes", "no"])
    s += gen("several", n=3, max_tokens=4)
    s += "|" + s["several"][2] + f"{s['count']}"
    with s.copy() as copied:
        copied += "copied " + gen("copy", max_tokens=4, seed=3)
    s.set_var("kept", s["copy"])
    return {"best": s["best"], "said": f"<{s['plan'][1]}>", "all": s["several"]}


def test_everything_is_as_interpreted(real) -> None:
    plain, compiled = both(everything, real, "why?")
    assert compiled == plain


@function
def rounds(s):
    """Forks that write the same variable again: each join gathers what its own forks wrote."""
    for number in range(3):
        forks = s.fork(2)
        forks += f"\nRound {number}: " + gen("idea", max_tokens=3)
        forks.join()
        s += f"\nIdeas {number}: " + s["idea"][0] + s["idea"][1]
        s.set_var(f"ideas{number}", s["idea"])


def test_joins_one_behind_the_other_are_as_interpreted(real) -> None:
    plain, compiled = both(rounds, real)
    assert compiled == plain


@function
def leaving_forks(s):
    forks = s.fork(3)
    forks += gen("left", max_tokens=150, ignore_eos=True)
    s += gen("read", max_tokens=1)


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_states_that_are_dropped_run_to_their_end(
    endpoint: RuntimeEndpoint, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody keeps them but their own tasks, which the event loop doesn't."""
    program = leaving_forks if way == "interpreted" else leaving_forks.compile()
    for _ in range(4):
        program.run(backend=endpoint)["read"]
        for _ in range(5):
            gc.collect()
            time.sleep(0.01)
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@function
def flowing(s, word, most):
    s += "Begin." + gen("x", max_tokens=2)
    s += when(s["x"] == word, "yes", lambda t: t.__iadd__(" no " + gen("y", max_tokens=3)))
    s += when(s["x"] != word, lambda t: forked(t), "nothing")
    s += repeat(gen("x", max_tokens=1), until=lambda t: t["x"].strip() == "", at_most=most)
    s += f"<{s['x']}>"
    s += select("z", ["a", "b"])
    s += match("z", {"a": gen("w", max_tokens=2), "b": gen("w", max_tokens=3) + "."}, "none")
    s += s["w"]
    with s.fork(2) as forks:
        forks += gen("last", max_tokens=4)
    return s["w"].strip().lower()


def forked(s):
    with s.copy() as copied:
        copied += gen("deep", max_tokens=4)
    s += s["deep"][0] if isinstance(s["deep"], list) else s["deep"]


def test_flow_is_as_interpreted(real) -> None:
    for most in (1, 4):
        plain, compiled = both(flowing, real, "?", most)
        assert compiled == plain


def test_coroutine_programs_compile(engine) -> None:
    @function
    async def asking(s):
        s += "a" + gen("x")
        s += await s.aget("x") + gen("y")
        return await s.aget("y")

    plain, compiled = both(asking, engine)
    assert compiled == plain


def test_batches_and_streams_compile(engine) -> None:
    @function
    def asking(s, word):
        s += word + gen("x")
        s += s["x"]

    words = [{"word": word} for word in "abcdef"]
    plain = asking.run_batch(words, backend=engine, **SEED)
    compiled = asking.compile().run_batch(words, backend=engine, **SEED)
    assert [state.text() for state in compiled] == [state.text() for state in plain]
    streamed = asking.compile().run("a", backend=engine, stream=True, **SEED)
    assert "".join(streamed.text_iter()) == asking.run("a", backend=engine, **SEED).text()
    streamed = asking.compile().run("a", backend=engine, stream=True, **SEED)
    assert "".join(streamed.text_iter("x")) == streamed["x"]


def test_who_reads_a_stream_between_the_functions_end_and_the_tracings_waits(engine, monkeypatch) -> None:
    closing = Tracer.close

    def late(tracer: Tracer, result: object = None) -> None:
        time.sleep(0.2)
        closing(tracer, result)

    @function
    def asking(s):
        s += "a" + gen("x")

    expected = asking.run(backend=engine, **SEED).text()
    monkeypatch.setattr(Tracer, "close", late)
    for wait in (0.0, 0.1):
        streamed = asking.compile().run(backend=engine, stream=True, **SEED)
        time.sleep(wait)  # the second time the function has returned already
        assert "".join(streamed.text_iter()) == expected
        assert streamed["x"] == expected[1:]


def test_calls_go_to_the_programs_functions(real) -> None:
    asked = []

    def look_up(what: str, number: int) -> str:
        asked.append((what, number))
        return f"{len(what)} and {number}"

    @function
    def looking(s):
        s += "Look: " + gen("what")
        s.call("found", look_up, s["what"], 3, seconds=0.1)
        s += "\nFound: " + s["found"] + gen("answer")
        return s["found"]

    plain, compiled = both(looking, real)
    assert compiled == plain
    assert asked[0] == asked[1]


def test_a_function_that_raises_fails_its_program_at_its_line(real) -> None:
    def look_up(what: str) -> str:
        raise KeyError("nothing")

    @function
    def looking(s):
        s += "Look: " + gen("what")
        s.call("found", look_up, s["what"])
        s += s["found"]

    state = looking.compile().run(backend=real, **SEED)
    with pytest.raises(sgl.ProgramError, match="nothing"):
        state["found"]
    with pytest.raises(sgl.ProgramError, match="nothing"):
        state.text()
    assert isinstance(state["what"], str)


def test_a_failed_fork_fails_who_reads_it_only(real) -> None:
    @function
    def failing(s):
        s += "a"
        forks = s.fork(2)
        forks[0] += gen("x", max_tokens=10**6)
        forks[1] += gen("y")
        s += forks[1]["y"]

    state = failing.compile().run(backend=real, **SEED)
    assert state.text() == failing.run(backend=real, **SEED).text()
    assert "max_tokens" in str(state._children[0].error())

    @function
    def reading(s):
        fork = s.copy()
        fork += "a" + gen("x", max_tokens=10**6)
        s += fork["x"]

    error = reading.compile().run(backend=real, **SEED).error()
    assert error is not None
    assert error.node == "gen('x')"


def test_branches_not_taken_leave_their_variables_unwritten(engine) -> None:
    @function
    def deciding(s):
        s += "a" + gen("x")
        s += when(s["x"] == "never that", gen("y"))

    state = deciding.compile().run(backend=engine, **SEED)
    assert state["x"]
    with pytest.raises(UnknownVariable, match="'y'"):  # as in a run that isn't compiled
        state["y"]


def test_what_cant_be_traced_raises_or_is_interpreted(engine) -> None:
    @function
    def deciding(s):
        s += "a" + gen("x")
        s += "b" if len(s["x"]) > 3 else "c"

    with pytest.raises(TraceError, match="length"):
        deciding.compile().run(backend=engine)
    program = deciding.compile(or_interpret=True)
    assert program.run(backend=engine, **SEED).text() == deciding.run(backend=engine, **SEED).text()
    assert "length" in str(program.not_compiled)


@pytest.mark.usefixtures("slow_steps")
def test_cancelling_and_deadlines_abort(engine) -> None:
    @function
    def endless(s):
        s += "a" + gen("x", max_tokens=2000, ignore_eos=True)

    state = endless.compile().run(backend=engine, deadline=0.2)
    with pytest.raises(sgl.ProgramError, match="deadline"):
        state["x"]
    state = endless.compile().run(backend=engine)
    time.sleep(0.1)
    state.cancel()
    with pytest.raises(sgl.ProgramError, match="cancelled"):
        state["x"]


def test_a_backend_without_programs_is_refused_by_name() -> None:
    with pytest.raises(sgl.PalmetteError, match="scripted"):
        everything.compile().run("why?")
