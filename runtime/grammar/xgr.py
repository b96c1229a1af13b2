"""JSON schemas through xgrammar, an optional dependency, behind our protocol.

Its grammars let through what some keywords forbid, and refuse some of what they allow, so it isn't taken at its word: a
schema may use the keywords that it was found to hold to; others are refused, unless best effort is wanted; and every
finished text is judged by our own evaluation. Made by schema/compile.py for the option backend="xgrammar", behind a
child process that has built it within bounds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import xgrammar

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.protocol import (
    Explanation,
    GrammarSource,
    Mask,
    TokenSpace,
    check_count,
    mask_words,
)
from palmette.runtime.grammar.schema.document import Document, Place, read
from palmette.runtime.grammar.schema.evaluate import TOO_DEEP, Evaluator, Fault

HELD = frozenset(
    ("type", "enum", "const", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems",
     "maxItems", "anyOf", "$ref", "$defs", "definitions", "$schema", "$id", "$comment",
     "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
)  # fmt: skip
"""Keywords that xgrammar was found to hold to, each alone and with the others (tests/runtime/grammar/test_xgr.py)."""

_PROBES = (" a", "a", "1", " 1", '"', '",', "}", "]", ", ", " {", " [", "é")  # what may follow forced text


class _Vocabularies:
    """xgrammar's compiler for each vocabulary, made when first needed."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[TokenSpace, Any] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, space: TokenSpace) -> Any:
        with self._lock:
            found = self._made.get(space)
            if found is None:
                vocabulary = space.vocabulary
                info = xgrammar.TokenizerInfo(
                    list(vocabulary.pieces), vocab_size=vocabulary.size, stop_token_ids=list(vocabulary.eos_ids)
                )
                found = self._made[space] = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
            return found


_VOCABULARIES = _Vocabularies()


class XgrMatcher:
    """A Matcher. See the protocol."""

    def __init__(self, inner: Any, space: TokenSpace) -> None:
        self._inner = inner
        self._space = space
        self._words = mask_words(space.vocabulary.size)
        self._eos_ids = frozenset(space.vocabulary.eos_ids)
        self._accepted = 0

    def fill_mask(self, into: Mask) -> None:
        if self.ended:
            into.fill(0)
            return
        into[:] = 0
        row = np.full((1, self._words), -1, np.int32)  # where all is allowed, it leaves the row as it is
        self._inner.fill_next_token_bitmask(row)
        into[: self._words] = row[0].view(np.uint32)
        if self._space.vocabulary.size % 32:  # it leaves bits beyond the vocabulary set
            into[self._words - 1] &= np.uint32((1 << self._space.vocabulary.size % 32) - 1)

    def accept(self, token: int) -> bool:
        if self.ended or not 0 <= token < self._space.vocabulary.size or not self._inner.accept_token(token):
            return False
        self._accepted += 1
        return True

    def forced_bytes(self) -> bytes:
        if self.ended or self.may_end:
            return b""
        forced: str = self._inner.find_jump_forward_string()
        return forced.encode()

    def forced(self) -> list[int]:
        """Those that stay whatever of a few texts follows, without the last."""
        text = self.forced_bytes().decode()
        tokens = self._space.encode(text) if text else []
        for probe in _PROBES:
            other = self._space.encode(text + probe) if tokens else []
            same = [one == two for one, two in zip(tokens, other, strict=False)]
            tokens = tokens[: same.index(False) if False in same else len(same)]
        return tokens[:-1]

    def closing(self) -> Sequence[int] | None:
        """It can't be asked for a way to an end."""
        return () if self.ended or self.may_end else None

    def rollback(self, count: int) -> None:
        check_count(count, self._accepted)
        if count:
            self._inner.rollback(count)
            self._accepted -= count

    def copy(self) -> XgrMatcher:
        made = XgrMatcher(self._inner.fork(), self._space)
        made._accepted = self._accepted
        return made

    @property
    def may_end(self) -> bool:
        return not self.ended and bool(self._inner.is_completed())

    @property
    def complete(self) -> bool:
        if not self.may_end:
            return False
        mask = np.zeros(self._words, np.uint32)
        self.fill_mask(mask)
        for token in self._eos_ids:
            mask[token >> 5] &= ~np.uint32(1 << (token & 31))
        return not mask.any()

    @property
    def ended(self) -> bool:
        return bool(self._inner.is_terminated())

    @property
    def broken(self) -> GrammarError | None:
        return None


