"""Each kind of snippet that the documents of SGLang's public frontend show, written anew, on the scripted backend."""

from __future__ import annotations

import asyncio

import pytest

import palmette as sgl
from palmette import assistant, assistant_begin, assistant_end, function, gen, select, system, user


def test_a_question_and_its_answer() -> None:
    @function
    def ask(s, question):
        s += system("You answer briefly.")
        s += user(question)
        s += assistant(gen("answer", max_tokens=40))

    state = ask("Name a river.")
    prompt = "<system>You answer briefly.</system><user>Name a river.</user><assistant>"
    assert state["answer"] == f"[{len(prompt)}]"
    assert state.text() == f"{prompt}{state['answer']}</assistant>"
    assert state.messages() == [
        {"role": "system", "content": "You answer briefly."},
        {"role": "user", "content": "Name a river."},
        {"role": "assistant", "content": state["answer"]},
    ]


def test_several_turns_remember_what_was_said(backend) -> None:
    @function
    def two_turns(s, first, second):
        s += user(first)
        s += assistant(gen("one"))
        s += user(second)
        s += assistant(gen("two"))

    state = two_turns.run(first="a", second="b", temperature=0.2)
    assert state["two"] == f"[{len(state.text()) - len(state['two']) - len('</assistant>')}]"
    calls = [call[0] for call in backend.calls if call[0] != "extend"]
    assert calls == ["open", "generate", "generate", "close"]
    assert all(call[1][1].temperature == 0.2 for call in backend.calls if call[0] == "generate")


@pytest.mark.parametrize(("tool", "expected"), [("calculator", "7*6"), ("search", "rivers")])
def test_control_flow_depends_on_what_was_chosen(tool: str, expected: str) -> None:
    scripted = sgl.ScriptedBackend([expected], score=lambda _, choice: 0.0 if choice == tool else -3.0)

    @function
    def use_tool(s, question):
        s += "To answer " + question + " I use the " + gen("tool", choices=["calculator", "search"]) + ".\n"
        if s["tool"] == "calculator":
            s += "Expression: " + gen("expression")
        else:
            s += "Words: " + gen("words")

    state = use_tool.run("it,", backend=scripted)
    assert state["tool"] == tool
    assert state["expression" if tool == "calculator" else "words"] == expected
    assert ("words" in state) == (tool == "search")


def test_forks_run_side_by_side_and_are_read_one_by_one() -> None:
    @function
    def tips(s):
        s += "Two tips.\n"
        forks = s.fork(2)
        for i, f in enumerate(forks):
            f += f"Expand tip {i + 1}:\n"
            f += gen("detail", max_tokens=16, stop="\n\n")
        s += "Tip 1: " + forks[0]["detail"] + "\nTip 2: " + forks[1]["detail"] + "\n"
        s += "Summary: " + gen("summary")

    state = tips.run()
    assert state.text().startswith("Two tips.\nTip 1: [24]\nTip 2: [24]\nSummary: [")


def test_join_gathers_variables() -> None:
    @function
    def gathered(s):
        s += "x"
        with s.fork(3) as forks:
            forks += lambda i: "y" * i
            forks += gen("z")
        s["all"] = len(s["z"])

    state = gathered.run()
    assert state["z"] == ["[1]", "[2]", "[3]"]
    assert state["all"] == 3


def test_join_gathers_what_the_forks_wrote_over_what_was_there() -> None:
    @function
    def rounds(s):
        s.set_var("kept", "as it was")
        s.set_var("written", "before")
        for number in range(2):
            with s.fork(2) as forks:
                forks += "x" * (number + 1) + gen("written")

    state = rounds.run()
    assert state["written"] == ["[2]", "[2]"]
    assert state["kept"] == "as it was"


def test_join_appends_what_the_forks_appended(backend) -> None:
    @function
    def appended(s):
        s += "A"
        forks = s.fork(2)
        forks += ["b", "c"]
        forks += gen("x")
        forks.join("concate_and_append")
        s += "D" + gen("end")

    state = appended.run()
    assert state.text() == "Ab[2]c[2]D[10]"
    assert "x" not in state


def test_copy_is_a_fork_of_one() -> None:
    @function
    def copied(s):
        s += "abc"
        with s.copy() as c:
            c += "def" + gen("x")
            assert c["x"] == "[6]"
        s += gen("y")

    state = copied.run()
    assert (state["y"], state["x"]) == ("[3]", ["[6]"])


def test_roles_in_all_their_forms() -> None:
    @function
    def forms(s):
        s += system("S")
        with s.user():
            s += "Question: "
            s += "why?"
        s += assistant_begin()
        s += "Answer: " + gen("answer", stop="\n")
        s += assistant_end()
        s += s.user("More.")
        s.assistant(gen("more"))

    state = forms.run()
    assert [message["role"] for message in state.messages()] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert state.messages()[2]["content"] == "Answer: " + state["answer"]
    assert state.messages()[3]["content"] == "More."


def test_a_batch_keeps_its_order() -> None:
    @function
    def ask(s, question):
        s += user(question)
        s += assistant(gen("answer"))

    states = ask.run_batch([{"question": "q" * n} for n in range(20)], progress_bar=True, num_threads=4)
    assert [state["answer"] for state in states] == [f"[{len('<user></user><assistant>') + n}]" for n in range(20)]
    assert [s["answer"] for s in ask.run_batch([["abc"], ("d",)])] == ["[27]", "[25]"]
    assert [s["answer"] for s in ask.run_batch([["abc"]], generator_style=True)] == ["[27]"]
    assert ask.run_batch([]) == []


