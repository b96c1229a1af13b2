"""Sampling fields as HTTP clients write them, and their way to SamplingParams; used by the schemas."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from pydantic import Field, PrivateAttr

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.json_types import schema
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint, Jump, constraint
from palmette.runtime.messages.sampling import MAX_LOGIT_BIAS, SamplingParams

_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")


class SamplingFields(Body):
    """The fields that every generating request shares: OpenAI's, and the usual extensions."""

    temperature: Annotated[float, schema(minimum=0, maximum=100)] = 1.0
    """0 takes the likeliest token. From 0 to 100."""
    top_p: Annotated[float, schema(exclusiveMinimum=0, maximum=1)] = 1.0
    """Only the likeliest tokens that add up to this are drawn from. Above 0, to 1."""
    top_k: Annotated[int | None, schema(minimum=-1)] = None
    """Only so many of the likeliest tokens are drawn from; 0 and -1 mean all."""
    min_p: Annotated[float, schema(minimum=0, maximum=1)] = 0.0
    """Only tokens at least this likely, relative to the likeliest, are drawn from. From 0 to 1."""
    frequency_penalty: Annotated[float, schema(minimum=-2, maximum=2)] = 0.0
    """Taken off a token's logit for each time the output has it. From -2 to 2."""
    presence_penalty: Annotated[float, schema(minimum=-2, maximum=2)] = 0.0
    """Taken off a token's logit once the output has it. From -2 to 2."""
    repetition_penalty: Annotated[float, schema(minimum=0.01, maximum=100)] = 1.0
    """Divides the logits of tokens of prompt and output where positive, multiplies where negative. 1: off."""
    logit_bias: dict[str, float] = Field(default_factory=dict)
    """Token id → what is added to its logit, -100 to 100."""
    seed: Annotated[int | None, schema(minimum=-(2**63), maximum=2**64 - 1)] = None
    """The same seed and request give the same output; output i of several has seed + i. Drawn where left out."""
    stop: str | list[str] = Field(default_factory=list)
    """The output ends before the first of these texts."""
    stop_token_ids: list[int] = Field(default_factory=list)
    """The output ends before the first of these tokens."""
    stop_regex: str | list[str] = Field(default_factory=list)
    """The output ends before the first match of one of these patterns."""
    ignore_eos: bool = False
    """Go on behind the model's end of text."""
    min_tokens: Annotated[int, schema(minimum=0)] = 0
    """Nothing ends the output before so many tokens."""
    regex: str | None = None
    """The output as a whole matches this pattern. Of regex, ebnf, json_schema, choices and response_format one at
    most."""
    ebnf: str | None = None
    """The output as a whole can be derived from this grammar (GBNF, EBNF or Lark, told apart by their form)."""
    json_schema: dict[str, Any] | str | bool | None = None
    """The output as a whole is JSON that meets this schema."""
    choices: list[str] | None = None
    """The output as a whole is one of these texts."""
    jump: Jump = "bytes"
    """What a grammar leaves no choice about is taken without asking the model: byte by byte, token by token, or not."""
    complete: bool | None = None
    """The output ends within max_tokens wherever its grammar allows. Left out: so it is with regex, ebnf and choices,
    and not with JSON and calls, of which OpenAI's clients expect to be told by `length` that they were cut."""

    _prepared: tuple[dict[int, float], Constraint | None] | None = PrivateAttr(default=None)

    def prepare(self) -> None:
        super().prepare()
        self._prepared = token_biases(self.logit_bias), self.grammar()

    def sampling(self, *, max_tokens: int | None, logprobs: bool = False, top_logprobs: int = 0) -> SamplingParams:
        biases, grammar = self._prepared or (token_biases(self.logit_bias), self.grammar())
        if grammar is not None and logprobs:
            grammar = grammar.asked()
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
            logit_bias=biases,
            seed=self.seed,
            stop=as_tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            stop_regex=as_tuple(self.stop_regex),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            constraint=grammar,
        )

    def grammar(self) -> Constraint | None:
        """What the output must match. Raises InvalidRequest where more than one thing was given."""
        return constraint(
            regex=self.regex,
            choices=self.choices,
            json_schema=self.json_schema,
            ebnf=self.ebnf,
            jump=self.jump,
            complete=self.json_schema is None if self.complete is None else self.complete,
        )


def one_grammar(named: Constraint | None, wanted: Constraint | None, path: str, schema: str) -> Constraint | None:
    """What an output follows: what a field of ours named, or what a surface's own field at `path` wants, by the schema
    at `schema` in it, which errors name. Raises InvalidRequest where both were given."""
    if named is not None and wanted is not None:
        raise InvalidRequest(
            f"{path} and {named.grammar.kind} were given together; an output follows one grammar.",
            hint="Give one of them.",
            param=path,
        )
    return named or (wanted and msgspec.structs.replace(wanted, field=f"{path}.{schema}"))


def as_tuple(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def token_biases(given: dict[str, float]) -> dict[int, float]:
    """JSON's object keys are strings; a bias is of a token id."""
    if len(given) > MAX_LOGIT_BIAS:
        raise InvalidRequest(f"logit_bias has {len(given)} entries; at most {MAX_LOGIT_BIAS}.", param="logit_bias")
    biases: dict[int, float] = {}
    for key, bias in given.items():
        if _TOKEN_ID.fullmatch(key) is None:  # int() reads more: "05" beside "5" would be one token with two biases
            hint = "Write it in digits alone."
            raise InvalidRequest(f"logit_bias has key {key!r}, not a token id.", hint=hint, param="logit_bias")
        biases[int(key)] = bias
    return biases


def as_constraint(given: dict[str, Any]) -> Constraint:
    """A Constraint as our own clients send it. Raises InvalidRequest."""
    try:
        return msgspec.convert({**given, "field": "constraint"}, Constraint)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The constraint has a wrong form: {error}.", param="constraint") from error
