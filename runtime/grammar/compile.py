"""From a grammar's source to a Grammar: one builder a kind, cached by content, off the caller's loop where wanted.

`palmette.grammar` for people; the engine keeps one `Compiler` and submits to it. Knows every kind; must not know the
scheduler or a tokenizer's library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.automaton.grammar import AutomatonGrammar
from palmette.runtime.grammar.blueprint import Automata, Blueprint
from palmette.runtime.grammar.compiling.child import Job
from palmette.runtime.grammar.compiling.compilations import Compilations, Pending, Share, Threads
from palmette.runtime.grammar.compiling.contained import Contained, Wanted
from palmette.runtime.grammar.compiling.drawing import DRAWN, QUICK_SECONDS, Drawer, draw, finish, is_foreign, marks_of
from palmette.runtime.grammar.llg.grammar import LlgGrammar
from palmette.runtime.grammar.llg.tokenizers import make_ready
from palmette.runtime.grammar.protocol import (
    Explanation,
    Grammar,
    GrammarSource,
    Limits,
    Matcher,
    TokenSpace,
    check_size,
)
from palmette.runtime.grammar.reasoning.after import AfterReasoning
from palmette.runtime.grammar.reasoning.after import build as build_after_reasoning
from palmette.runtime.grammar.reasoning.maybe import MaybeReasoning
from palmette.runtime.grammar.regex.stop_pattern import StopPattern
from palmette.runtime.grammar.schema.compile import xgrammar_backend
from palmette.runtime.grammar.schema.keywords import keywords
from palmette.runtime.grammar.tag_marks import Marks
from palmette.runtime.vocabulary import Vocabulary

__all__ = [
    "Compilations", "Compiler", "Explanation", "Grammar", "GrammarSource", "Limits", "Matcher", "Pending", "Share",
    "build", "compile", "keywords",
]  # fmt: skip

Builder = Callable[[GrammarSource, TokenSpace, Limits, Drawer], Grammar]
"""Compiles one kind. Raises GrammarError for a source that is wrong or too large, naming the position."""

CACHED_BYTES = 256 << 20
_BYTES_A_RULE_BYTE = 100  # that llguidance holds of rules, as measured
_UNKNOWN_BYTES = 1 << 20


def build_drawn(source: GrammarSource, space: TokenSpace, limits: Limits, draw: Drawer = draw) -> Grammar:
    """A kind that is drawn here or elsewhere."""
    return finish(draw(source, marks_of(space), limits), source, space)


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(set(DRAWN) - {"stop_regex"}, build_drawn),
    "after_reasoning": lambda source, space, limits, draw: build_after_reasoning(
        source, space, limits, lambda inner, space, limits: build(inner, space, limits, draw)
    ),
}
"""kind → what compiles it. A new kind is one line here, or in DRAWN."""


class Encodes(Protocol):
    """What is needed of a tokenizer."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def encode(self, text: str, *, special: bool) -> list[int]: ...


class EncodesText(Encodes, Protocol):
    """… whose compiled grammars are remembered with it."""

    def __hash__(self) -> int: ...


class TokenizerSpace:
    """The TokenSpace of a tokenizer. `vocabulary`: its own, or that of a model with more embeddings."""

    def __init__(self, tokenizer: Encodes, vocabulary: Vocabulary | None = None) -> None:
        self.vocabulary = vocabulary or tokenizer.vocabulary
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special=False)


class ByteSpace:
    """A TokenSpace without a model: token b is byte b, 256 ends the text."""

    END = 256

    def __init__(self) -> None:
        pieces = tuple(bytes([byte]) for byte in range(256))
        self.vocabulary = Vocabulary((*pieces, b""), {self.END: "<end>"}, (self.END,))

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def build(source: GrammarSource, space: TokenSpace, limits: Limits, draw: Drawer = draw) -> Grammar:
    """Compiles afresh. Raises GrammarError, naming the position in the source."""
    builder = BUILDERS.get(source.kind)
    if builder is None:
        raise GrammarError(
            f"{source.kind!r} is no kind of grammar.", hint=f"Kinds: {', '.join(sorted(BUILDERS))}.", param="kind"
        )
    check_size(source, limits)
    return builder(source, space, limits, draw)


