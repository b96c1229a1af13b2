"""How the next token is chosen, and when to stop. Checked once, at the call site."""

from __future__ import annotations

import math

import msgspec

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Constraint

MAX_TOP_LOGPROBS = 64
MAX_STOPS = 64
MAX_LOGIT_BIAS = 4096
MAX_INT32 = 2**31 - 1  # the step's arrays hold top_k and token ids as int32


class SamplingParams(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Sampling parameters of one request.

    Logprobs are of the raw logits. Order: logit bias, penalties, mask, temperature, top-k, top-p, min-p.
    Frequency and presence penalties count output tokens only, the repetition penalty prompt and output.
    """

    max_tokens: int | None = None  # None: the rest of the context
    min_tokens: int = 0  # no stop of any kind before this many output tokens
    temperature: float = 1.0  # 0: greedy
    top_k: int | None = None  # None: off
    top_p: float = 1.0  # draw among the likeliest tokens that have this much of the probability
    min_p: float = 0.0  # leave out tokens less likely than this share of the likeliest one
    frequency_penalty: float = 0.0  # for each time that a token was written
    presence_penalty: float = 0.0  # for a token that was written at all
    repetition_penalty: float = 1.0  # divides the logits of tokens seen, or multiplies those below 0
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)  # added to logits, by token id
    seed: int | None = None  # None: drawn by the frontend
    stop: tuple[str, ...] = ()  # texts that end the output
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: tuple[str, ...] = ()  # patterns that end it
    ignore_eos: bool = False  # go on where the model ends
    logprobs: bool = False  # report those of the output's tokens
    top_logprobs: int = 0  # and those of so many of the likeliest at each place
    constraint: Constraint | None = None  # the output as a whole matches a grammar

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0 or self.top_k == 1

    def check(self, vocabulary_size: int | None = None) -> SamplingParams:
        """Returns itself, or raises InvalidRequest naming the field, its value and its limits."""
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        # A logit divided by the penalty must stay a float32, or its row can't be drawn from.
        _number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _whole("max_tokens", self.max_tokens, 0)
        _whole("min_tokens", self.min_tokens, 0)
        _whole("top_k", self.top_k, 1, MAX_INT32)
        _whole("top_logprobs", self.top_logprobs, 0, MAX_TOP_LOGPROBS)
        check_seed(self.seed)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens={self.min_tokens!r} is larger than max_tokens={self.max_tokens!r}.",
                hint="Raise max_tokens or lower min_tokens.", param="min_tokens",
            )  # fmt: skip
        for name in ("stop", "stop_regex"):
            stops = getattr(self, name)
            if len(stops) > MAX_STOPS:
                raise InvalidRequest(f"{name} has {len(stops)} entries; at most {MAX_STOPS}.", param=name)
            if any(not isinstance(stop, str) or not stop for stop in stops):
                raise InvalidRequest(f"{name}={stops!r} has an entry that is not a non-empty string.", param=name)
        if len(self.stop_token_ids) > MAX_STOPS:
            raise InvalidRequest(
                f"stop_token_ids has {len(self.stop_token_ids)} entries; at most {MAX_STOPS}.", param="stop_token_ids"
            )
        for token in self.stop_token_ids:
            _token_id("stop_token_ids", token, vocabulary_size)
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise InvalidRequest(
                f"logit_bias has {len(self.logit_bias)} entries; at most {MAX_LOGIT_BIAS}.", param="logit_bias"
            )
        for token, bias in () if self._biases_fit(vocabulary_size) else self.logit_bias.items():
            _number(f"logit_bias[{token!r}]", bias, -100.0, 100.0)
            _token_id("logit_bias", token, vocabulary_size)
        return self

    def _biases_fit(self, vocabulary_size: int | None) -> bool:
        """Whether all are well, found without a step of the interpreter for each."""
        if not self.logit_bias:
            return True
        tokens, values = self.logit_bias.keys(), self.logit_bias.values()
        last = MAX_INT32 if vocabulary_size is None else vocabulary_size - 1
        numbers = set(map(type, tokens)) == {int} and set(map(type, values)) <= {int, float}
        return (
            numbers and min(tokens) >= 0 and max(tokens) <= last and all(map(math.isfinite, values))
            and min(values) >= -100 and max(values) <= 100
        )  # fmt: skip


def check_seed(seed: int | None) -> None:
    """Raises InvalidRequest for what isn't in 64 bits, with or without a sign."""
    _whole("seed", seed, -(2**63), 2**64 - 1)


def output_seed(seed: int | None, index: int) -> int | None:
    """The seed of output `index` of several: seed + index, in 64 bits. Raises InvalidRequest for what is no seed."""
    check_seed(seed)
    return None if seed is None else (seed + index) % 2**64


def _number(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or not low <= value <= high or (low_open and value == low):
        left = "(" if low_open else "["
        raise InvalidRequest(f"{name}={value!r} is not a number in {left}{low:g}, {high:g}].", param=name.split("[")[0])


def _whole(name: str, value: int | None, low: int, high: int | None = None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        limits = f"from {low} to {high}" if high is not None else f"of {low} or more"
        raise InvalidRequest(f"{name}={value!r} is not a whole number {limits}.", param=name)


def _token_id(name: str, token: int, vocabulary_size: int | None) -> None:
    last = MAX_INT32 if vocabulary_size is None else vocabulary_size - 1
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token <= last:
        raise InvalidRequest(f"{name} names token {token!r}; the vocabulary has ids 0 to {last}.", param=name)
