"""The language on a real engine with the tiny model: in process, and over HTTP to a server in the same process."""

from __future__ import annotations

import asyncio
import threading

import pytest
from lang_helpers import until

import palmette as sgl
from palmette import assistant, function, gen, select, system, user
from palmette.lang.backends.engine import EngineBackend
from palmette.lang.backends.http import RuntimeEndpoint
from palmette.runtime.errors import ContextLengthExceeded, EngineDied, PalmetteError


@function
def everything(s, topic):
    s += system("Short answers.")
    s += user("About " + topic)
    s += assistant(gen("first", max_tokens=12))
    forks = s.fork(3)
    for index, f in enumerate(forks):
        f += user(f"Side {index}")
        f += assistant(gen("side", max_tokens=6, stop="e"))
    forks.join()
    s += user("Which?" + " é")
    s += assistant("It is " + select("which", ["one", "the other", "é"]) + gen("rest", max_tokens=5))
    return s.text()


def test_a_program_means_the_same_on_every_backend(engine, endpoint) -> None:
    runs = [
        everything.run("rain", seed=3, backend=backend)
        for backend in (EngineBackend(engine), engine, endpoint, EngineBackend(engine))
    ]
    texts = [run.text() for run in runs]
    assert texts == [texts[0]] * 4
    assert [run["side"] for run in runs] == [runs[0]["side"]] * 4
    assert len(set(runs[0]["side"])) > 1, "the forks of a seeded program draw independently"
    assert [run.messages() for run in runs] == [runs[0].messages()] * 4
    meta = [run.get_meta_info("which")["normalized_prompt_logprobs"] for run in runs]
    assert meta == [meta[0]] * 4


def test_the_text_is_what_the_engine_holds(real, engine) -> None:
    state = everything.run("snow", seed=1, backend=real)
    text = state.text()
    for content in (message["content"] for message in state.messages()):
        assert content in text
    assert text.startswith("<|im_start|>system\nShort answers.<|im_end|>\n<|im_start|>user\nAbout snow<|im_end|>\n")
    assert state["first"] in text
    assert state["which"] + state["rest"] in text


def test_choices_spell_themselves(real) -> None:
    choices = [" yes", "no", "日本", "a b c"]

    @function
    def choose(s):
        s += "Which " + select("x", choices, choices_method=sgl.unconditional_likelihood_normalized)

    meta = choose.run(backend=real).get_meta_info("x")
    assert ["".join(text for _, _, text in row) for row in meta["input_token_logprobs"]] == choices
    assert [len(row) for row in meta["unconditional_token_logprobs"]] == [
        len(row) for row in meta["input_token_logprobs"]
    ]


def test_later_calls_reuse_what_earlier_ones_computed(real) -> None:
    @function
    def two(s):
        s += "Some words that come first, " * 8
        s += gen("x", max_tokens=8, ignore_eos=True)
        s += " and then " + gen("y", max_tokens=8, ignore_eos=True)

    state = two.run(backend=real)
    first, second = state.get_meta_info("x"), state.get_meta_info("y")
    assert second["prompt_tokens"] > first["prompt_tokens"] + first["completion_tokens"]
    assert second["cached_tokens"] >= first["prompt_tokens"]
    usage = state.usage()
    assert (usage.calls, usage.completion_tokens) == (2, 16)
    assert usage.reuse == 1.0


def test_streams_equal_what_is_read_at_once(real) -> None:
    @function
    def story(s):
        s += user("Tell.") + assistant(gen("story", max_tokens=40, temperature=1.0))

    whole = story.run(seed=5, backend=real)["story"]
    state = story.run(seed=5, backend=real, stream=True)
    pieces = list(state.text_iter("story"))
    assert "".join(pieces) == whole
    assert len(pieces) > 3


