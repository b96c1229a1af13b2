"""llguidance behind our protocol: grammars of its Lark dialect as Grammar and Matcher.

Schemas, EBNF and tags come here as Lark text. Whatever fails inside llguidance is a GrammarError of the one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from threading import Lock
from time import thread_time
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.cache import masks_of
from palmette.runtime.grammar.llg.closing import Closer, closes
from palmette.runtime.grammar.llg.depth import check_depth
from palmette.runtime.grammar.llg.refusals import MAX_GRAMMAR, MAX_ROW_ITEMS, refusal
from palmette.runtime.grammar.protocol import (
    Explanation,
    GrammarSource,
    Mask,
    Matcher,
    TokenSpace,
    check_count,
    mask_words,
)
from palmette.runtime.machine import usable_threads

SLOW = 0.05  # seconds of accepting one token that others notice
PATIENCE = 1.0  # seconds of such tokens after which an output is given up
BYTE_EOS = 256
VETTED_TEXTS, VETTED_TOKENS = 4, 400  # followed before large rules are taken
SPECIAL = b"\xff"  # before the number of a special token, where llguidance tells it as bytes
FILLING_THREADS = 8  # at most, that fill the masks of a batch
FEW_THREADS, FEW_MASKS = 4, 32  # below either, waking threads costs more than they save (30 µs a mask)
_TEXT = r'[^"\\\x00-\x1F\x7F]'
SLICES = [r"[\x20\x0A\x0D\x09]+", *(f"{_TEXT}{{1,{most}}}" for most in (6, 10, 15, 22, 30)), f"{_TEXT}+"]
"""Sorts of tokens that llguidance looks at as one where a lexeme takes all of them: texts in strings, by their length,
so that what is left of a `maxLength` decides about few tokens one by one."""


class _Tokens:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, space: TokenSpace) -> None:
        vocabulary = space.vocabulary
        self.eos_token_id = vocabulary.eos_ids[0]
        special = set(vocabulary.special_pieces) | set(vocabulary.eos_ids)
        self.special_token_ids = sorted(special)
        self.tokens = [
            vocabulary.special_pieces.get(token, f"<|{token}|>").encode() if token in special else piece
            for token, piece in enumerate(vocabulary.pieces)
        ]
        self._space = space

    def __call__(self, text: bytes | str) -> list[int]:
        return self._space.encode(text.decode() if isinstance(text, bytes) else text)


class _Bytes:
    """A token for each byte, and an end: for questions about texts."""

    bos_token_id = None
    eos_token_id = BYTE_EOS
    special_token_ids = (BYTE_EOS,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<|end|>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def _tokenizer(tokens: Any, eos_ids: Sequence[int]) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(tokens), n_vocab=len(tokens.tokens), eos_token=list(eos_ids), slices=SLICES)


@lru_cache(maxsize=1)
def byte_tokenizer() -> LLTokenizer:
    return _tokenizer(_Bytes(), [BYTE_EOS])


class LlgTokenizers:
    """One llguidance tokenizer (a trie of the vocabulary) for each TokenSpace, made when first needed."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[TokenSpace, LLTokenizer] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, space: TokenSpace) -> LLTokenizer:
        with self._lock:
            found = self._made.get(space)
            if found is None:
                found = self._made[space] = _tokenizer(_Tokens(space), space.vocabulary.eos_ids)
            return found


@lru_cache(maxsize=1)
def filling() -> LLExecutor:
    """The threads that fill the masks of a batch."""
    return LLExecutor(min(usable_threads(), FILLING_THREADS))


_TOKENIZERS = LlgTokenizers()
_closers: WeakKeyDictionary[TokenSpace, Closer] = WeakKeyDictionary()


def closer_of(space: TokenSpace) -> Closer:
    """The search for ways to an end over a vocabulary, made when first needed."""
    found = _closers.get(space)
    if found is None:
        found = _closers[space] = Closer(space, masks_of(space).trie)
    return found


def make_ready(space: TokenSpace) -> None:
    """Makes what all grammars over a vocabulary share. Most of it holds the interpreter's lock."""
    _TOKENIZERS.of(space)
    closer_of(space)


