"""The optional backend: what it is trusted with holds, the rest is refused or judged."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

xgrammar = pytest.importorskip("xgrammar", reason="the optional backend xgrammar isn't installed")

from real_schemas import REAL  # noqa: E402
from schema_cases import EOS, SPACE, allowed, generate  # noqa: E402
from wild_schemas import WILD  # noqa: E402

from palmette.runtime.errors import GrammarError  # noqa: E402
from palmette.runtime.grammar.compile import Compiler, build  # noqa: E402
from palmette.runtime.grammar.compiling import contained  # noqa: E402
from palmette.runtime.grammar.protocol import Grammar, GrammarSource, Judges, Limits, Matcher  # noqa: E402
from palmette.runtime.grammar.schema.compile import SchemaGrammar  # noqa: E402
from palmette.runtime.grammar.xgr import XgrGrammar  # noqa: E402

SCHEMAS = [schema for cases in REAL.values() for schema, _, _ in cases]
SCHEMAS += [schema for cases in WILD.values() for schema, _ in cases]
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "label": {"enum": ["a", "bc"]}},
    "required": ["x", "label"],
    "additionalProperties": False,
}


def compiled(schema: Any, **options: Any) -> Grammar:
    source = GrammarSource(kind="json_schema", text=json.dumps(schema), options={"backend": "xgrammar", **options})
    return build(source, SPACE, Limits())


def made(matcher: Matcher, chance: random.Random, tokens: int) -> str | None:
    """A random text; none where its bytes are no UTF-8, which strings of xgrammar let through."""
    try:
        return generate(matcher, chance, tokens)
    except UnicodeDecodeError:
        return None


def random_schema(chance: random.Random, depth: int = 3) -> Any:
    """Of the keywords that it is trusted with."""
    inner = lambda: random_schema(chance, depth - 1)  # noqa: E731
    kinds = ["integer", "string", "boolean", "null", "number", "enum", "const"]
    match chance.choice(kinds + (["object", "array", "anyOf", "tuple", "many"] if depth else [])):
        case "enum":
            return {"enum": chance.sample([1, "a", None, True, "b c", 2.5], 2)}
        case "const":
            return {"const": chance.choice([3, "x", False])}
        case "anyOf":
            return {"anyOf": [inner(), inner()]}
        case "many":
            return {"type": chance.sample(["string", "integer", "null", "boolean"], 2)}
        case "array":
            return {"type": "array", "items": inner(), **chance.choice([{}, {"minItems": 1}, {"maxItems": 2}])}
        case "tuple":
            return {"type": "array", "prefixItems": [inner(), inner()], "items": False, "minItems": 2}
        case "object":
            names = chance.sample(["a", "b", "c d", "é"], chance.randint(0, 3))
            required = [name for name in names if chance.random() < 0.5]
            whole = {"type": "object", "properties": {name: inner() for name in names}, "required": required}
            return {**whole, "additionalProperties": chance.choice([False, False, inner()])}
        case kind:
            return {"type": kind}


def test_masks_forced_text_and_rollback() -> None:
    matcher = compiled(POINT).matcher()
    assert matcher.forced_bytes() == b'{"x": '
    assert b'{"x": '.startswith(SPACE.vocabulary.text(matcher.forced()))
    for byte in b'{"x": 1, "label": "a"}':
        assert byte in allowed(matcher)
        assert matcher.accept(byte)
    assert (matcher.may_end, matcher.complete, matcher.ended) == (True, True, False)
    fork = matcher.copy()
    assert matcher.accept(EOS)
    assert matcher.ended
    assert allowed(matcher) == []
    matcher.rollback(2)
    assert allowed(matcher) == [ord("}")]
    assert not matcher.accept(ord("x"))
    assert fork.complete
    with pytest.raises(ValueError, match="can't take back"):
        matcher.rollback(100)


def test_what_it_is_trusted_with_holds() -> None:
    chance, ended = random.Random(1), 0
    for _ in range(300):
        schema = random_schema(chance)
        try:
            grammar = compiled(schema)
        except GrammarError:
            continue
        for _ in range(2):
            text = made(grammar.matcher(), chance, 80)
            if text is not None:
                ended += 1
                assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)), (schema, text)
    assert ended > 100


def test_schemas_of_many_kinds_are_refused_or_held() -> None:
    taken = 0
    for index, schema in enumerate(SCHEMAS):
        try:
            grammar = compiled(schema)
        except GrammarError:
            continue
        taken += 1
        judge = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
        text = made(grammar.matcher(), random.Random(index), 200)
        assert text is None or judge.is_valid(json.loads(text)), (schema, text)
    assert taken > len(SCHEMAS) // 10


def test_the_backend_of_a_compiler() -> None:
    compiler = Compiler(SPACE, schema_backend="xgrammar")
    schema = json.dumps(POINT)
    assert isinstance(compiler.compile(GrammarSource(kind="json_schema", text=schema)), XgrGrammar)
    other = GrammarSource(kind="json_schema", text=schema, options={"backend": "llguidance"})
    assert isinstance(compiler.compile(other), SchemaGrammar)
    compiler.close()


def test_what_it_drops_is_refused_or_judged() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    with pytest.raises(GrammarError, match="'uniqueItems' at # isn't held to"):
        compiled(schema)
    grammar = compiled(schema, best_effort=True)
    assert isinstance(grammar, Judges)
    assert grammar.fault_of("[1, 1]") == "'uniqueItems' of #"
    assert grammar.fault_of("[1, 2]") is None
    assert not grammar.accepts("[1, 1]")
    assert grammar.accepts("[1, 2]")
    schema = {"type": "string", "maxLength": 3}
    with pytest.raises(GrammarError, match="'maxLength' at # isn't held to"):
        compiled(schema)
    grammar = compiled(schema, best_effort=True)
    assert isinstance(grammar, Judges)
    assert grammar.fault_of('"\x0c"') == "JSON's syntax"
    assert not grammar.accepts('"\x0c"')


def test_a_child_builds_it_before_the_engines_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(SPACE, schema_backend="xgrammar")
    source = GrammarSource(kind="json_schema", text=json.dumps(POINT))
    grammar = compiler.submit(source).result()
    assert isinstance(grammar, XgrGrammar)
    assert grammar.accepts('{"x": 1, "label": "bc"}')
    assert compiler._children._idle
    refused = GrammarSource(kind="json_schema", text='{"type": "string", "maxLength": 3}')
    with pytest.raises(GrammarError, match="'maxLength' at # isn't held to"):
        compiler.submit(refused).result()
    compiler.close()
    monkeypatch.setattr(contained, "MEMORY_BYTES", 8 << 20)
    compiler = Compiler(SPACE, schema_backend="xgrammar")
    large = {"enum": [f"{number} of many" for number in range(30_000)]}
    with pytest.raises(GrammarError, match=r"more than 8 MiB|the process that did it ended|bad_alloc"):
        compiler.submit(GrammarSource(kind="json_schema", text=json.dumps(large))).result()
    compiler.close()
