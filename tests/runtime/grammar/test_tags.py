from __future__ import annotations

import json
import random
from typing import Any

import pytest
from schema_cases import SPACE, generate

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import build
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.protocol import GrammarSource, Limits

ADD = {"begin": "<fn=add>", "end": "</fn>", "schema": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}}
NOW = {"begin": "<fn=now>", "end": "</fn>", "schema": {"const": {}}}


def tags(structures: Any, triggers: list[str], **options: Any) -> LlgGrammar:
    text = json.dumps({"type": "structural_tag", "structures": structures, "triggers": triggers})
    return build(GrammarSource(kind="structural_tag", text=text, options=options), SPACE, Limits())


def test_free_text_and_tags() -> None:
    grammar = tags([ADD, NOW], ["<fn="])
    for text in ("", "hello <fn", "a<fn=add>[1, 2]</fn> b <fn=now>{}</fn>", "<<fn=now>{}</fn>\n\n"):
        assert grammar.accepts(text), text
    for text in ("<fn=", "<fn=sub>", "<fn=add>[1.5]</fn>", "<fn=add>[1]", "x <fn=now>{}</fn"):
        assert not grammar.accepts(text), text


def test_where_a_trigger_begins_within_another() -> None:
    grammar = tags([{**NOW, "begin": "aab"}, {**ADD, "begin": "ab"}], ["aab", "ab"])
    assert grammar.accepts("aab{}</fn>")
    assert grammar.accepts("cab[1]</fn>aaa")
    assert not grammar.accepts("aaab")


def test_forced_calls() -> None:
    grammar = tags([ADD, NOW], ["<fn="], free_text=False, at_least_one=True, stop_after_first=True)
    assert grammar.matcher().forced_bytes() == b"<fn="
    assert grammar.accepts("<fn=now>{}</fn>")
    assert not grammar.accepts("")
    assert not grammar.accepts("<fn=now>{}</fn>more")
    assert not tags([NOW], [], at_least_one=True).accepts("text")
    assert tags([NOW], [], stop_after_first=True).accepts("text <fn=now>{}</fn>")
    assert not tags([NOW], [], stop_after_first=True).accepts("<fn=now>{}</fn>.")


def test_generated_calls_hold() -> None:
    grammar = tags([ADD, NOW], ["<fn="], at_least_one=True, stop_after_first=True)
    matcher = grammar.matcher()
    for byte in b"so: <fn=add>":
        assert matcher.accept(byte)
    for seed in range(5):
        text = generate(matcher.copy(), random.Random(seed), 60)
        if text is not None:
            assert len(json.loads(text.removesuffix("</fn>"))) <= 2


@pytest.mark.parametrize(
    ("structures", "triggers", "said"),
    [
        ([], [], "0 structures"),
        ([{**ADD, "begin": ""}], [], "an empty side"),
        ([{**ADD, "end": "1"}], [], "go on a number"),
        ([ADD], ["<other"], "begins no tag"),
        ([ADD, {**NOW, "begin": "<x>"}], ["<fn="], "No trigger begins"),
        ([{**ADD, "schema": {"type": "strin"}}], [], "'type'"),
        ([{"begin": "a"}], [], "end"),
    ],
)
def test_errors(structures: Any, triggers: list[str], said: str) -> None:
    with pytest.raises(GrammarError) as raised:
        tags(structures, triggers)
    assert said in raised.value.message
