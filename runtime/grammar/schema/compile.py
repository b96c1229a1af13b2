"""A JSON schema compiled to a grammar: the builder of the kind "json_schema".

document.py reads, goals.py takes apart, rules.py writes; llguidance runs the result. What can't be enforced is an
error that names the keyword and its path, unless `best_effort`: then the grammar lets too much through, and
`SchemaGrammar.validate` judges a finished value.
"""

from __future__ import annotations

import json
import math
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.distinct.matcher import DistinctMatcher, text_tokens
from palmette.runtime.grammar.distinct.reading import Reading
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.llg.start import Start, is_empty_terminal, start
from palmette.runtime.grammar.llg.tokenizers import byte_tokenizer
from palmette.runtime.grammar.protocol import Explanation, Grammar, GrammarSource, Limits, Matcher, TokenSpace
from palmette.runtime.grammar.schema.distinct import Node, Undecided
from palmette.runtime.grammar.schema.document import Document, read
from palmette.runtime.grammar.schema.evaluate import TOO_DEEP, Evaluator, Fault
from palmette.runtime.grammar.schema.goals import Solver
from palmette.runtime.grammar.schema.rules import Rules
from palmette.runtime.grammar.schema.serialise import Serialiser
from palmette.runtime.grammar.schema.shapes import Claim
from palmette.runtime.grammar.schema.terminals import COMPACT, Layout


class SchemaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`compact`: no spaces after commas and colons. `formats`: whether the known formats are enforced.

    `backend`: what runs the grammar; xgrammar is optional, and takes fewer keywords (xgr.py).
    """

    backend: Literal["llguidance", "xgrammar"] = "llguidance"
    best_effort: bool = False
    compact: bool = False
    formats: bool = True


class CompiledSchema:
    """A schema as rules of llguidance's Lark dialect: `rule` is the root's name, `lines` define it."""

    def __init__(
        self, text: str, options: SchemaOptions, limits: Limits, prefix: str = "g", *, compares_items: bool = False
    ) -> None:
        """`compares_items`: who uses it holds items apart at `distinct`."""
        self.options = options
        self.document: Document = read(text)
        self.evaluator = Evaluator(self.document, assert_formats=options.formats)
        self._solver = Solver(
            self.document,
            self.evaluator,
            assert_formats=options.formats,
            best_effort=options.best_effort,
            seconds=limits.seconds,
            is_empty=is_empty_terminal,
            compares_items=compares_items,
        )
        self.distinct: Node | None = None
        try:
            root = self._solver.goal(Claim(self.document.root))
            rules = Rules(root, self._solver, layout_of(options), prefix, is_empty_terminal)
            self.rule, self.lines = rules.lines()
            if compares_items:
                self.distinct = rules.places()
        except RecursionError:
            raise GrammarError(
                "The schema is nested too deeply.", hint="Nest it less, or use $ref.", param="json_schema"
            ) from None
        except Undecided:
            self._solver.give_up(
                "'uniqueItems' can't be enforced: it holds for some arrays and not for others at the same place.",
                "Use it in all alternatives, or in none",
            )

    @property
    def approximated(self) -> tuple[str, ...]:
        """What best effort lets through."""
        return tuple(dict.fromkeys(self._solver.approximated))


class SchemaGrammar(LlgGrammar):
    """A compiled schema. See `Grammar`. The document is read again where a finished value is judged."""

    @cached_property
    def options(self) -> SchemaOptions:
        return options_of(self._source)

    @cached_property
    def document(self) -> Document:
        return read(self._source.text)

    @cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.document, assert_formats=self.options.formats)

    @cached_property
    def _serialiser(self) -> Serialiser:
        solver = Solver(
            self.document,
            self.evaluator,
            assert_formats=self.options.formats,
            best_effort=self.options.best_effort,
            seconds=math.inf,
            is_empty=is_empty_terminal,
            compares_items=True,
        )
        return Serialiser(solver, layout_of(self.options))

    @property
    def approximated(self) -> tuple[str, ...]:
        """What best effort lets through, to be judged by `validate`."""
        return self.blueprint.approximated

    def matcher(self) -> Matcher:
        inner, distinct = self.plain_matcher(), self.blueprint.distinct
        if distinct is None:
            return inner
        over_bytes = self._over_bytes
        return DistinctMatcher(inner, over_bytes, over_bytes.begin(), distinct, text_tokens(self._space))

    @cached_property
    def _over_bytes(self) -> Start:
        return Start(lambda: start(byte_tokenizer(), self.lark, kind="json_schema", vetted=True))

    def validate(self, value: Any) -> Fault | None:
        """Why a finished value isn't valid (after best effort); None if it is."""
        return self.evaluator.fault(self.document.root, value)

    def fault_of(self, text: str) -> str | None:
        """The keyword, and its path, that best effort could not hold a text that matches to; None if it is valid."""
        if not self.approximated:
            return None
        try:
            fault = self.validate(json.loads(text))
        except (RecursionError, GrammarError):  # the value's nesting; the schema's was found while compiling
            return TOO_DEEP
        return None if fault is None else f"{fault.keyword!r} of {fault.schema_path}"

    def serialise(self, value: Any) -> str:
        """`value` as the grammar would write it: the schema's order of properties, the layout's whitespace."""
        return self._serialiser.text(value)

    def _repeated(self, text: str) -> int | None:
        """The character at which an item ends that is there already, in an array whose items must differ."""
        if self.blueprint.distinct is None:
            return None
        raw, reading = text.encode(errors="surrogatepass"), Reading.start(self.blueprint.distinct)
        for at in range(len(raw)):
            after = reading.read(raw, at, at + 1)
            if after is None:
                return len(raw[:at].decode(errors="ignore"))
            reading = after
        return None

    def explain(self, text: str) -> Explanation:
        explained = super().explain(text)
        repeated = self._repeated(text[: explained.position])
        if explained.matches and repeated is None:
            return explained
        if repeated is not None:
            explained = Explanation(matches=False, position=repeated, possible="an item that isn't there yet")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return explained
        fault = self.validate(value)
        if fault is None:
            message = "The value is valid, but not written as it would be here (order of properties, whitespace)."
            return msgspec.structs.replace(explained, message=message)
        where = fault.instance_path or "the value"
        message = f"{where} doesn't meet {fault.keyword!r} of {fault.schema_path}."
        return msgspec.structs.replace(explained, message=message, path=fault.schema_path)


