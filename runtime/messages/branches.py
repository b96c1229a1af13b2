"""The verbs of a branch (a program's state): what lang says to the frontend, in process or over HTTP."""

from __future__ import annotations

from typing import Literal

import msgspec

from palmette.runtime.messages.replies import Finish, TokenLogprob, Usage


class Text(msgspec.Struct, frozen=True, tag=True):
    """Text appended to a branch. It is pending until the next generate, score, fork or role boundary."""

    text: str


class Tokens(msgspec.Struct, frozen=True, tag=True):
    """Token ids appended as they are (reopening a branch from its history)."""

    tokens: bytes


class BeginRole(msgspec.Struct, frozen=True, tag=True):
    """Open a turn: appends what the chat template puts before the content of a message of this role."""

    role: str


class EndRole(msgspec.Struct, frozen=True, tag=True):
    """Close the turn: appends what the chat template puts behind the content."""

    role: str


Part = Text | Tokens | BeginRole | EndRole


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a generation. The concatenated `text` of a stream equals the text of a non-stream.

    The last chunk has `finish` and `usage`; `appended` (first chunk only) is the text that the parts before the
    generation added, template text included.
    """

    text: str = ""
    tokens: bytes = b""
    logprobs: tuple[TokenLogprob, ...] | None = None
    appended: str = ""
    finish: Finish | None = None
    usage: Usage | None = None


class ChoiceScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the choices behind a branch. Index i is choice i.

    `tokens[i]`: the choice's token ids; `logprobs[i]`: one a token; `unconditional[i]`: the same without the branch
    before them (only where asked for).
    """

    tokens: tuple[tuple[int, ...], ...]
    token_texts: tuple[tuple[str, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]
    unconditional: tuple[tuple[float, ...], ...] | None = None
    usage: Usage
    appended: str = ""


ChoicesMethod = Literal["token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"]