class XgrGrammar:
    """A Grammar. Judges: an output that isn't valid is an error, not an answer."""

    def __init__(self, source: GrammarSource, space: TokenSpace, document: Document, *, compact: bool) -> None:
        self.source = source
        self.document = document
        self._space = space
        self._evaluator = Evaluator(document, assert_formats=True)
        separators = (",", ":") if compact else (", ", ": ")
        try:
            self._compiled = _VOCABULARIES.of(space).compile_json_schema(
                source.text, any_whitespace=False, separators=separators, strict_mode=False
            )
        except Exception as error:  # whatever it raises: the request's
            raise GrammarError(
                f"xgrammar refuses the schema: {str(error)[:300]}", hint="Use the other backend.", param="json_schema"
            ) from None

    def matcher(self) -> XgrMatcher:
        return XgrMatcher(xgrammar.GrammarMatcher(self._compiled), self._space)

    def validate(self, value: Any) -> Fault | None:
        return self._evaluator.fault(self.document.root, value)

    def fault_of(self, text: str) -> str | None:
        try:
            fault = self.validate(json.loads(text))
        except (RecursionError, GrammarError):  # the value's nesting; the schema's was found while compiling
            return TOO_DEEP
        except ValueError:
            return "JSON's syntax"  # control characters in strings of a bounded length
        return None if fault is None else f"{fault.keyword!r} of {fault.schema_path}"

    def accepts(self, text: str) -> bool:
        return self.explain(text).matches

    def explain(self, text: str) -> Explanation:
        matcher = xgrammar.GrammarMatcher(self._compiled)
        for position, character in enumerate(text):
            if not matcher.accept_string(character):
                return Explanation(
                    matches=False, position=position, message=f"{character!r} at position {position} can't stand there."
                )
        if not matcher.is_completed():
            return Explanation(matches=False, position=len(text), message="The text isn't complete.")
        problem = self.fault_of(text)
        if problem is None:
            return Explanation(matches=True, position=len(text))
        return Explanation(matches=False, position=len(text), message=f"The value doesn't meet {problem}.")


def build_xgrammar(source: GrammarSource, space: TokenSpace, *, best_effort: bool, compact: bool) -> XgrGrammar:
    """Raises GrammarError for keywords that xgrammar doesn't hold to, unless `best_effort`."""
    document = read(source.text)
    if not best_effort:
        for place, keyword in _used(document):
            if keyword not in HELD:
                raise GrammarError(
                    f"{keyword!r} at {place.shown} isn't held to by xgrammar as it is meant.",
                    hint="Use the other backend, or ask for best effort: then every output is judged at its end.",
                    param="json_schema",
                )
    return XgrGrammar(source, space, document, compact=compact)


def _used(document: Document) -> list[tuple[Place, str]]:
    """Every keyword of every subschema that is reached."""
    found: list[tuple[Place, str]] = []
    seen: set[str] = set()
    waiting = [document.root]
    while waiting:
        place = waiting.pop()
        if place.path in seen or not isinstance(place.schema, dict):
            continue
        seen.add(place.path)
        said = document.keywords(place)
        found += [(place, keyword) for keyword in place.schema]
        waiting += [*said.one.values(), *(inner for many in said.many.values() for inner in many)]
        waiting += [inner for named in said.named.values() for inner in named.values()]
        waiting += [document.target(place, name, said.plain[name]) for name in ("$ref",) if name in said.plain]
    return found
