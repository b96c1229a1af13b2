from __future__ import annotations

import contextlib
import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.regex.parser import MAX_DEPTH, parse

WRONG = {
    "a(b": 1, "a)": 1, "[a": 0, "a**": 2, "*a": 0, "a|+": 2, "{2}": 0, "a|{,3}": 2,
    "a{3,2}": 1, "[z-a]": 1, r"\q": 0, "a\\": 2, r"\x4": 0,
    "(?P<1>a)": 0, "(?z)a": 0, "a(?i)b": 1, "x(?#": 1, r"\N{NO SUCH}": 0, "^*": 0, r"[\w-z]": 1, r"\u12": 0,
}  # fmt: skip
UNSUPPORTED = {
    "(?<=a)b": 0, "a(?<!b)": 1, r"(a)\1": 3, r"a\b": 1, r"\B": 0, "(?>a)": 0, "a++": 2, "(?P<x>a)(?P=x)": 8,
    r"a\p{Greek}": 1, "(a)(?(1)b|c)": 3, "a*^b": 2, "(?m)a|^b": 6,
}  # fmt: skip


@pytest.mark.parametrize(("pattern", "position"), [*WRONG.items(), *UNSUPPORTED.items()])
def test_a_refusal_names_the_position(pattern: str, position: int) -> None:
    with pytest.raises(GrammarError, match=rf"position {position}\b") as caught:
        parse(pattern)
    assert caught.value.hint
    assert caught.value.param == "regex"


@pytest.mark.parametrize("pattern", WRONG)
def test_what_is_wrong_is_wrong_in_re(pattern: str) -> None:
    with pytest.raises(re.error):
        re.compile(pattern)


def test_deep_groups_are_refused() -> None:
    parse("(" * (MAX_DEPTH - 1) + ")" * (MAX_DEPTH - 1))
    with pytest.raises(GrammarError, match="nested"):
        parse("(" * 5000 + ")" * 5000)


def test_large_counts_are_refused() -> None:
    with pytest.raises(GrammarError, match="65,535"):
        parse("a{70000}")


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet="ab1-^$.|()[]{},?*+\\=!:<>PdwsAZnxu0 i", max_size=12))
def test_any_text_is_a_pattern_or_a_refusal(pattern: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except re.error:
        ours = re.search(r"\\[pPz]|\(\?<[^\W\d]\w*>|\{,\}|\\[1-9]|\(\?P=|\(\?<|\(\?\(", pattern)
        with contextlib.suppress(GrammarError) if ours else pytest.raises(GrammarError):
            parse(pattern)
        return
    try:
        parse(pattern)
    except GrammarError as refusal:
        error = refusal.message
    else:
        return
    assert "position" in error
    assert re.search(r"can't constrain|may be empty|nested", error), (pattern, error)
