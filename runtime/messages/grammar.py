"""A grammar as it is asked for, and how an output follows it. Compiled by runtime/grammar in the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec

from palmette.runtime.errors import InvalidRequest

Jump = Literal["bytes", "token", "off"]


class GrammarSource(msgspec.Struct, frozen=True, kw_only=True):
    """What crosses processes, and is compared by content.

    `text`: the pattern, schema (JSON) or grammar; for choices a JSON list of strings. `options` are plain JSON values
    whose names belong to the kind.
    """

    kind: str
    text: str
    options: Mapping[str, Any] = {}

    @property
    def key(self) -> str:
        """Equal for equal content."""
        return sha256(msgspec.json.encode([self.kind, self.text, self.options], order="sorted")).hexdigest()


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """An output that must match `grammar`.

    `jump`: what is taken without asking the model where the grammar leaves one way. "token": only where one token is
    allowed, so tokens are those of "off"; "bytes": the canonical tokens of the forced bytes, which the model might have
    cut otherwise. `complete`: the output ends within its max_tokens wherever that can be done. `forced_logprobs`: the
    model is asked for the tokens of "bytes" too, one by one, so that they have log-probabilities, as in no other way.
    `field`: of the request, in which the grammar was given, for errors; else the grammar's kind is its name.
    """

    grammar: GrammarSource
    jump: Jump = "bytes"
    complete: bool = False
    forced_logprobs: bool = False
    field: str = ""

    def asked(self) -> Constraint:
        """The same, and the same tokens, with the model asked for each: so that each has a log-probability."""
        jump: Jump = "off" if self.jump == "token" else self.jump
        return msgspec.structs.replace(self, jump=jump, forced_logprobs=True)


def as_json(value: Any, param: str) -> str:
    """`value` as JSON, of whatever size its numbers are. Raises InvalidRequest naming `param`."""
    model_schema = getattr(value, "model_json_schema", None)  # pydantic's
    try:
        return json.dumps(model_schema() if callable(model_schema) else value, allow_nan=False)
    except RecursionError:
        problem = "it is nested too deeply"
    except (TypeError, ValueError) as error:
        problem = str(error)
    raise InvalidRequest(f"{param} is no JSON: {problem}.", hint="Give plain values.", param=param)


def constraint(
    *,
    regex: str | None = None,
    choices: Sequence[str] | None = None,
    json_schema: Mapping[str, Any] | str | bool | type | None = None,
    ebnf: str | None = None,
    jump: Jump = "bytes",
    complete: bool = False,
) -> Constraint | None:
    """The one constraint that was given, or None. `json_schema` may be a pydantic model, too.

    Raises InvalidRequest for more than one, and for what is no JSON.
    """
    given = {
        name: value
        for name, value in (("regex", regex), ("choices", choices), ("json_schema", json_schema), ("ebnf", ebnf))
        if value is not None
    }
    if len(given) > 1:
        raise InvalidRequest(
            f"{' and '.join(given)} were given together; an output follows one grammar.",
            hint="Put all that is wanted into one of them.",
            param=next(iter(given)),
        )
    for kind, value in given.items():
        text = value if isinstance(value, str) else as_json(value, kind)
        return Constraint(grammar=GrammarSource(kind=kind, text=text), jump=jump, complete=complete)
    return None
