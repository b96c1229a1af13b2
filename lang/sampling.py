"""Sampling options as programs write them, made into SamplingParams.

A gen's own options win over those given to `run`, which win over the language's defaults. Names and values are
checked where they are written; what isn't built is refused by name. `priority` and `timeout`, of the call and not of
the sampling, go the same way.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.messages.grammar import Jump, constraint
from palmette.runtime.messages.sampling import SamplingParams

SamplingOptions = dict[str, Any]
"""Fields of SamplingParams that were set, by name."""

DEFAULTS: SamplingOptions = {"max_tokens": 128, "temperature": 1.0}

_FIELDS = frozenset(field.name for field in msgspec.structs.fields(SamplingParams))
_ALIASES = {"max_new_tokens": "max_tokens", "return_logprob": "logprobs", "top_logprobs_num": "top_logprobs"}
_NOT_BUILT = {
    "logprob_start_len": "use return_logprob for output tokens, or select(...) to score a given text",
    "return_text_in_logprobs": "token texts are reported for choices; for gen, the variable holds the text",
}
_GRAMMARS = ("regex", "json_schema", "ebnf", "choices", "jump", "complete")
_CALL = ("priority", "timeout")
_OF_ONE_GEN = ("n", "type", "dtype")
SAMPLING_NAMES = frozenset(
    _FIELDS | _ALIASES.keys() | _NOT_BUILT.keys() | (set(_GRAMMARS) - {"choices"}) | {*_CALL, *_OF_ONE_GEN}
)
"""Every sampling option that `run`, `run_batch` and `gen` know by name."""
MOST_OUTPUTS = 128


def options(given: Mapping[str, Any]) -> SamplingOptions:
    """The options of `given` that are not None, under their SamplingParams names, checked. Not to be changed."""
    try:
        return _known_options(tuple(given.items()), tuple(map(type, given.values())))
    except TypeError:  # a value that isn't hashable
        return _checked_options(given)


@functools.lru_cache(maxsize=1024)
def _known_options(given: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> SamplingOptions:
    """A program writes the same gens again and again. `types`: since True and 1 are equal, and not the same here."""
    return _checked_options(dict(given))


def _checked_options(given: Mapping[str, Any]) -> SamplingOptions:
    set_: SamplingOptions = {}
    _check_grammars(given)
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
        if name in _OF_ONE_GEN:
            raise InvalidRequest(f"{name}={value!r} is an option of a single gen.", hint="Give it there.", param=name)
        if name in _CALL:
            set_[name] = _checked_call(name, value)
            continue
        field = _ALIASES.get(name, name)
        if field not in _FIELDS:
            raise InvalidRequest(f"{name!r} is not a sampling option.", param=name)
        set_[field] = _normalised(field, value)
    if set_.get("top_logprobs"):
        set_.setdefault("logprobs", True)
    fields = {name: value for name, value in set_.items() if name not in _CALL}
    if fields:
        SamplingParams(**{**DEFAULTS, **fields}).check()
    return set_


class Settled(NamedTuple):
    """The parameters of one gen. `timeout` in seconds."""

    params: SamplingParams
    priority: int | None = None
    timeout: float | None = None


def settle(program: SamplingOptions, own: SamplingOptions) -> Settled:
    """The parameters of one gen: its own options, those of the run, the defaults. Each is checked already; together
    they are here. Raises InvalidRequest."""
    fields = {**DEFAULTS, **program, **own}
    priority, timeout = fields.pop("priority", None), fields.pop("timeout", None)
    params = SamplingParams(**fields)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        params.check()
    return Settled(params, priority, timeout)


def derive_seed(seed: int, *path: int) -> int:
    """A seed for a part of a program, by its path: forks and batch items draw independently, yet repeatably."""
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _normalised(field: str, value: Any) -> Any:
    if field in ("stop", "stop_regex", "stop_token_ids"):
        if isinstance(value, str | int):
            return (value,)
        if not isinstance(value, Iterable):
            raise InvalidRequest(f"{field}={value!r} is not a list.", param=field)
        return tuple(value)
    if field == "top_k" and value == -1:  # how that frontend writes "off"
        return None
    if field == "logit_bias" and not isinstance(value, Mapping):
        raise InvalidRequest(f"{field}={value!r} is not a mapping of token ids to biases.", param=field)
    if field in ("ignore_eos", "logprobs") and not isinstance(value, bool):
        raise InvalidRequest(f"{field}={value!r} is not True or False.", param=field)
    return value


def _check_grammars(given: Mapping[str, Any]) -> None:
    """Their kinds: a number would be taken for its digits."""
    for name in ("regex", "ebnf"):
        if not isinstance(given.get(name), str | None):
            raise InvalidRequest(f"{name}={given[name]!r} is not a string.", hint="Write it as text.", param=name)
    if isinstance(given.get("json_schema"), int | float | list) and not isinstance(given["json_schema"], bool):
        raise InvalidRequest(
            f"json_schema={given['json_schema']!r} is no schema.",
            hint="Give a dict, JSON text, or a pydantic model.",
            param="json_schema",
        )
    if given.get("jump") is not None and given["jump"] not in get_args(Jump):
        raise InvalidRequest(f"jump={given['jump']!r} is not one of {', '.join(get_args(Jump))}.", param="jump")
    if not isinstance(given.get("complete"), bool | None):
        raise InvalidRequest(f"complete={given['complete']!r} is not True or False.", param="complete")


def _checked_call(name: str, value: Any) -> Any:
    if name == "priority":
        if not isinstance(value, int) or isinstance(value, bool) or not -(2**31) <= value < 2**31:
            raise InvalidRequest(f"priority={value!r} is not a whole number of 32 bits.", param="priority")
    else:
        check_seconds(name, value)
    return value


def check_seconds(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise InvalidRequest(f"{name}={value!r} is not a number of seconds above 0.", param=name)


def outputs(n: Any) -> int:
    """How many outputs `n` asks for. Raises InvalidRequest."""
    if n is None:
        return 1
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MOST_OUTPUTS:
        raise InvalidRequest(f"n={n!r} is not a whole number from 1 to {MOST_OUTPUTS}.", param="n")
    return n