def test_streaming_gives_the_text_as_it_grows(backend) -> None:
    @function
    def story(s, topic):
        s += user("About " + topic)
        s += assistant(gen("story", max_tokens=100))

    scripted = sgl.ScriptedBackend(["once upon a time"])
    state = story.run(topic="rain", stream=True, backend=scripted)
    pieces = list(state.text_iter())
    assert "".join(pieces) == state.text() == "<user>About rain</user><assistant>once upon a time</assistant>"
    assert len(pieces) > 4

    state = story.run(topic="rain", stream=True, backend=sgl.ScriptedBackend(["once upon a time"]))
    assert list(state.text_iter("story")) == ["once", " upo", "n a ", "time"]


async def test_async_streaming_with_meta_data() -> None:
    @function
    def story(s):
        s += gen("story")

    state = story.run(stream=True, backend=sgl.ScriptedBackend(["once upon a time"]))
    pieces = [piece async for piece in state.text_async_iter("story", return_meta_data=True)]
    assert "".join(text for text, _ in pieces) == "once upon a time"
    assert pieces[-1][1]["finish_reason"] == {"type": "stop", "matched": None}
    assert pieces[-1][1]["completion_tokens"] == 16
    whole = [text async for text in state.text_async_iter()]
    assert "".join(whole) == "once upon a time"


async def test_coroutine_programs() -> None:
    @function
    async def ask(s, question):
        s += user(question)
        s += assistant(gen("answer"))
        if await s.aget("answer"):
            s += user("And?")
            s += assistant(gen("more"))
        return await s.atext()

    states = await asyncio.gather(*(ask.arun("q" * n) for n in range(5)))
    assert [state["answer"] for state in states] == [f"[{24 + n}]" for n in range(5)]
    assert all(state.ret_value.endswith(state["more"] + "</assistant>") for state in states)
    assert len(await asyncio.to_thread(ask.run_batch, [{"question": "a"}] * 3)) == 3


async def test_a_plain_program_from_a_coroutine() -> None:
    @function
    def ask(s, question):
        s += question + gen("answer")
        s["twice"] = s["answer"] * 2

    assert (await ask.arun("abc"))["twice"] == "[3][3]"


def test_meta_info_of_a_generation(backend) -> None:
    @function
    def short(s):
        s += "abc" + gen("x", max_tokens=2, return_logprob=True)

    meta = short.run().get_meta_info("x")
    assert meta["finish_reason"]["type"] == "length"
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (3, 2, 0)
    assert meta["output_token_logprobs"] == [(-1.0, ord("["), None), (-1.0, ord("3"), None)]
    assert meta["id"].startswith("gen-")


def test_meta_info_of_a_selection_spells_the_choices() -> None:
    @function
    def choose(s):
        s += "Is it? " + select("x", ["yes", "not at all"])

    meta = choose.run().get_meta_info("x")
    spelled = ["".join(text for _, _, text in row) for row in meta["input_token_logprobs"]]
    assert spelled == ["yes", "not at all"]
    assert meta["normalized_prompt_logprobs"] == [-1.0, -2.0]


def test_bound_arguments_and_return_values() -> None:
    @function
    def add(s, left, right="z"):
        s += left + right + gen("x")
        return s["x"]

    assert add.bind(left="ab").run().ret_value == "[3]"
    assert add.bind(right="cdef")("ab").ret_value == "[6]"
    with pytest.raises(sgl.PalmetteError, match="no parameter 'wrong'"):
        add.bind(wrong=1)


def test_text_between_marks_becomes_a_variable() -> None:
    @function
    def scoped(s):
        s += "before "
        with s.var_scope("middle"):
            s += "in " + gen("x") + " out"
        s += " after"

    state = scoped.run()
    assert state["middle"] == "in [10] out"
    assert state.text() == "before in [10] out after"


def test_run_options_hold_for_gens_that_set_none(backend) -> None:
    @function
    def two(s):
        s += "a" + gen("x") + gen("y", temperature=0.5, max_tokens=3, top_k=-1)

    two.run(temperature=0.0, max_new_tokens=9, top_k=4, stop="\n").sync()
    first, second = [call[1][1] for call in backend.calls if call[0] == "generate"]
    assert (first.temperature, first.max_tokens, first.top_k, first.stop) == (0.0, 9, 4, ("\n",))
    assert (second.temperature, second.max_tokens, second.top_k, second.stop) == (0.5, 3, None, ("\n",))
    two.run().sync()
    default = [call[1][1] for call in backend.calls if call[0] == "generate"][2]
    assert (default.temperature, default.max_tokens) == (1.0, 128)


@pytest.mark.parametrize("name", ["image", "video", "gen_int", "gen_string", "Anthropic", "LiteLLM"])
def test_what_is_not_here_is_refused_by_name(name: str) -> None:
    with pytest.raises(sgl.PalmetteError, match=rf"palmette\.{name} is not here"):
        getattr(sgl, name)


def test_an_unknown_name_lists_the_names_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'gne'.*'?gen"):
        _ = sgl.gne


def test_public_names_resolve() -> None:
    for name in sgl.__all__:
        assert getattr(sgl, name) is not None, name
        assert name in dir(sgl)


def test_flush_cache_reaches_the_backend(backend) -> None:
    sgl.flush_cache()
    assert backend.calls == [("flush_cache", None)]


def test_importing_the_package_loads_nothing_heavy() -> None:
    import subprocess
    import sys
    from pathlib import Path

    source = Path(__file__).resolve().parents[2] / ".src"
    code = "import sys, palmette; palmette.gen; print(sorted({'torch', 'numpy', 'httpx', 'rich'} & set(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "[]"
