"""What every grammar offers, whatever it was made from (regex, choices, JSON schema, EBNF …).

The scheduler holds one `Matcher` an output and asks it for masks; the frontend and the command line use `Grammar`
alone. Implementations must not know the scheduler, the sampler, or a tokenizer's library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.errors import GrammarError
from palmette.runtime.messages.grammar import GrammarSource as GrammarSource
from palmette.runtime.vocabulary import Vocabulary

Mask = npt.NDArray[np.uint32]
"""Packed bits over the vocabulary: bit i % 32 of word i // 32 is 1 where token i may come next."""


def mask_words(vocabulary_size: int) -> int:
    """The length of a Mask."""
    return (vocabulary_size + 31) // 32


class TokenSpace(Protocol):
    """What a grammar needs to know of a tokenizer."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def encode(self, text: str) -> list[int]:
        """The canonical tokens of `text` as plain text: no special tokens, no BOS, no prefix space."""
        ...


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on one compilation, so that a grammar can't stall or fill the machine. Exceeding one is a GrammarError."""

    seconds: float = 10.0
    states: int = 20_000  # of the minimised byte automaton
    source_bytes: int = 1_000_000
    rules_bytes: int = 4_000_000  # of the rules that a source comes to
    quick: bool = False  # a first try: what takes longer raises TooSlow, and is left to somebody who may


class TooSlow(GrammarError):
    """The time for a compilation is over, or it is seen to be too large for a quick one."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a text matches, and where and why not.

    `position`: characters of the text that some matching text starts with (the whole length where it matches or is
    only incomplete). `possible`: what could have come at `position`, for people. `path`: the place in the grammar
    where there is one (a schema's path).
    """

    matches: bool
    position: int
    possible: str = ""
    message: str = ""
    path: str = ""


class Matcher(Protocol):
    """The state of one output under a grammar. Not for two threads at once."""

    def fill_mask(self, into: Mask) -> None:
        """Writes which tokens may come next into all of `into` (uint32[mask_words]).

        Every token that is allowed leads to a text that can be completed. EOS ids are allowed exactly where the text
        may end; other special tokens only where the grammar names them. After the end (`ended`) no token is allowed.
        """
        ...

    def accept(self, token: int) -> bool:
        """Goes on with `token`. False, with nothing changed, if the mask doesn't allow it."""
        ...

    def forced_bytes(self) -> bytes:
        """Bytes that every completion starts with; empty where there is a choice, or the text may end.

        A long run may come in parts: there may be more once these were accepted.
        """
        ...

    def forced(self) -> list[int]:
        """The canonical tokens of `forced_bytes`, without the trailing ones that later bytes could merge with.

        Not accepted yet: the caller accepts each. What is left out stays forced by the mask, byte by byte.
        """
        ...

    def closing(self) -> Sequence[int] | None:
        """Tokens of a short text after which the output may end; none where it may end here, None if none was found."""
        ...

    def rollback(self, count: int) -> None:
        """Takes back the last `count` accepted tokens, EOS among them. Raises ValueError for more than there are."""
        ...

    def copy(self) -> Matcher:
        """An independent matcher in the same state (a fork)."""
        ...

    @property
    def may_end(self) -> bool:
        """The text so far matches: EOS is allowed."""
        ...

    @property
    def complete(self) -> bool:
        """The text so far matches and nothing may follow: EOS is the only token allowed, so it need not be sampled."""
        ...

    @property
    def ended(self) -> bool:
        """EOS was accepted."""
        ...

    @property
    def broken(self) -> GrammarError | None:
        """Why it can't go on, though its grammar does: then no token is allowed. Matchers don't raise for it."""
        ...


class Grammar(Protocol):
    """A compiled grammar. Shared between requests and threads; its caches are bounded."""

    @property
    def source(self) -> GrammarSource: ...

    def matcher(self) -> Matcher:
        """At the start of a text."""
        ...

    def accepts(self, text: str) -> bool:
        """The whole text matches."""
        ...

    def explain(self, text: str) -> Explanation: ...


@runtime_checkable
class FillsMany(Protocol):
    """A matcher class that fills many rows faster in one call than one by one."""

    @classmethod
    def fill_many(cls, matchers: Sequence[Any], into: npt.NDArray[np.uint32], rows: Sequence[int]) -> None:
        """Fills into[rows[i]] from matchers[i], all of this class."""
        ...


@runtime_checkable
class Judges(Protocol):
    """A grammar that may let too much through (best effort), and says of a finished text what is wrong with it."""

    def fault_of(self, text: str) -> str | None: ...


def check_count(count: int, accepted: int) -> None:
    """Raises ValueError unless `count` accepted tokens can be taken back."""
    if not 0 <= count <= accepted:
        raise ValueError(f"can't take back {count!r} tokens: {accepted} were accepted")


def check_size(source: GrammarSource, limits: Limits) -> None:
    """Raises GrammarError for a source that is too long to look at."""
    size = len(source.text.encode(errors="replace"))
    if size > limits.source_bytes:
        raise GrammarError(
            f"The {source.kind} has {size:,} bytes; at most {limits.source_bytes:,}.",
            hint="Make the grammar smaller.",
            param=source.kind,
        )
