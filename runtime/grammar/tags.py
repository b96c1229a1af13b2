"""Structural tags: free text in which a begin tag switches a schema on, until its end tag.

The source is JSON: {"structures": [{"begin", "schema", "end"}, …], "triggers": […]}. Free text goes on until a trigger
stands in it; then a begin tag that starts with the trigger must follow it, an instance of its schema, and its end tag.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.llg import LlgGrammar
from palmette.runtime.grammar.protocol import GrammarSource, Limits, TokenSpace
from palmette.runtime.grammar.schema.compile import CompiledSchema, SchemaOptions
from palmette.runtime.grammar.schema.json_strings import literal

MAX_TAGS = 128
_NUMERAL = "0123456789.eE+-"


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    begin: str
    end: str
    schema: Any = msgspec.field(default_factory=dict)


class TagsSource(msgspec.Struct, frozen=True, kw_only=True):
    """`triggers`: without any, the begin tags themselves."""

    structures: list[Tag]
    triggers: list[str] = []
    type: str = "structural_tag"


class TagOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`free_text`: text before, between and after tags. `at_least_one`: it can't end before a tag was closed.

    `stop_after_first`: the output ends with the first end tag. The others are the schemas' (SchemaOptions).
    """

    free_text: bool = True
    at_least_one: bool = False
    stop_after_first: bool = False
    best_effort: bool = False
    compact: bool = False
    formats: bool = True


def _read(text: str) -> TagsSource:
    try:
        value = json.loads(text)
        if isinstance(value, dict) and "tags" in value and "structures" not in value:
            value = {**value, "structures": value["tags"]}
        given = msgspec.convert(value, TagsSource)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise GrammarError(
            f"The structural tag is not as it should be: {error}.",
            hint='It is {"structures": [{"begin": …, "schema": …, "end": …}], "triggers": […]}.',
            param="structural_tag",
        ) from None
    if not 0 < len(given.structures) <= MAX_TAGS:
        raise GrammarError(
            f"{len(given.structures)} structures; from 1 to {MAX_TAGS} are possible.", param="structural_tag"
        )
    for tag in given.structures:
        if not tag.begin or not tag.end or tag.end[0] in _NUMERAL:
            raise GrammarError(
                f"The tag {tag.begin!r} … {tag.end!r} has an empty side, or an end that could go on a number.",
                hint="Give both sides a text, such as '<call>' and '</call>'.",
                param="structural_tag",
            )
    for trigger in given.triggers:
        if not trigger or not any(tag.begin.startswith(trigger) for tag in given.structures):
            raise GrammarError(f"The trigger {trigger!r} begins no tag.", param="structural_tag")
    return given


def lark_of(text: str, options: TagOptions, limits: Limits) -> str:
    """The tags in llguidance's Lark. Raises GrammarError."""
    given = _read(text)
    triggers = list(dict.fromkeys(given.triggers or [tag.begin for tag in given.structures]))
    for tag in given.structures:
        if options.free_text and not any(tag.begin.startswith(trigger) for trigger in triggers):
            raise GrammarError(f"No trigger begins the tag {tag.begin!r}.", param="structural_tag")
    schema_options = SchemaOptions(best_effort=options.best_effort, compact=options.compact, formats=options.formats)
    lines: list[str] = []
    bodies: list[str] = []
    for index, tag in enumerate(given.structures):
        compiled = CompiledSchema(json.dumps(tag.schema), schema_options, limits, prefix=f"s{index}x")
        lines += compiled.lines
        bodies.append(f"{compiled.rule} {literal(tag.end)}")
    if not options.free_text:
        parts = [f"{literal(tag.begin)} {body}" for tag, body in zip(given.structures, bodies, strict=True)]
        repeat = "" if options.stop_after_first else "+" if options.at_least_one else "*"
        return "\n".join([f"start: tag{repeat}", f"tag: {' | '.join(parts)}", *lines])
    any_trigger = f"({' | '.join(literal(trigger) for trigger in triggers)})"
    calls: list[str] = []
    for number, trigger in enumerate(triggers):
        # up to the first place where a trigger ends
        lines.append(f"HEAD{number}: (/(?s:.*)/ {literal(trigger)}) & ~(/(?s:.*)/ {any_trigger} /(?s:.+)/)")
        for tag, body in zip(given.structures, bodies, strict=True):
            if tag.begin.startswith(trigger):
                rest = tag.begin[len(trigger) :]
                calls.append(" ".join(filter(None, [f"HEAD{number}", literal(rest) if rest else "", body])))
    lines.append(f"TEXT: /(?s:.+)/ & ~(/(?s:.*)/ {any_trigger} /(?s:.*)/)")
    repeat = "" if options.stop_after_first else "+" if options.at_least_one else "*"
    tail = "" if options.stop_after_first else " (TEXT)?"
    start = f"start: call{repeat}{tail}"
    if options.stop_after_first and not options.at_least_one:
        start = "start: call | (TEXT)?"
    return "\n".join([start, f"call: {' | '.join(calls)}", *lines])


def build(source: GrammarSource, space: TokenSpace, limits: Limits) -> LlgGrammar:
    """The kind "structural_tag"."""
    try:
        options = msgspec.convert(dict(source.options), TagOptions)
    except msgspec.ValidationError as error:
        raise GrammarError(f"An option of the structural tag is wrong: {error}.", param="options") from None
    return LlgGrammar(source, space, lark_of(source.text, options, limits))
