"""The workloads have the promised lengths, orders and ceilings, and another seed shares nothing with them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.costs import ModelShape, costs
from benchmarks.reuse import Reuse, TokenTrie, reuse
from benchmarks.text import TokenSource, generated_corpus, load_corpus
from benchmarks.workloads import BUILDERS, Call, Reply, Workload, build

CORPUS = generated_corpus(0)


def encode(text: str) -> list[int]:
    """A byte a token: the shortest tokens there are, so every length is reached exactly."""
    return list(text.encode())


def made(name: str, seed: int = 1) -> Workload:
    (workload,) = build([name], CORPUS, encode, seed)
    return workload


@dataclass
class Played:
    prompt: list[int]
    tokens: list[int]
    started: float
    finished: float
    cached_tokens: int | None = None


def play(workload: Workload) -> list[Played]:
    """Executes a workload in program order with outputs that no other call has; call i takes the second i."""
    played: list[Played] = []
    for index, call in enumerate(workload.calls):
        prompt: list[int] = []
        for part in call.parts:
            prompt += played[part.call].tokens if isinstance(part, Reply) else part
        tokens = [10**6 + 1000 * index + n for n in range(call.max_tokens)]
        played.append(Played(prompt, tokens, float(index), index + 0.5))
    return played


@pytest.mark.parametrize(
    ("name", "prompts", "outputs"),
    [
        ("decode-64", [64], [128]),
        ("decode-1024", [1024], [128]),
        ("prefill-1024", [1024], [1]),
        ("distinct", [256] * 32, [64] * 32),
        ("shared", [1040] * 64, [16] * 64),
        ("chats", [100, 264, 428, 592] * 8, [64] * 32),
        ("trees", ([584] * 3 + [640] * 3 + [696] * 3 + [752]) * 8, [48] * 80),
        ("objects", [300] * 16, [96] * 16),
        ("cached-prefix", [1016] * 8, [1] * 8),
    ],
)
def test_lengths_are_exact(name: str, prompts: list[int], outputs: list[int]) -> None:
    workload = made(name)
    assert workload.prompt_lengths == prompts
    assert [call.max_tokens for call in workload.calls] == outputs
    assert [len(call.prompt) for call in play(workload)] == prompts


@pytest.mark.parametrize(
    ("name", "ceiling"),
    [
        ("distinct", 0.0),
        ("shared", 63 * 1000 / (64 * 1040)),
        ("chats", 978 / 1384),
        ("trees", 0.965),
        ("objects", 0.77),
    ],
)
def test_ceilings(name: str, ceiling: float) -> None:
    """Within what two texts happen to begin alike."""
    assert reuse(play(made(name))).ceiling == pytest.approx(ceiling, abs=0.02)


@pytest.mark.parametrize("name", list(BUILDERS))
def test_calls_need_earlier_ones_only(name: str) -> None:
    for index, call in enumerate(made(name).calls):
        assert all(need < index for need in call.needs)


@pytest.mark.parametrize("name", list(BUILDERS))
def test_same_seed_same_tokens(name: str) -> None:
    assert made(name) == made(name)


def test_workloads_and_seeds_share_nothing_with_each_other() -> None:
    trie = TokenTrie()
    for seed in (1, 2):
        for name in BUILDERS:
            played = play(made(name, seed))
            assert max(trie.common_prefix(call.prompt) for call in played) < 8  # some digits of the serial number
            for call in played:
                trie.insert(call.prompt)


def test_a_tree_is_ten_calls_and_a_round_waits_for_the_one_before() -> None:
    calls = made("trees").calls[:10]
    assert [len(call.needs) for call in calls] == [0, 0, 0, 3, 3, 3, 4, 4, 4, 5]
    assert set(calls[3].needs) == {0, 1, 2}
    assert set(calls[9].after) == {6, 7, 8}


def test_real_text_is_used_where_it_is(tmp_path) -> None:
    for name, content in {
        "gsm8k/a.jsonl": '{"question": "2 and 2?", "answer": "4"}',
        "mtbench/question.jsonl": '{"turns": ["Write.", "Rewrite."]}',
        "react/hotpot_dev_first300.json": '[{"question": "Who?"}]',
    }.items():
        file = tmp_path / name
        file.parent.mkdir()
        file.write_text(content)
    corpus = load_corpus(tmp_path)
    assert corpus.problems == ("Question: 2 and 2?\nAnswer: 4",)
    assert corpus.turns == ("Write.", "Rewrite.")
    assert "GSM8K" in corpus.source
    assert "generated" in load_corpus(tmp_path / "nothing").source


@given(st.integers(1, 400), st.integers(0, 5))
def test_a_token_source_gives_exact_lengths_beginning_with_the_opening(count: int, seed: int) -> None:
    source = TokenSource(["ab", "cde"], encode, random.Random(seed))
    taken = source.take(count, "x:")
    assert len(taken) == count
    assert list(taken[:2]) == encode("x:")[:count]


tokens = st.lists(st.integers(0, 2), max_size=6)


@given(st.lists(tokens, max_size=6), tokens)
def test_the_trie_finds_the_longest_common_prefix(inserted: list[list[int]], wanted: list[int]) -> None:
    trie = TokenTrie()
    for sequence in inserted:
        trie.insert(sequence)
    by_hand = [
        next(
            (i for i, (a, b) in enumerate(zip(sequence, wanted, strict=False)) if a != b),
            min(len(sequence), len(wanted)),
        )
        for sequence in inserted
    ]
    assert trie.common_prefix(wanted) == max(by_hand, default=0)


def test_reuse_counts_replies_only_once_they_are_finished() -> None:
    first = Played([1, 2], [3, 4], started=0, finished=10, cached_tokens=0)
    during = Played([1, 2, 3, 4], [5], started=5, finished=6, cached_tokens=2)
    behind = Played([1, 2, 3, 4], [5], started=11, finished=12, cached_tokens=3)
    assert reuse([first, during]) == Reuse(prompt_tokens=6, reusable=2, cached=2)
    # `behind` finds `during` computed to its last prompt token, and recomputes one for its own logits
    assert reuse([first, during, behind]).reusable == 2 + 3
    assert reuse([first, behind]).reusable == 3  # the last output token was only sampled
    assert reuse([behind], primed=[first]) == Reuse(prompt_tokens=4, reusable=3, cached=3)


def test_reuse_is_unknown_where_one_call_tells_nothing() -> None:
    known = Played([1], [2], 0, 1, cached_tokens=0)
    assert reuse([known, Played([1], [2], 2, 3)]).reached is None


def test_decode_steps_follow_the_longest_chain_or_the_places() -> None:
    calls = (Call(((1,),), 5), Call(((1,), Reply(0)), 7), Call(((2,),), 3))
    assert Workload("w", "w", "seconds", calls, concurrency=3).decode_steps == 4 + 6
    assert Workload("w", "w", "seconds", calls, concurrency=1).decode_steps == 4 + 6 + 2
    assert made("chats").decode_steps == 4 * 63
    assert made("chats").prefill_steps == 4
    assert made("cached-prefix").prefill_steps == 8
    assert made("trees").decode_steps == 4 * 47


def test_costs_of_one_stream_by_hand() -> None:
    shape = ModelShape(
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8,
        layer_parameters=1000,
        head_parameters=100,
        weight_bytes=500,
    )
    workload = Workload("w", "w", "seconds", (Call((tuple(range(10)),), 3),), 1)
    cost = costs(workload, shape, Reuse(prompt_tokens=10, reusable=4, cached=None))
    assert (cost.prefill_tokens, cost.decode_tokens, cost.decode_steps) == (6, 2, 2)
    kv_bytes = (11 + 12) * 2 * 2 * 2 * 8 * 2  # keys and values, layers, KV heads, head_dim, bytes
    assert cost.prefill_bytes == 500
    assert cost.decode_bytes == 2 * 500 + kv_bytes
    attention = 4 * 2 * 4 * 8
    assert cost.prefill_operations == 6 * 2000 + 1 * 200 + attention * 0.6 * 55
    assert cost.decode_operations == 2 * (2000 + 200) + attention * 23
    assert cost.prefill_seconds(1e3, 1e9) == 0.5  # reading the weights binds
    assert cost.prefill_seconds(1e9, 1e3) == cost.prefill_operations / 1e3
    assert cost.seconds(1e3, 1e9) == pytest.approx(0.5 + cost.decode_bytes / 1e3)
