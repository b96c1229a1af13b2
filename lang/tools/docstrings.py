"""What a docstring says of a function and its parameters: Google's `Args:`, NumPy's `Parameters`, and `:param x:`."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):?\s*")
_ENTRY = re.compile(r"(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_FIELD = re.compile(r":param\s+(?:[\w\[\], |]+\s+)?(\w+):\s*(.*)")


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """The text before any section, and the descriptions of parameters by name, each as one line."""
    summary: list[str] = []
    parameters: dict[str, list[str]] = {}
    section, current, indent = "", None, 0
    for line in inspect.cleandoc(docstring).splitlines():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if field := _FIELD.fullmatch(text):
            section, current, indent = "fields", field[1], depth
            parameters[current] = [field[2]]
        elif text.startswith(":"):  # another field, as :returns:
            section, current = "fields", None
        elif depth == 0 and (found := _SECTION.fullmatch(text)):
            section, current = found[1], None
        elif set(text) == {"-"}:
            continue  # NumPy's underline
        elif not section:
            summary.append(text)
        elif section == "Parameters" and depth == 0:  # NumPy's: a name, perhaps with its type
            current, indent = text.split(":")[0].strip(), depth
            parameters[current] = []
        elif section in ("Args", "Arguments", "Parameters"):
            if section != "Parameters" and (entry := _ENTRY.fullmatch(text)) and (current is None or depth <= indent):
                current, indent = entry[1], depth
                parameters[current] = [entry[2]]
            elif current is not None and text:
                parameters[current].append(text)
        elif section == "fields" and current is not None and text:
            parameters[current].append(text)
    joined = {name: " ".join(filter(None, lines)) for name, lines in parameters.items()}
    paragraphs = " ".join(summary).strip()
    return re.sub(r"\s+", " ", paragraphs), {name: text for name, text in joined.items() if text}
