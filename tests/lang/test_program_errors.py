"""Failures: at the line that reads or writes, naming the program's line; nothing hangs, the others go on."""

from __future__ import annotations

import asyncio
import threading

import pytest
from lang_helpers import line_of, until

import palmette as sgl
from palmette import function, gen, select
from palmette.lang.errors import ProgramError, UnknownVariable
from palmette.runtime.errors import BranchLost, EngineDied, InvalidRequest, Unsupported


def failing(prompt: str) -> str:
    if "boom" in prompt:
        raise InvalidRequest("The prompt holds 'boom'.", hint="Say it politely.")
    return "fine"


def test_the_failure_names_the_line_that_wrote_the_node() -> None:
    def program(s):
        s += "hello" + gen("first")
        s += "boom"
        s += gen("second")  # here
        s += "later"
        s["second"]

    with pytest.raises(ProgramError) as caught:
        function(program).run(backend=sgl.ScriptedBackend(failing))
    error = caught.value
    assert error.where.line == line_of(program, "here")
    assert error.where.filename == __file__
    assert "test_program_errors.py" in str(error)
    assert "gen('second')" in str(error)
    assert "The prompt holds 'boom'. Say it politely." in str(error)
    assert isinstance(error.cause, InvalidRequest)


def test_what_was_written_before_stays_readable() -> None:
    @function
    def program(s):
        s += "hello" + gen("first")
        s += "boom" + gen("second")

    state = program.run(backend=sgl.ScriptedBackend(failing))
    assert state["first"] == "fine"
    for _ in range(2):
        with pytest.raises(ProgramError, match="polite"):
            state["second"]
    with pytest.raises(ProgramError):
        state.text()
    assert state.text(partial=True) == "hellofine"
    assert isinstance(state.error(), ProgramError)


def test_writing_after_a_failure_raises_at_that_line() -> None:
    def program(s):
        s += "boom" + gen("x")
        assert s.error() is not None
        s += "more"  # write

    with pytest.raises(ProgramError) as caught:
        function(program).run(backend=sgl.ScriptedBackend(failing))
    frames = [entry.lineno for entry in caught.traceback if str(entry.path) == __file__]
    assert line_of(program, "write") - 1 in frames  # entries count from 0


def test_a_program_that_raises_keeps_its_exception() -> None:
    @function
    def program(s):
        s += "a" + gen("x")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        program.run()


def test_the_others_of_a_batch_go_on() -> None:
    def program(s, n):
        s += f"{n}" + gen("x")
        if n == 1:
            raise LookupError("mine")  # raise
        if n == 2:
            s += "boom" + gen("y")

    states = function(program).run_batch([{"n": n} for n in range(5)], backend=sgl.ScriptedBackend(failing))
    errors = [state.error() for state in states]
    assert [error is None for error in errors] == [True, False, False, True, True]
    assert errors[1].where.line == line_of(program, "raise")
    assert "LookupError: mine" in str(errors[1])
    assert [states[n]["x"] for n in (0, 2, 3, 4)] == ["fine"] * 4


def test_an_unknown_variable_names_those_there_are() -> None:
    @function
    def program(s):
        s += gen("answer")
        s["anwser"]

    with pytest.raises(KeyError) as caught:
        program.run()
    assert isinstance(caught.value, UnknownVariable)
    said = str(caught.value)
    assert "the program has no variable 'anwser'. Its variables: 'answer'. Did you mean 'answer'?" in said
    assert said.startswith("tests/lang/test_program_errors.py:")
    assert " in program: " in said
    with pytest.raises(UnknownVariable, match="none yet"):
        function(lambda s: s["x"]).run()


def test_a_variable_read_on_a_stream_that_never_writes_it() -> None:
    release = threading.Event()

    @function
    def program(s):
        release.wait(5)
        s += gen("x")

    state = program.run(stream=True)
    reader = threading.Timer(0.05, release.set)
    reader.start()
    assert state["x"] == "[0]"
    with pytest.raises(UnknownVariable):
        state["y"]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: gen("x", temperature=-1), "temperature=-1"),
        (lambda: gen("x", max_tokens=-5), "max_tokens=-5"),
        (lambda: gen("x", stop=5), r"stop=\(5,\)"),
        (lambda: gen("x", stop=2.5), r"stop=2\.5"),
        (lambda: gen("x", top_p=0), "top_p=0"),
        (lambda: gen(""), "name=''"),
        (lambda: gen(7), "name=7"),
        (lambda: gen("x", ignore_eos="yes"), "ignore_eos='yes'"),
        (lambda: gen("x", choices=["a"], stop="b"), "stop"),
        (lambda: select("x", []), r"choices=\[\]"),
        (lambda: select("x", "yes"), "choices='yes'"),
        (lambda: select("x", ["a", ""]), "''"),
        (lambda: select("x", ["a"], choices_method="best"), "choices_method='best'"),
        (lambda: sgl.user(3), "3"),
        (lambda: "a" + gen("x") + None, "None"),
    ],
)
def test_bad_values_are_refused_where_they_are_written(write, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        write()


@pytest.mark.parametrize(
    "options",
    [{"logprob_start_len": 0}, {"return_text_in_logprobs": True}],
)
def test_what_is_not_built_is_refused_by_name(options) -> None:
    with pytest.raises(Unsupported, match=next(iter(options))):
        gen("x", **options)


def test_api_speculation_and_caching_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="num_api_spec_tokens=8"):
        function(num_api_spec_tokens=8)
    program = function(lambda s: None)
    with pytest.raises(Unsupported):
        program.cache()
    with pytest.raises(Unsupported, match="position_ids_offset"):
        function(lambda s: s.fork(2, [0, 1])).run()


