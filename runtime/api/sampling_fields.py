"""Sampling fields as HTTP clients write them, and their way to SamplingParams; used by the schemas."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from palmette.runtime.api.bodies import Body
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint, Jump, constraint
from palmette.runtime.messages.sampling import SamplingParams


class SamplingFields(Body):
    """The fields that every generating request shares: OpenAI's, and the usual extensions."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None  # 0 and -1 mean off, as other servers write it
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[str, float] = Field(default_factory=dict)
    seed: int | None = None
    stop: str | list[str] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list)
    stop_regex: str | list[str] = Field(default_factory=list)
    ignore_eos: bool = False
    min_tokens: int = 0
    regex: str | None = None  # the output as a whole matches; one of these four at most
    ebnf: str | None = None
    json_schema: dict[str, Any] | str | bool | None = None
    choices: list[str] | None = None
    jump: Jump = "bytes"
    complete: bool = False  # the output ends within max_tokens wherever its grammar allows

    def sampling(self, *, max_tokens: int | None, logprobs: bool = False, top_logprobs: int = 0) -> SamplingParams:
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            temperature=self.temperature,
            top_k=None if self.top_k in (0, -1) else self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=token_biases(self.logit_bias),
            seed=self.seed,
            stop=as_tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            stop_regex=as_tuple(self.stop_regex),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            constraint=self.grammar(),
        )

    def grammar(self) -> Constraint | None:
        """What the output must match. Raises InvalidRequest where more than one thing was given."""
        return constraint(
            regex=self.regex,
            choices=self.choices,
            json_schema=self.json_schema,
            ebnf=self.ebnf,
            jump=self.jump,
            complete=self.complete,
        )


def as_tuple(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def token_biases(given: dict[str, float]) -> dict[int, float]:
    """JSON's object keys are strings; a bias is of a token id."""
    biases: dict[int, float] = {}
    for key, bias in given.items():
        try:
            biases[int(key)] = bias
        except ValueError:
            raise InvalidRequest(f"logit_bias has key {key!r}, not a token id.", param="logit_bias") from None
    return biases


def as_constraint(given: dict[str, Any]) -> Constraint:
    """A Constraint as our own clients send it. Raises InvalidRequest."""
    try:
        return msgspec.convert(given, Constraint)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The constraint has a wrong form: {error}.", param="constraint") from error
