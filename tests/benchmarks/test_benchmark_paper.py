"""The paper's workloads: both writings send the same prompts, and what is told of the measurements is right."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from live_server import LiveServer
from openai.types import Completion
from rich.console import Console

import palmette as pt
from benchmarks.paper.__main__ import Comparison, parse
from benchmarks.paper.catalogue import PAPER, WORKLOADS
from benchmarks.paper.material import Draw, generated_material, load_material
from benchmarks.paper.plain import FLAVOURS, Usage, first_top_logprobs
from benchmarks.paper.results import Measurement, chart, goals, summarise, table
from benchmarks.paper.systems import SYSTEMS, Outcome, PlainPrograms, Programs, RunFailed
from benchmarks.paper.workload import Item, Message, Workload
from benchmarks.quiet import Load
from palmette.lang.backends.scripted import ScriptedBackend
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.frontend import Frontend
from palmette.runtime.link import LocalLink

MATERIAL = generated_material(0)
QUIET = Load(None, 0.0, 0.0)


def draw(name: str, run: int = 0) -> Draw:
    return Draw(MATERIAL, random.Random(f"{run} {name}"), scale=0.01)


def answer(prompt: str) -> str:
    """A function of the whole prompt, longer than any output."""
    return " " + hashlib.sha256(prompt.encode()).hexdigest() * 4


def score(prompt: str, choice: str) -> float:
    return -1.0 - int(hashlib.sha256(f"{prompt}|{choice}".encode()).hexdigest()[:8], 16) / 16**8


class ScriptedPlain:
    """Answers as the scripted backend does, whose tokens are bytes and whose template is `<role>…</role>`."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.scored: list[tuple[str, str]] = []

    async def complete(self, prompt: str, max_tokens: int) -> str:
        self.prompts.append(prompt)
        return answer(prompt)[:max_tokens]

    async def choose(self, prompt: str, choices: Sequence[str]) -> str:
        self.scored += [(prompt, choice) for choice in choices]
        return max(choices, key=lambda choice: score(prompt, choice))

    async def letter(self, prompt: str, choices: Sequence[str]) -> str:
        return await self.choose(prompt, choices)

    async def chat(self, messages: Sequence[Message], max_tokens: int) -> str:
        turns = "".join(f"<{each['role']}>{each['content']}</{each['role']}>" for each in messages)
        return await self.complete(f"{turns}<assistant>", max_tokens)

    async def fill(self, messages: Sequence[Message], schema: dict[str, Any], max_tokens: int) -> str:
        return await self.chat(messages, max_tokens)


@pytest.mark.parametrize("name", [each.name for each in PAPER])
def test_both_writings_send_the_same_prompts_and_read_the_same_outputs(name: str) -> None:
    workload = WORKLOADS[name]
    prompts: list[str] = []
    scored: list[tuple[str, str]] = []

    def recorded(prompt: str) -> str:
        prompts.append(prompt)
        return answer(prompt)

    def recorded_score(prompt: str, choice: str) -> float:
        scored.append((prompt, choice))
        return score(prompt, choice)

    plain = ScriptedPlain()
    backend = ScriptedBackend(recorded, score=recorded_score)
    for item in workload.items(draw(name)):
        state = workload.program.run(**item, backend=backend)
        by_program = {output: state[output] for output in workload.outputs}
        assert by_program == asyncio.run(workload.plain(plain, **item))
    assert sorted(prompts) == sorted(plain.prompts)
    assert sorted(scored) == sorted(plain.scored)
    assert prompts or scored
    until = time.monotonic() + 5  # branches are closed on the language's loop
    while backend.open_branches and time.monotonic() < until:
        time.sleep(0.01)
    assert backend.open_branches == 0


def test_an_ending_is_drawn_behind_the_prompt_that_it_is_selected_behind() -> None:
    prompts: list[str] = []
    scored: list[str] = []
    backend = ScriptedBackend(
        lambda prompt: prompts.append(prompt) or " ending",  # type: ignore[func-returns-value]
        score=lambda prompt, choice: scored.append(prompt) or -1.0,  # type: ignore[func-returns-value]
    )
    items = WORKLOADS["hellaswag"].items(draw("hellaswag"))
    for name in ("hellaswag", "hellaswag-drawn"):
        for item in items:
            assert WORKLOADS[name].program.run(**item, backend=backend)["ending"]
    assert list(dict.fromkeys(scored)) == prompts


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_runs_texts_are_the_same_for_all_systems_and_begin_like_no_other_runs(name: str) -> None:
    items, again, other = (WORKLOADS[name].items(draw(name, run)) for run in (0, 0, 1))
    assert items == again
    assert len(items) >= 2
    mine, theirs = (next(value for value in each[0].values() if str(value).startswith("[")) for each in (items, other))
    assert mine[:10] != theirs[:10]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_scale_is_of_the_number_of_programs(name: str) -> None:
    whole, half = (Draw(MATERIAL, random.Random(1), scale) for scale in (1.0, 0.5))
    assert len(WORKLOADS[name].items(whole)) == 2 * len(WORKLOADS[name].items(half))


