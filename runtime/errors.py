"""Every error a user can meet: what was wrong, what to do, and whether trying again can help.

A leaf: imports nothing of ours. Raised everywhere; `ErrorInfo` is the form that crosses a process.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class ErrorInfo(msgspec.Struct, frozen=True):
    """An error on the wire. `kind` is the name of a class in this module."""

    kind: str
    message: str
    hint: str = ""
    param: str | None = None


class PalmetteError(Exception):
    """Base of all our errors.

    `message` says what was wrong with the offending value in it, `hint` what to do about it, `param` names the
    argument or field at fault where there is one. `retryable`: the same call may succeed later; in about `retry_after`
    seconds, where that can be said (not on the wire: it is said by the front, which knows the queue). `code`: what
    clients of OpenAI's API know it by, in answers over HTTP, where they know it; else it is the name of the class.
    """

    retryable = False
    http_status = 500
    code: ClassVar[str] = ""
    retry_after: float | None = None

    def __init__(self, message: str, *, hint: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.param = param

    @classmethod
    def http_code(cls) -> str:
        """See `code`."""
        return cls.code or cls.__name__

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def info(self) -> ErrorInfo:
        """On the wire: of the nearest kind that the other side knows, so that a narrower one keeps its status."""
        known = (kind.__name__ for kind in type(self).__mro__ if _KINDS.get(kind.__name__) is kind)
        return ErrorInfo(next(known, InternalError.__name__), self.message, self.hint, self.param)


class InvalidRequest(PalmetteError):
    """A value outside its limits, or a combination that makes no sense."""

    http_status = 400


class BodyTooLarge(InvalidRequest):
    """The request's body has more bytes than the server takes."""

    http_status = 413


class UnknownEncoding(InvalidRequest):
    """The request's body is compressed, or otherwise encoded."""

    http_status = 415


class ContextLengthExceeded(InvalidRequest):
    """The prompt, or prompt + max_tokens, does not fit the model's context."""

    code = "context_length_exceeded"


class NeverFits(InvalidRequest):
    """The request needs more KV pages than the whole pool has."""

    code = "context_length_exceeded"  # what helps is the same


class GrammarError(InvalidRequest):
    """A pattern, schema or grammar that can't be used: wrong, not supported, or too large; the message says where."""


class Forbidden(PalmetteError):
    """The caller is known and may not do this."""

    http_status = 403


class Unsupported(InvalidRequest):
    """A published feature that is not here (yet); named, never silently ignored."""


class ModelError(PalmetteError):
    """The model's files can't be used: not found, damaged, of an unknown architecture, no chat template."""

    http_status = 400


class ModelNotFound(ModelError):
    """No file, folder or known name of a model is like that."""

    http_status = 404
    code = "model_not_found"


class ResponseNotFound(PalmetteError):
    """The response is not kept here, or is another caller's."""

    http_status = 404


class DamagedModel(ModelError):
    """A file of the model is cut off, or isn't what it says it is."""


class UnknownArchitecture(ModelError):
    """The model's files are of a kind that isn't built here."""


class Aborted(PalmetteError):
    """The request was aborted by its client."""

    http_status = 499


class TooSlow(PalmetteError):
    """The client began to send a body and stopped."""

    http_status = 408


class TimedOut(PalmetteError):
    """It took longer than the program allows."""

    retryable = True
    http_status = 504


class Overloaded(PalmetteError):
    """Too much is queued."""

    retryable = True
    http_status = 429


class EngineDied(PalmetteError):
    """The engine process ended while the request was open. It is being restarted."""

    retryable = True
    http_status = 503


class BranchLost(PalmetteError):
    """The branch is not known to this runtime (restarted, expired or closed). Reopen it from its history."""

    retryable = True
    http_status = 410


class InternalError(PalmetteError):
    """A fault of ours. It failed this request only."""


_KINDS: dict[str, type[PalmetteError]] = {
    kind.__name__: kind
    for kind in (
        InvalidRequest, BodyTooLarge, UnknownEncoding, ContextLengthExceeded, NeverFits, GrammarError, Forbidden,
        Unsupported, ModelError, ModelNotFound, ResponseNotFound, DamagedModel, UnknownArchitecture, Aborted, TooSlow,
        TimedOut, Overloaded, EngineDied, BranchLost, InternalError,
    )
}  # fmt: skip


_CODES = {kind.code: kind for kind in reversed(_KINDS.values()) if kind.code}


def from_info(info: ErrorInfo) -> PalmetteError:
    """The exception that `info` describes, by its kind or by its code over HTTP; what is unknown here becomes
    InternalError."""
    kind = _KINDS.get(info.kind) or _CODES.get(info.kind, InternalError)
    return kind(info.message, hint=info.hint, param=info.param)
