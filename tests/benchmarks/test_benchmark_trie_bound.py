"""The eleven workloads of the trie-bound benchmark: their tries, their order, and that nothing beats the bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.programs import AUTHORS, react_examples, write
from benchmarks.reuse import TokenTrie
from benchmarks.text import generated_corpus
from benchmarks.trie_bound import Workload, main, poisson, run, unfold, word_ids
from palmette.runtime.config import EngineConfig

CORPUS = generated_corpus(0, count=40)
CONFIG = EngineConfig(page_size=4, max_running=6, step_tokens=256)


def small(name: str) -> Workload:
    return unfold(write(name, CORPUS, word_ids, 0, shrink=8), 0)


@pytest.mark.parametrize("name", AUTHORS)
def test_every_call_runs_behind_what_it_needs_and_nothing_beats_the_bound(name: str) -> None:
    workload = small(name)
    result = run(workload, CONFIG)
    calls = {call.name: (call, program) for program in workload.programs for call in program}
    assert sorted(each.name for each in result.served) == sorted(calls)
    ended = {each.name: each for each in result.served}
    for each in result.served:
        call, program = calls[each.name]
        assert (each.prompt_tokens, each.output_tokens) == (len(call.prompt), len(call.output))
        assert all(ended[program[need].name].finished <= each.arrival for need in call.needs)
    assert 0 < result.cached <= workload.reusable
    assert 0.2 < workload.reusable / workload.prompt_tokens < 1


def test_a_pool_for_everything_reaches_the_bound() -> None:
    workload = small("tree-of-thought")
    result = run(workload, CONFIG, pool=2 * workload.distinct)
    assert result.share > 0.995


def test_the_trie_is_counted_once_whatever_the_order() -> None:
    workload = small("chat-long")
    trie = TokenTrie()
    distinct = 0
    for program in reversed(workload.programs):
        for call in reversed(program):
            computed = (*call.prompt, *call.output[:-1])
            distinct += len(computed) - trie.common_prefix(computed)
            trie.insert(computed)
    assert distinct == workload.distinct


def test_arrivals_take_as_long_as_asked() -> None:
    starts = poisson(4000, 100.0, seed=1)
    assert starts == sorted(starts)
    assert starts[-1] == pytest.approx(100, rel=0.1)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.txt"
    code = main(["--workloads", "judge,rag", "--shrink", "8", "--max-running", "4", "--log", str(log)])
    assert code in (0, 1)
    assert "judge" in capsys.readouterr().out
    assert "Share of the trie bound" in log.read_text()
    assert react_examples(None) == ""
    assert react_examples(tmp_path) == ""
