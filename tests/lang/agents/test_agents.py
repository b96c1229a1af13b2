"""Agents: what the model is told and asked, how they end, what they survive; on a model, that every call is valid."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Literal

import pytest

import palmette as sgl
from palmette import agent, function, tool, user
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.grammar.compile import compile
from palmette.runtime.messages.hints import BranchHint


@tool
def population(city: Literal["Paris", "Lima"]) -> int:
    """How many people live in a city."""
    return {"Paris": 2_100_000, "Lima": 10_000_000}[city]


@tool(ask=True)
def delete(path: str) -> str:
    """Deletes a file."""
    return f"{path} is gone"


@tool(timeout=0.05)
async def slow() -> str:
    """Takes its time."""
    await asyncio.sleep(5)
    return "late"


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def final(answer: Any) -> str:
    return call("final_answer", answer=answer)


def run(answers: list[str], task: str = "How many?", **options: Any) -> sgl.AgentResult:
    options.setdefault("tools", [population, delete, slow])
    return agent(**options).run(task, backend=sgl.ScriptedBackend(answers))


def test_calls_results_and_the_answer() -> None:
    seen: list[sgl.AgentStep] = []
    result = run([call("population", city="Lima"), final("10 million")], instructions="Be brief.", on_step=seen.append)
    assert (result.answer, result.ended) == ("10 million", "answered")
    [step] = result.steps
    assert seen == [step]
    assert step.calls == (sgl.ToolCall("population", {"city": "Lima"}),)
    assert step.results[0].value == 10_000_000
    assert result.usage.calls == 2
    messages = result.state.messages()
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert messages[0]["content"].startswith("Be brief.\n\n")
    assert '"name":"population"' in messages[0]["content"]
    assert messages[3]["content"] == "Result of population:\n10000000"


def test_a_text_of_thoughts_and_actions() -> None:
    answers = [
        " I look it up.\nAction:",
        call("population", city="Paris"),
        " It is known.\nAnswer:",
        " 2.1 million\nmore",
    ]
    result = run(answers, mode="react")
    assert (result.answer, result.ended) == ("2.1 million", "answered")
    assert result.steps[0].thought == "I look it up."
    assert result.state.text().endswith(
        "Question: How many?\nThought: I look it up.\nAction: "
        + answers[1]
        + "\nObservation: 2100000\nThought: It is known.\nAnswer: 2.1 million\n"
    )


def test_several_calls_at_once() -> None:
    both = f"[{call('population', city='Lima')}, {call('population', city='Paris')}]"
    result = run([both, final("Lima")], parallel=2)
    assert [each.value for each in result.steps[0].results] == [10_000_000, 2_100_000]
    assert 'population({"city":"Paris"}):\n2100000' in result.state.messages()[3]["content"]


def test_what_goes_wrong_in_a_tool_is_told_to_the_model() -> None:
    answers = [
        call("populaton"),
        call("population", city="Rome"),
        call("delete", path="x"),
        call("slow"),
        "{",
        final("."),
    ]
    result = run(answers)
    assert result.ended == "answered"
    texts = [each.text for step in result.steps for each in step.results]
    assert "Did you mean 'population'?" in texts[0]
    assert "are wrong" in texts[1]
    assert "was not allowed" in texts[2]
    assert "took longer than 0.05 s" in texts[3]
    assert result.steps[4].calls == ()
    assert "that is no call" in result.state.messages()[-2]["content"]


def test_approval() -> None:
    asked: list[str] = []

    def approve(wanted: sgl.ToolCall) -> bool:
        asked.append(wanted.name)
        return True

    result = run([call("delete", path="x"), call("population", city="Lima"), final(".")], approve=approve)
    assert result.steps[0].results[0].text == "x is gone"
    assert asked == ["delete"]


def test_the_limit_of_steps_leaves_the_answer() -> None:
    backend = sgl.ScriptedBackend([call("population", city="Lima")] * 2 + [final("so far")])
    result = agent([population], steps=2).run("?", backend=backend)
    assert (result.ended, result.answer, len(result.steps)) == ("steps", "so far", 2)
    schema = [what[1].constraint.grammar.text for verb, what in backend.calls if verb == "generate"][-1]
    assert "population" not in schema, "only the answer is left"


def test_the_limit_of_tokens_is_kept() -> None:
    answers = [call("population", city="Lima")] * 20 + [final("so far")]
    size = len(answers[0])
    limited = agent([population], steps=50, tokens=5 * size + 79, step_tokens=size, answer_tokens=80)
    for mode in ("run", "batch"):
        backend = sgl.ScriptedBackend(lambda prompt: answers[-1] if prompt.count("Result of") == 4 else answers[0])
        result = limited.run("?", backend=backend) if mode == "run" else limited.run_batch(["?"], backend=backend)[0]
        assert (result.ended, result.answer) == ("tokens", "so far")
        assert len(result.steps) == 4
        assert result.usage.completion_tokens <= 5 * size + 79


def test_typed_answers_and_wrong_ones() -> None:
    result = run([final("many"), final(7)], answer=int)
    assert (result.answer, len(result.steps)) == (7, 1)
    assert "the answer is wrong: Expected `int`" in result.state.messages()[-2]["content"]
    assert run([" Known.\nAnswer:", " 42"], mode="react", answer=int).answer == 42
    failed = run([call("population", city="Lima"), final("many")], answer=int, steps=1)
    assert failed.ended == "failed"
    with pytest.raises(sgl.NotOfType, match="limit of steps"):
        _ = failed.answer


def test_tools_must_be_called_so_often() -> None:
    """A turn that was cut off has called nothing, and doesn't count."""
    backend = sgl.ScriptedBackend(["{", call("population", city="Lima"), final(".")])
    agent([population], least_calls=1).run("?", backend=backend)
    schemas = [what[1].constraint.grammar.text for verb, what in backend.calls if verb == "generate"]
    assert ["final_answer" in schema for schema in schemas] == [False, False, True]


