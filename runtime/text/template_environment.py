"""The jinja2 sandbox that chat templates are written for: its filters, functions and limits.

Only chat_template.py calls it. A template can reach nothing but its variables, and what could grow without bound
(repetition, powers, ranges) is limited.
"""

from __future__ import annotations

import json
import traceback
from datetime import datetime
from functools import cache
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from palmette.runtime.text.json_object import JsonObject

MAX_REPEATED = 1 << 20
MAX_POWER = 64
_FILE = "<template>"  # how jinja2 names a template made from a string


class TemplateRefusal(jinja2.TemplateError):
    """The template called raise_exception, or went over a limit."""


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if not all(isinstance(value, int | float) and abs(value) <= MAX_POWER for value in (left, right)):
                raise TemplateRefusal(f"{left!r} ** {right!r} is beyond its limits")
        elif _repeated(left, right) > MAX_REPEATED:
            raise TemplateRefusal(f"a repetition is longer than {MAX_REPEATED}")
        return super().call_binop(context, operator, left, right)


class _Generation(jinja2.ext.Extension):
    """{% generation %} … {% endgeneration %} marks what to train on; here it is only its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@cache
def template_environment() -> jinja2.Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_written,
        extensions=["jinja2.ext.loopcontrols", _Generation],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def line_of(error: BaseException) -> int | str:
    """The template's line that raised it (jinja2 writes template lines into tracebacks)."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    return lines[-1] if lines and lines[-1] is not None else "unknown"


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Templates expect plain JSON, without the escapes for HTML that jinja2's own filter makes."""
    if isinstance(value, JsonObject) and value.verbatim and not (indent or separators or sort_keys):
        return value.text
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _written(value: Any) -> Any:
    """What isn't there is written as nothing: an assistant's message that only called tools has no content."""
    return "" if value is None else value


def _raise_exception(message: str) -> None:
    raise TemplateRefusal(str(message).rstrip("."))


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _repeated(left: Any, right: Any) -> int:
    """How long a product is that repeats a sequence; 0 for one of numbers."""
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
            return len(sequence) * max(times, 0)
    return 0
