from __future__ import annotations

import threading
import time
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest
from grammar_patterns import WORDS

import palmette
from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar import compile as compiling
from palmette.runtime.grammar.compile import BUILDERS, ByteSpace, Compiler, GrammarSource, compile
from palmette.runtime.grammar.protocol import Limits


@pytest.mark.skipif(find_spec("xgrammar") is not None, reason="it is installed")
def test_a_backend_that_is_not_installed() -> None:
    with pytest.raises(GrammarError, match="xgrammar can't be used"):
        Compiler(ByteSpace(), schema_backend="xgrammar")
    with pytest.raises(GrammarError, match="xgrammar can't be used"):
        compile("json_schema", {}, backend="xgrammar")
    with pytest.raises(GrammarError, match="backend"):
        compile("json_schema", {}, backend="other")


def source(text: str) -> GrammarSource:
    return GrammarSource(kind="regex", text=text)


def test_the_public_name() -> None:
    assert palmette.grammar is compiling
    assert palmette.grammar.compile("regex", "[a-z]+").accepts("abc")


def test_equal_sources_are_one_grammar() -> None:
    compiler = Compiler(WORDS, cached=2)
    first = compiler.compile(source("a"))
    assert compiler.compile(source("a")) is first
    assert compiler.cached(source("a")) is first
    compiler.compile(source("b"))
    compiler.compile(source("c"))
    assert compiler.cached(source("a")) is None
    assert compile("regex", "a+") is compile("regex", "a+")


def test_a_tokenizer_has_grammars_of_its_own() -> None:
    class Tokens:
        vocabulary = WORDS.vocabulary

        def encode(self, text: str, *, special: bool) -> list[int]:
            assert not special
            return WORDS.encode(text)

    tokens = Tokens()
    grammar = compile("regex", "abc", tokenizer=tokens)
    assert grammar is compile("regex", "abc", tokenizer=tokens)
    assert grammar is not compile("regex", "abc")
    assert grammar.matcher().forced() == WORDS.encode("abc")


def test_the_key_is_the_content() -> None:
    keys = {
        GrammarSource(kind="regex", text="a").key,
        GrammarSource(kind="choices", text="a").key,
        GrammarSource(kind="regex", text="b").key,
        GrammarSource(kind="regex", text="a", options={"x": 1}).key,
    }
    assert len(keys) == 4
    one, same = ({"x": 1, "y": 2}, {"y": 2, "x": 1})
    assert GrammarSource(kind="k", text="", options=one).key == GrammarSource(kind="k", text="", options=same).key


def test_a_source_crosses_processes() -> None:
    wanted = GrammarSource(kind="regex", text="a", options={"x": [1, None]})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(wanted), type=GrammarSource) == wanted


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(GrammarError, match=r"'regexp'.*choices.*regex"):
        compile("regexp", "a")


def test_a_source_that_is_too_long_is_refused() -> None:
    with pytest.raises(GrammarError, match="1,000,000"):
        compile("regex", "a" * 1_000_001)


def test_a_regex_that_nothing_matches_is_refused() -> None:
    with pytest.raises(GrammarError, match="No text matches"):
        compile("regex", "a(?!)")


def test_submit_returns_at_once_and_shares_the_work() -> None:
    compiler = Compiler(WORDS)
    first = compiler.submit(source(r"\w{3}x"))
    assert compiler.submit(source(r"\w{3}x")) is first or first.ready
    grammar = first.result()
    assert first.ready
    assert grammar.accepts("abcx")
    assert compiler.submit(source(r"\w{3}x")).result() is grammar
    bad = compiler.submit(source("a("))
    with pytest.raises(GrammarError, match="position 1"):
        bad.result()
    compiler.close()


def test_what_takes_too_long_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = threading.Event()

    def stuck(*_: Any) -> Any:
        finish.wait()
        raise AssertionError

    monkeypatch.setitem(BUILDERS, "stuck", stuck)
    compiler = Compiler(WORDS, limits=Limits(seconds=0.1))
    slow = compiler.submit(GrammarSource(kind="stuck", text=""))
    quick = compiler.submit(source("abc"))
    assert quick.result().accepts("abc")
    until = time.monotonic() + 5
    while not slow.ready and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(GrammarError, match=r"longer than 0\.1 seconds"):
        slow.result()
    finish.set()
    compiler.close()
