"""The words of the language: gen, select, and the roles. Each checks its arguments where it is written."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import msgspec

from palmette.lang.choices import SAMPLE, ChoicesMethod, choices_method
from palmette.lang.errors import names_keywords
from palmette.lang.nodes import AnyOrder, Expr, ExprList, GenNode, RoleBegin, RoleEnd, SelectNode, parts_of
from palmette.lang.sampling import options, outputs
from palmette.lang.types import OutputType, output_type
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.grammar import Jump

P = ParamSpec("P")
_AnyType = type  # gen has a parameter of that name


def _remembered(function: Callable[P, Expr]) -> Callable[P, Expr]:
    """Programs write the same expressions again and again: what was made of the same arguments is used again."""
    remembered = functools.lru_cache(maxsize=1024, typed=True)(function)

    @functools.wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> Expr:
        try:
            return remembered(*args, **kwargs)  # type: ignore[arg-type]
        except TypeError:  # an argument that can't be looked up, as a list; or what the function itself raises
            return function(*args, **kwargs)

    return made


@names_keywords
@_remembered
def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: Any = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesMethod | str | None = None,
    regex: str | None = None,
    json_schema: str | dict[str, Any] | _AnyType | None = None,
    *,
    type: Any = None,
    logprobs: bool | None = None,
    top_logprobs: int | None = None,
    priority: int | None = None,
    timeout: float | None = None,
    repetition_penalty: float | None = None,
    logit_bias: dict[int, float] | None = None,
    seed: int | None = None,
    ebnf: str | None = None,
    jump: Jump | None = None,
    complete: bool | None = None,
) -> Expr:
    """Text that the model writes; `s[name]` reads it.

    Options that are not given come from `run(...)`; `max_tokens` is 128 and `temperature` 1.0 where neither says. The
    output ends at a `stop` text, a match of `stop_regex` or one of `stop_token_ids`, and is kept without it; with
    `return_logprob` (or `logprobs`) and `top_logprobs_num` (or `top_logprobs`), `s.get_meta_info(name)` has
    log-probabilities. `seed` makes it repeatable.
    With `choices` it is `select`, or with choices_method="sample" one of them, drawn token by token with the sampling
    options. With `regex`, `json_schema` or `ebnf` the text as a whole matches; `jump` says what is taken without asking
    the model, `complete` that the text ends within max_tokens (runtime/messages/grammar.py).

    With `type` (or `dtype`) the model writes text that the type can be made of, and `s[name]` is the value: int, float,
    bool, str, date, time, datetime, an Enum, a Literal, a dataclass, a pydantic model, a list of such (lang/types.py).
    With `n` there are n outputs from the same prompt, and `s[name]` is their list; the first one stands in the text.
    `timeout` is in seconds; calls of higher `priority` go first.

    Raises InvalidRequest for a value outside its limits, Unsupported for an option that is not built.
    """
    given = {option: value for option, value in locals().items() if value is not None}
    for own in ("name", "choices", "choices_method"):
        given.pop(own, None)
    _check_name(name)
    if isinstance(max_tokens, _AnyType):
        raise InvalidRequest(
            f"max_tokens={max_tokens!r} is a type.",
            hint=f"Types go by name: gen({name!r}, type=…).",
            param="max_tokens",
        )
    if max_tokens == 0 and not isinstance(max_tokens, bool):
        raise InvalidRequest("max_tokens=0 writes nothing.", hint="Give 1 or more.", param="max_tokens")
    if choices_method == SAMPLE:
        given["choices"] = _checked_choices(choices)
    elif choices is not None:
        set_ = given.keys() - {"temperature", "max_tokens", "priority", "timeout"}
        if set_:
            raise InvalidRequest(
                f"gen(choices=...) scores the choices; {', '.join(sorted(set_))} has no meaning there.",
                hint="Leave it out, or draw one of them with choices_method='sample'.",
                param=min(set_),
            )
        return select(name, choices, temperature or 0.0, choices_method, priority=priority, timeout=timeout)
    count = outputs(given.pop("n", None))
    wanted = _output_type(given)
    return GenNode(name, options(given), count, wanted)


def _output_type(given: dict[str, Any]) -> OutputType | None:
    """Takes the type out of a gen's options, and puts what holds the output to it in. Raises InvalidRequest."""
    named = [option for option in ("type", "dtype") if option in given]
    if not named:
        return None
    first, *more = named
    if rivals := [option for option in ("regex", "json_schema", "ebnf", "choices", *more) if option in given]:
        raise InvalidRequest(
            f"{first} and {rivals[0]} were given together; an output follows one grammar.",
            hint="Leave one of them out.",
            param=rivals[0],
        )
    output = output_type(given.pop(first))
    if output.constraint is not None:
        held = {option: given.pop(option) for option in ("jump", "complete") if option in given}
        given["constraint"] = msgspec.structs.replace(output.constraint, **held)
    if output.stop_regex:
        own = given.get("stop_regex", ())
        given["stop_regex"] = (*output.stop_regex, *((own,) if isinstance(own, str) else own))
    return output


