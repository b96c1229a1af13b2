from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import compile

words = st.text(alphabet="ab.*é😀", max_size=5)


@settings(deadline=None)
@given(st.lists(words, min_size=1, max_size=10).filter(any), st.lists(words, max_size=5))
def test_the_choices_and_nothing_else(choices: list[str], others: list[str]) -> None:
    grammar = compile("choices", choices)
    for text in (*choices, *others):
        assert grammar.accepts(text) == (text in choices)


def test_a_choice_that_starts_another_may_end_or_go_on() -> None:
    state = compile("choices", ["ab", "abc"]).matcher()
    assert state.forced_bytes() == b"ab"
    for byte in b"ab":
        assert state.accept(byte)
    assert state.may_end
    assert not state.complete
    assert state.accept(ord("c"))
    assert state.complete


def test_equal_choices_are_one_and_many_are_quick() -> None:
    chance = random.Random(1)
    choices = ["".join(chance.choices("abcdefghij", k=chance.randint(3, 20))) for _ in range(1000)]
    grammar = compile("choices", choices * 2)
    assert all(map(grammar.accepts, choices))


@pytest.mark.parametrize("source", ["[]", '[""]', "{}", "[1]", "yes", '"a"'])
def test_what_is_no_list_of_texts_is_refused(source: str) -> None:
    with pytest.raises(GrammarError, match="choices"):
        compile("choices", source)


def test_a_list_and_its_json_are_the_same_grammar() -> None:
    assert compile("choices", ["x", "y"]) is compile("choices", json.dumps(["x", "y"], separators=(",", ":")))