def test_texts_come_from_the_folder_where_it_has_them(tmp_path: Path) -> None:
    assert load_material(tmp_path).source.startswith("generated")
    for folder in ("gsm8k", "mtbench", "react"):
        (tmp_path / folder).mkdir()
    problem = {"question": "How many\nare 2 and 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}
    (tmp_path / "gsm8k" / "test.jsonl").write_text(json.dumps(problem) + "\n")
    (tmp_path / "mtbench" / "question.jsonl").write_text(json.dumps({"turns": ["Hello.", "Again."]}) + "\n")
    (tmp_path / "react" / "hotpot_dev_first300.json").write_text(json.dumps([{"question": "Who?", "answer": "I"}]))
    shots = "Question: Who?\nObservation 1: Nobody knows. \nThought 2: So be it.\n"
    (tmp_path / "react" / "prompts_naive.json").write_text(json.dumps({"webthink_simple6": shots}))
    material = load_material(tmp_path)
    (read,) = material.problems
    assert (read.question, read.solution, read.number) == ("How many are 2 and 2?", "2 + 2 = 4", "4")
    assert (material.dialogues, material.facts[0].answer) == ((("Hello.", "Again."),), "I")
    assert material.observations == ("Nobody knows.",)


# On a real server


def _frontend() -> Frontend:
    config = EngineConfig(model="tiny", kv_tokens=16384, threads=1)
    return build_frontend(config, resolve("tiny"), LocalLink(build_core(config, resolve("tiny"))))


@pytest.fixture(scope="module")
def tiny_server() -> Iterator[str]:
    with LiveServer(_frontend) as server:
        yield server.url


@pytest.mark.slow
@pytest.mark.server
async def test_programs_and_plain_calls_do_the_same_work_on_one_server(tiny_server: str) -> None:
    endpoint = await asyncio.to_thread(pt.RuntimeEndpoint, tiny_server)
    systems = (
        Programs("palmette", endpoint),
        Programs("compiled", endpoint, compiled=True),
        PlainPrograms("plain", tiny_server, "palmette", "/flush_cache"),
    )
    try:
        for name in ("judge", "json", "chat-short"):
            items = WORKLOADS[name].items(draw(name))
            for item in items:
                if "turns" in item:  # the tiny model's context is short
                    item["turns"] = [said[:200] for said in item["turns"]]
            outcomes = [await system.run(WORKLOADS[name], items, None) for system in systems]
            assert [outcome.ended for outcome in outcomes] == [len(items)] * 3
            first, compiled, plain = (outcome.usage for outcome in outcomes)
            assert first.calls == compiled.calls == plain.calls
            if name == "chat-short":  # objects and choices end when they like
                assert first.completion_tokens == plain.completion_tokens == 2 * 4 * 8
            assert first.completion_tokens == compiled.completion_tokens
            assert outcomes[0].outputs == outcomes[1].outputs
            assert set(outcomes[0].outputs[0]) == set(outcomes[2].outputs[0]) == set(WORKLOADS[name].outputs)
    finally:
        await asyncio.to_thread(endpoint.shutdown)


@pytest.mark.server
async def test_a_refusal_fails_the_run_in_the_servers_words(tiny_server: str) -> None:
    plain = PlainPrograms("plain", tiny_server, "vllm")  # whose field for choices ours doesn't know
    with pytest.raises(RunFailed, match="structured_outputs"):
        await plain.run(WORKLOADS["hellaswag"], WORKLOADS["hellaswag"].items(draw("hellaswag")), None)


def test_the_likeliest_letter_is_read_from_both_forms_of_log_probabilities() -> None:
    legacy = Completion.model_validate(_answer({"top_logprobs": [{" A": -1.0, " B": -0.5}], "tokens": [" B"]}))
    entries = [{"token": " A", "logprob": -1.0}, {"token": " B", "logprob": -0.5}]
    chat_like = Completion.model_validate(_answer({"content": [{"token": " B", "top_logprobs": entries}]}))
    assert first_top_logprobs(legacy) == first_top_logprobs(chat_like) == {" A": -1.0, " B": -0.5}


def _answer(logprobs: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "text": " B", "finish_reason": "length", "logprobs": logprobs}
    return {"id": "1", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]}


def test_choices_are_written_as_each_server_wants_them() -> None:
    choices = [' "so"', " no\n"]
    assert FLAVOURS["vllm"].held(choices) == {"structured_outputs": {"choice": choices}}
    assert FLAVOURS["llama-cpp"].held(choices) == {"grammar": 'root ::= " \\"so\\"" | " no\\n"'}