def test_the_branch_is_pinned_while_tools_run() -> None:
    backend = sgl.ScriptedBackend([call("population", city="Lima")] * 2 + [final(".")])
    agent([population]).run("?", backend=backend).state.sync()
    hints = [what for verb, what in backend.calls if verb == "hint"]
    assert [hint.pin_seconds for hint in hints] == [65.0, 0.0, 65.0, 0.0]
    assert hints[0] == BranchHint(pin_seconds=65.0, tool_wait_seconds=60.0), "nothing is known of the tool yet"
    assert hints[2].tool_wait_seconds < 1.0, "it has been quick"


def test_a_long_result_is_cut() -> None:
    @tool
    def book() -> str:
        """A long text."""
        return "x" * 100

    result = run([call("book"), final(".")], tools=[book], result_characters=10)
    assert result.state.messages()[3]["content"].endswith("\nxxxxxxxxxx … (90 more characters)")


def test_within_a_program_and_again() -> None:
    helper = agent([population], instructions="Help.")

    @function
    def program(s, questions):
        s["answers"] = [helper(s, question).answer for question in questions]
        s += user("Thanks.")

    @function
    async def aprogram(s, questions):
        s["answers"] = [(await helper.acall(s, question)).answer for question in questions]

    answers = [call("population", city="Lima"), final("10"), final("2")]
    state = program(["Lima?", "Paris?"], backend=sgl.ScriptedBackend(answers))
    assert state["answers"] == ["10", "2"]
    roles = [message["role"] for message in state.messages()]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant", "user"]
    assert aprogram(["Lima?", "Paris?"], backend=sgl.ScriptedBackend(answers))["answers"] == ["10", "2"]


