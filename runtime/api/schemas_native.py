"""Request bodies of the native surface (/generate, /tokenize, branches …)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.sampling_fields import SamplingFields, as_constraint
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS


class SamplingObject(SamplingFields):
    """`SamplingParams` as a JSON object; `max_new_tokens` is another name of `max_tokens`."""

    max_tokens: int | None = None
    max_new_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    constraint: dict[str, Any] | None = None  # any kind of grammar: {"grammar": {"kind", "text", "options"}, "jump"}

    def grammar(self) -> Constraint | None:
        named = super().grammar()
        if self.constraint is None or named is None:
            return as_constraint(self.constraint) if self.constraint is not None else named
        raise InvalidRequest(
            f"constraint and {named.grammar.kind} were given together; an output follows one grammar.",
            hint="Give one of them.",
            param="constraint",
        )

    def limit(self) -> int | None:
        if self.max_new_tokens is not None and self.max_tokens not in (None, self.max_new_tokens):
            raise InvalidRequest(
                f"max_tokens={self.max_tokens!r} and max_new_tokens={self.max_new_tokens!r} differ.",
                hint="Give one of them.",
                param="max_new_tokens",
            )
        return self.max_tokens if self.max_new_tokens is None else self.max_new_tokens


class GenerateBody(SamplingObject, SchedulingFields):
    """One of `text`, `input_ids`, `messages`; sampling fields beside them or in `sampling_params`."""

    text: Any = None  # str or list of str
    input_ids: Any = None  # token ids or list of them
    messages: list[dict[str, Any]] | None = None
    sampling_params: dict[str, Any] | None = None
    stream: bool = False
    return_logprob: bool = False
    top_logprobs_num: int = Field(default=0, ge=0, le=MAX_TOP_LOGPROBS)
    logprob_start_len: int | None = Field(default=None, ge=-1)  # prompt logprobs from this position on; -1: none
    rid: str | None = None


class TokenizeBody(Body):
    """`prompt` or `messages`; `special`: read special tokens written in the text as such."""

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    special: bool = False
    model: str = ""


class DetokenizeBody(Body):
    tokens: list[int]
    special: bool = False  # write special tokens out
    model: str = ""


class AbortBody(Body):
    rid: str | None = None
    abort_all: bool = False


class OpenBranchBody(SchedulingFields):
    """Whose pages the branch shares, and how soon its verbs are wanted."""


class CloseBranchesBody(Body):
    ids: list[str]


class PartsBody(Body):
    parts: list[dict[str, Any]] = Field(default_factory=list)


class BranchGenerateBody(PartsBody):
    params: dict[str, Any] = Field(default_factory=dict)
    return_text: bool = True


class BranchScoreBody(PartsBody):
    choices: list[str]
    unconditional: bool = False


class BranchForkBody(PartsBody):
    count: int = 1


class TruncateBody(Body):
    position: int