# Measuring and telling


class Timed:
    """A system that takes as long as it is told."""

    def __init__(self, name: str, seconds: float, ended: int = 2) -> None:
        self.name, self.seconds, self.ended = name, seconds, ended
        self.limits: list[float | None] = []

    async def run(self, workload: Workload, items: Sequence[Item], limit: float | None) -> Outcome:
        self.limits.append(limit)
        if self.name == "broken":
            raise RunFailed("out of order")
        return Outcome(self.seconds, len(items), self.ended, Usage(4, 100, 10, 50), [{"x": "y"}] * self.ended)


def comparison(folder: Path, *arguments: str) -> Comparison:
    given = parse(["--scale", "0.01", "--quiet-timeout", "0", "--out", str(folder / "paper.json"), *arguments])
    facts = {"model": "m"}
    return Comparison(given, MATERIAL, Console(file=io.StringIO(), width=150), facts)


async def test_systems_take_turns_and_each_measurement_is_written_at_once(tmp_path: Path) -> None:
    asked = comparison(tmp_path, "--against", "palmette,vllm", "--workloads", "judge,json", "--runs", "2")
    written: list[int] = []
    write = asked.write
    asked.write = lambda: (write(), written.append(len(json.loads(asked.arguments.out.read_text())["measurements"])))  # type: ignore[method-assign,assignment]
    await asked.measure_all([Timed("palmette", 1.0), Timed("broken", 2.0)])
    assert written == list(range(1, 9))
    order = [(each.run, each.workload, each.system) for each in asked.measurements]
    assert order[:2] == [(0, "judge", "palmette"), (0, "judge", "broken")]
    assert order[4:6] == [(1, "judge", "broken"), (1, "judge", "palmette")]
    assert asked.measurements[1].error == "out of order"


async def test_nothing_starts_when_the_budget_is_spent_and_the_limit_reaches_the_system(tmp_path: Path) -> None:
    asked = comparison(tmp_path, "--limit", "7", "--runs", "1")
    asked.deadline = time.monotonic() - 1
    system = Timed("palmette", 1.0)
    await asked.measure_all([system])
    assert asked.measurements == []
    asked.tell()
    assert not asked.arguments.out.exists()
    asked.deadline += 100
    await asked.measure_all([system])
    assert system.limits == [7.0] * len(PAPER)
    asked.tell()
    assert asked.arguments.out.with_suffix(".svg").read_text().startswith("<svg")


def measured(system: str, workload: str, *seconds: float, ended: int = 2) -> list[Measurement]:
    usage = Usage(4, 100, 10, 50)
    return [
        Measurement(system, workload, run, Outcome(each, 2, ended, usage, []), None, QUIET)
        for run, each in enumerate(seconds)
    ]


def test_ratios_are_of_medians_and_the_means_are_geometric() -> None:
    every = [
        *measured("palmette", "a", 1.0, 2.0, 9.0), *measured("vllm", "a", 6.0), *measured("llama-cpp", "a", 16.0),
        *measured("palmette", "b", 1.0), *measured("vllm", "b", 1.5), *measured("llama-cpp", "b", 4.0, ended=1),
        *measured("palmette", "c", 1.0), *measured("vllm", "c", 50.0),
    ]  # fmt: skip
    systems = ["palmette", "vllm", "llama-cpp"]
    summaries = summarise(every, systems)
    found = {(line.workload, line.system): line for line in summaries}
    first = found["a", "palmette"]
    assert (first.median, first.low, first.high, first.ratio, first.reused) == (2.0, 1.0, 9.0, 1.0, 0.5)
    assert found["a", "vllm"].ratio == 3.0
    assert found["b", "llama-cpp"].bound
    assert not found["b", "vllm"].bound
    told = goals(summaries, ["vllm", "llama-cpp"])  # c isn't measured on both
    assert told.means["llama-cpp"] == pytest.approx((8.0 * 4.0) ** 0.5)
    assert told.better == pytest.approx((3.0 * 1.5) ** 0.5)
    assert told.short == {"b": 1.5}
    output = io.StringIO()
    Console(file=output, width=150).print(table(summaries, title="t"))
    assert ">4.00× faster" in output.getvalue()
    drawing = chart(summaries, systems, title="a < b")
    assert ">8.0×<" in drawing
    assert "a &lt; b" in drawing


def test_what_isnt_a_workload_or_a_system_is_refused() -> None:
    assert parse([]).workloads == [each.name for each in PAPER]
    assert set(parse([]).against) <= set(SYSTEMS)
    for wrong in (["--workloads", "nothing"], ["--against", "nobody"]):
        with pytest.raises(SystemExit):
            parse(wrong)
