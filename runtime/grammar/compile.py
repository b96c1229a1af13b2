"""From a grammar's source to a Grammar: one builder a kind, cached by content, off the caller's loop where wanted.

`palmette.grammar` for people; the engine keeps one `Compiler` and submits to it. Knows every kind; must not know the
scheduler or a tokenizer's library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.after_reasoning import build as build_after_reasoning
from palmette.runtime.grammar.cache import Cache
from palmette.runtime.grammar.choices import build_choices
from palmette.runtime.grammar.dialects import build_lark, build_rules
from palmette.runtime.grammar.protocol import (
    Builder,
    Explanation,
    Grammar,
    GrammarSource,
    Limits,
    Matcher,
    TokenSpace,
    check_size,
)
from palmette.runtime.grammar.regex import build_regex
from palmette.runtime.grammar.schema.compile import build_with as build_schema
from palmette.runtime.grammar.schema.compile import xgrammar_backend
from palmette.runtime.grammar.schema.keywords import keywords
from palmette.runtime.grammar.stop_pattern import StopPattern
from palmette.runtime.grammar.tags import build as build_tags
from palmette.runtime.vocabulary import Vocabulary

__all__ = ["Compiler", "Explanation", "Grammar", "GrammarSource", "Limits", "Matcher", "build", "compile", "keywords"]

T = TypeVar("T")

BUILDERS: dict[str, Builder] = {
    "regex": build_regex,
    "choices": build_choices,
    "json_schema": build_schema,
    "ebnf": build_rules,
    "gbnf": build_rules,
    "lark": build_lark,
    "structural_tag": build_tags,
    "after_reasoning": lambda source, space, limits: build_after_reasoning(source, space, limits, build),
}
"""kind → what compiles it. A new kind is one line here."""


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


def build(source: GrammarSource, space: TokenSpace, limits: Limits) -> Grammar:
    """Compiles afresh. Raises GrammarError, naming the position in the source."""
    builder = BUILDERS.get(source.kind)
    if builder is None:
        raise GrammarError(
            f"{source.kind!r} is no kind of grammar.", hint=f"Kinds: {', '.join(sorted(BUILDERS))}.", param="kind"
        )
    check_size(source, limits)
    return builder(source, space, limits)


class Pending(Generic[T]):
    """A compilation under way. Asked for by the scheduler's loop, which never waits."""

    def __init__(self, kind: str, seconds: float) -> None:
        """`seconds`: how long it may take."""
        self.kind = kind
        self._limit = seconds
        self._future: Future[T] = Future()
        self._started: float | None = None

    @property
    def seconds(self) -> float:
        """Since it began to be compiled."""
        return 0.0 if self._started is None else monotonic() - self._started

    @property
    def ready(self) -> bool:
        """`result` returns, or raises, at once."""
        return self._future.done() or self._overdue

    def result(self) -> T:
        """What was compiled. Raises GrammarError for a bad source, or one that took too long. Waits for it."""
        left = None if self._started is None else max(0.0, self._started + self._limit - monotonic())
        try:
            return self._future.result(left)
        except TimeoutError:
            raise GrammarError(
                f"The {self.kind} takes longer than {self._limit:g} seconds to compile.",
                hint="Make the grammar smaller.",
                param=self.kind,
            ) from None

    @property
    def _overdue(self) -> bool:
        return self._started is not None and monotonic() > self._started + self._limit

    def run(self, work: Callable[[], T]) -> None:
        """In a thread of the compiler."""
        self._started = monotonic()  # waiting for a thread doesn't count: others' grammars must not fail this one
        try:
            self._future.set_result(work())
        except BaseException as error:  # handed to whoever asks for the result
            self._future.set_exception(error)


class Compilations(Generic[T]):
    """What is compiled of one sort of sources: cached by content, at once (`compile`) or in threads (`submit`).

    Safe from several threads. Requests that ask for the same source while it compiles share the work.
    """

    def __init__(
        self, build: Callable[[GrammarSource], T], threads: ThreadPoolExecutor, *, seconds: float, cached: int
    ) -> None:
        self._build = build
        self._threads = threads
        self._seconds = seconds
        self._cache: Cache[T] = Cache(cached)
        self._pending: dict[str, Pending[T]] = {}
        self._lock = Lock()

    def cached(self, source: GrammarSource) -> T | None:
        return self._cache.get(source.key)

    def compile(self, source: GrammarSource) -> T:
        """In the caller's thread. Raises GrammarError."""
        key = source.key
        compiled = self._cache.get(key)
        if compiled is None:
            compiled = self._build(source)
            self._cache.put(key, compiled)
        return compiled

    def submit(self, source: GrammarSource) -> Pending[T]:
        """Starts compiling; returns at once."""
        key = source.key
        with self._lock:
            pending = self._pending.get(key)
            if pending is None or pending.ready:
                self._pending = {other: one for other, one in self._pending.items() if not one.ready}
                pending = self._pending[key] = Pending(source.kind, self._seconds)
                self._threads.submit(pending.run, lambda: self.compile(source))
            return pending


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
        threads: int = 2,
        schema_backend: str = "llguidance",
    ) -> None:
        if schema_backend == "xgrammar":
            xgrammar_backend()
        self.space = space
        self.limits = limits = limits or Limits()
        pool = ThreadPoolExecutor(threads, thread_name_prefix="grammar")

        def built(source: GrammarSource) -> Grammar:
            if source.kind == "json_schema" and schema_backend != "llguidance":
                options = {"backend": schema_backend, **source.options}
                source = msgspec.structs.replace(source, options=options)
            return build(source, space, limits)

        super().__init__(built, pool, seconds=limits.seconds, cached=cached)
        self.stops: Compilations[StopPattern] = Compilations(
            lambda source: StopPattern(source.text, limits), pool, seconds=limits.seconds, cached=cached
        )

    def close(self) -> None:
        """Drops what hasn't started; waits for what has, which the limits bound."""
        self._threads.shutdown(wait=True, cancel_futures=True)


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
