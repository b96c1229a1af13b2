"""Request bodies: strict about what they hold, honest about what is left out.

A published field that can't be honoured is refused by name; one that has no effect here is accepted and named in the
answer's `x-palmette-ignored` header; any other unknown field is an error with its path. A lenient server leaves out
what it would refuse for its name, and names that too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import msgspec
import pydantic
from fastapi import Request
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from palmette.runtime.api.errors import invalid_body, unknown_field
from palmette.runtime.api.json_request import HUGE, LARGE, parse_json, parse_large_json
from palmette.runtime.api.limits import BODIES_AT_ONCE, BODY_RATE, Limits
from palmette.runtime.errors import (
    Aborted,
    BodyTooLarge,
    InvalidRequest,
    Overloaded,
    TooSlow,
    UnknownEncoding,
    Unsupported,
)
from palmette.runtime.frontend.offload import Offload

IGNORED_HEADER = "x-palmette-ignored"
LARGE_THINGS = "palmette.large"  # in a request's scope
MOST_NAMED = 40  # fields in that header
LONGEST_NAME = 200  # characters of one
_JSON_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a truth value",
               type(None): "the null"}  # fmt: skip


@dataclass
class Reading:
    """How this server reads bodies; the application holds it. `held`: bytes of the bodies that are being read now."""

    limits: Limits = field(default_factory=Limits)
    lenient: bool = False
    offload: Offload = field(default_factory=Offload)
    held: int = 0


class Body(pydantic.BaseModel):
    """Base of the request bodies. Fields that are null count as left out. The texts below fields are shown in docs."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
    unsupported: ClassVar[dict[str, str]] = {}  # published field → why it is refused
    without_effect: ClassVar[frozenset[str]] = frozenset()
    _ignored: list[str] = pydantic.PrivateAttr(default_factory=list)
    _lenient: bool = pydantic.PrivateAttr(default=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """A body refuses and ignores what its bases do, too."""
        super().__pydantic_init_subclass__(**options)
        for base in cls.__mro__:
            if issubclass(base, Body):
                cls.unsupported = {**base.unsupported, **cls.unsupported}
                cls.without_effect |= base.without_effect

    def prepare(self) -> None:
        """Called in a thread where the body is large: what takes long with such a one is done here, and kept.

        Raises what it would raise later, in the event loop.
        """

    @property
    def headers(self) -> dict[str, str]:
        """Names what was accepted and has no effect; of the whole body, nested objects included."""
        if not self._ignored:
            return {}
        names = [_printable(name) for name in dict.fromkeys(self._ignored)]
        more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        return {IGNORED_HEADER: ", ".join(names[:MOST_NAMED] + more)}

    def nested(self, given: dict[str, Any], kind: type[B], at: str) -> B:
        """An object inside this body, read as the body was; what it ignores is named with the body's own."""
        return parse(given, kind, at, lenient=self._lenient, ignored=self._ignored)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """What is accepted without effect is in the schema too: it says what a client may send."""
        schema = handler.resolve_ref_schema(handler(core))
        own_first = dict.fromkeys(name for kind in cls.__mro__ for name in vars(kind).get("__annotations__", {}))
        given = schema.get("properties", {})
        properties = {name: given[name] for name in own_first if name in given}
        ignored = {name: {"description": "Accepted; has no effect here."} for name in sorted(cls.without_effect)}
        schema["properties"] = {**properties, **given, **ignored}
        return schema


B = TypeVar("B", bound=Body)
M = TypeVar("M", bound=msgspec.Struct)


async def read(request: Request, kind: type[B]) -> B:
    """The request's body as `kind`. Raises InvalidRequest or Unsupported, naming the field."""
    reading = _reading(request)
    async with _data(request, reading) as data:
        if len(data) < LARGE:
            return _as_body(parse_json(data), kind, lenient=reading.lenient)
        parsed = parse_json if len(data) < HUGE else parse_large_json

        def work() -> B:
            body = _as_body(parsed(data), kind, lenient=reading.lenient)
            body.prepare()
            return body

        body = await reading.offload.run(work)
        free_at_end(request, body)
        return body


def free_at_end(request: Request, thing: object) -> None:
    """`thing` is so large that giving it up takes a while: not in the event loop, then. It lives as long as the request
    and is freed in a thread (FreeLarge)."""
    request.scope.setdefault(LARGE_THINGS, []).append(thing)


class FreeLarge:
    """Hands what `free_at_end` has kept to a thread, once the application is done with a request."""

    def __init__(self, app: ASGIApp, offload: Offload) -> None:
        self._app = app
        self._offload = offload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        things: list[object] = []
        scope[LARGE_THINGS] = things
        try:
            await self._app(scope, receive, send)
        finally:
            if things:
                self._offload.free(things)


async def read_message(request: Request, kind: type[M]) -> M:
    """The request's body as a struct, as our own clients send it. Raises InvalidRequest, naming the field."""
    reading = _reading(request)
    async with _data(request, reading) as data:
        if len(data) < LARGE:
            return _as_message(data, kind)
        return await reading.offload.run(lambda: _as_message(data, kind))


def _reading(request: Request) -> Reading:
    found = getattr(request.app.state, "reading", None)
    return found if isinstance(found, Reading) else Reading()


def _as_body(given: Any, kind: type[B], *, lenient: bool) -> B:
    if not isinstance(given, dict):
        raise InvalidRequest(f"The body is {_JSON_KINDS[type(given)]} of JSON; it must be an object.")
    return parse(given, kind, lenient=lenient)


def _as_message(data: bytearray, kind: type[M]) -> M:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:  # ValidationError is a DecodeError
        raise InvalidRequest(f"The body has a wrong form: {error}.") from None


@asynccontextmanager
async def _data(request: Request, reading: Reading) -> AsyncIterator[bytearray]:
    """The body's bytes, which count as held until they are left. Raises UnknownEncoding where they are encoded,
    BodyTooLarge once they are too many, Overloaded where those of all bodies are, Aborted where the client leaves
    first, TooSlow where it stops sending or drips."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnknownEncoding(
            f"The body has the Content-Encoding {encoding!r}, which is not read here.",
            hint="Send it as it is: small bodies are cheap, and large ones are local.",
        )
    data, most = bytearray(), reading.limits.body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise too_large(most)
    try:
        async with asyncio.timeout(reading.limits.body_seconds) as patience:
            begun = asyncio.get_running_loop().time()
            async for chunk in request.stream():
                if len(data) + len(chunk) > most:
                    raise too_large(most)
                if reading.held + len(chunk) > BODIES_AT_ONCE * most:
                    raise Overloaded(
                        f"{reading.held} bytes of bodies are being read; at most {BODIES_AT_ONCE * most} can be.",
                        hint="Try again in a moment.",
                    )
                data += chunk
                reading.held += len(chunk)
                given = reading.limits.body_seconds
                now = asyncio.get_running_loop().time()
                patience.reschedule(min(now, begun + len(data) / BODY_RATE) + given)
        yield data
    except ClientDisconnect:
        raise Aborted("The client went away before the end of its body.") from None
    except TimeoutError:
        given = reading.limits.body_seconds
        raise TooSlow(
            f"The body came too slowly: no byte for {given:g} s, or less than {BODY_RATE} bytes a second for longer.",
            hint="Send it in one go.",
        ) from None
    finally:
        reading.held -= len(data)


def too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body has more than {most} bytes, which is the limit.",
        hint="Send less at a time, or start the server with a larger --max-body-bytes.",
    )


def parse(
    given: dict[str, Any],
    kind: type[B],
    at: str = "",
    *,
    lenient: bool = False,
    ignored: list[str] | None = None,
) -> B:
    """`given` as `kind`; `at` is its path in the request's body. Raises InvalidRequest or Unsupported.

    What has no effect is named in the body's headers, and in `ignored` where that is given.
    """
    present = {name: value for name, value in given.items() if value is not None}
    left_out = sorted(kind.without_effect & present.keys())
    for name, why in kind.unsupported.items():
        if name not in present or _is_off(present.pop(name)):
            continue
        if not lenient:
            path = _path(at, name)
            raise Unsupported(f"{path!r} is not supported: {why}.", hint="Leave it out.", param=path)
        left_out.append(name)
    for name in left_out:
        present.pop(name, None)
    stray = _stray(present, kind)
    if stray and not lenient:
        raise unknown_field(_path(at, stray[0]))
    for name in stray:
        present.pop(name)
    body, unknown = _validated(present, kind, at, lenient=lenient)
    names = [_path(at, name) for name in left_out + unknown + stray]
    body._lenient = lenient
    body._ignored.extend(names)
    if ignored is not None:
        ignored.extend(names)
    return body


def _stray(present: dict[str, Any], kind: type[B]) -> list[str]:
    """Names in `present` that are no fields of `kind`: found here, since pydantic makes an error of each, and there may
    be a hundred thousand."""
    known = {name for field, info in kind.model_fields.items() for name in (field, info.alias) if name is not None}
    return [name for name in present if name not in known]


def _validated(present: dict[str, Any], kind: type[B], at: str, *, lenient: bool) -> tuple[B, list[str]]:
    """The body, and the paths of unknown fields that a lenient server left out."""
    unknown: list[str] = []
    while True:
        try:
            return kind.model_validate(present), unknown
        except pydantic.ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            extra = [each["loc"] for each in problems if each["type"] == "extra_forbidden"]
            if not lenient or not extra or not all(_removed(present, place) for place in extra):
                raise invalid_body(error, at) from None
            unknown += [".".join(map(str, place)) for place in extra]


def _removed(value: Any, place: Sequence[int | str]) -> bool:
    """Take out what lies at `place`; False where it isn't there (in a union, pydantic names the member tried)."""
    for step in place[:-1]:
        if isinstance(value, dict) and step in value:
            value = value[step]
            continue
        if not isinstance(value, list) or not isinstance(step, int) or step >= len(value):
            return False
        value = value[step]
    if not isinstance(value, dict) or place[-1] not in value:
        return False
    del value[place[-1]]
    return True


def _path(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _printable(name: str) -> str:
    """A field's name as a header may hold it."""
    shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return shown.encode("ascii", "backslashreplace").decode().replace("\r", "\\r").replace("\n", "\\n")


def _is_off(value: Any) -> bool:
    """Values that say what happens anyway."""
    return value is False or value in ([], {}, "", "none", "auto") or value == {"type": "text"}
