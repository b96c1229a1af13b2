"""Compiled programs on a real engine with the tiny model, in process and over HTTP: the same as interpreted, bit for
bit, whatever the program."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_helpers import until

import palmette as sgl
from palmette import TraceError, assistant, function, gen, match, repeat, select, system, user, when
from palmette.lang.backends.http import RuntimeEndpoint
from palmette.lang.compiling.recording import Tracer
from palmette.lang.errors import UnknownVariable
from palmette.lang.sharing import shared_parts
from palmette.runtime.messages.branches import BeginRole, EndRole, Text

SEED = {"seed": 7, "temperature": 1.0, "max_new_tokens": 6}


def told(state: sgl.ProgramState) -> dict[str, Any]:
    """Everything that a program's state says, usage's cached part aside."""
    return {
        "text": state.text(),
        "messages": state.messages(),
        "variables": {name: state[name] for name in sorted(state.variables())},
        "calls": state.usage().calls,
        "prompts": state.usage().prompt_tokens,
        "result": state.ret_value,
        "trace": traced(state),
    }


def traced(state: sgl.ProgramState) -> list[tuple[Any, ...]]:
    """The calls, state by state. Which turns went alone is a matter of timing, so texts are left out."""
    calls = [call for call in state.trace() if call.kind != "text"]
    return sorted(
        ((call.state, call.kind, call.name, call.where, call.text, call.tokens, call.failed) for call in calls),
        key=lambda told: told[0],
    )


def both(program: Any, backend: Any, *args: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    plain = told(program.run(*args, backend=backend, **SEED, **options))
    return plain, told(program.compile().run(*args, backend=backend, **SEED, **options))


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


# Random programs

Step = tuple[object, ...]
NAMES = "xyz"
words = st.text("ab ", min_size=1, max_size=4)
leaf = st.one_of(
    st.tuples(st.just("text"), words),
    st.tuples(st.just("gen"), st.sampled_from(NAMES), st.integers(1, 4)),
    st.tuples(st.just("select"), st.sampled_from(NAMES), st.lists(st.sampled_from(["no", "yes", " a"]), min_size=1,
                                                                  max_size=3, unique=True)),
    st.tuples(st.just("int"), st.just("n")),
    st.tuples(st.just("insert"), st.sampled_from(NAMES)),
    st.tuples(st.just("format"), st.sampled_from([*NAMES, "n"])),
    st.tuples(st.just("turn"), st.sampled_from(["user", "assistant"]), words),
    st.tuples(st.just("text so far")),
)  # fmt: skip
steps = st.recursive(
    st.lists(leaf, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            leaf,
            st.tuples(st.just("fork"), st.sampled_from(["gather_variable", "concate_and_append"]),
                      st.lists(inner, min_size=1, max_size=3)),
            st.tuples(st.just("when"), st.sampled_from(NAMES), st.sampled_from(["no", "yes"]), inner, inner),
            st.tuples(st.just("repeat"), st.sampled_from(NAMES), st.integers(1, 3), inner),
            st.tuples(st.just("scope"), st.sampled_from("vw"), inner),
        ),
        max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip


def write(s: Any, program: Sequence[Step], depth: int = 0) -> None:
    for step in program:
        match step:
            case ("text", str(word)):
                s += word
            case ("gen", str(name), int(tokens)):
                s += gen(name, max_tokens=tokens)
            case ("select", str(name), list(choices)):
                s += select(name, choices)
            case ("int", str(name)):
                s += gen(name, type=int, max_tokens=4)
            case ("insert", str(name)) if name in s and not isinstance(s[name], list):
                s += s[name]
            case ("format", str(name)) if name in s and not isinstance(s[name], list):
                s += f"<{s[name]}>"
            case ("turn", str(role), str(word)) if depth == 0:
                s += getattr(sgl, role)(word)
            case ("text so far",):
                s.set_var("so_far", s.text())
                s += "\n" + s["so_far"]
            case ("fork", str(mode), list(branches)):
                forks = s.fork(len(branches))
                for fork, branch in zip(forks, branches, strict=True):
                    write(fork, branch, depth)
                forks.join(mode)
            case ("when", str(name), str(word), list(then), list(otherwise)) if name in s:
                if not isinstance(s[name], list):
                    s += when(
                        s[name] == word,
                        lambda t, body=then: write(t, body, depth + 1),
                        lambda t, body=otherwise: write(t, body, depth + 1),
                    )
            case ("repeat", str(name), int(most), list(body)) if name in s:
                if not isinstance(s[name], list):
                    s += repeat(
                        lambda t, body=body: write(t, body, depth + 1),
                        until=lambda t, name=name: t[name] == "no" if not isinstance(t[name], list) else True,
                        at_most=most,
                    )
            case ("scope", str(name), list(inner)):
                with s.var_scope(name):
                    write(s, inner, depth)


program_seed = st.integers(0, 2**32)


@settings(max_examples=60, deadline=None)
@given(steps, program_seed)
def test_random_programs_give_the_same_tokens(engine, program: Sequence[Step], seed: int) -> None:
    @function
    def written(s):
        s += "Go:" + gen("x", max_tokens=2) + select("y", ["no", "yes"])
        write(s, program)

    options = {"backend": engine, "seed": seed, "temperature": 1.5}
    plain = written.run(**options)
    try:
        compiled = written.compile().run(**options)
    except TraceError as error:
        refused = str(error)
        compiled = None
    if compiled is None:
        assert "different things" in refused
        return
    failed = plain.error()
    if failed is not None:
        error = compiled.error()
        assert error is not None
        assert type(error.cause) is type(failed.cause)
        return
    assert compiled.text() == plain.text()
    assert compiled.messages() == plain.messages()
    for name in plain.variables():
        assert compiled[name] == plain[name], name


# What the executor asks of the engine, and tells it


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