def build_stop(source: GrammarSource, limits: Limits, draw: Drawer = draw) -> StopPattern:
    """A source of kind "stop_regex"."""
    check_size(source, limits)
    drawn = draw(source, Marks({}, ()), limits)
    assert isinstance(drawn, Automata)
    return StopPattern(source.text, drawn)


def weight(grammar: Grammar) -> int:
    """About how many bytes it holds, masks aside."""
    match grammar:
        case AutomatonGrammar():
            return grammar.automaton.nbytes
        case LlgGrammar():
            return _BYTES_A_RULE_BYTE * len(grammar.lark)
        case AfterReasoning() | MaybeReasoning():
            return weight(grammar.inner)
    return _UNKNOWN_BYTES  # another library's


class Compiler(Compilations[Grammar]):
    """Grammars over one vocabulary; and in `stops` the patterns that end outputs (sources of kind "stop_regex").

    `schema_backend`: of JSON schemas that ask for none. Raises GrammarError where it isn't installed.
    """

    def __init__(
        self,
        space: TokenSpace,
        *,
        limits: Limits | None = None,
        cached: int = 256,
        cached_bytes: int = CACHED_BYTES,
        threads: int = 2,
        schema_backend: str = "llguidance",
    ) -> None:
        if schema_backend == "xgrammar":
            xgrammar_backend()
        self.space = space
        self.limits = limits = limits or Limits()
        quick = msgspec.structs.replace(limits, quick=True, seconds=min(QUICK_SECONDS, limits.seconds))
        self._pools = pools = Threads(threads)
        self._children = children = Contained()
        self._is_ready = False

        def in_child(wanted: Wanted) -> Drawer:
            def drawn(source: GrammarSource, marks: Marks, limits: Limits) -> Blueprint:
                pieces = space.vocabulary.pieces if is_foreign(source) else ()
                job = Job(source, dict(marks.special_pieces), tuple(marks.eos_ids), limits, pieces)
                return children.draw(job, wanted)

            return drawn

        def chosen(source: GrammarSource) -> GrammarSource:
            if source.kind != "json_schema" or schema_backend == "llguidance":
                return source
            return msgspec.structs.replace(source, options={"backend": schema_backend, **source.options})

        def grammars(limits: Limits, draw: Drawer) -> Callable[[GrammarSource], Grammar]:
            return lambda source: build(chosen(source), space, limits, draw)

        def stops(limits: Limits, draw: Drawer) -> Callable[[GrammarSource], StopPattern]:
            return lambda source: build_stop(source, limits, draw)

        super().__init__(
            grammars(limits, draw),
            pools,
            tried=grammars(quick, draw),
            contained=lambda source, wanted: grammars(limits, in_child(wanted))(source),
            weigh=weight,
            seconds=limits.seconds,
            cached=cached,
            cached_bytes=cached_bytes,
        )
        self.stops: Compilations[StopPattern] = Compilations(
            stops(limits, draw),
            pools,
            tried=stops(quick, draw),
            contained=lambda source, wanted: stops(limits, in_child(wanted))(source),
            weigh=lambda pattern: pattern.nbytes,
            seconds=limits.seconds,
            cached=cached,
            cached_bytes=cached_bytes,
        )

    def make_ready(self) -> None:
        """What the first grammar over a large vocabulary would wait for, a few tenths of a second. Done once."""
        if not self._is_ready:
            self._is_ready = True
            make_ready(self.space)

    def close(self) -> None:
        """Gives up what is being compiled."""
        self.give_up()
        self.stops.give_up()
        self._pools.close()
        self._children.close()


@lru_cache(maxsize=4)
def _compiler_of(tokenizer: EncodesText | None) -> Compiler:
    return Compiler(ByteSpace() if tokenizer is None else TokenizerSpace(tokenizer))


def compile(
    kind: str, source: str | Sequence[str] | Mapping[str, Any], *, tokenizer: EncodesText | None = None, **options: Any
) -> Grammar:
    """A grammar by its kind, for people: `compile("regex", r"[a-z]+").accepts("abc")`.

    `source` may be a list (choices) or a dict (a JSON schema). `tokenizer`: whose tokens masks are over; without one,
    bytes. Cached by content, for the last few tokenizers. Raises GrammarError.
    """
    text = source if isinstance(source, str) else msgspec.json.encode(source).decode()
    wanted = GrammarSource(kind=kind, text=text, options=options)
    return _compiler_of(tokenizer).compile(wanted)
