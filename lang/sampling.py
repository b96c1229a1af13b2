"""Sampling options as programs write them, made into SamplingParams.

A gen's own options win over those given to `run`, which win over the language's defaults. Names and values are
checked where they are written; what isn't built is refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.messages.grammar import constraint
from palmette.runtime.messages.sampling import SamplingParams

SamplingOptions = dict[str, Any]
"""Fields of SamplingParams that were set, by name."""

DEFAULTS: SamplingOptions = {"max_tokens": 128, "temperature": 1.0}

_FIELDS = frozenset(field.name for field in msgspec.structs.fields(SamplingParams))
_ALIASES = {"max_new_tokens": "max_tokens", "return_logprob": "logprobs", "top_logprobs_num": "top_logprobs"}
_NOT_BUILT = {
    "dtype": "turn the text into a value in the program, for example int(s['x'])",
    "logprob_start_len": "use return_logprob for output tokens, or select(...) to score a given text",
    "return_text_in_logprobs": "token texts are reported for choices; for gen, the variable holds the text",
}
_GRAMMARS = ("regex", "json_schema", "ebnf", "choices", "jump", "complete")
SAMPLING_NAMES = frozenset(_FIELDS | _ALIASES.keys() | _NOT_BUILT.keys() | (set(_GRAMMARS) - {"choices"}) | {"n"})
"""Every sampling option that `run`, `run_batch` and `gen` know by name."""


def options(given: Mapping[str, Any]) -> SamplingOptions:
    """The options of `given` that are not None, under their SamplingParams names, checked one by one."""
    set_: SamplingOptions = {}
    wanted = constraint(**{name: given[name] for name in _GRAMMARS if given.get(name) is not None})
    if wanted is not None:
        set_["constraint"] = wanted
    for name, value in given.items():
        if value is None or name in _GRAMMARS or (name == "return_text_in_logprobs" and value is False):
            continue
        if name in _NOT_BUILT:
            raise Unsupported(
                f"{name}={value!r} is not built yet.", hint=f"Until then, {_NOT_BUILT[name]}.", param=name
            )
        if name == "n":
            _check_n(value)
            continue
        field = _ALIASES.get(name, name)
        if field not in _FIELDS:
            raise InvalidRequest(f"{name!r} is not a sampling option.", param=name)
        set_[field] = _normalised(field, value)
    if set_.get("top_logprobs"):
        set_.setdefault("logprobs", True)
    if set_:
        _params(set_)
    return set_


def resolve(program: SamplingOptions, own: SamplingOptions) -> SamplingParams:
    """The parameters of one gen."""
    return _params({**DEFAULTS, **program, **own})


def derive_seed(seed: int, *path: int) -> int:
    """A seed for a part of a program, by its path: forks and batch items draw independently, yet repeatably."""
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _params(fields: SamplingOptions) -> SamplingParams:
    return SamplingParams(**fields).check()


def _normalised(field: str, value: Any) -> Any:
    if field in ("stop", "stop_regex", "stop_token_ids"):
        if isinstance(value, str | int):
            return (value,)
        if not isinstance(value, Iterable):
            raise InvalidRequest(f"{field}={value!r} is not a list.", param=field)
        return tuple(value)
    if field == "top_k" and value == -1:  # how that frontend writes "off"
        return None
    if field in ("ignore_eos", "logprobs") and not isinstance(value, bool):
        raise InvalidRequest(f"{field}={value!r} is not True or False.", param=field)
    return value


def _check_n(value: Any) -> None:
    if value != 1 or isinstance(value, bool):
        raise Unsupported(
            f"n={value!r} is not built yet.",
            hint="Use forks = s.fork(n) and one gen in each; the forks share their prefix.",
            param="n",
        )
