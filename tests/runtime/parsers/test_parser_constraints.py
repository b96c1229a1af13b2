"""Grammars for calls: what they allow is what the parsers read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from output_cases import TOOLS, Case, events_of, parser_of

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.grammar.compile import compile
from palmette.runtime.grammar.protocol import Grammar
from palmette.runtime.messages.grammar import GrammarSource
from palmette.runtime.parsers.constraints import check_tools, closed, constraint_for
from palmette.runtime.parsers.protocol import NamedTool, Tool, collect
from palmette.runtime.parsers.registry import names, tool_format

STRICT = Tool(
    name="paint",
    strict=True,
    parameters={
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "coats": {"type": "integer"}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
OTHER = Tool(name="now")


def compiled(source: GrammarSource | None) -> Grammar:
    assert source is not None
    return compile(source.kind, source.text, **source.options)


def written(format: str, name: str, arguments: str) -> str:
    tag = tool_format(format).tag(name)
    return f"{tag.begin}{arguments}{tag.end}"


@pytest.mark.parametrize("format", names().tools)
def test_required(format: str) -> None:
    grammar = compiled(constraint_for(format, [STRICT, OTHER], "required"))
    red = written(format, "paint", '{"colour": "red"}')
    now = written(format, "now", "{}")
    for text in (red, now, red + now):
        assert grammar.accepts(text)
        calls = collect(events_of(parser_of(Case(id="", tools=format, output=""), [STRICT, OTHER]), [text])).calls
        assert "".join(written(format, call.name, call.arguments) for call in calls) == text
    for text in ("", "Hello", red + "Hello", "Hello" + red, written(format, "paint", '{"colour": "blue"}'),
                 written(format, "other", "{}"), written(format, "now", '{"x": 1}')):  # fmt: skip
        assert not grammar.accepts(text), text


@pytest.mark.parametrize("format", names().tools)
def test_named(format: str) -> None:
    grammar = compiled(constraint_for(format, [STRICT, OTHER], NamedTool("paint")))
    red = written(format, "paint", '{"colour": "red", "coats": 2}')
    assert grammar.accepts(red)
    assert not grammar.accepts(red + red)
    assert not grammar.accepts(written(format, "now", "{}"))


@pytest.mark.parametrize("format", names().tools)
def test_strict_tools_of_a_free_choice(format: str) -> None:
    grammar = compiled(constraint_for(format, [STRICT, OTHER]))
    red = written(format, "paint", '{"colour": "red"}')
    for text in ("Hello.", red, "Hello. " + red, red + red, written(format, "now", '{"any": [1, "x"]}')):
        assert grammar.accepts(text), text
    assert not grammar.accepts(written(format, "paint", '{"colour": "blue"}'))


def test_one_call_at_most() -> None:
    grammar = compiled(constraint_for("hermes", [STRICT, OTHER], "required", parallel=False))
    now = written("hermes", "now", "{}")
    assert grammar.accepts(now)
    assert not grammar.accepts(now + now)


def test_where_nothing_is_asked() -> None:
    assert constraint_for("hermes", [OTHER]) is None
    assert constraint_for("hermes", []) is None
    assert constraint_for("hermes", [STRICT], "none") is None


def test_it_is_plain_data() -> None:
    source = constraint_for("hermes", [OTHER], "required")
    assert source is not None
    assert source.kind == "structural_tag"
    assert json.loads(source.text) == {
        "structures": [
            {
                "begin": '<tool_call>\n{"name": "now", "arguments": ',
                "schema": {"type": "object", "properties": {}, "additionalProperties": False},
                "end": "}\n</tool_call>",
                "best_effort": True,
            }
        ],
        "triggers": ["<tool_call>"],
    }
    assert source.options == {"free_text": False, "at_least_one": True, "stop_after_first": False}


def test_what_no_grammar_holds_to_is_refused_where_it_was_asked_for() -> None:
    strict, answer = Tool(name="held", strict=True), GrammarSource(kind="json_schema", text="{}")
    for tools, choice, wanted, loose in (
        ([OTHER], "required", None, [True]),
        ([OTHER, strict], "required", None, [True, False]),
        ([strict], "auto", None, [False]),
        ([OTHER], "auto", answer, [False]),
    ):
        source = constraint_for("hermes", tools, choice, answer=wanted)  # type: ignore[arg-type]
        assert source is not None
        tags = json.loads(source.text)["structures"]
        assert [tag.get("best_effort", False) for tag in tags] == loose


@pytest.mark.parametrize(
    ("tools", "choice", "says"),
    [
        ([Tool(name="a b")], "auto", "'a b'"),
        ([Tool(name="")], "auto", "''"),
        ([Tool(name="x" * 129)], "auto", "1 to 128"),
        ([OTHER, OTHER], "auto", "Two tools"),
        ([Tool(name=f"t{number}") for number in range(129)], "auto", "129 tools; at most 128"),
        ([OTHER], NamedTool("other"), "'other', which is not among the tools \\(now\\)"),
        ([], NamedTool("other"), "none"),
        ([], "required", "no tools are offered"),
    ],
)
def test_tools_that_can_not_be_offered(tools: list[Tool], choice: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as error:
        check_tools(tools, choice)
    assert error.value.hint
    assert (error.value.param or "").partition(".")[0] in ("tools", "tool_choice")


def test_the_tools_of_the_cases_can_be_offered() -> None:
    check_tools(TOOLS, "required")


@pytest.mark.parametrize("format", names().tools)
def test_calls_or_an_answer_with_a_schema(format: str) -> None:
    answer = GrammarSource(
        kind="json_schema", text='{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    )
    grammar = compiled(constraint_for(format, [STRICT, OTHER], answer=answer))
    red = written(format, "paint", '{"colour": "red"}')
    seven, text_seven = ('{"n": 7}', '{"n": "7"}')
    if format == "harmony":
        seven, text_seven = (f"<|channel|>final<|message|>{said}<|return|>" for said in (seven, text_seven))
    for text in (seven, red, written(format, "now", "{}")):
        assert grammar.accepts(text), text
    both = () if format == "harmony" else (seven + red, red + seven)  # there each ends the turn, by its end token
    for text in ("", "Hello", text_seven, *both):
        assert not grammar.accepts(text), text
    must = constraint_for(format, [STRICT, OTHER], "required", answer=answer)
    assert not compiled(must).accepts(seven)


def test_references_of_an_answer_and_of_tools_stay_apart() -> None:
    tree = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "x": {"$ref": "#/$defs/X"}},
        "additionalProperties": False,
    }
    answer = GrammarSource(kind="json_schema", text=json.dumps({**tree, "$defs": {"X": {"type": "integer"}}}))
    tool = Tool(name="f", strict=True, parameters={**tree, "$defs": {"X": {"type": "string"}}})
    grammar = compiled(constraint_for("json", [tool], answer=answer))
    for text in ('{"next": {"x": 1}}', '{"name": "f", "arguments": {"next": {"x": "a"}}}'):
        assert grammar.accepts(text), text
    assert not grammar.accepts('{"name": "f", "arguments": {"next": {"x": 1}}}')


def test_only_some_of_the_tools() -> None:
    for choice in ("auto", "required"):
        grammar = compiled(constraint_for("hermes", [STRICT, OTHER], choice, allowed={"now"}))  # type: ignore[arg-type]
        assert grammar.accepts(written("hermes", "now", "{}"))
        assert not grammar.accepts(written("hermes", "paint", '{"colour": "red"}'))
        assert grammar.accepts("Hello") == (choice == "auto")
    for allowed in ((), ("other",)):
        with pytest.raises(InvalidRequest, match="tool_choice"):
            constraint_for("hermes", [STRICT, OTHER], allowed=allowed)


def test_what_a_schema_does_not_name_is_not_said() -> None:
    inner = {"type": "object", "properties": {"x": {}, "allOf": {"const": {"properties": {}}}}}
    schema = {
        "type": "object",
        "properties": {"a": inner, "b": {"type": "array", "items": inner}, "c": {"$ref": "#/$defs/D"}},
        "$defs": {"D": {"anyOf": [inner, {"type": "null"}]}},
    }
    shut = {**inner, "additionalProperties": False}
    assert closed(schema) == {
        "type": "object",
        "properties": {"a": shut, "b": {"type": "array", "items": shut}, "c": {"$ref": "#/$defs/D"}},
        "$defs": {"D": {"anyOf": [shut, {"type": "null"}]}},
        "additionalProperties": False,
    }
    for open_schema in (
        {"type": "object"},
        {"properties": {}, "additionalProperties": {"type": "string"}},
        {"allOf": [schema, schema]},
        {"properties": {"a": {"allOf": [inner, inner]}}},
        {**schema, "anyOf": [{"required": ["a"]}, {"required": ["d"]}]},
        {**inner, "$ref": "#/$defs/X", "$defs": {"X": inner}},
        {**inner, "if": {"required": ["x"]}, "then": {"properties": {"y": {}}}},
        True,
    ):
        assert closed(open_schema) == open_schema


X = {"type": "integer"}
ODD_SCHEMAS: list[tuple[str, Any, Any, Any]] = [  # a schema of arguments, arguments that are valid, and that aren't
    ("properties named as keywords that hold data",
     {"type": "object", "properties": {"default": {"$ref": "#/$defs/x"}, "enum": {"$ref": "#/$defs/x"}},
      "required": ["default", "enum"], "$defs": {"x": X}}, {"default": 1, "enum": 2}, {"default": 1, "enum": "2"}),
    ("a property that is the whole again",
     {"type": "object", "properties": {"const": {"$ref": "#"}, "a": X}}, {"const": {"a": 1}}, {"const": {"ok": True}}),
    ("definitions named as keywords",
     {"type": "object", "properties": {"a": {"$ref": "#/$defs/properties"}}, "required": ["a"],
      "$defs": {"properties": {"type": "object", "properties": {"b": X}, "required": ["b"]}}},
     {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}),
    ("an anchor", {"type": "object", "properties": {"a": {"$ref": "#here"}}, "$defs": {"q": {"$anchor": "here", **X}}},
     {"a": 1}, {"a": None}),
    ("a name of its own", {"$id": "https://example.org/s", "type": "object", "properties": {"a": {"$ref": "#/$defs/q"}},
                           "$defs": {"q": X}}, {"a": 1}, {"a": None}),
    ("recursion",
     {"type": "object", "properties": {"of": {"type": "array", "items": {"$ref": "#"}}}, "required": ["of"]},
     {"of": [{"of": []}]}, {"of": [{"ok": True}]}),
    ("data that look like references", {"type": "object", "properties": {"a": {"const": {"$ref": "#/x"}}}},
     {"a": {"$ref": "#/x"}}, {"a": {"$ref": "#/$defs/arguments_0/x"}}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), [c[1:] for c in ODD_SCHEMAS], ids=[c[0] for c in ODD_SCHEMAS])
@pytest.mark.parametrize("format", ["hermes", "llama_json", "json"])
@pytest.mark.parametrize("strict", [True, False])
def test_references_of_a_tools_schema_stay_inside_it(
    format: str, strict: bool, schema: Any, valid: Any, invalid: Any
) -> None:
    tools = [Tool(name="f", parameters=schema, strict=strict), Tool(name="g", parameters=schema, strict=strict)]
    ok = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"], "additionalProperties": False}
    answer = GrammarSource(kind="json_schema", text=json.dumps(ok))
    for choice, said in (("required", None), ("auto", answer)):
        grammar = compiled(constraint_for(format, tools, choice, answer=said))  # type: ignore[arg-type]
        for tool in tools:
            assert grammar.accepts(written(format, tool.name, json.dumps(valid)))
            assert not grammar.accepts(written(format, tool.name, json.dumps(invalid)))
        assert grammar.accepts('{"ok": true}') == (said is not None)
