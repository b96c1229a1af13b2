"""The forecast of a plan, against a schedule that is computed step by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palmette import function, gen, when
from palmette.runtime.frontend.programs.forecast import forecast
from palmette.runtime.messages.programs import Divide, Finish, Write, reads


@function
def thinking(s, lengths, last):
    s += "a"
    forks = s.fork(len(lengths))
    for fork, length in zip(forks, lengths, strict=True):
        fork += gen("x", max_tokens=length)
    for fork in forks:
        s += fork["x"]
    s += gen("y", max_tokens=last)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 9))
def test_the_longest_fork_is_critical(lengths: list[int], last: int) -> None:
    plan = thinking.trace(lengths, last).plan
    found = forecast(plan)
    assert max(found.ends.values()) == max(lengths) + last
    critical = {track for track, _ in found.critical}
    longest = lengths.index(max(lengths)) + 1
    if len(set(lengths)) > 1 or last:
        assert longest in critical
        assert all(lengths[track - 1] == max(lengths) for track in critical - {0})
    assert found.ready[plan.tracks[0][1].slots[0]] == max(lengths) + last


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 9))
def test_nothing_begins_before_what_it_reads(lengths: list[int], last: int) -> None:
    plan = thinking.trace(lengths, last).plan
    found = forecast(plan)
    for track, operations in enumerate(plan.tracks):
        for at, operation in enumerate(operations):
            assert all(found.ready[value.slot] <= found.ends[track, at] for value in reads(operation))
            if isinstance(operation, Divide):
                assert all(found.ends[child, 0] >= found.ends[track, at] for child in operation.tracks)


def test_a_single_state_has_no_critical_path() -> None:
    @function
    def plain(s):
        s += "a" + gen("x") + gen("y")

    assert not forecast(plain.trace().plan).critical


def test_branches_count_as_taken() -> None:
    @function
    def deciding(s):
        s += gen("x", max_tokens=5)
        s += when(s["x"] == "a", gen("y", max_tokens=7))

    plan = deciding.trace().plan
    found = forecast(plan)
    assert found.ends[0, len(plan.tracks[0]) - 1] == 12
    assert isinstance(plan.tracks[0][-1], Finish)
    assert sum(isinstance(each, Write) for each in plan.tracks[0]) == 2
