"""Every format: what its published rendering means, however it is cut, and what is left when it ends too early."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from output_cases import BY_ID, CASES, Case, cut, events_of, joined, parsed, parser_of

from palmette.runtime.parsers.emitter import call_id, short_call_id
from palmette.runtime.parsers.parser import output_parser
from palmette.runtime.parsers.protocol import ArgumentsDelta, CallBegun, Event, Tool, collect
from palmette.runtime.parsers.registry import Formats, names, tool_format

cases = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@cases
def test_meaning(case: Case) -> None:
    found = parsed(case)
    assert found.text == case.text
    assert found.reasoning == case.reasoning
    assert [call.name for call in found.calls] == [name for name, _ in case.calls]
    for index, (call, (_, arguments)) in enumerate(zip(found.calls, case.calls, strict=True)):
        assert call.finished == (index not in case.unfinished)
        if call.finished:
            assert json.loads(call.arguments) == arguments
    assert found.truncated == bool(case.unfinished)


@cases
def test_every_cut_in_two_says_the_same(case: Case) -> None:
    whole = events_of(parser_of(case), [case.output])
    for at in range(1, len(case.output)):
        assert events_of(parser_of(case), cut(case.output, [at])) == whole, at


@cases
def test_character_by_character_says_the_same(case: Case) -> None:
    assert events_of(parser_of(case), case.output) == events_of(parser_of(case), [case.output])
    assert events_of(parser_of(case), [piece for one in case.output for piece in ("", one, "")]) == events_of(
        parser_of(case), [case.output]
    )


@settings(max_examples=150)
@given(case=st.sampled_from(CASES), data=st.data())
def test_random_cuts_say_the_same(case: Case, data: st.DataObject) -> None:
    at = data.draw(st.lists(st.integers(0, len(case.output)), max_size=12))
    assert events_of(parser_of(case), cut(case.output, at)) == events_of(parser_of(case), [case.output])


@cases
def test_what_was_said_stays_said(case: Case) -> None:
    """Events of a beginning are the beginning of the events; and at its end every beginning is readable."""
    whole = events_of(parser_of(case), [case.output])
    full = collect(whole)
    for at in range(len(case.output) + 1):
        parser = parser_of(case)
        pushed = joined(parser.push(case.output[:at]))
        assert starts(whole, pushed), (at, pushed)
        found = collect(pushed + parser.finish())
        assert len(found.calls) <= len(full.calls)
        for call, complete in zip(found.calls, full.calls, strict=False):
            assert (call.name, call.id) == (complete.name, complete.id)
            if call.finished:
                assert call == complete
        assert not any(not call.finished for call in found.calls[:-1])


def starts(whole: list[Event], beginning: list[Event]) -> bool:
    if not beginning:
        return True
    *before, last = beginning
    if before != whole[: len(before)] or len(before) >= len(whole):
        return False
    match = whole[len(before)]
    if last == match:
        return True
    text = getattr(last, "text", None)
    return text is not None and type(match) is type(last) and match.text.startswith(text)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "id", ["hermes-awkward", "llama-awkward", "mistral-awkward", "deepseek-v3-awkward", "kimi-awkward"]
)
def test_json_arguments_stream_as_they_are(id: str) -> None:
    """Nothing of the arguments is held back, nor written anew: a call cut off has their beginning."""
    case = BY_ID[id]
    begin = case.output.index('{"city"')
    complete = parsed(case).calls[0].arguments
    assert complete in case.output
    for length in range(1, len(complete)):
        call = parsed(case, case.output[: begin + length]).calls[0]
        assert call.arguments == complete[:length]
        assert not call.finished


@settings(max_examples=200)
@given(text=st.text() | st.text(alphabet="'\"\\\n{}é🌍\x00ab "), size=st.integers(1, 7))
def test_any_string_comes_through_python(text: str, size: int) -> None:
    in_three = ascii(text)[1:-1].replace('"', '\\"')
    for written in (repr(text), json.dumps(text), f"'' {text!r}\n''", f'"""{in_three} """[:-1]'):
        output = f"[now(x={written})]"
        events = events_of(parser_of(BY_ID["pythonic"]), [output[at : at + size] for at in range(0, len(output), size)])
        (call,) = collect(events).calls
        assert json.loads(call.arguments)["x"] == text + (" [:-1]" if written.startswith('"""') else "")


