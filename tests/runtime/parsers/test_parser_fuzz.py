"""Anything at all as an output: no parser raises, loses words, depends on the cuts, or takes more than linear time."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from output_cases import CASES, TOOLS, Case, cut, events_of, parser_of

from palmette.runtime.parsers.protocol import collect
from palmette.runtime.parsers.registry import Formats, names, tool_format

FORMATS = [
    (name, "harmony" if name == "harmony" else "gemma4" if name == "gemma4" else "think") for name in names().tools
]
REWRITTEN = (
    "qwen3_coder",
    "glm",
    "deepseek_v32",
    "deepseek_v4",
    "minimax_m2",
    "pythonic",
    "gemma_tool_code",
    "seed_oss",
)
COMMON = [
    "{", "}", "[", "]", '"', "'", "\\", ",", ":", "(", ")", "=", "\n", " ", "```", "```json", "<", ">", "|", "/", "é🌍",
    '"name"', '"arguments": ', '"parameters": {', '{"name": "now", ', '{"name": "get_weather", "arguments": {',
    '"tool_calls": [', "now", "get_weather", "city=", "functions.now:0", "call:now{", "\\u00", "\ud7ff", "None", "-1.5",
]  # fmt: skip


def pieces_for(name: str, reasoning: str) -> st.SearchStrategy[list[str]]:
    marks = sorted(Formats(tools=name, reasoning=reasoning).marks)
    halves = [mark[: len(mark) // 2] for mark in marks] + [mark[len(mark) // 2 :] for mark in marks]
    rendered = [case.output for case in CASES if case.tools == name]
    slices = st.sampled_from(rendered or [""]).flatmap(
        lambda text: st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(
            lambda at: text[min(at) : max(at)]
        )
    )
    return st.lists(st.one_of(st.sampled_from(marks), st.sampled_from(COMMON + halves), st.text(max_size=4), slices))


@pytest.mark.parametrize(("name", "reasoning"), FORMATS)
def test_anything_is_parsed_the_same_however_it_comes(name: str, reasoning: str) -> None:
    @settings(max_examples=60)
    @given(pieces=pieces_for(name, reasoning), data=st.data())
    def check(pieces: list[str], data: st.DataObject) -> None:
        case = Case(id="", tools=name, thinks=reasoning, output="".join(pieces))
        whole = events_of(parser_of(case), [case.output])
        assert events_of(parser_of(case), pieces) == whole
        assert events_of(parser_of(case), case.output) == whole
        at = data.draw(st.lists(st.integers(0, len(case.output)), max_size=5))
        assert events_of(parser_of(case), cut(case.output, at)) == whole
        if name in REWRITTEN:
            for call in collect(whole).calls:
                if call.finished and not re.search(r"\{\s*\"", case.output):
                    assert isinstance(json.loads(call.arguments), dict), call

    check()


@pytest.mark.parametrize(("name", "reasoning"), FORMATS)
def test_plain_text_is_left_alone(name: str, reasoning: str) -> None:
    marks = "|".join(re.escape(mark) for mark in Formats(tools=name, reasoning=reasoning).marks) or "$^"

    @settings(max_examples=60)
    @given(text=st.text().filter(lambda text: not re.search(marks, text)))
    def check(text: str) -> None:
        case = Case(id="", tools=name, thinks=reasoning, output=text)
        found = collect(events_of(parser_of(case), [text]))
        assert found.text == text
        assert not found.calls
        assert not found.reasoning

    check()


@pytest.mark.parametrize(("name", "reasoning"), FORMATS)
def test_no_word_is_lost(name: str, reasoning: str) -> None:
    """Markers in any order with words between them: each word is in the text, the reasoning or a call, once.

    But for what was about to become a parameter's name in a call that was cut off, and Harmony's headers.
    """
    marks = sorted(Formats(tools=name, reasoning=reasoning).marks)
    glue = [
        '{"name": "now", "arguments": {"k": "',
        '"}}',
        '{"',
        '"',
        "{",
        "}",
        "[now(k=",
        "=",
        ")",
        "]",
        " ",
        "\n",
        "call:now{k:",
    ]

    @settings(max_examples=100)
    @given(order=st.lists(st.sampled_from([*marks, *glue, "WORD"]), max_size=14))
    def check(order: list[str]) -> None:
        numbers = iter(range(100))
        output = "".join(f"w{next(numbers)}x" if piece == "WORD" else piece for piece in order)
        case = Case(id="", tools=name, thinks=reasoning, output=output)
        found = collect(events_of(parser_of(case), [output]))
        said = [
            found.text,
            found.reasoning,
            *(part for call in found.calls for part in (call.name, call.id, call.arguments)),
        ]
        words = re.findall(r"w\d+x", "\n".join(said))
        missing = set(re.findall(r"w\d+x", output)) - set(words)
        if name == "harmony":
            missing -= set(
                re.findall(r"w\d+x", " ".join(re.findall(r"(?s)<\|(?:start|channel)\|>.*?<\|message\|>", output)))
            )
        if found.truncated:
            missing -= set(re.findall(r"w\d+x", output[output.rindex(found.calls[-1].name) :]))
        assert not missing, (output, found)

    check()


def hostile(name: str, reasoning: str) -> list[str]:
    """Beginnings and middles that a parser might look at again and again."""
    rendered = next((case.output for case in CASES if case.tools == name and case.calls), "")
    opened = rendered[: rendered.rfind('"') + 1] if '"' in rendered else rendered[: len(rendered) // 2]
    marks = sorted(Formats(tools=name, reasoning=reasoning).marks)
    return [
        "".join(marks), *(mark[:-1] for mark in marks[:3]), "[", "{", "{\"", "\n", "<", "`", "now(", rendered,
        opened + "\\", "<think>",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "reasoning"), FORMATS)
def test_nothing_nests_too_deeply(name: str, reasoning: str) -> None:
    case = Case(id="", tools=name, thinks=reasoning, output="")
    begin = tool_format(name).tag("get_weather").begin
    values = '"options": ', "options=", '"places": [', "options:{"
    for unit in ("[", "{", "(", '{"a":', '{"function": ', '{"tool_calls": [', '{"arguments": ', "<think>", *values):
        for lead in ("", begin, begin + '{"places": ', begin.removesuffix("(") + "(places="):
            events_of(parser_of(case), [lead + unit * 3_000])


def test_long_arguments_take_linear_time() -> None:
    case = Case(id="", tools="hermes", output="")
    call = '<tool_call>{"name": "now", "arguments": {"x": "%s"}}</tool_call>'
    for tries in range(3):
        short, long = (seconds(case, call % ("abc\\n" * times), 4) for times in (4_000, 32_000))
        if long / short < 24:
            break
        assert tries < 2, (short, long)


def seconds(case: Case, output: str, size: int) -> float:
    pieces = [output[at : at + size] for at in range(0, len(output), size)]
    parser = parser_of(case, TOOLS)
    begin = time.process_time()
    for piece in pieces:
        parser.push(piece)
    parser.finish()
    return time.process_time() - begin


@pytest.mark.parametrize(("name", "reasoning"), FORMATS)
def test_time_is_linear(name: str, reasoning: str) -> None:
    """Eight times the text takes some eight times as long, not sixty: in one piece, and in small ones."""
    case = Case(id="", tools=name, thinks=reasoning, output="")
    for size, length in ((1 << 30, 4_000), (3, 600)):
        for unit in hostile(name, reasoning):
            for tries in range(3):
                short = unit * (length // len(unit) + 1)
                ratio = seconds(case, short * 8, size) / max(seconds(case, short, size), 50e-6)
                if ratio < 24:
                    break
                assert tries < 2, (unit, size, ratio)
