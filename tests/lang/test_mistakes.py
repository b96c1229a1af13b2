"""What people get wrong at first, and what is said: the option or the line, and what to write instead; compiled as
interpreted."""

from __future__ import annotations

import asyncio
import re
import warnings
from typing import Any

import pytest
from lang_helpers import line_of

import palmette as sgl
from palmette import TraceError, agent, function, gen, match, select, tool, when
from palmette.lang.errors import ProgramError, UnknownVariable
from palmette.runtime.errors import InvalidRequest


@tool
def number(of: int) -> int:
    """A number."""
    return of


@function
def plain(s):
    s += "a" + gen("x", max_tokens=3)


# Options


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_tokens", "4"),
        ("min_tokens", "3"),
        ("top_k", "3"),
        ("temperature", "0"),
        ("seed", "1"),
        ("logit_bias", 5),
        ("regex", 5),
        ("ebnf", b"x"),
        ("json_schema", 5),
        ("json_schema", [1]),
        ("stop", 5),
    ],
)
def test_an_option_of_a_wrong_kind_is_named(option: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=option):
        gen("x", **{option: value})
    with pytest.raises(InvalidRequest, match=option):
        plain.run(**{option: value})


def test_grammars_options_are_checked_where_they_are_written() -> None:
    with pytest.raises(InvalidRequest, match=r"jump='some' is not one of bytes, token, off"):
        gen("x", regex="a", jump="some")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"complete='yes' is not True or False"):
        gen("x", regex="a", complete="yes")  # type: ignore[arg-type]


def test_unknown_keywords_name_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"gen\(\).*'max_token'.*Did you mean 'max_tokens'"):
        gen("x", max_token=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"agent\(\).*'max_steps'.*Did you mean 'steps'"):
        agent([number], max_steps=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"gen\(\).*'zzz'.*It has choices, "):
        gen("x", zzz=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^agent: .*Did you mean 'temperature' by 'temprature'"):
        agent([number]).run("x", temprature=1)
    with pytest.raises(TypeError, match=r"Did you mean .temperature."):
        agent([number], name="helper").run_batch(["x"], temprature=1)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: select("x", []), r"choices=\[\] is not a list of at least one string. Write them as in choices="),
        (lambda: gen("x", choices=[]), r"choices=\[\] is not a list of at least one string"),
        (lambda: gen("x", max_tokens=0), "max_tokens=0 writes nothing. Give 1 or more"),
        (lambda: gen("x", max_tokens=-1), "max_tokens=-1 is not"),
        (lambda: gen("x", temperature=-0.5), r"temperature=-0.5 is not a number in \[0, 100\]"),
        (lambda: agent([number], steps=0), r"steps=0 is not a whole number from 1 to 1000. An agent that may not call"),
        (lambda: function(int), "A program is made of a function, not of <class 'int'>"),
    ],
)
def test_values_that_mean_nothing_are_refused_where_they_are_written(write: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        write()


def test_arguments_that_do_not_fit_show_what_does() -> None:
    @function
    def two(s, a, b=2):
        s += a

    with pytest.raises(TypeError, match=r"two: too many positional arguments: two\(a, b=2\) was given 3"):
        two.run(1, 2, 3)
    with pytest.raises(TypeError, match="two: missing a required argument: 'a'"):
        two.run()
    with pytest.raises(
        InvalidRequest, match=r"two has no parameter 'bb' to bind. Did you mean 'b' by 'bb'|'bb' to bind"
    ):
        two.bind(bb=1)


def test_a_tool_that_is_not_described_warns_at_its_line() -> None:
    def undescribed(x: int) -> int:
        return x

    with pytest.warns(UserWarning, match="Tool undescribed has no docstring, so the model knows nothing but") as caught:
        tool(undescribed)  # here
    line = line_of(test_a_tool_that_is_not_described_warns_at_its_line, "here")
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tool(description="")(undescribed).description == "", "who says so means it"


def test_a_variable_read_before_it_is_written() -> None:
    def early(s):
        s += "a"
        s += s["x"] + gen("x")  # here

    with pytest.raises(UnknownVariable) as caught:
        function(early).run()
    said = f"test_mistakes.py:{line_of(early, 'here')} in early: the program has no variable 'x'"
    assert said in str(caught.value)
    assert "Write it first, as in s += gen('x')" in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda s: s.__iadd__(None), "None (of type NoneType) can't be appended"),
        (lambda s: s.__iadd__(s.fork(2)["x"]), "the program has no variable 'x'"),
        (lambda s: s.__iadd__(["a", "b"]), "append one of it, as in s += forks[0]"),
        (lambda s: s.__iadd__(gen("x", max_tokens="5")), "max_tokens='5' is not a whole number"),
        (lambda s: s.fork(0), "fork(0)"),
    ],
)
def test_what_is_wrong_while_writing_names_the_line(wrong, said) -> None:
    def careless(s):
        wrong(s)  # here

    with pytest.raises((InvalidRequest, UnknownVariable)) as caught:
        function(careless).run()
    assert said in str(caught.value)
    assert "test_mistakes.py:" in str(caught.value)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_a_fork_wrote_is_not_its_parent_s_before_the_join(engine: sgl.Engine, compiled: bool) -> None:
    def unjoined(s):
        forks = s.fork(2)
        forks += "a" + gen("x", max_tokens=2)
        s += "b" + s["x"][0]  # here

    program = function(unjoined)
    with pytest.raises(UnknownVariable) as caught:
        (program.compile() if compiled else program).run(backend=engine)
    said = f"{line_of(unjoined, 'here')} in unjoined: the program has no variable 'x'. Its variables: none yet."
    assert f"{said} Its forks wrote it: forks.join()" in str(caught.value)


