"""An object in a message that templates may take as an object or as its JSON text, whichever they were written for.

A tool call's arguments are such: one template iterates over them or passes them through `tojson`, another writes them
out or joins them to a text. Made by the frontend, hidden like any other value by disguise.py, written by `tojson` in
template_environment.py.
"""

from __future__ import annotations

from typing import Any


class JsonObject(dict[str, Any]):
    """A mapping that is written as `text`, the JSON it was read from; `verbatim`: also by `tojson`, which else sets
    its own spaces."""

    def __init__(self, values: dict[str, Any], text: str, *, verbatim: bool = False) -> None:
        super().__init__(values)
        self.text = text
        self.verbatim = verbatim

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: object) -> str:
        return self.text + str(other)

    def __radd__(self, other: object) -> str:
        return str(other) + self.text
