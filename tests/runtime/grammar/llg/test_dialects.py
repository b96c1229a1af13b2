from __future__ import annotations

import contextlib
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_cases import SPACE, generate

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import ByteSpace, Compiler, build
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.protocol import GrammarSource, Limits


def ebnf(text: str) -> LlgGrammar:
    return build(GrammarSource(kind="ebnf", text=text), SPACE, Limits())


def lark(text: str) -> LlgGrammar:
    return build(GrammarSource(kind="lark", text=text), SPACE, Limits())


# grammar, texts that match, texts that don't
CASES = [
    ('root ::= "\\x20die" | "\\x20die."', [" die", " die."], [" di", "die"]),
    ('root ::= root "a" | "b"', ["b", "baaa"], ["", "ab"]),
    ('root ::= "a" x+ | "ab" "c"\nx ::= "b" | "(" x ")"', ["abb", "abc", "a(b)"], ["ac", "a()"]),
    ('root ::= "a"* # a comment\n  | "b" [^x-z]', ["", "aa", "bé"], ["bx", "ab"]),
    ('root ::= x{2,3} ("," x)?\nx ::= [0-9a-]', ["0-", "12a,3"], ["1", "1234"]),
    ('root ::= ""', [""], ["a"]),
    ('root ::= "a" x{0} "b"{0,0} | "(" root ")"\nx ::= "x"', ["a", "((a))"], ["ax", "(ab)"]),
    ('root ::= "a"{0,0} [b]', ["b"], ["ab"]),
    ('root ::= a "!"\na ::= "" | a a | "x"', ["!", "xx!"], ["x"]),
    ('root ::= \'\\u00e9\' . "\\""', ['éx"', 'é😀"'], ["éx"]),
    ('root ::= value\nvalue ::= "[" (value ("," value)*)? "]" | [0-9]+', ["[1,[2,33],[]]", "7"], ["[1,]", "[[]"]),
]


@pytest.mark.parametrize(("text", "matching", "others"), CASES)
def test_what_matches(text: str, matching: list[str], others: list[str]) -> None:
    grammar = ebnf(text)
    assert all(map(grammar.accepts, matching))
    assert not any(map(grammar.accepts, others))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no rule root"),
        ('root ::= root "a"', "never comes to an end"),
        ("root ::= other", "'other', which isn't there"),
        ('root ::= ("a"', "line 1, column 14"),
        ("stort: x", "no rule at line 1"),
        ('root ::= "a\n"', "a text that isn't closed"),
        ('root ::= "a"{3,1}', "out of order"),
        ('root ::= "a"\nroot ::= "b"', "a second rule"),
        ("root ::= [z-a]", "wrong order"),
    ],
)
def test_errors_say_where(text: str, said: str) -> None:
    with pytest.raises(GrammarError) as raised:
        ebnf(text)
    assert said in raised.value.message


parts = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "[^a]"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} | {pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(parts, st.text(alphabet="abé", max_size=5), st.integers(0, 100))
def test_like_re(part: str, text: str, seed: int) -> None:
    pattern = re.compile(part.replace(" ", ""), re.DOTALL)
    source = re.sub(r"(?<![\[^ab])([ab])(?![\]ab])", r'"\1"', part)
    for written in (f"root ::= {source}", f'root ::= x\nx ::= {source} | x never\nnever ::= x "z" "z"'):
        grammar = ebnf(written)
        if "never" not in written:
            assert grammar.accepts(text) == (pattern.fullmatch(text) is not None), written
            made = generate(grammar.matcher(), random.Random(seed), 40)
            assert made is None or pattern.fullmatch(made)
        else:
            assert not pattern.fullmatch(text) or grammar.accepts(text)


def test_lark() -> None:
    grammar = lark('start: KEY "=" VALUE\nKEY: /[a-z]+/\nVALUE: /[0-9]+/')
    assert grammar.accepts("a=12")
    assert not grammar.accepts("a=")
    for text, said in (
        ("start: %json {}", "%json"),
        ("start: <|end|>", "special tokens"),
        ("other: A", "no rule start"),
        ("start: x", "line 1, column 8: 'x' is used, which isn't there"),
    ):
        with pytest.raises(GrammarError) as raised:
            lark(text)
        assert said in raised.value.message
    assert lark('start: "<a>" /<b>/ // <c>').accepts("<a><b>")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet='root:=|()*+{}"[]^-1,a \n', max_size=40))
def test_any_text_is_a_grammar_or_an_error(text: str) -> None:
    for made in (ebnf, lark):
        with contextlib.suppress(GrammarError):
            made(f"root ::= {text}" if made is ebnf else f"start: {text}")


@pytest.mark.parametrize(
    "text",
    [
        'start: KEY "=" VALUE\nKEY: /[a-z]+/\nVALUE: /[0-9]+/',
        '// root ::= "b"\n?start: /[a-z]+/ "=" /[0-9]+/',
        'root ::= [a-z]+ "=" [0-9]+\nstart ::= "no"',
    ],
)
def test_ebnf_is_lark_where_it_has_its_form(text: str) -> None:
    """As the field `ebnf` of the HTTP surfaces says."""
    matcher = Compiler(ByteSpace()).compile(GrammarSource(kind="ebnf", text=text)).matcher()
    assert all(matcher.accept(byte) for byte in b"ab=12")
    assert matcher.may_end


def test_what_lark_refuses_is_named_as_it_was_asked_for() -> None:
    with pytest.raises(GrammarError, match="special tokens") as raised:
        Compiler(ByteSpace()).compile(GrammarSource(kind="ebnf", text="start: <|im_end|>"))
    assert raised.value.param == "ebnf"
