"""n outputs from one prompt, reasoning kept apart, and both together and streaming."""

from __future__ import annotations

import pytest

import palmette as sgl
from palmette import assistant, function, gen, separate_reasoning, user
from palmette.runtime.errors import InvalidRequest

THOUGHT = "<think>\nhm, {}\n</think>\nanswer {}"


def thinking() -> sgl.ScriptedBackend:
    count = iter(range(100))
    return sgl.ScriptedBackend(lambda _: THOUGHT.format(number := next(count), number))


@function
def three(s):
    s += "x" + gen("y", n=3, max_tokens=20) + gen("z")


def test_n_outputs_are_a_list_and_the_first_goes_on() -> None:
    answers = iter(["one", "two", "three", "end"])
    scripted = sgl.ScriptedBackend(lambda _: next(answers))
    state = three.run(backend=scripted)
    assert sorted(state["y"]) == ["one", "three", "two"]
    assert state.text() == "x" + state["y"][0] + "end"
    assert state.usage().calls == 4
    meta = state.get_meta_info("y")
    assert [each["completion_tokens"] for each in meta["outputs"]] == [len(each) for each in state["y"]]
    for index, whole in enumerate(state["y"]):
        assert "".join(state.text_iter("y", index)) == whole
    with pytest.raises(InvalidRequest, match="none with index 3"):
        list(state.text_iter("y", 3))


def test_n_outputs_of_a_type() -> None:
    @function
    def typed(s):
        s += "a number: " + gen("x", type=int, n=2)

    assert typed.run(backend=sgl.ScriptedBackend(["4", "4"]))["x"] == [4, 4]


def test_one_of_several_that_fails_fails_the_gen() -> None:
    calls = iter(range(9))

    def answer(prompt: str) -> str:
        if next(calls) == 1:
            raise RuntimeError("fails here")
        return "x"

    state = three.run(backend=sgl.ScriptedBackend(answer))
    error = state.error()
    assert error is not None
    assert "fails here" in str(error)


@function
def think(s, n=None):
    s += user("why?")
    s += assistant(separate_reasoning(gen("why", n=n)))
    s += "."


def test_reasoning_is_a_variable_of_its_own() -> None:
    state = think.run(backend=thinking())
    assert state["why"] == "answer 0"
    assert state["why_reasoning_content"] == "hm, 0"
    assert "</think>" in state.text(), "the text is what the model wrote"
    assert state.messages()[-1] == {"role": "assistant", "content": "answer 0", "reasoning_content": "hm, 0"}


def test_reasoning_under_streaming_and_n() -> None:
    state = think.run(n=2, backend=thinking(), stream=True)
    answers = ["".join(state.text_iter("why", index)) for index in range(2)]
    thoughts = ["".join(state.text_iter("why_reasoning_content", index)) for index in range(2)]
    assert answers == state["why"]
    assert thoughts == state["why_reasoning_content"]
    assert sorted(answers) == ["answer 0", "answer 1"]
    assert [thought.removeprefix("hm, ") for thought in thoughts] == [each.removeprefix("answer ") for each in answers]


def test_a_format_that_is_not_known(engine: sgl.Engine) -> None:
    @function
    def program(s):
        s += "x" + separate_reasoning(gen("y"), model_type="no-such")

    with pytest.raises(sgl.ProgramError, match="'no-such' is not known"):
        program.run(backend=engine)["y"]
    with pytest.raises(InvalidRequest, match="model_type=''"):
        separate_reasoning(gen("y"), model_type="")


def test_outputs_draw_independently_and_repeatably(engine: sgl.Engine) -> None:
    @function
    def program(s, n):
        s += "Words: " + gen("x", n=n, max_tokens=12, ignore_eos=True)

    first, again = (program.run(n=4, seed=5, backend=engine)["x"] for _ in range(2))
    assert first == again
    assert len(set(first)) == 4
    assert program.run(n=1, seed=5, backend=engine)["x"] == first[0]
    state = program.run(n=4, seed=6, backend=engine)
    assert [each["prompt_tokens"] for each in state.get_meta_info("x")["outputs"]] == [
        4
    ] * 4 or state.usage().calls == 4


def test_reasoning_on_an_engine_splits_what_the_grammar_made_it_write(engine: sgl.Engine) -> None:
    @function
    def program(s, n=None):
        s += user("why?")
        pattern = "<think>[a-z]{3,9}</think>[A-Z]{2,5}"
        s += assistant(separate_reasoning(gen("x", regex=pattern, n=n, max_tokens=60), model_type="think"))

    whole = program.run(seed=2, backend=engine)
    streamed = program.run(seed=2, backend=engine, stream=True)
    assert whole["x"].isupper()
    assert whole["x_reasoning_content"].islower()
    assert "".join(streamed.text_iter("x")) == whole["x"]
    assert "".join(streamed.text_iter("x_reasoning_content")) == whole["x_reasoning_content"]
    several = program.run(seed=2, n=3, backend=engine)
    assert several["x"][0] == whole["x"]
    assert all(each.isupper() for each in several["x"])