def test_roles_that_do_not_fit() -> None:
    def nested(s):
        s += sgl.user_begin()
        s += sgl.assistant("x")

    def unopened(s):
        s += sgl.user_end()

    with pytest.raises(ProgramError, match="this assistant turn begins inside the user turn"):
        function(nested).run()
    with pytest.raises(ProgramError, match="user turn ends outside any turn"):
        function(unopened).run()


def test_forks_after_their_join() -> None:
    @function
    def program(s):
        forks = s.fork(2)
        forks += gen("x")
        forks.join()
        with pytest.raises(ProgramError, match="this fork has been joined"):
            forks[0] += "more"
        with pytest.raises(InvalidRequest, match="joined already"):
            forks.join()
        assert forks["x"] == ["[0]", "[0]"]

    program.run()


def test_a_failed_fork_fails_what_reads_it() -> None:
    @function
    def program(s):
        forks = s.fork(3)
        forks += ["a", "boom", "c"]
        forks += gen("x")
        forks.join()
        s += "end" + gen("y")

    state = program.run(backend=sgl.ScriptedBackend(failing))
    with pytest.raises(ProgramError, match="polite"):
        state["x"]
    assert state["y"] == "fine"


def test_a_parent_that_fails_before_the_fork_fails_the_forks() -> None:
    @function
    def program(s):
        s += "boom" + gen("x")
        try:
            kept.append(s.fork(2)[0])
            kept[0] += gen("y")
        except ProgramError:
            assert s.error() is not None

    kept: list[sgl.ProgramState] = []
    state = program.run(backend=sgl.ScriptedBackend(failing))
    assert state.error() is not None
    for fork in kept:
        with pytest.raises(ProgramError, match="polite"):
            fork.text()


def test_the_state_is_closed_after_the_program() -> None:
    state = function(lambda s: None).run()
    with pytest.raises(ProgramError, match="the program has ended"):
        state += "more"


def test_arguments_that_do_not_fit() -> None:
    program = function(lambda s, question: None)
    with pytest.raises(TypeError, match="question"):
        program.run()
    with pytest.raises(TypeError, match="batch item 1"):
        program.run_batch([{"question": "a"}, {"qestion": "b"}])
    with pytest.raises(InvalidRequest, match="Batch item 0"):
        program.run_batch(["abc"])
    with pytest.raises(InvalidRequest, match="num_threads=0"):
        program.run_batch([["a"]], num_threads=0)
    with pytest.raises(InvalidRequest, match="option of run"):
        function(lambda s, stream: None)
    with pytest.raises(InvalidRequest, match="takes no state"):
        function(lambda: None)


def test_no_backend_and_no_such_backend() -> None:
    from palmette.lang import default

    with pytest.raises(InvalidRequest, match="is not a backend"):
        function(lambda s: None).run(backend="http://localhost")
    kept = default._default.copy()
    default._default.clear()
    try:
        with pytest.raises(InvalidRequest, match="set_default_backend"):
            function(lambda s: None).run()
    finally:
        default._default[:] = kept


