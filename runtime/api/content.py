"""Content in OpenAI's forms: a text, or parts that hold text. Used by the surfaces that read such messages."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from typing import Any, TypeVar

from palmette.runtime.api.bodies import Body
from palmette.runtime.errors import InvalidRequest, Unsupported

P = TypeVar("P", bound=Body)


def parts_of(body: Body, given: Any, path: str, form: type[P], kinds: Collection[str]) -> list[P]:
    """The parts of a content that is no text: each a `form` of one of `kinds`. Raises InvalidRequest or Unsupported,
    naming the path."""
    if not isinstance(given, list):
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is neither a text nor a list of parts.", param=path)
    return [_part(body, part, f"{path}.{index}", form, kinds) for index, part in enumerate(given)]


def _part(body: Body, given: Any, path: str, form: type[P], kinds: Collection[str]) -> P:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind is None:
        raise InvalidRequest(f"{path}: {reprlib.repr(given)} is not a content part.", param=path)
    if isinstance(kind, str) and kind not in kinds:
        raise Unsupported(
            f"{path}: content of type {reprlib.repr(kind)} is not supported; the model reads text only.",
            param=f"{path}.type",
        )
    return body.nested(given, form, path)
