"""Beginnings that two texts share, whatever their length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.frontend.programs.opening import CHUNK, Opening

PARTS = st.lists(st.sampled_from(["a", "b", "x" * CHUNK, "y" * (CHUNK - 1), "z" * (2 * CHUNK + 3)]), max_size=6).map(
    "".join
)


@given(PARTS, PARTS, PARTS)
def test_alike_is_the_common_prefix(begin: str, one: str, other: str) -> None:
    first, second = Opening(begin + one), Opening(begin + other)
    shared = first.alike(second)
    assert shared == second.alike(first) >= len(begin)
    assert first.text[:shared] == second.text[:shared]
    assert shared == min(len(first), len(second)) or first.text[shared] != second.text[shared]


@given(st.lists(PARTS, max_size=8))
def test_they_are_ordered_as_their_texts(texts: list[str]) -> None:
    assert [each.text for each in sorted(map(Opening, texts))] == sorted(texts)
