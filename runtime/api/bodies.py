"""Request bodies: strict about what they hold, honest about what is left out.

A published field that can't be honoured is refused by name; one that has no effect here is accepted and named in the
answer's `x-palmette-ignored` header; any other unknown field is an error with its path.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec
import orjson
import pydantic
from fastapi import Request
from starlette.requests import ClientDisconnect

from palmette.runtime.api.errors import invalid_body
from palmette.runtime.errors import Aborted, InvalidRequest, Unsupported

IGNORED_HEADER = "x-palmette-ignored"
LARGEST_BODY = 64 << 20  # bytes


class Body(pydantic.BaseModel):
    """Base of the request bodies. Fields that are null count as left out."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    unsupported: ClassVar[dict[str, str]] = {}  # published field → why it is refused
    without_effect: ClassVar[frozenset[str]] = frozenset()
    _ignored: list[str] = pydantic.PrivateAttr(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {IGNORED_HEADER: ", ".join(self._ignored)} if self._ignored else {}


B = TypeVar("B", bound=Body)


async def read(request: Request, kind: type[B]) -> B:
    """The request's body as `kind`. Raises InvalidRequest or Unsupported, naming the field."""
    try:
        given = orjson.loads(await _data(request))
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise InvalidRequest(f"The body is a JSON {type(given).__name__}; it must be an object.")
    return parse(given, kind)


M = TypeVar("M", bound=msgspec.Struct)


async def read_message(request: Request, kind: type[M]) -> M:
    """The request's body as a struct, as our own clients send it. Raises InvalidRequest, naming the field."""
    try:
        return msgspec.json.decode(await _data(request), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:  # ValidationError is a DecodeError
        raise InvalidRequest(f"The body has a wrong form: {error}.") from None


async def _data(request: Request) -> bytearray:
    """The body's bytes. Raises InvalidRequest once they are too many, Aborted where the client leaves first."""
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > LARGEST_BODY:
                raise InvalidRequest(
                    f"The body has more than {LARGEST_BODY} bytes, which is the limit.", hint="Send less at a time."
                )
    except ClientDisconnect:
        raise Aborted("The client went away before the end of its body.") from None
    return data


def parse(given: dict[str, Any], kind: type[B], at: str = "") -> B:
    """`given` as `kind`; `at` is its path in the request's body. Raises InvalidRequest or Unsupported."""
    present = {name: value for name, value in given.items() if value is not None}
    for name, why in kind.unsupported.items():
        if name in present and not _is_off(present.pop(name)):
            path = f"{at}.{name}" if at else name
            raise Unsupported(f"{path!r} is not supported: {why}.", hint="Leave it out.", param=path)
    ignored = sorted(kind.without_effect & present.keys())
    for name in ignored:
        del present[name]
    try:
        body = kind.model_validate(present)
    except pydantic.ValidationError as error:
        raise invalid_body(error, at) from None
    body._ignored.extend(ignored)
    return body


def _is_off(value: Any) -> bool:
    """Values that say what happens anyway."""
    return value is False or value in ([], {}, "", "none", "auto") or value == {"type": "text"}
