from __future__ import annotations

import numpy as np
from grammar_patterns import texts
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.grammar.automaton.alphabet import split
from palmette.runtime.grammar.automaton.automaton import Automaton, automaton
from palmette.runtime.grammar.automaton.dfa import Budget, determinise, minimise
from palmette.runtime.grammar.automaton.nfa import FINAL, Nfa
from palmette.runtime.grammar.automaton.words import words_dfa, words_of
from palmette.runtime.grammar.protocol import Limits
from palmette.runtime.grammar.regex.syntax import Chars, Choice, Sequence, literal


@settings(deadline=None)
@given(st.lists(texts, min_size=8, max_size=30))
def test_the_same_automaton_as_the_general_way(words: list[str]) -> None:
    node = Choice(tuple(map(literal, words)))
    alphabet, members = split({part.chars for word in node.options for part in word.items})  # type: ignore[union-attr]
    budget = Budget(10_000, 10)
    classes = words_of(node, members)
    assert classes is not None
    quick = words_dfa(classes, alphabet.classes, budget)
    nfa = Nfa(members, alphabet.classes, budget)
    general = minimise(determinise(nfa.closure(nfa.build(node, FINAL)), nfa, budget), alphabet.classes, budget)
    assert quick.delta.shape == general.delta.shape
    built = Automaton(alphabet, quick)
    for word in words:
        end = built.walk(built.start, word.encode())
        assert end is not None
        assert built.final(end)
    assert np.count_nonzero(quick.delta) == np.count_nonzero(general.delta)
    assert np.count_nonzero(quick.finals) == np.count_nonzero(general.finals)


def test_sets_that_overlap_take_the_general_way() -> None:
    letter, either = Chars(((97, 97),)), Chars(((97, 98),))
    node = Choice((*[Sequence((letter, letter))] * 8, Sequence((either, letter, letter))))
    built = automaton(node, Limits())
    for text, matches in (("aa", True), ("baa", True), ("ba", False), ("aaa", True)):
        end = built.walk(built.start, text.encode())
        assert (end is not None and built.final(end)) == matches
