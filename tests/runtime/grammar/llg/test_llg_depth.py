"""Grammars that are too deep for llguidance's stack are refused before they reach it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import ByteSpace, Compiler
from palmette.runtime.grammar.llg.depth import MAX_DEPTH, check_depth
from palmette.runtime.grammar.llg.dialects import lark_of
from palmette.runtime.grammar.protocol import GrammarSource


def chain(length: int, rule: str = 'r{0}: "a" r{1}') -> str:
    rules = [rule.format(number, number + 1) for number in range(length)]
    return "\n".join(["start: r0", *rules, f'r{length}: "x"'])


def ring(length: int) -> str:
    return "\n".join(["start: r0", *(f'r{n}: "a" r{(n + 1) % length} | "b" r{n // 2} | "c"' for n in range(length))])


@pytest.mark.parametrize(
    "lark",
    [
        chain(MAX_DEPTH),
        chain(100_000),
        chain(MAX_DEPTH, "?r{0}: r{1} // r0:"),
        chain(MAX_DEPTH, "r{0}: r{1}+"),
        chain(MAX_DEPTH // 5, 'r{0}: (((((((((("a" r{1})))))))))?'),
        chain(MAX_DEPTH, "r{0}::_: r{1}::_").replace("start: r0", "start: r0::0x0"),
        chain(MAX_DEPTH).replace("r", "r-").replace("sta", "star").replace("starr-t", "start"),
        ring(MAX_DEPTH + 1),
    ],
)
def test_too_deep(lark: str) -> None:
    with pytest.raises(GrammarError, match="levels"):
        check_depth(lark)


@pytest.mark.parametrize(
    "lark",
    [
        chain(MAX_DEPTH - 3),
        ring(MAX_DEPTH - 3),
        "\n".join(["start: " + " ".join(f"r{n}" for n in range(5000)), *(f'r{n}: "a"' for n in range(5000))]),
        'start: "' + "(" * 5000 + '" /' + "(" * 5000 + "/ # " + "(" * 5000,
        "",
    ],
)
def test_not_too_deep(lark: str) -> None:
    check_depth(lark)


def test_the_bound_is_within_the_stack_of_a_thread() -> None:
    """In a process of its own: beyond its stack llguidance ends it."""
    program = (
        "import sys, threading; from palmette.runtime.grammar.llg.start import start\n"
        "from palmette.runtime.grammar.llg.tokenizers import byte_tokenizer\n"
        "work = lambda lark: print(start(byte_tokenizer(), lark).is_error())\n"
        "for lark in sys.stdin.read().split('\\0'):\n"
        "    thread = threading.Thread(target=work, args=(lark,)); thread.start(); thread.join()\n"
    )
    terminals = chain(MAX_DEPTH - 3).replace("r", "R").replace("staRt", "start")
    deepest = [
        chain(MAX_DEPTH - 3),
        chain(2 * MAX_DEPTH // 11 - 2, 'r{0}: ((((((((("a" r{1})?)?)?)?)?)?)?)?)?'),
        terminals,
        ring(MAX_DEPTH - 3),
    ]
    ran = subprocess.run([sys.executable, "-c", program], input="\0".join(deepest), capture_output=True, text=True)
    assert (ran.returncode, ran.stdout.split()) == (0, ["False"] * len(deepest)), ran.stderr[-500:]


@pytest.mark.parametrize(("length", "fits"), [(300, True), (30_000, False)])
def test_ebnf_whose_rules_follow_one_another(length: int, fits: bool) -> None:
    text = chain(length).replace("start", "root").replace(":", " ::=")
    source = GrammarSource(kind="ebnf", text=text)
    if not fits:
        with pytest.raises(GrammarError, match="levels"):
            Compiler(ByteSpace()).compile(source)
        return
    matcher = Compiler(ByteSpace()).compile(source).matcher()
    assert all(matcher.accept(byte) for byte in b"a" * length + b"x")
    assert matcher.may_end


@pytest.mark.parametrize(("names", "count"), [("optional", 400), ("required", 1500)])
def test_objects_of_many_properties(names: str, count: int) -> None:
    properties = {f"p{number}": {"type": "integer"} for number in range(count)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if names == "required":
        schema["required"] = list(properties)
    matcher = Compiler(ByteSpace()).compile(GrammarSource(kind="json_schema", text=json.dumps(schema))).matcher()
    assert all(matcher.accept(byte) for byte in b'{"p0": 1, "p1": ')


def test_what_is_too_large_is_not_blamed_on_a_keyword_that_is_not_there() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{number}": {"type": "integer"} for number in range(3000)},
        "minProperties": 900,
    }
    with pytest.raises(GrammarError) as raised:
        Compiler(ByteSpace()).compile(GrammarSource(kind="json_schema", text=json.dumps(schema)))
    assert "uniqueItems" not in str(raised.value)


def test_a_rule_that_is_used_often_is_not_written_out_that_often() -> None:
    """A short source could ask for a terminal of gigabytes."""
    text = f'root ::= {"x " * 50_000}\nx ::= "{"a" * 8_000}"'
    assert len(lark_of(text, "ebnf")) < 1_000_000
