"""JSON as clients send it: small bodies at once, large ones piece by piece, so that a thread can read them beside the
event loop (a parser in C keeps the interpreter for a whole body; this one lets go of it after every string).

Used by bodies.py; knows nothing of what a body means.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable
from json import decoder, scanner
from typing import Any

import orjson

from palmette.runtime.errors import InvalidRequest

LARGE = 12 << 10  # bytes of a body that takes about half a millisecond to read and check
HUGE = 64 << 10  # of one that a thread shouldn't read in one piece either


def parse_json(data: bytes | bytearray) -> Any:
    """The value of a body; a byte order mark before it is none of it. Raises InvalidRequest saying what is wrong."""
    try:
        return orjson.loads(_unmarked(data))
    except orjson.JSONDecodeError as error:
        raise _no_json(str(error)) from None


def parse_large_json(data: bytes | bytearray) -> Any:
    """The same, some twenty times slower and without holding up other threads."""
    try:
        return _DECODER.decode(_unmarked(data).decode())
    except RecursionError:
        raise _no_json("it is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, UnicodeError, and numbers of thousands of digits
        raise _no_json(str(error)) from None


def _unmarked(data: bytes | bytearray) -> bytes | bytearray:
    return data[len(BOM_UTF8) :] if data.startswith(BOM_UTF8) else data


def _no_json(problem: str) -> InvalidRequest:
    return InvalidRequest(f"The body is not JSON: {problem}.")


def _string(text: str, begin: int, strict: bool = True) -> tuple[str, int]:
    value, end = decoder.scanstring(text, begin, strict)  # type: ignore[attr-defined]
    if not value.isascii():
        value.encode()  # half a surrogate pair is no character, and raises
    return value, end


def _whole(text: str) -> int | float:
    """As the other reader has it: what 64 bits don't hold is a float, and no whole number to whoever wants one."""
    value = int(text)
    return value if -(2**63) <= value < 2**64 else float(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, _ in pairs:
        if not name.isascii():
            name.encode()  # as in _string, which names don't go through
    return dict(pairs)


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


class _PieceByPiece(json.JSONDecoder):
    """The standard library's decoder with its loops in Python, and only its strings read in C."""

    scan_once: Callable[[str, int], tuple[Any, int]]

    def __init__(self) -> None:
        super().__init__(parse_constant=_constant, parse_int=_whole, object_pairs_hook=_object)
        self.parse_string = _string
        self.parse_object = decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_array = decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = scanner.py_make_scanner(self)  # type: ignore[attr-defined]


_DECODER = _PieceByPiece()