def test_logprobs_of_the_output(real) -> None:
    @function
    def short(s):
        s += "abc" + gen("x", max_tokens=4, top_logprobs_num=2, ignore_eos=True)

    meta = short.run(temperature=0.0, backend=real).get_meta_info("x")
    assert len(meta["output_token_logprobs"]) == 4
    for (logprob, token, _), top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True):
        assert top[0][:2] == (logprob, token), "greedy takes the likeliest"
        assert len(top) == 2


def test_a_prompt_beyond_the_context_fails_its_program_only(real) -> None:
    @function
    def long(s, times):
        s += "word " * times
        s += gen("x", max_tokens=4)

    bad, good = long.run_batch([{"times": 20000}, {"times": 3}], backend=real)
    error = bad.error()
    assert error is not None
    assert isinstance(error.cause, ContextLengthExceeded)
    assert "test_on_engine.py" in str(error)
    assert good["x"]


def test_a_branch_that_the_server_forgot_is_opened_again(endpoint, table) -> None:
    @function
    def two(s):
        s += user("a") + assistant(gen("x", max_tokens=8))
        s.sync()
        for branch_id in list(table._branches):
            table._branches.pop(branch_id)
        s += user("b") + assistant(gen("y", max_tokens=8))

    greedy = two.run(temperature=0.0, backend=endpoint)
    lost = greedy.text()

    @function
    def undisturbed(s):
        s += user("a") + assistant(gen("x", max_tokens=8))
        s += user("b") + assistant(gen("y", max_tokens=8))

    assert undisturbed.run(temperature=0.0, backend=endpoint).text() == lost


def test_branches_are_released(endpoint, table) -> None:
    before = len(table)
    everything.run("fog", backend=endpoint).text()
    until(lambda: len(table) == before)


@pytest.mark.usefixtures("slow_steps")
def test_an_abandoned_program_stops_generating(engine) -> None:
    @function
    def endless(s):
        s += "a" + gen("x", max_tokens=1500, ignore_eos=True)
        next(iter(s.text_iter("x")))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        endless.run(backend=engine)
    until(lambda: len(engine.frontend._calls) == 0)


def test_200_programs_at_once(engine) -> None:
    @function
    def short(s, number):
        s += "Numbers: one, two, three, " + str(number)
        s += gen("x", max_tokens=3, ignore_eos=True)

    before = threading.active_count()
    states = [short.run(number, backend=engine, temperature=0.0) for number in range(200)]
    assert threading.active_count() <= before
    alone = short.run(7, backend=engine, temperature=0.0)
    assert states[7]["x"] == alone["x"]
    assert all(state.get_meta_info("x")["completion_tokens"] == 3 for state in states)


async def test_async_programs(real) -> None:
    @function
    async def ask(s, question):
        s += user(question) + assistant(gen("answer", max_tokens=6))
        return await s.aget("answer")

    states = await asyncio.gather(*(ask.arun(f"q{n}", backend=real, temperature=0.0) for n in range(4)))
    assert [state.ret_value for state in states] == [state["answer"] for state in states]


@pytest.mark.usefixtures("slow_steps")
def test_closing_the_engine_fails_what_runs_and_hangs_nobody() -> None:
    runtime = sgl.Runtime(model_path="tiny", kv_tokens=4096, threads=1)

    @function
    def endless(s):
        s += "a" + gen("x", max_tokens=1500, ignore_eos=True)

    state = endless.run(backend=runtime)
    next(iter(state.text_iter("x")))
    runtime.shutdown()
    with pytest.raises(PalmetteError):
        _ = state["x"]
    with pytest.raises(EngineDied, match="engine is closed"):
        endless.run(backend=runtime)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(EngineDied, match="palmette serve"):
        RuntimeEndpoint("http://127.0.0.1:9")
    with pytest.raises(PalmetteError, match="not the URL"):
        RuntimeEndpoint("localhost:30000")


def test_unknown_options_of_a_runtime_are_named() -> None:
    with pytest.raises(PalmetteError, match="tp_size"):
        sgl.Runtime(model_path="tiny", tp_size=2)