def test_a_failure_fails_its_own_and_leaves_the_steps() -> None:
    def answers(prompt: str) -> str:
        if "Result of" not in prompt:
            return call("population", city="Lima")
        if "bad" in prompt:
            raise ValueError("the model is gone")
        return final("10")

    helper = agent([population])
    good, bad = helper.run_batch(["good", "bad"], backend=sgl.ScriptedBackend(answers))
    assert good.answer == "10"
    single = helper.run("bad", backend=sgl.ScriptedBackend(answers))
    for result in (bad, single, asyncio.run(helper.arun("bad", backend=sgl.ScriptedBackend(answers)))):
        assert (result.ended, len(result.steps)) == ("failed", 1)
        with pytest.raises(sgl.ProgramError, match=r"gen\('agent.2'\).*the model is gone"):
            _ = result.answer
        assert result.steps[0].results[0].value == 10_000_000
        assert call("population", city="Lima") in result.state.text(partial=True)
    assert "test_agents.py" in str(single.error), "the line that ran it"
    assert "test_agents.py" in str(bad.error)


def test_a_deadline_ends_the_wait_for_a_tool_that_hangs() -> None:
    @tool
    def hangs() -> None:
        """Takes long."""
        time.sleep(3)

    helper = agent([hangs])
    backend = sgl.ScriptedBackend(lambda prompt: call("hangs"))
    start = time.monotonic()
    single = helper.run("?", deadline=0.1, backend=backend)
    [batched] = helper.run_batch(["?"], deadline=0.1, backend=backend)
    for result in (single, batched, asyncio.run(helper.arun("?", deadline=0.1, backend=backend))):
        assert result.ended == "failed"
        assert "deadline of 0.1 s has passed" in str(result.error)
    assert time.monotonic() - start < 2.5


def test_many_agents_at_once_wait_side_by_side() -> None:
    @tool
    async def wait() -> str:
        """Waits."""
        await asyncio.sleep(0.05)
        return "done"

    start = time.monotonic()
    backend = sgl.ScriptedBackend(lambda prompt: final("ok") if "Result of" in prompt else call("wait"))
    results = agent([wait]).run_batch([str(index) for index in range(100)], backend=backend)
    assert all(result.answer == "ok" for result in results)
    assert time.monotonic() - start < 4.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "steps=0"),
        ({"parallel": True}, "parallel=True"),
        ({"tokens": 100}, "tokens=100 leaves no room .* may take 512"),
        ({"mode": "raect"}, "mode='raect'"),
        ({"mode": "react", "thought_tokens": 0}, "thought_tokens=0"),
        ({"least_calls": 9}, "least_calls=9 is more"),
        ({"tools": []}, "no tools"),
    ],
)
def test_what_makes_no_agent(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        agent(**{"tools": [population], **options})
    with pytest.raises(InvalidRequest, match="as the answer is"):
        agent([tool(name="final_answer", description="Ends.")(lambda: None)])


def test_the_grammars_of_a_turn() -> None:
    turns = agent([population, delete], parallel=2)._loop.turns
    grammar = compile("json_schema", turns._form(last=False, must_call=False).constraint.grammar.text)
    good = call("population", city="Lima")
    for text in (f"[{good}]", f"[{good}, {call('delete', path='x')}]", final("x")):
        assert grammar.accepts(text)
    for text in ("[]", f"[{good}, {good}, {good}]", f"[{final('x')}]", good):
        assert not grammar.accepts(text)


@pytest.mark.parametrize("mode", ["calls", "react"])
def test_a_model_of_any_size_is_an_agent(engine: sgl.Engine, mode: Any) -> None:
    helper = agent(
        [population],
        mode=mode,
        steps=2,
        least_calls=1,
        parallel=2,
        step_tokens=120,
        answer_tokens=80,
        thought_tokens=24,
    )
    for result in helper.run_batch(["How many in Lima?", "And in Paris?"], seed=3, backend=engine):
        assert result.error is None
        assert 1 <= len(result.steps) <= 2
        assert result.steps[0].calls, "the first turn is a call"
        for step in result.steps:
            for each in step.results:
                assert not each.failed
        assert result.ended in ("answered", "steps")
        assert result.usage.reuse > 0.9


def test_an_agent_that_thinks_in_a_chat(engine: sgl.Engine) -> None:
    result = agent([population], thought_tokens=8, step_tokens=80, answer_tokens=80, steps=1, least_calls=1).run(
        "How many?", seed=2, backend=engine
    )
    assert result.error is None
    assert result.state["agent.1.thought"].strip() == result.steps[0].thought
