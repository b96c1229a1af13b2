"""Errors as HTTP answers: OpenAI's form, or Anthropic's where its clients speak; never a traceback. Used by every
surface of the api."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import reprlib
from typing import Any

import pydantic
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.messages.errors import is_messages_path, messages_error
from palmette.runtime.api.methods import allowed_methods, meant_path
from palmette.runtime.api.request_ids import RequestName, name_in
from palmette.runtime.errors import EngineDied, ErrorInfo, InternalError, InvalidRequest, PalmetteError

LONGEST_RETRY = 120  # seconds: whoever comes again finds things changed by then
LONGEST_TEXT = 1000  # characters of a message; what a client sent is quoted in it, however long that is
BASE_URLS = "http://HOST:PORT/v1 for OpenAI's clients, http://HOST:PORT for Anthropic's"

log = logging.getLogger(__name__)

_MISPLACED = (  # what stands a level too high or too low, as it does in another API
    (
        re.compile(r"tools\.\d+\.(name|description|parameters|strict|function|input_schema)"),
        "Tools of chat completions are {'type': 'function', 'function': {'name', 'description', 'parameters'}}; those "
        "of responses have the same beside 'type'; those of messages are {'name', 'description', 'input_schema'}.",
    ),
    (
        re.compile(r"response_format\.json_schema\.(type|properties|required|title|\$defs|items)"),
        "The schema stands in 'schema': 'json_schema': {'name': …, 'schema': {…}}.",
    ),
)

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "overloaded_error",
}


def error_body(error: PalmetteError, path: str = "") -> dict[str, Any]:
    """`error` in the form that clients of `path` read."""
    return failure(error.http_status, str(error), path, param=error.param, code=error.http_code())


def failure(
    status: int, message: str, path: str = "", *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """{"error": {message, type, param, code}}, as OpenAI's clients read it; Anthropic's form on its paths."""
    message, param = shortened(message), shortened(param) if param is not None else None
    if is_messages_path(path):
        return messages_error(status, message, param)
    return {"error": {"message": message, "type": error_type(status), "param": param, "code": code}}


def shortened(text: str) -> str:
    """`text` without its middle where it is too long: the beginning says what is wrong, the end what to do. Halves of
    characters are written out, since no answer can hold them."""
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]} … {text[-half:]}"


def error_type(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def error_response(error: PalmetteError, path: str = "") -> JsonResponse:
    headers = (
        {"retry-after": str(retry_seconds(error))} if error.retryable and error.http_status in (429, 503) else None
    )
    return JsonResponse(error_body(error, path), status_code=error.http_status, headers=headers)


def retry_seconds(error: PalmetteError) -> int:
    """What Retry-After says: whole seconds, at least one."""
    return max(1, min(LONGEST_RETRY, math.ceil(error.retry_after or 1)))


def as_ours(error: Exception, name: RequestName | str) -> PalmetteError:
    """`error` itself where it is one of ours; any other is logged under the request's name, and told as an internal
    error."""
    if isinstance(error, PalmetteError):
        return error
    log.error("request %s failed", name, exc_info=error)
    return InternalError(f"A fault of the server ({type(error).__name__}).", hint=f"Its log has the details: {name}.")


def invalid_body(error: pydantic.ValidationError, at: str = "") -> InvalidRequest:
    """The first thing wrong with a body, with the path to it and its value. `at`: where the body itself lies."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = ".".join([at] * bool(at) + [str(step) for step in first["loc"] if not _is_type_name(step)])
    if first["type"] == "extra_forbidden":
        return unknown_field(path)
    shown = reprlib.repr(first["input"])
    where = path or "the body"
    if first["type"] == "missing":
        return InvalidRequest(f"{where!r} is missing.", param=path or None)
    return InvalidRequest(f"{where}: {first['msg']} (got {shown}).", param=path or None)


def unknown_field(path: str) -> InvalidRequest:
    hint = next((hint for pattern, hint in _MISPLACED if pattern.fullmatch(path)), "Check its name.")
    return InvalidRequest(f"{path!r} is not a field of this request.", hint=hint, param=path)


def _is_type_name(step: int | str) -> bool:
    """Pydantic puts the tried member of a union in the path; it is no part of the body."""
    return isinstance(step, str) and ("[" in step or step in ("str", "int", "bool"))


def install(app: FastAPI) -> None:
    """The handlers that turn what a route raises into an answer."""

    @app.exception_handler(PalmetteError)
    async def ours(request: Request, error: PalmetteError) -> JsonResponse:
        return error_response(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def query(request: Request, error: RequestValidationError) -> JsonResponse:
        """A parameter of the path or the query; bodies are read in bodies.py."""
        first = error.errors()[0]
        name = str(first["loc"][-1])
        return error_response(InvalidRequest(f"{name}: {first['msg']}.", param=name), request.url.path)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JsonResponse:
        where = f"{request.method} {request.url.path}"
        meant = meant_path(app.routes, request.scope) if error.status_code == 404 else None
        hint = f" Did you mean {meant}? The base URL is {BASE_URLS}." if meant is not None else ""
        body = failure(error.status_code, f"{where}: {error.detail}.{hint}", request.url.path)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = allowed_methods(app.routes, request.scope)
        return JsonResponse(body, status_code=error.status_code, headers=headers)

    app.add_middleware(Faults)


class Faults:
    """Answers what no handler knows, once logged; nothing of it reaches the server below."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:  # the server below has waited for long enough, and stops
            log.warning("request %s was cut off by the end of the server", name_in(scope))
            if not started:
                stopped = EngineDied("The server stopped while the request was open.", hint="Send it again later.")
                await error_response(stopped, scope["path"])(scope, receive, send)
        except Exception as error:  # the boundary of the server
            ours = as_ours(error, name_in(scope))
            if not started:
                await error_response(ours, scope["path"])(scope, receive, send)


def event_error(info: ErrorInfo) -> dict[str, Any]:
    """An ErrorInfo as it stands in the native event streams."""
    param = shortened(info.param) if info.param is not None else None
    return {"kind": info.kind, "message": shortened(info.message), "hint": shortened(info.hint), "param": param}