def test_a_fork_used_after_its_join() -> None:
    def late(s):
        forks = s.fork(2)
        forks += gen("x")
        forks.join()
        forks[0] += "more"  # here

    with pytest.raises(ProgramError, match="nothing can be appended: this fork has been joined") as caught:
        function(late).run()
    assert caught.value.where.line == line_of(late, "here")


def test_plus_without_equals() -> None:
    @function
    def forgot(s):
        s + gen("x")

    @function
    def another(s):
        s = s + "text"

    for each in (forgot, another):
        with pytest.raises(InvalidRequest, match=r"Write s \+= …"):
            each.run()


def test_agents_say_what_they_need() -> None:
    with pytest.raises(InvalidRequest, match=r"is not a list of tools. Put it in one: \[tool\]"):
        agent(number)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="A tool is made of a function, not of 'number'"):
        tool("number")
    with pytest.raises(InvalidRequest, match=r"tokens=20 leaves no room .* may take 336 \(step_tokens=80"):
        agent([number], tokens=20, step_tokens=80)


# Lines


def test_an_agents_failures_name_the_line_that_ran_it() -> None:
    backend = sgl.ScriptedBackend(lambda prompt: "no call")

    def run() -> list[sgl.AgentResult]:
        helper = agent([number], steps=1)
        return [
            helper.run("?", backend=backend),  # here
            *helper.run_batch(["?"], backend=backend),
        ]

    line = line_of(run, "here")
    for result, expected in zip(run(), (line, line + 1), strict=True):
        assert f"test_mistakes.py:{expected} in run: " in str(result.error)
        assert "gave no answer" in str(result.error)
        for said in (result.error, result.state.error()):
            assert "agents.py" not in str(said)
        assert "test_mistakes.py" in str(result.state.error())


def test_an_agent_in_a_compiled_program(engine: sgl.Engine) -> None:
    helper = agent([number], steps=1)

    def program(s):
        helper(s, "?")  # here

    with pytest.raises(TraceError, match=f"test_mistakes.py:{line_of(program, 'here')} .*or_interpret") as caught:
        function(program).compile().run(backend=engine)
    assert "agent decides in Python" in str(caught.value)

    @function
    async def coroutine(s):
        await helper.acall(s, "?")

    with pytest.raises(TraceError, match=r"decides in Python"):
        coroutine.trace()
    compiled = function(program).compile(or_interpret=True)
    answers = sgl.ScriptedBackend(lambda prompt: '{"name":"final_answer","arguments":{"answer":"5"}}')
    assert compiled.run(backend=answers).error() is None
    assert "decides in Python" in str(compiled.not_compiled)


# Calls


async def later(text: str) -> str:
    await asyncio.sleep(0)
    return f"{len(text)} letters"


@pytest.mark.parametrize("compiled", [False, True])
def test_a_coroutine_function_is_awaited(engine: sgl.Engine, compiled: bool) -> None:
    @function
    def program(s):
        s += "a" + select("x", choices=["bc", "cd"])
        s.call("y", later, s["x"])
        s += " " + s["y"]

    state = (program.compile() if compiled else program).run(backend=engine)
    assert state["y"] == "2 letters"
    assert state.text().endswith(" 2 letters")


