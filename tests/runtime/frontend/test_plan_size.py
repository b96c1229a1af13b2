"""What a plan will hold, and what it begins with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palmette import function, gen, select
from palmette.runtime.frontend.programs.size import RESULT, Size, largest, opening


@function
def branching(s, head, forks, tail):
    s += "x" * head
    each = s.fork(len(forks))
    for fork, tokens in zip(each, forks, strict=True):
        fork += gen("idea", max_tokens=tokens)
    for fork in each:
        s += fork["idea"]
    s += gen("end", max_tokens=tail)


@given(st.integers(1, 50), st.lists(st.integers(1, 50), min_size=1, max_size=4), st.integers(1, 200))
def test_forks_count_while_they_live_and_what_is_read_of_them_after(head: int, forks: list[int], tail: int) -> None:
    size = largest(branching.trace(head, forks, tail).plan)
    assert size == Size(head, sum(forks) + tail)


def test_results_of_functions_and_choices_count() -> None:
    @function
    def calling(s):
        s += "Look: " + gen("what", max_tokens=5)
        s.call("found", str, s["what"])
        s += s["found"] + select("best", ["yes", "no"])

    assert largest(calling.trace().plan).tokens >= 5 + RESULT


def test_a_program_begins_with_the_text_before_its_first_output() -> None:
    @function
    def saying(s):
        s += "Be kind. "
        s += "Who? " + gen("who", max_tokens=3)
        s += " more " + gen("more", max_tokens=3)

    assert opening(saying.trace().plan) == "Be kind. Who? "
