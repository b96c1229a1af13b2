"""The verbs of a branch (a program's state): what lang says to the frontend, in process or over HTTP."""

from __future__ import annotations

from typing import Literal

import msgspec

from palmette.runtime.errors import ErrorInfo
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.replies import Finish, TokenLogprob, Usage
from palmette.runtime.messages.sampling import SamplingParams


class Text(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Text appended to a branch. It is pending until the next generate, score, fork or role boundary."""

    text: str


class Tokens(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Token ids appended as they are (reopening a branch from its history)."""

    tokens: bytes


class BeginRole(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Open a turn: appends what the chat template puts before the content of a message of this role."""

    role: str


class EndRole(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Close the turn: appends what the chat template puts behind the content."""

    role: str


Part = Text | Tokens | BeginRole | EndRole


class Chunk(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A piece of a generation. The concatenated `text` of a stream equals the text of a non-stream.

    The last chunk has `finish` and `usage`; `appended` (first chunk only) is the text that the parts before the
    generation added, template text included. Where the reasoning was to be kept apart, `reasoning` and `answer` are
    what became certain of each; `text` stays what the model wrote, tags included.
    """

    text: str = ""
    reasoning: str = ""
    answer: str = ""
    tokens: bytes = b""
    logprobs: tuple[TokenLogprob, ...] | None = None
    appended: str = ""
    finish: Finish | None = None
    usage: Usage | None = None


class ChoiceScores(msgspec.Struct, frozen=True, gc=False, kw_only=True):
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
    chosen: int | None = None  # where a method was named: the choice that was appended


ChoicesMethod = Literal["token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"]


class GenerateStep(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="Generate"):
    """Append `parts`, then generate; the branch keeps the kept tokens. Answered by Chunks, the last with a finish.

    `reasoning`: a format's name or "auto"; then chunks tell reasoning and answer apart. `priority` and `deadline` are
    the branch's own where None. `reply_seconds`: between chunks, at least, where nobody watches the text grow; the
    first and the last come at once.
    """

    parts: tuple[Part, ...] = ()
    params: SamplingParams
    reasoning: str | None = None
    priority: int | None = None
    deadline: float | None = None  # seconds
    reply_seconds: float = 0.0


class ScoreStep(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="Score"):
    """Append `parts`, score each choice behind them, and append the best by `method`; without one nothing more.

    Answered by ChoiceScores. `unconditional`: the choices' likelihood without the branch is wanted, too. `priority` and
    `deadline` as a GenerateStep's.
    """

    parts: tuple[Part, ...] = ()
    choices: tuple[str, ...]
    method: ChoicesMethod | None = None
    unconditional: bool = False
    priority: int | None = None
    deadline: float | None = None  # seconds


class ExtendStep(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag="Extend"):
    """Append `parts`. Answered by one Chunk whose `appended` is the text they added."""

    parts: tuple[Part, ...]


Step = GenerateStep | ScoreStep | ExtendStep
"""What a branch does in one message, several of them in a row: nothing in between needs the program."""


class RunBranch(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Steps on a branch, over HTTP. Without `branch` on a new one, of `namespace`, whose id comes first.

    `close`: the branch ends with the steps. `ended`: other branches that are closed at once. `hint`: what the program
    knows of the branch's future behind the steps.
    """

    steps: tuple[Step, ...]
    branch: str | None = None
    namespace: str = ""
    close: bool = False
    ended: tuple[str, ...] = ()
    hint: BranchHint | None = None


class StepReply(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One event of a RunBranch's answer: the branch's id, something of step `step`, or the error that ends it."""

    branch: str | None = None
    step: int = 0
    chunk: Chunk | None = None
    scores: ChoiceScores | None = None
    error: ErrorInfo | None = None
