"""Structural tags: free text in which a begin tag switches a schema on, until its end tag.

The source is JSON: {"structures": [{"begin", "schema", "end"}, …], "triggers": […]}. Free text goes on until a trigger
stands in it; then a begin tag that starts with the trigger must follow it, an instance of its schema, and its end tag.

With an `answer`, the schema of what may stand in place of all tags, the output is tags alone or that answer.

Where a part of a tag is a special token of the vocabulary it is matched by that token's id, and free text can't spell
what begins a tag in other tokens. A tag whose end is an EOS token ends the output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import thread_time
from typing import Any

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.schema.compile import CompiledSchema, SchemaOptions
from palmette.runtime.grammar.schema.json_strings import literal
from palmette.runtime.grammar.tag_marks import Marks, Part, Special, behind, reach

MAX_TAGS = 128
_NUMERAL = "0123456789.eE+-"


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """`best_effort`: of its schema, as the option of all."""

    begin: str
    end: str
    schema: Any = msgspec.field(default_factory=dict)
    best_effort: bool = False


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """Any text between two markers."""

    begin: str
    end: str


class TagsSource(msgspec.Struct, frozen=True, kw_only=True):
    """`triggers`: without any, the begin tags themselves."""

    structures: list[Tag]
    triggers: list[str] = []
    answer: Any = None
    type: str = "structural_tag"


class TagOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`free_text`: text before, between and after tags. `at_least_one`: it can't end before a tag was closed.

    `stop_after_first`: the output ends with the first end tag. `free_special`: special tokens that free text may hold.
    `before`: what may come first where there is no free text, as often as it likes: thoughts, say. The others are the
    schemas' (SchemaOptions).
    """

    free_text: bool = True
    at_least_one: bool = False
    stop_after_first: bool = False
    free_special: list[str] = []
    before: list[Quote] = []
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
            f"{len(given.structures)} structures; from 1 to {MAX_TAGS} are possible.",
            hint="Give fewer tags.",
            param="structural_tag",
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
            raise GrammarError(
                f"The trigger {trigger!r} begins no tag.",
                hint="A trigger is what some tags begin with.",
                param="structural_tag",
            )
    return given


class _Schemas:
    """The schemas of the tags, and that of the answer, compiled. Raises GrammarError that names the tag."""

    def __init__(self, given: TagsSource, options: TagOptions, limits: Limits) -> None:
        self._options = SchemaOptions(best_effort=options.best_effort, compact=options.compact, formats=options.formats)
        self._limits = limits
        self._until = thread_time() + limits.seconds  # of all together
        self.tags = [
            self._compiled(tag.schema, f"s{index}x", f"the tag {tag.begin!r}", best_effort=tag.best_effort)
            for index, tag in enumerate(given.structures)
        ]
        answer = given.answer
        self.answer = None if answer is None else self._compiled(answer, "answer_", "the answer")

    def _compiled(self, schema: Any, prefix: str, of: str, *, best_effort: bool = False) -> CompiledSchema:
        options = self._options
        if best_effort:
            options = msgspec.structs.replace(options, best_effort=True)
        limits = msgspec.structs.replace(self._limits, seconds=self._until - thread_time())
        try:
            return CompiledSchema(json.dumps(schema), options, limits, prefix=prefix)
        except GrammarError as error:
            what = f"The schema of {of} can't be used. {error.message}"
            raise type(error)(what, hint=error.hint, param="structural_tag") from error


