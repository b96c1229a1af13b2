"""Patterns in known texts: as `re` finds them, in time that grows with the text alone."""

from __future__ import annotations

import json
import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_cases import schema_grammar

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema import ecma, found
from palmette.runtime.grammar.schema.found import finds

atoms = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "\\d", "^", "$", "é"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}", "{3,5}"])).map(
            "(?:{0[0]}){0[1]}".format
        ),
        inner.map("(?={})".format),
        inner.map("(?!{})".format),
        st.sampled_from(["(?<=a)", "(?<!a)", "(?<=ab)", "\\b", "\\B"]),
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(patterns, st.text(alphabet="ab1é😀", max_size=9))
def test_as_re_finds_them(pattern: str, text: str) -> None:
    theirs = pattern.replace("$", r"\Z").replace("\\d", "[0-9]").replace("\\B", r"(?!\b)")  # in "" re's \B isn't that
    wanted = re.search(theirs, text, re.ASCII) is not None
    try:
        tree = ecma.parse(pattern)
    except GrammarError:  # an assertion that is repeated
        return
    assert finds(tree, text) == wanted


LOOKS = [
    r"\bfoo\b", r"^\bfoo", r"foo\b-?bar", r"(?<!x)foo", r"(?<=bc)f$", r"^(?!^foo).*$", r"^(?!.*\bno\b).*$", r"\Bo\B",
    r".*(?<!\\)\$\{(.*?)\}|(?<!\\)\$([_a-z]+)", r"^[a-z]+(?<!-)$", r"^(?!-)[a-z-]{1,6}(?<!-)$", r"^(\bfoo\b)?bar",
    r"\b[a-c]+\b \b[a-c]+\b", r"^(?=.*\d)(?=.*\ba).*$", r"\ba|b\b", r"^(?<!a)b", r"(?<!^)a", r"(?<![a-z])o(?!o)",
    r"(?i)^[^a-f]O|\bFOO$|\x4eo",
]  # fmt: skip
PARTS = ["FOO", "No", "foo", "bar", "a", "b", "c", " ", "-", "\\", "${x}", "$a", "no", ",", "o", "x", "1"]


@pytest.mark.parametrize("pattern", LOOKS)
def test_what_stands_around_is_looked_at(pattern: str) -> None:
    """Word boundaries and look-behinds: `re`, the texts that are known, and the grammar say the same."""
    grammar, tree, chance = (
        schema_grammar({"type": "string", "pattern": pattern}),
        ecma.parse(pattern),
        random.Random(5),
    )
    for _ in range(60):
        text = "".join(chance.choices(PARTS, k=chance.randrange(6)))
        wanted = re.search(pattern, text) is not None
        assert finds(tree, text) == wanted, text
        assert grammar.accepts(grammar.serialise(text)) == wanted, text


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|b|ab)*c$", "(.*)*(.*)*(.*)*x$", "^(?=(a+)+$)", "(a{1,50}){1,50}b"]
)
def test_none_makes_it_backtrack(pattern: str) -> None:
    text = "a" * 2_000 + "!"
    begun = time.process_time()
    assert not finds(ecma.parse(pattern), text)
    assert time.process_time() - begun < 5
    begun = time.process_time()
    schemas = (
        {"type": "object", "properties": {text[-60:]: {}}, "patternProperties": {pattern: {"type": "null"}}},
        {"enum": [text[-60:], 1], "anyOf": [{"type": "integer"}, {"type": "string", "pattern": pattern}]},
    )
    for schema in schemas:
        schema_grammar(schema)
    assert schema_grammar(schemas[1]).accepts("1")
    assert not schema_grammar(schemas[1]).accepts(json.dumps(text[-60:]))
    assert time.process_time() - begun < 5


def test_it_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "MAX_STEPS", 100)
    with pytest.raises(GrammarError, match="takes too long"):
        finds(ecma.parse("a*b*" * 30), "ab" * 40)