def options_of(source: GrammarSource) -> SchemaOptions:
    try:
        return msgspec.convert(dict(source.options), SchemaOptions)
    except msgspec.ValidationError as error:
        raise GrammarError(
            f"An option of the JSON schema is wrong: {error}.",
            hint="Options are backend, best_effort, compact and formats.",
            param="options",
        ) from None


def layout_of(options: SchemaOptions) -> Layout:
    return COMPACT if options.compact else Layout()


def draw_schema(source: GrammarSource, limits: Limits) -> RuleText:
    """Raises GrammarError for what isn't a schema, can't be enforced, or is too large."""
    compiled = CompiledSchema(source.text, options_of(source), limits, compares_items=True)
    lark = "\n".join([f"start: {compiled.rule}", *compiled.lines])
    return RuleText(lark=lark, distinct=compiled.distinct, approximated=compiled.approximated)


def build(source: GrammarSource, space: TokenSpace, limits: Limits) -> SchemaGrammar:
    return SchemaGrammar(source, space, draw_schema(source, limits))


def build_xgrammar(source: GrammarSource, space: TokenSpace) -> Grammar:
    """By the optional backend. Raises GrammarError, also where it isn't installed."""
    options = options_of(source)
    grammar: Grammar = xgrammar_backend().build_xgrammar(
        source, space, best_effort=options.best_effort, compact=options.compact
    )
    return grammar


def xgrammar_backend() -> Any:
    """The module of the optional backend. Raises GrammarError where it can't be used."""
    try:
        return import_module("palmette.runtime.grammar.xgr")
    except ImportError as error:
        raise GrammarError(
            f"The backend xgrammar can't be used: {error}.",
            hint="Install palmette[xgrammar], or leave the backend out.",
            param="grammar_backend",
        ) from None