@pytest.mark.parametrize("kind", [BranchLost, EngineDied])
def test_a_lost_branch_is_opened_again_from_its_history(kind) -> None:
    losses = iter([False, True, False, False])

    def answer(prompt: str) -> str:
        if next(losses):
            raise kind("gone")
        return f"[{len(prompt)}]"

    @function
    def program(s):
        s += sgl.user("a") + sgl.assistant(gen("x"))
        s += sgl.user("b") + sgl.assistant(gen("y"))

    scripted = sgl.ScriptedBackend(answer)
    state = program.run(backend=scripted)
    assert state["y"] == f"[{len('<user>a</user><assistant>[25]</assistant><user>b</user><assistant>')}]"
    assert state.text().count("[25]") == 1
    assert [call[0] for call in scripted.calls].count("open") == 2
    until(lambda: scripted.open_branches == 0)


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_backend_that_dies_in_the_middle_takes_its_program_alone(coroutine: bool) -> None:
    """The other programs of a batch go on, and what was written before stays readable."""

    def answer(prompt: str) -> str:
        if "second" in prompt and "item 2" in prompt:
            raise EngineDied("The server is gone.", hint="Start it again.")
        return "yes"

    @function
    def plain(s, number):
        s += f"item {number} first " + gen("x")
        s += " second " + gen("y")  # dies

    @function
    async def awaiting(s, number):
        s += f"item {number} first " + gen("x")
        await s.aget("x")
        s += " second " + gen("y")

    program = awaiting if coroutine else plain
    states = program.run_batch([[number] for number in range(5)], backend=sgl.ScriptedBackend(answer))
    for number, state in enumerate(states):
        assert state["x"] == "yes"
        if number != 2:
            assert state["y"] == "yes"
            continue
        with pytest.raises(
            ProgramError, match=r"test_program_errors.py:\d+ in .*gen\('y'\): The server is gone"
        ) as caught:
            state["y"]
        assert caught.value.retryable
        assert "Start it again" in str(caught.value)
        assert state.text(partial=True).startswith("item 2 first yes")
        assert state.usage().calls == 1


def test_an_engine_that_is_closed_in_the_middle() -> None:
    with sgl.Engine(model="tiny", kv_tokens=4096, threads=1) as engine:

        @function
        def program(s):
            s += "One " + gen("x", max_tokens=3)
            s["x"]
            engine.close()
            s += " two " + gen("y", max_tokens=3)

        with pytest.raises(ProgramError, match=r"gen\('y'\): .*closed"):
            program.run(backend=engine)["y"]


def test_a_branch_lost_twice_is_a_failure() -> None:
    def answer(prompt: str) -> str:
        raise BranchLost("gone")

    state = function(_one_gen).run(backend=sgl.ScriptedBackend(answer))
    error = state.error()
    assert error is not None
    assert error.retryable
    assert isinstance(error.cause, BranchLost)


def _one_gen(s):
    s += "a" + gen("x")


def test_an_interrupt_in_the_program_aborts_what_runs() -> None:
    async def slow(prompt: str) -> str:
        await asyncio.sleep(60)
        return ""

    @function
    def program(s):
        s += "a" + gen("x")
        raise KeyboardInterrupt

    scripted = sgl.ScriptedBackend(slow)
    with pytest.raises(KeyboardInterrupt):
        program.run(backend=scripted)
    until(lambda: scripted.open_branches == 0)


async def test_a_reader_that_gives_up_does_not_take_the_value_from_others() -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow(prompt: str) -> str:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(gate.wait(), loop))
        return "late"

    state = function(_one_gen).run(backend=sgl.ScriptedBackend(slow))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(state.aget("x"), 0.05)
    gate.set()
    assert await state.aget("x") == "late"


def test_waiting_on_the_loop_itself_is_refused() -> None:
    @function
    async def program(s):
        s += gen("x")
        s["x"]

    with pytest.raises(InvalidRequest, match=r"await s\.aget"):
        program.run()


def test_an_expression_in_a_formatted_string_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"gen\('x'\) can't be put into a formatted string"):
        f"Answer: {gen('x')}"
    with pytest.raises(InvalidRequest, match=r"assistant_begin\(\) \+ gen\('x'\) \+ assistant_end\(\)"):
        f"Answer: {sgl.assistant(gen('x'))}"


def test_arguments_that_do_not_fit_come_with_advice() -> None:
    @function
    def program(s, question):
        s += question

    backend = sgl.ScriptedBackend(["x"])
    with pytest.raises(TypeError, match="Did you mean 'max_new_tokens' by 'max_new_token'"):
        program.run("hello", max_new_token=4, backend=backend)
    with pytest.raises(TypeError, match="Did you mean 'num_threads' by 'num_thread'"):
        program.run_batch([{"question": "hello"}], num_thread=4, backend=backend)
    with pytest.raises(TypeError, match="Did you mean 'question' by 'questoin'"):
        program.run(questoin="hello", backend=backend)
    with pytest.raises(TypeError, match=r"'use_thread'$"):
        program.run("hello", use_thread=True, backend=backend)
    with pytest.raises(TypeError, match="without @function"):
        function(lambda s: program(s, "hello")).run(backend=backend)
    with pytest.raises(InvalidRequest, match="The first argument is the variable's name"):
        select(["a", "b"])