@settings(max_examples=100)
@given(text=st.text(), size=st.integers(1, 7))
def test_any_string_comes_through_gemma(text: str, size: int) -> None:
    output = f'<|tool_call>call:now{{x:<|"|>{text}<|"|>, y:[<|"|>{text}<|"|>]}}<tool_call|>'
    events = events_of(parser_of(BY_ID["gemma4"]), [output[at : at + size] for at in range(0, len(output), size)])
    (call,) = collect(events).calls
    assert json.loads(call.arguments) == {"x": text, "y": [text]}


@pytest.mark.parametrize("id", ["pythonic-code", "gemma4-code", "qwen3-coder-code", "deepseek-v4"])
def test_string_parameters_stream(id: str) -> None:
    case = BY_ID[id]
    parser = parser_of(case)
    events = parser.push(case.output[: case.output.index("return") + 3])
    said = "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
    assert json.loads(said + '"}')["code"].endswith("ret")


def test_only_what_may_be_a_marker_is_held_back() -> None:
    case = BY_ID["hermes"]
    parser = parser_of(case)
    assert collect(parser.push("I <b>look</b> <tool")).text == "I <b>look</b>"
    assert collect(parser.push("box> and <")).text == " <toolbox> and"
    assert collect(parser.push("tool_call> {")).text == ""
    assert collect(parser.push("x")).text == " <tool_call> {x"
    assert collect(parser.push("x ") + parser.finish()).text == "x "


def test_a_call_begins_as_soon_as_it_is_certain() -> None:
    parser = parser_of(BY_ID["hermes"])
    assert parser.push('<tool_call>\n{"name": "now", "arguments": ') == []
    assert parser.push("{") == [CallBegun(0, "id0", "now"), ArgumentsDelta(0, "{")]


def test_ids_are_unique_and_as_the_templates_want_them() -> None:
    two = '<tool_call>{"name": "now"}</tool_call>' * 2
    parser = output_parser(Formats(tools="hermes"), [Tool(name="now")])
    first, second = collect(parser.push(two)).calls
    assert first.id != second.id
    for id in (first.id, second.id):
        assert len(id) == len("call_") + 24
        assert id.startswith("call_")
        assert id[5:].isalnum()
    assert len({call_id() for _ in range(1000)}) == 1000
    mistral = output_parser(Formats(tools="mistral"), [Tool(name="now")])
    (call,) = collect(mistral.push("[TOOL_CALLS]now{}")).calls
    assert len(call.id) == 9
    assert call.id.isascii()
    assert call.id.isalnum()
    assert len({short_call_id() for _ in range(1000)}) == 1000
    kimi = parsed(BY_ID["kimi"])
    assert [call.id for call in kimi.calls] == ["functions.get_weather:0", "functions.now:1"]
    again = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>" * 2
    ids = [call.id for call in parsed(BY_ID["kimi"], again).calls]
    assert ids == ["functions.now:0", "functions.now:1"]
    unnumbered = "<|tool_call_begin|>now<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert [call.id for call in parsed(BY_ID["kimi"], unnumbered).calls] == ["functions.now:0"]


def test_without_known_tools_a_call_without_marker_comes_first_or_not_at_all() -> None:
    call = '{"name": "f", "parameters": {"x": 1}}'
    case = msgspec.structs.replace(BY_ID["llama"], output=call)
    found = collect(events_of(parser_of(case, tools=()), [call]))
    assert [one.name for one in found.calls] == ["f"]
    later = collect(events_of(parser_of(case, tools=()), [f"So: {call}"]))
    assert later.calls == ()
    assert later.text == f"So: {call}"


@pytest.mark.parametrize("name", names().tools)
def test_a_call_of_every_format_is_read_as_its_grammar_writes_it(name: str) -> None:
    tag = tool_format(name).tag("get_weather")
    assert tag.begin.startswith(tag.trigger)
    arguments = BY_ID["json-single"].calls[0][1]
    for text in (json.dumps(arguments), json.dumps(arguments, indent=1), "{}"):
        case = Case(id="", tools=name, output="", thinks="none")
        output = f"{tag.begin}{text}{tag.end}" * 2
        found = parsed(case, output)
        assert [json.loads(call.arguments) for call in found.calls] == [json.loads(text)] * 2
        assert all(call.finished and call.name == "get_weather" for call in found.calls)
        assert found.text == ""
        assert collect(events_of(parser_of(case), output)) == found