def start(tokenizer: LLTokenizer, lark: str, *, kind: str = "grammar", vetted: bool = False) -> LLMatcher:
    """At the start of a text. Raises GrammarError, in our words, for what is found out by the first token, too.

    `vetted`: it was built before, so that it isn't nested too deeply.
    """
    if not vetted:
        check_depth(lark)
    limits = LLParserLimits(max_grammar_size=MAX_GRAMMAR, max_items_in_row=MAX_ROW_ITEMS, verbose_errors=False)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0, limits=limits)
    if matcher.is_error():
        raise refusal(matcher.get_error(), kind)
    walk(matcher, kind, 0, 1)
    return matcher


def vet(blueprint: RuleText, kind: str) -> None:
    """Builds the rules and follows a few texts of theirs. Raises GrammarError for what llguidance refuses, be it on the
    way only."""
    matcher = start(byte_tokenizer(), blueprint.as_text or blueprint.lark, kind=kind)
    for seed in range(VETTED_TEXTS):
        walk(matcher, kind, seed, VETTED_TOKENS)


def walk(matcher: LLMatcher, kind: str, seed: int, tokens: int) -> None:
    """Follows a text that is drawn token by token. Raises GrammarError where that leads to what is refused."""
    chance, trial = Random(seed), matcher.deep_copy()
    for _ in range(tokens):
        if trial.is_stopped():
            break
        mask = np.frombuffer(trial.compute_bitmask(), np.uint8)
        held = np.flatnonzero(mask)
        if trial.is_error() or not len(held):
            break
        at = int(chance.choice(held))
        bits = [bit for bit in range(8) if mask[at] >> bit & 1]
        trial.try_consume_tokens([8 * at + chance.choice(bits)])
    if trial.is_error() and not trial.is_accepting():
        raise refusal(trial.get_error(), kind)


@lru_cache(maxsize=4096)
def is_empty_terminal(terminal: str) -> bool:
    """Whether the terminal matches no text at all."""
    lark = f"start: T\nT: {terminal}"
    matcher = LLMatcher(byte_tokenizer(), LLMatcher.grammar_from_lark(lark), log_level=0)
    if matcher.is_error():
        message = matcher.get_error()
        if "empty" in message or "unsatisfiable" in message.lower():
            return True
        raise refusal(message, "json_schema")
    mask = matcher.compute_bitmask()
    return not matcher.is_accepting() and not any(mask[:32])