def lark_of(given: TagsSource, schemas: _Schemas, options: TagOptions, marks: Marks) -> str:
    """The tags in llguidance's Lark. Raises GrammarError."""
    triggers = list(dict.fromkeys(given.triggers or [tag.begin for tag in given.structures]))
    lines: list[str] = []
    calls: list[_Call] = []
    for tag, compiled in zip(given.structures, schemas.tags, strict=True):
        own = [trigger for trigger in triggers if tag.begin.startswith(trigger)]
        if options.free_text and not own:
            raise _error(f"No trigger begins the tag {tag.begin!r}.")
        lines += compiled.lines
        begin, end = marks.parts(tag.begin), marks.parts(tag.end)
        last = marks.ends(end[-1])
        for part in (*begin, *end[:-1]):
            if marks.ends(part):
                raise _error(f"The tag {tag.begin!r} … {tag.end!r} goes on behind {part!s}, which ends the output.")
        body = f"{compiled.rule} {_symbols(end[:-1] if last else end)}".rstrip()
        calls.append(_Call(begin, body, last, tuple(own)))
    if options.free_text and given.answer is not None:
        raise _error("An answer with a schema leaves no room for free text.")
    if options.free_text:
        free = _FreeText(calls, marks, options.free_special)
        return "\n".join([*free.start(options), *free.lines, *lines])
    firsts = [f"{_symbols(call.begin)} {call.body}" for call in calls if not call.last]
    lasts = [f"{_symbols(call.begin)} {call.body}" for call in calls if call.last]
    more = "" if options.stop_after_first else "*"
    ways = [
        *(["last" if options.stop_after_first or not firsts else "call* last"] if lasts else []),
        *([f"call{'+' if more and options.at_least_one else more}"] if firsts else []),
        *(['""'] if not (firsts or options.at_least_one or options.stop_after_first) else []),
    ]
    if schemas.answer is not None:
        lines += schemas.answer.lines
        ways.append(schemas.answer.rule)
    start = f"start: {' | '.join(ways)}"
    if options.before:
        start = f"start: before* ({' | '.join(ways)})"
        lines += _before(options.before, marks)
    return "\n".join([start, *_rules(firsts, lasts), *lines])


def _before(quotes: Sequence[Quote], marks: Marks) -> list[str]:
    """Rules of what may come before tags."""
    lines: list[str] = []
    for number, quote in enumerate(quotes):
        begin, end = marks.parts(quote.begin), marks.parts(quote.end)
        if not begin or not end:
            raise _error(f"{quote.begin!r} … {quote.end!r} may come before tags, and has an empty side.")
        for part in (*begin, *end):
            if marks.ends(part):
                raise _error(f"{quote.begin!r} … {quote.end!r} goes on behind {part!s}, which ends the output.")
        if isinstance(end[0], Special):
            said, closing = f"(SAID{number})?", _symbols(end)
            lines.append(f"SAID{number}: /(?s:.+)/")
        else:  # up to the first place where it ends
            said, closing = f"SAID{number}", _symbols(end[1:])
            closed = literal(str(end[0]))
            lines.append(f"SAID{number}: (/(?s:.*)/ {closed}) & ~(/(?s:.*)/ {closed} /(?s:.+)/)")
        lines.append(f"quote{number}: {_symbols(begin)} {said} {closing}".rstrip())
    return [f"before: {' | '.join(f'quote{number}' for number in range(len(quotes)))}", *lines]


class _Call(msgspec.Struct, frozen=True):
    """A tag in parts. `last`: its end ends the output, too."""

    begin: Sequence[Part]
    body: str
    last: bool
    triggers: tuple[str, ...]


