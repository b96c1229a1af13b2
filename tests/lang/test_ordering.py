"""Texts in any order: put so that groups begin alike for longer, and nothing else about them changes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from palmette.lang.ordering import Ordering, shared_characters

groups = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=6).map(tuple), max_size=8)


@given(groups=groups)
def test_groups_keep_their_texts(groups: list[tuple[str, ...]]) -> None:
    order = Ordering(groups)
    for group in groups:
        assert Counter(order.arranged(group)) == Counter(group)
    after = [order.arranged(group) for group in groups]
    assert order.report.groups == len(groups)
    assert order.report.shared_after == shared_characters(after)
    assert order.report.changed == sum(one != other for one, other in zip(groups, after, strict=True))


@given(groups=groups)
def test_groups_of_the_same_texts_get_the_same_order(groups: list[tuple[str, ...]]) -> None:
    order = Ordering([*groups, *(tuple(reversed(group)) for group in groups)])
    for group in groups:
        assert order.arranged(group) == order.arranged(tuple(reversed(group)))


def test_what_most_have_comes_first() -> None:
    given = [("rare one", "common document"), ("another", "common document", "second"), ("second", "common document")]
    order = Ordering(given)
    assert [order.arranged(group) for group in given] == [
        ("common document", "rare one"),
        ("common document", "second", "another"),
        ("common document", "second"),
    ]
    assert order.report.shared_before == 0
    assert order.report.shared_after == 2 * len("common document") + len("second")
    assert str(order.report).startswith("3 of 3 groups were put into another order")


def test_an_unknown_group_stays_as_it_is() -> None:
    assert Ordering([("a", "b"), ("b",)]).arranged(("z", "b")) == ("z", "b")
    assert Ordering([]).report.groups == 0


def test_shared_characters_counts_whole_beginnings() -> None:
    assert shared_characters([("ab", "c"), ("ab", "d"), ("c", "ab"), ("ab", "c")]) == 2 + 3