def separate_reasoning(expr: Expr | str, model_type: str = "auto") -> Expr:
    """`expr` with what its gens think kept apart from what they answer: `s["x"]` is the answer, and
    `s["x_reasoning_content"]` the reasoning. The state's text stays what the model wrote.

    `model_type`: the tags, by name (think, mistral, …) or written as "<reason>...</reason>"; "auto": the model's own.
    """
    if not isinstance(model_type, str) or not model_type:
        raise InvalidRequest(f"model_type={model_type!r} is not the name of a format.", param="model_type")
    return ExprList(
        tuple(
            dataclasses.replace(part, reasoning=model_type) if isinstance(part, GenNode) else part
            for part in parts_of(expr)
        )
    )


@names_keywords
def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: ChoicesMethod | str | None = None,
    *,
    priority: int | None = None,
    timeout: float | None = None,
) -> Expr:
    """The likeliest of `choices`, appended and kept as `s[name]`.

    `choices_method` says what likeliest means: token_length_normalized (the default), greedy_token_selection or
    unconditional_likelihood_normalized. Nothing is sampled, so `temperature` (part of the interface) changes nothing.
    `timeout` is in seconds; calls of higher `priority` go first; both from `run(...)` where they aren't given.
    Raises InvalidRequest for choices that are not non-empty strings.
    """
    _check_name(name)
    checked = _checked_choices(choices)
    if not isinstance(temperature, int | float):
        raise InvalidRequest(f"temperature={temperature!r} is not a number.", param="temperature")
    own = {"priority": priority, "timeout": timeout}
    sampling = options({option: value for option, value in own.items() if value is not None})
    return SelectNode(name, checked, _choices_method(choices_method), sampling)


def any_order(texts: Sequence[str]) -> Expr:
    """`texts` one behind the other, in an order that doesn't matter: documents found, tools, examples.

    They stand as they are given. `run_batch(reorder=True)` puts them so that more programs of the batch begin alike,
    and their common beginning is computed once. Raises InvalidRequest for what is no list of strings.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise InvalidRequest(
            f"any_order({texts!r:.60}) takes a list of strings.", hint='Write any_order(["…", "…"]).', param="texts"
        )
    for text in texts:
        if not isinstance(text, str):
            raise InvalidRequest(
                f"any_order has {text!r:.60}, which is no string.",
                hint="What the model writes has its place; append it behind or before.",
                param="texts",
            )
    return AnyOrder(tuple(texts))


def _checked_choices(choices: object) -> tuple[str, ...]:
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise InvalidRequest(
            f"choices={choices!r} is not a list of at least one string.",
            hint='Write them as in choices=["yes", "no"].',
            param="choices",
        )
    for choice in choices:
        if not isinstance(choice, str) or not choice:
            raise InvalidRequest(f"choices has {choice!r}, which is not a non-empty string.", param="choices")
    return tuple(choices)


_choices_method = choices_method  # the parameter of that name hides the function


def system(expr: object = None) -> Expr:
    """A system turn around `expr`."""
    return turn("system", expr)


def user(expr: object = None) -> Expr:
    """A user turn around `expr`."""
    return turn("user", expr)


def assistant(expr: object = None) -> Expr:
    """An assistant turn around `expr`."""
    return turn("assistant", expr)


def system_begin() -> Expr:
    """Opens a system turn, which `system_end()` closes: `s += system_begin() + "…" + system_end()`."""
    return RoleBegin("system")


def system_end() -> Expr:
    """Closes the turn that `system_begin()` opened."""
    return RoleEnd("system")


def user_begin() -> Expr:
    """Opens a user turn, which `user_end()` closes: `s += user_begin() + "…" + user_end()`."""
    return RoleBegin("user")


def user_end() -> Expr:
    """Closes the turn that `user_begin()` opened."""
    return RoleEnd("user")


def assistant_begin() -> Expr:
    """Opens an assistant turn, which `assistant_end()` closes: `s += assistant_begin() + "…" + assistant_end()`."""
    return RoleBegin("assistant")


def assistant_end() -> Expr:
    """Closes the turn that `assistant_begin()` opened."""
    return RoleEnd("assistant")


def turn(role: str, expr: object) -> ExprList:
    """A whole turn of `role`. An empty one holds no text."""
    inner = () if expr is None else parts_of(expr)
    return ExprList((RoleBegin(role), *inner, RoleEnd(role)))


def _check_name(name: object) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise InvalidRequest(
            f"name={name!r} is not a non-empty string.",
            hint="The first argument is the variable's name; give the others by theirs, as in max_tokens=32.",
            param="name",
        )
