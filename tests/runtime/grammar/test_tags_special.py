"""Tags whose markers are special tokens of the vocabulary."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.compile import build
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.protocol import GrammarSource, Limits, Matcher, mask_words
from palmette.runtime.grammar.tag_marks import Marks, Special, behind, reach
from palmette.runtime.parsers.constraints import constraint_for
from palmette.runtime.parsers.protocol import Tool
from palmette.runtime.vocabulary import Vocabulary

SPECIALS = (
    "<end>", "<tool_call>", "</tool_call>", "<tool_call>x", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>",
    "<|start|>", "<|end|>",
)  # fmt: skip
IDS = {text: 256 + index for index, text in enumerate(SPECIALS)}
ENDS = (IDS["<end>"], IDS["<|call|>"])
CALL, CLOSE = IDS["<tool_call>"], IDS["</tool_call>"]


class Space:
    """All bytes, and special tokens."""

    def __init__(self) -> None:
        pieces = (*(bytes([byte]) for byte in range(256)), *(b"" for _ in SPECIALS))
        self.vocabulary = Vocabulary(pieces, {token: text for text, token in IDS.items()}, ENDS)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


SPACE = Space()
MARKS = Marks(SPACE.vocabulary.special_pieces, ENDS)
ADD = {"begin": '<tool_call>\n{"add": ', "end": "}\n</tool_call>", "schema": {"type": "array", "items": {"const": 7}}}
NOW = {"begin": "<tool_call>\nnow", "end": "</tool_call>", "schema": {"const": {}}}
PLAIN = {"begin": "<fn=now>", "end": "</fn>", "schema": {"const": {}}}


def tags(structures: Any, triggers: list[str] | None = None, **options: Any) -> LlgGrammar:
    text = json.dumps({"structures": structures, "triggers": triggers or []})
    return build(GrammarSource(kind="structural_tag", text=text, options=options), SPACE, Limits())


def tokens_of(*parts: str) -> list[int]:
    """The parts that are special tokens by their ids; others byte by byte."""
    return [token for part in parts for token in ([IDS[part]] if part in IDS else part.encode())]


def allowed(matcher: Matcher) -> list[int]:
    mask = np.zeros(mask_words(SPACE.vocabulary.size), dtype=np.uint32)
    matcher.fill_mask(mask)
    return [int(token) for token in np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))]


def takes(grammar: LlgGrammar, tokens: list[int]) -> bool:
    """All tokens, each under its mask, and then the end."""
    matcher = grammar.matcher()
    for token in tokens:
        inside = token in allowed(matcher)
        assert matcher.accept(token) == inside
        if not inside:
            return False
    return matcher.may_end or matcher.ended


def test_a_marker_is_matched_by_its_id_alone() -> None:
    grammar = tags([ADD, NOW], ["<tool_call>"])
    call = tokens_of("<tool_call>", '\n{"add": [7, 7]}\n', "</tool_call>")
    for tokens in ([], tokens_of("Hello <tool_cal"), call, tokens_of("a") + call + tokens_of("b") + call):
        assert takes(grammar, tokens), tokens
    for tokens in (
        tokens_of("Hello <tool", "_call>"),  # spelled
        tokens_of('<tool_call>\n{"add": [7]}\n</tool_call>'),
        tokens_of("</tool_call>"),
        tokens_of("<tool_call>", '\n{"add": [7]}\n', "</tool", "_call>"),
        tokens_of("<tool_call>"),
        tokens_of("<tool_call>", "x"),
        tokens_of("a", "<|channel|>"),
    ):
        assert not takes(grammar, tokens), tokens
    assert grammar.accepts('Hm <tool_call>\n{"add": [7]}\n</tool_call> and <tool_call>\nnow{}</tool_call>.')
    assert not grammar.accepts('<tool_call>\n{"add": [8]}\n</tool_call>')


def test_what_is_forced_has_the_marker() -> None:
    grammar = tags([ADD], free_text=False, at_least_one=True, stop_after_first=True)
    matcher = grammar.matcher()
    assert matcher.forced_bytes() == b""  # no bytes: a special token
    assert matcher.forced() == tokens_of("<tool_call>", '\n{"add": [')
    for token in matcher.forced():
        assert matcher.accept(token)
    assert matcher.accept(ord("]"))
    assert matcher.forced_bytes() == b"}\n"
    assert matcher.forced() == tokens_of("}\n", "</tool_call>")
    for token in matcher.forced():
        assert matcher.accept(token)
    assert matcher.complete
    matcher.rollback(2)
    assert matcher.forced() == tokens_of("\n", "</tool_call>")


def test_a_way_to_an_end_leads_through_markers() -> None:
    grammar = tags([ADD], ["<tool_call>"], at_least_one=True)
    matcher = grammar.matcher()
    for token in tokens_of("Let me think"):
        assert matcher.accept(token)
    way = matcher.closing()
    assert way is not None
    assert list(way) == tokens_of("<tool_call>", '\n{"add": []}\n', "</tool_call>")
    for token in way:
        assert matcher.accept(token)
    assert matcher.may_end


def test_markers_beside_plain_triggers() -> None:
    grammar = tags([NOW, PLAIN], ["<tool_call>", "<fn="])
    call = tokens_of("<tool_call>", "\nnow{}", "</tool_call>")
    assert takes(grammar, tokens_of("a <fn=now>{}</fn> b") + call + tokens_of("<fn=now>{}</fn>"))
    assert not takes(grammar, tokens_of("<fn=no>"))
    assert not takes(grammar, tokens_of("<tool", "_call>"))


def test_a_trigger_with_text_before_its_marker() -> None:
    tag = {"begin": "\n<tool_call>\n", "end": "\n</tool_call>", "schema": {"const": 1}}
    grammar = tags([tag])
    assert takes(grammar, tokens_of("a\n", "<tool_call>", "\n1\n", "</tool_call>", "b\n"))
    assert takes(grammar, tokens_of("\n", "<tool_call>", "\n1\n", "</tool_call>"))
    assert not takes(grammar, tokens_of("a", "<tool_call>"))
    assert takes(tags([NOW], ["<tool"]), tokens_of("a", "<tool_call>", "\nnow{}", "</tool_call>"))  # within the marker


def test_a_tag_that_ends_with_the_output() -> None:
    """gpt-oss: `<|call|>` closes a call and ends the turn."""
    tool = {
        "begin": "<|channel|>commentary to=functions.now <|constrain|>json<|message|>",
        "end": "<|call|>",
        "schema": {"const": {}},
    }
    free = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>"]
    grammar = tags([tool], ["<|channel|>commentary to="], free_special=free)
    call = tokens_of("<|channel|>", "commentary to=functions.now ", "<|constrain|>", "json", "<|message|>", "{}")
    thought = tokens_of("<|channel|>", "analysis", "<|message|>", "Well. commentary to=", "<|end|>", "<|start|>", "a")
    assert takes(grammar, thought)
    assert takes(grammar, thought + call)
    assert takes(grammar, [*thought, *call, IDS["<|call|>"]])
    assert takes(grammar, tokens_of("<|channel|>", "comment", "<|message|>"))  # not to anyone
    for tokens in (
        tokens_of("<|channel|>", "commentary to=functions.other"),
        tokens_of("<|channel|>", "commentary to=a"),
        call + tokens_of("x"),
        call + call,
        thought + tokens_of("<|constrain|>"),
    ):
        assert not takes(grammar, tokens), tokens
    must = tags([tool], ["<|channel|>commentary to="], free_special=free, at_least_one=True)
    assert not takes(must, thought)
    assert takes(must, thought + call)
    named = tags([tool], free_text=False, at_least_one=True)
    assert takes(named, call)
    assert not takes(named, [])
    assert named.matcher().forced() == call
    assert takes(tags([tool], free_text=False), [])
    once = tags([tool], ["<|channel|>"], stop_after_first=True)
    assert takes(once, tokens_of("text"))
    assert takes(once, call)
    assert not takes(once, call + tokens_of("x"))


def test_thoughts_before_a_call_that_must_be_made() -> None:
    tool = {
        "begin": "<|channel|>commentary to=functions.now <|constrain|>json<|message|>",
        "end": "<|call|>",
        "schema": {"const": {}},
    }
    before = [{"begin": "<|channel|>analysis<|message|>", "end": "<|end|><|start|>assistant"}]
    grammar = tags([tool], free_text=False, at_least_one=True, stop_after_first=True, before=before)
    thought = tokens_of("<|channel|>", "analysis", "<|message|>", "Hm. <|end|", "<|end|>", "<|start|>", "assistant")
    empty = tokens_of("<|channel|>", "analysis", "<|message|>", "<|end|>", "<|start|>", "assistant")
    call = tokens_of("<|channel|>", "commentary to=functions.now ", "<|constrain|>", "json", "<|message|>", "{}")
    for tokens in (call, thought + call, empty + thought + thought + call):
        assert takes(grammar, tokens)
    for tokens in ([], thought, tokens_of("Hm."), thought[:-1] + call, tokens_of("<|channel|>", "final"), thought[:5]):
        assert not takes(grammar, tokens)
    assert grammar.matcher().forced() == [IDS["<|channel|>"]]
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    said = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
    assert grammar.accepts(text + text + said)
    assert not grammar.accepts(text)
    for wrong in ({"begin": "", "end": "x"}, {"begin": "x", "end": "<|call|>"}):
        with pytest.raises(GrammarError):
            tags([tool], free_text=False, before=[wrong])


def test_one_of_several_schemas_is_held_as_far_as_it_can_be() -> None:
    loose = {"begin": "<a>", "end": "</a>", "schema": {"type": "array", "uniqueItems": True}}
    with pytest.raises(GrammarError, match="uniqueItems"):
        tags([loose, NOW], free_text=False)
    grammar = tags([{**loose, "best_effort": True}, NOW], free_text=False)
    assert takes(grammar, tokens_of("<a>[1, 1]</a>"))
    assert not takes(grammar, tokens_of("<a>{}</a>"))
    with pytest.raises(GrammarError, match="uniqueItems"):
        tags([{**loose, "best_effort": True}, {**loose, "begin": "<b>"}], free_text=False)


def test_tags_of_both_sorts_of_ends() -> None:
    ends = {"begin": "<|channel|>now", "end": "<|call|>", "schema": {"const": {}}}
    goes_on = {"begin": "<|channel|>add", "end": "</tool_call>", "schema": {"const": []}}
    add, now = tokens_of("<|channel|>", "add[]", "</tool_call>"), tokens_of("<|channel|>", "now{}")
    for options in ({}, {"free_text": False}, {"at_least_one": True}, {"free_text": False, "at_least_one": True}):
        grammar = tags([ends, goes_on], ["<|channel|>"], **options)
        assert takes(grammar, []) == (not options.get("at_least_one"))
        for tokens in (add, now, add + add, add + now):
            assert takes(grammar, tokens), (options, tokens)
        assert not takes(grammar, now + add)


@pytest.mark.parametrize(
    ("tag", "options", "said"),
    [
        ({**ADD, "begin": "<|call|>x"}, {}, "'<|call|>', which ends the output"),
        ({**ADD, "end": "<|call|></tool_call>"}, {}, "goes on behind"),
        (ADD, {"free_special": ["<tool_call>"]}, None),
        ({**NOW, "begin": "<tool_call>"}, {"free_special": ["<tool_call>"]}, "free text can't hold it"),
        (PLAIN, {"free_special": ["<|end|>"]}, "start with special tokens"),
    ],
)
def test_errors(tag: Any, options: dict[str, Any], said: str | None) -> None:
    if said is None:
        tags([tag], **options)
        return
    with pytest.raises(GrammarError) as raised:
        tags([tag], **options)
    assert said.replace("'", "") in raised.value.message.replace("'", "")


def test_random_outputs_are_texts_of_the_grammar() -> None:
    """What comes out under the masks, written with the markers' texts, is what the grammar accepts as text."""
    grammar = tags([ADD, NOW, PLAIN], ["<tool_call>", "<fn="], at_least_one=True)
    chance, ended = random.Random(1), 0
    for _ in range(40):
        matcher, tokens = grammar.matcher(), list[int]()
        for _ in range(120):
            if matcher.may_end and chance.random() < 0.3:
                ended += 1
                text = b"".join(SPACE.vocabulary.piece(token, skip_special=False) for token in tokens)
                assert grammar.accepts(text.decode())
                break
            choices = [token for token in allowed(matcher) if token not in ENDS]
            assert choices, tokens
            liked = [token for token in choices if token >= 256 or token in b'<fn=}]"7']
            plain = [token for token in choices if token < 128]
            token = chance.choice(liked if not plain or (liked and chance.random() < 0.9) else plain)
            assert matcher.accept(token)
            tokens.append(token)
    assert ended > 5


@pytest.mark.parametrize("format", ["hermes", "harmony"])
def test_the_grammars_of_tool_formats(format: str) -> None:
    source = constraint_for(format, [Tool(name="now", strict=True)], "required")
    assert source is not None
    matcher = build(source, SPACE, Limits()).matcher()
    tokens = matcher.forced()
    assert tokens[0] == IDS["<tool_call>" if format == "hermes" else "<|channel|>"]
    if format == "harmony":  # a thought, or the call
        tokens = [*tokens, ord("c")]
    for token in tokens:
        assert matcher.accept(token)
    for token in matcher.forced():
        assert matcher.accept(token)
    assert matcher.may_end


def test_parts() -> None:
    parts = MARKS.parts("a<tool_call>xb</tool_call>")
    assert parts == ("a", Special(IDS["<tool_call>x"], "<tool_call>x"), "b", Special(CLOSE, "</tool_call>"))
    assert [reach(parts, length) for length in (1, 2, 13)] == [parts[:1], parts[:2], parts[:2]]
    assert behind(parts, reach(parts, 5)) == parts[2:]
    assert behind(("abc",), reach(("abc",), 2)) == ("c",)
    assert Marks({}, ()).parts("<tool_call>") == ("<tool_call>",)
