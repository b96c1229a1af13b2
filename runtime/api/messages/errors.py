"""Errors in the form that Anthropic's clients read, for the paths on which they speak. Used by errors.py."""

from __future__ import annotations

from typing import Any

PATH = "/v1/messages"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_PARAMS = {  # what neighbours call by OpenAI's names
    "response_format": "output_config.format",
    "stop": "stop_sequences",
}
_CODES = {"thread": {"error_code": "thread_unsupported_request", "unsupported": []}}  # helpers send all messages then


def is_messages_path(path: str) -> bool:
    return path == PATH or path.startswith(PATH + "/")


def messages_error(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """{"type": "error", "error": {type, message}}; the message names the field at fault."""
    if param is not None:
        named = _PARAMS.get(param, param)
        place, _, _ = named.rpartition(".")  # a message names the object at fault, or the field of it
        message = message if named in message or (place and place in message) else f"{named}: {message}"
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    error: dict[str, Any] = {"type": kind, "message": message}
    if status == 400 and param in _CODES:
        error["details"] = _CODES[param]
    return {"type": "error", "error": error}