async def test_a_coroutine_function_in_a_coroutine_program() -> None:
    @function
    async def program(s):
        s.call("y", later, "x")

    with pytest.raises(ProgramError, match=r"call\('y'\): The function gives a coroutine.*Write s\[name\] = await"):
        await program.arun()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_call_that_raises(engine: sgl.Engine, compiled: bool) -> None:
    def divided(text: str) -> float:
        return len(text) / 0

    def body(s):
        s += "a" + gen("x", max_tokens=3)
        s.call("y", divided, s["x"])  # here
        s += "b" + s["y"]

    program = function(body)
    with pytest.raises(ProgramError) as caught:
        (program.compile() if compiled else program).run(backend=engine, seed=1).text()
    said = rf".*test_mistakes.py:{line_of(body, 'here')} in body: call\('y'\): ZeroDivisionError: division by zero"
    assert re.fullmatch(said, str(caught.value))
    assert isinstance(caught.value.cause, ZeroDivisionError)


# Variables


@pytest.mark.parametrize("compiled", [False, True])
def test_a_variable_of_a_branch_that_is_not_taken(engine: sgl.Engine, compiled: bool) -> None:
    @function
    def program(s, word):
        s += "a" + select("x", choices=["b", "c"])
        inner = when(s["x"] == word, "in", gen("deep", max_tokens=2))
        s += when(s["x"] != "zz", lambda s: write(s, inner), gen("never", max_tokens=2))
        s += when(s["x"] == "zz", gen("w", max_tokens=2), gen("v", max_tokens=2))

    def write(s: Any, inner: Any) -> None:
        s += inner

    for word, deep in (("zz", True), (program.run("", backend=engine)["x"], False)):
        state = (program.compile() if compiled else program).run(word, backend=engine, seed=1)
        assert ("w" in state, "never" in state, "v" in state, "deep" in state) == (False, False, True, deep)
        assert sorted(state.variables()) == (["deep", "v", "x"] if deep else ["v", "x"])
        with pytest.raises(UnknownVariable, match=r"no variable 'w'. Its variables: 'x'"):
            state["w"]
        with pytest.raises(UnknownVariable, match=r"no variable 'w'"):
            state.get_meta_info("w")
        with pytest.raises(UnknownVariable, match=r"no variable 'w'"):
            asyncio.run(state.aget("w"))
        assert isinstance(state["v"], str)


def test_whether_a_branch_was_taken_can_not_be_traced() -> None:
    @function
    def program(s):
        s += "a" + select("x", choices=["b", "c"])
        s += when(s["x"] == "b", gen("w", max_tokens=2))
        s += "yes" if "w" in s else "no"

    with pytest.raises(TraceError, match=r"s\['w'\] hangs on the branch"):
        program.trace()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda s: when(s["n"] > 3 and s["n"] < 9, "a"), "joined with & and |"),
        (lambda s: "sum: " + (s["n"] + 1), "s['n'] is added to something. Compute it with s.call("),
        (lambda s: "sum: " + s["n"], "str(…) around it"),
        (lambda s: s["w"][0], "s['w'] is asked for its part 0. Compute it with s.call("),
        (lambda s: s["w"].split(), "s['w'] is asked for .split. Compute it with s.call("),
        (lambda s: str(len(s["w"])), "Compute it with s.call("),
    ],
)
def test_what_can_t_be_traced_says_how_it_can(wrong, said) -> None:
    def program(s):
        s += "a" + gen("n", type=int) + gen("w", max_tokens=2)
        s += wrong(s)

    with pytest.raises(TraceError) as caught:
        function(program).trace()
    assert said in str(caught.value)


def test_a_misspelt_variable_says_the_same_compiled(engine: sgl.Engine) -> None:
    @function
    def program(s):
        s += "a" + select("word", choices=["b", "c"])
        s += match("wrod", {"b": "1"})

    said = set()
    for each in (program, program.compile()):
        with pytest.raises(UnknownVariable) as caught:
            each.run(backend=engine)
        said.add(str(caught.value))
    [text] = said
    assert text.count("test_mistakes.py") == 1
    assert text.endswith("Its variables: 'word'. Did you mean 'word'?")


# Coroutines


async def test_a_coroutine_program_that_would_stop_its_loop() -> None:
    async def slow(prompt: str) -> str:
        await asyncio.sleep(0.05)
        return "yes"

    async def program(s, way):
        s += "a" + gen("x")
        if way == "variable":
            return s["x"]
        if way == "text":
            return s.text()
        if way == "fork":
            child = s.fork(1)[0]
            child += gen("y")
            return child["y"]
        if way == "when":
            s += when(lambda s: s["x"] == "yes", "good")
        await s.aget("x")
        return s["x"]

    backend = sgl.ScriptedBackend(slow)
    for way in ("variable", "text", "fork"):
        with pytest.raises(InvalidRequest, match=r"await s.aget\('x'\)"):
            await function(program).arun(way, backend=backend)
    for way in ("await", "when"):
        assert (await function(program).arun(way, backend=backend)).ret_value == "yes"