class LlgMatcher:
    """A Matcher. See the protocol."""

    def __init__(self, inner: LLMatcher, space: TokenSpace) -> None:
        self._inner = inner
        self._space = space
        self._eos_ids = tuple(space.vocabulary.eos_ids)
        self._words = mask_words(space.vocabulary.size)
        self._accepted = 0  # tokens, without EOS
        self._way: list[int] | None = None  # the last closing that was found
        self._ended = False
        self._slow = 0.0  # seconds of slow tokens

    def fill_mask(self, into: Mask) -> None:
        if self._ended:
            into.fill(0)
            return
        if self.goes_on:
            self._inner.unsafe_compute_mask_ptr(into.ctypes.data, 4 * self._words)
            into[self._words :] = 0
            if not self._inner.is_error():
                return
        into.fill(0)
        if not self._broke:
            for token in self._eos_ids:
                into[token >> 5] |= np.uint32(1 << (token & 31))

    @classmethod
    def fill_many(cls, matchers: Sequence[LlgMatcher], into: npt.NDArray[np.uint32], rows: Sequence[int]) -> None:
        """By several threads, where there are many, `into` is contiguous and its rows are masks of this vocabulary."""
        together: list[tuple[LLMatcher, int]] = []
        many = len(rows) >= FEW_MASKS and usable_threads() >= FEW_THREADS
        if many and into.flags.c_contiguous and into.shape[1] == matchers[0]._words:
            together = [(each._inner, row) for each, row in zip(matchers, rows, strict=True) if each.goes_on]
        if together:
            filling().unsafe_compute_mask_ptr(together, into.ctypes.data, into.strides[0], len(into))
        filled = {row for _, row in together}
        for matcher, row in zip(matchers, rows, strict=True):
            if row not in filled or matcher.broken:
                matcher.fill_mask(into[row])

    @property
    def inner(self) -> LLMatcher:
        return self._inner

    @property
    def goes_on(self) -> bool:
        """More than the end may come."""
        return not (self._ended or self._slow > PATIENCE or self._inner.is_stopped())

    @property
    def broken(self) -> GrammarError | None:
        """Why it can't go on: the text so far has more readings than may be followed. Then nothing is allowed."""
        if not self._broke:
            return None
        if self._inner.is_error():
            return refusal(self._inner.get_error(), "grammar")
        return GrammarError(
            f"The grammar takes too long to follow: tokens of this text took more than {PATIENCE:g} s.",
            hint="It is too ambiguous or too large: texts have too many readings.",
        )

    @property
    def _broke(self) -> bool:
        return self._slow > PATIENCE or self._inner.is_error()

    def accept(self, token: int) -> bool:
        if self._ended:
            return False
        if token in self._eos_ids:
            self._ended = self.may_end
            return self._ended
        started = thread_time()
        if self._slow > PATIENCE or self._inner.is_stopped() or self._inner.try_consume_tokens([token]) != 1:
            return False
        self._accepted += 1
        taken = thread_time() - started
        if taken > SLOW:
            self._slow += taken
        if self._way:
            self._way = self._way[1:] if self._way[0] == token else self._way
        return True

    def forced_bytes(self) -> bytes:
        if not self.goes_on or self._inner.is_accepting():
            return b""
        return bytes(self._inner.compute_ff_bytes()).partition(SPECIAL)[0]

    def forced(self) -> list[int]:
        if not self.goes_on or self._inner.is_accepting():
            return []
        return list(self._inner.compute_ff_tokens())

    def closing(self) -> Sequence[int] | None:
        if self._broke:
            return None
        if self._ended or self._inner.is_accepting():
            return ()
        if self._way is None or not closes(self._inner, self._way):  # one that was found before often goes on to close
            self._way = closer_of(self._space).find(self._inner)
        return self._way

    def rollback(self, count: int) -> None:
        check_count(count, self._accepted + self._ended)
        if count and self._ended:
            self._ended = False
            count -= 1
        if count:
            self._way = None
            self._inner.rollback(count)
            self._accepted -= count

    def copy(self) -> LlgMatcher:
        made = LlgMatcher(self._inner.deep_copy(), self._space)
        made._accepted, made._ended, made._way, made._slow = self._accepted, self._ended, self._way, self._slow
        return made

    @property
    def may_end(self) -> bool:
        return not self._ended and self._inner.is_accepting() and not self._broke

    @property
    def complete(self) -> bool:
        return self.may_end and self._inner.is_stopped()

    @property
    def ended(self) -> bool:
        return self._ended


class LlgGrammar:
    """A Grammar of llguidance's Lark dialect. Raises GrammarError for one that it refuses."""

    def __init__(self, source: GrammarSource, space: TokenSpace, blueprint: RuleText) -> None:
        self._source = source
        self._space = space
        self.blueprint = blueprint
        self.lark = blueprint.lark
        self._start = start(_TOKENIZERS.of(space), blueprint.lark, kind=source.kind, vetted=blueprint.vetted)

    @property
    def source(self) -> GrammarSource:
        return self._source

    def matcher(self) -> Matcher:
        return self.plain_matcher()

    def plain_matcher(self) -> LlgMatcher:
        return LlgMatcher(self._start.deep_copy(), self._space)

    def accepts(self, text: str) -> bool:
        return self.explain(text).matches

    def explain(self, text: str) -> Explanation:
        matcher = start(byte_tokenizer(), self.blueprint.as_text or self.lark)
        raw = text.encode(errors="surrogatepass")
        matched = matcher.try_consume_tokens(list(raw))
        position = len(raw[:matched].decode(errors="ignore"))
        if matched == len(raw) and matcher.is_accepting():
            return Explanation(matches=True, position=position)
        possible = _possible(matcher)
        found = "the end" if matched == len(raw) else repr(text[position])
        message = f"At character {position} comes {found}; possible is {possible}."
        return Explanation(matches=False, position=position, possible=possible, message=message)


def _possible(matcher: LLMatcher) -> str:
    """What may come next, for people."""
    if matcher.is_stopped():
        return "the end"
    mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    allowed = [byte for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1]
    shown = [repr(chr(byte)) for byte in allowed if 0x20 <= byte < 0x7F]
    if len(shown) > 20:
        shown = [*shown[:20], "…"]
    if any(byte >= 0x80 for byte in allowed):
        shown.append("other characters")
    if matcher.is_accepting():
        shown.append("the end")
    return ", ".join(shown) or "nothing"