class _FreeText:
    """Text up to where a tag begins, as terminals and rules."""

    def __init__(self, calls: Sequence[_Call], marks: Marks, free_special: Sequence[str]) -> None:
        self.lines: list[str] = []
        opened: dict[tuple[Part, ...], list[_Call]] = {}
        for call in calls:
            for trigger in call.triggers:
                opened.setdefault(reach(call.begin, len(trigger)), []).append(call)
        texts = [str(opening[0]) for opening in opened if not _special(opening)]
        spelled = [str(_special(opening)[0]) for opening in opened if _special(opening)]
        self._texts, self._spelled = _any_of(texts), _any_of(spelled)
        free = marks.specials(free_special)
        if free and texts:
            raise _error("free_special needs triggers that start with special tokens.")
        self.lines.append(f"TEXT: {self._clean('(?s:.+)')}")
        self.free = "free" if free else "(TEXT)?"
        if free:
            self._marked(free, list(opened))
        firsts: list[str] = []
        lasts: list[str] = []
        for number, (opening, its) in enumerate(opened.items()):
            head = self._head(number, opening)
            for call in its:
                rest = behind(call.begin, opening)
                (lasts if call.last else firsts).append(" ".join(filter(None, [head, _symbols(rest), call.body])))
        self._firsts, self._lasts = firsts, lasts
        self.lines += _rules(firsts, lasts)

    def start(self, options: TagOptions) -> list[str]:
        firsts, lasts = bool(self._firsts), bool(self._lasts)
        if options.stop_after_first:
            ways = [*(["call"] if firsts else []), *(["last"] if lasts else [])]
            ways += [] if options.at_least_one else [self.free]
        else:
            more = "call* " if firsts else ""
            must = "call+ " if options.at_least_one else more
            ways = [f"{must}{self.free}"] if firsts or not options.at_least_one else []
            ways += [f"{more}last"] if lasts else []
        return [f"start: {' | '.join(ways)}"]

    def _clean(self, pattern: str) -> str:
        """A terminal of texts in which no tag begins."""
        return f"/{pattern}/ & ~(/(?s:.*)/ ({' | '.join(filter(None, [self._texts, self._spelled]))}) /(?s:.*)/)"

    def _head(self, number: int, opening: tuple[Part, ...]) -> str:
        """Symbols up to where `opening` ends."""
        special = _special(opening)
        if special and opening[0] == special[0]:
            return f"{self.free} {_symbols(opening)}"
        name = f"HEAD{number}"
        ended = f"(/(?s:.*)/ {literal(str(opening[0]))})"
        if special:
            self.lines.append(f"{name}: {ended} & {self._clean('(?s:.*)')}")
            return f"{name} {_symbols(opening[1:])}"
        # up to the first place where a trigger ends
        not_spelled = f" & ~(/(?s:.*)/ ({self._spelled}) /(?s:.*)/)" if self._spelled else ""
        self.lines.append(f"{name}: {ended} & ~(/(?s:.*)/ ({self._texts}) /(?s:.+)/){not_spelled}")
        return name

    def _marked(self, free: Sequence[Special], opened: Sequence[tuple[Part, ...]]) -> None:
        """Free text with special tokens; behind one that also begins a tag it goes on otherwise than that."""
        ways = ["(TEXT)?"]
        for number, special in enumerate(free):
            rests = [opening[1:] for opening in opened if opening[0] == special]
            if not all(rest and isinstance(rest[0], str) for rest in rests):
                raise _error(f"{special!s} begins a tag; so free text can't hold it.")
            text = "TEXT"
            if rests:
                text = f"TEXT{number}"
                barred = _any_of([str(rest[0]) for rest in rests])
                self.lines.append(f"{text}: {self._clean('(?s:.+)')} & ~(({barred}) /(?s:.*)/)")
            ways.append(f"free {special.symbol} ({text})?")
        self.lines.append(f"free: {' | '.join(ways)}")


def _special(parts: Sequence[Part]) -> list[Special]:
    return [part for part in parts if isinstance(part, Special)]


def _symbols(parts: Sequence[Part]) -> str:
    return " ".join(part.symbol if isinstance(part, Special) else literal(part) for part in parts)


def _any_of(texts: Sequence[str]) -> str:
    return " | ".join(literal(text) for text in dict.fromkeys(texts))


def _rules(firsts: Sequence[str], lasts: Sequence[str]) -> list[str]:
    return [f"{name}: {' | '.join(ways)}" for name, ways in (("call", firsts), ("last", lasts)) if ways]


def _error(message: str) -> GrammarError:
    return GrammarError(message, hint="See the documentation of structural tags.", param="structural_tag")


def draw_tags(source: GrammarSource, marks: Marks, limits: Limits) -> RuleText:
    """The kind "structural_tag". `marks`: the special tokens of the vocabulary."""
    try:
        options = msgspec.convert(dict(source.options), TagOptions)
    except msgspec.ValidationError as error:
        raise GrammarError(
            f"An option of the structural tag is wrong: {error}.",
            hint=f"Options are {', '.join(TagOptions.__struct_fields__)}.",
            param="options",
        ) from None
    given = _read(source.text)
    schemas = _Schemas(given, options, limits)
    as_text = lark_of(given, schemas, options, Marks({}, ()))
    return RuleText(lark=lark_of(given, schemas, options, marks), as_text=as_text)
