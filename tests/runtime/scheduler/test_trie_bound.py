"""The theorem that prefix scheduling rests on, as a property of the real core.

Offline, one request at a time, token granularity, a cache that holds just the longest request: depth-first order over
the trie computes every distinct token once, which nothing can undercut; and longest prefix first is such an order.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from engine_harness import generate
from hash_harness import HashHarness
from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.messages.replies import Generated

LAST = 24
MOST = 12  # requests: each ends with a token of its own, so that none begins another
Prompt = tuple[int, ...]


@st.composite
def leaves(draw: st.DrawFn) -> list[Prompt]:
    """Prompts in any order, that share prefixes in any way."""
    known: list[Prompt] = [()]
    prompts: list[Prompt] = []
    for index in range(draw(st.integers(1, MOST))):
        stem = draw(st.sampled_from(known))
        stem = stem[: draw(st.integers(0, len(stem)))]
        path = (*stem, *draw(st.lists(st.integers(1, 3), max_size=6)))
        known.append(path)
        prompts.append((*path, LAST - 1 - index))
    return draw(st.permutations(prompts))


def distinct(prompts: Sequence[Prompt]) -> int:
    return len({prompt[:length] for prompt in prompts for length in range(1, len(prompt) + 1)})


def computed(prompts: Sequence[Prompt], policy: str, pages: int) -> int:
    """Prompt tokens computed for `prompts`, all waiting from the start in this order."""
    harness = HashHarness(pages=pages, page_size=1, max_running=1, step_tokens=1000, policy=policy)
    harness.run(*(generate(f"{index}", list(prompt), max_tokens=1) for index, prompt in enumerate(prompts)))
    total = 0
    for index in range(len(prompts)):
        last = harness.replies[f"{index}"][-1]
        assert isinstance(last, Generated)
        assert last.finish is not None
        total += last.finish.usage.computed_tokens
    return total


def room(prompts: Sequence[Prompt]) -> int:
    return max(map(len, prompts)) + 1  # an output token counts too


@given(leaves())
def test_depth_first_order_reaches_the_trie_bound(prompts: list[Prompt]) -> None:
    assert computed(sorted(prompts), "first_come", room(prompts)) == distinct(prompts)


@given(leaves())
@pytest.mark.parametrize("policy", ["longest_prefix", "depth_first_weight"])
def test_the_policies_find_such_an_order_themselves(policy: str, prompts: list[Prompt]) -> None:
    assert computed(prompts, policy, room(prompts)) == distinct(prompts)


def test_another_order_does_not() -> None:
    """The bound is one: order matters."""
    prompts = [(1, 1, 1, 1, 20), (2, 2, 2, 2, 21), (1, 1, 1, 1, 22), (2, 2, 2, 2, 23)]
    assert computed(prompts, "first_come", room(prompts)) > distinct(prompts)
    assert computed(prompts, "longest_prefix", room(prompts)) == distinct(prompts)
