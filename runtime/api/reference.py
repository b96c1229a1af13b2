"""The OpenAPI document as tables for people: docs/server.md holds them, and /docs shows them in a page without scripts.

Pure functions of the document (document.py).
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from palmette.runtime.api.document import event_data

LONGEST_DEFAULT = 40  # characters
Schema = dict[str, Any]
Cells = tuple[str, ...]


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    group: str
    text: str
    takes: str | None  # the name of the body
    answers: str


@dataclass(frozen=True)
class FieldRow:
    name: str
    type: str
    default: str
    text: str


def endpoints(document: Schema) -> list[Endpoint]:
    """Every path and method, grouped in the order of the routes."""
    found: list[Endpoint] = []
    for path, methods in document["paths"].items():
        for method, each in methods.items():
            body = each.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            takes = type_of(body) if body else None
            group = (each.get("tags") or ["other"])[0]
            text = " ".join(each.get("description", "").split())
            found.append(Endpoint(method.upper(), path, group, text, takes, _answers(each["responses"]["200"])))
    groups = list(dict.fromkeys(each.group for each in found))
    return sorted(found, key=lambda each: groups.index(each.group))


def _answers(good: Schema) -> str:
    content = good.get("content", {})
    told = [type_of(each["schema"]) for kind, each in content.items() if kind == "application/json"]
    if "text/event-stream" in content:
        told.append(f"events of {type_of(event_data(content))}")
    return " or ".join(told) or ", ".join(content)


def fields(document: Schema, name: str) -> list[FieldRow]:
    """The fields of a model, the required ones first."""
    schema = document["components"]["schemas"][name]
    required = schema.get("required", [])
    rows = [
        FieldRow(
            field,
            type_of(each),
            "required" if field in required else _default(each),
            " ".join(each.get("description", "").split()),
        )
        for field, each in schema.get("properties", {}).items()
    ]
    return sorted(rows, key=lambda row: row.default != "required")


def type_of(schema: Schema) -> str:
    """A schema's type in a word or two; null is left out, since null counts as left out."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            kinds = [type_of(each) for each in schema[key]]
            return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null")) or "null"
    if "enum" in schema:
        return " or ".join(json.dumps(each) for each in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {type_of(items)}" if items else "list"
    return str(schema.get("type", "anything"))


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if value is None or value in ([], {}, ""):
        return ""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= LONGEST_DEFAULT else f"{shown[:LONGEST_DEFAULT]}…"


def models(document: Schema) -> list[str]:
    """The bodies, each followed by the models that its fields name; then the answers."""
    schemas = document["components"]["schemas"]
    seen: dict[str, None] = {}

    def add(name: str) -> None:
        if name in schemas and name not in seen:
            seen[name] = None
            for each in _references(schemas[name]):
                add(each)

    for endpoint in endpoints(document):
        add(endpoint.takes or "")
    for endpoint in endpoints(document):
        for word in endpoint.answers.split():
            add(word)
    return [
        name for name in (*seen, *(name for name in schemas if name not in seen)) if schemas[name].get("properties")
    ]


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield str(schema["$ref"]).rpartition("/")[2]
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def markdown(document: Schema) -> str:
    """Endpoints, then a table for each model."""
    lines = ["| method | path | what it does | body | answer |", "|---|---|---|---|---|"]
    for each in endpoints(document):
        cells = (each.method, f"`{each.path}`", each.text, each.takes or "", each.answers)
        lines.append(_row(cells))
    for name in models(document):
        text = " ".join(document["components"]["schemas"][name].get("description", "").split())
        lines += ["", f"### {name}", "", *([text, ""] if text else [])]
        lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
        lines += [_row((f"`{row.name}`", row.type, row.default, row.text)) for row in fields(document, name)]
    return "\n".join(lines) + "\n"


def _row(cells: Cells) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem }
td, th { border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top }
code { background: #f4f4f4; padding: 0 .2em }
h3 { margin: 2rem 0 0 }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #ddd } code { background: #222 } td, th { border-color: #333 }
}
"""


def page(document: Schema) -> str:
    """The tables as an HTML page that needs nothing from elsewhere."""
    names = set(models(document))
    title, about = html.escape(document["info"]["title"]), html.escape(document["info"].get("description", ""))
    parts = [f"<h1>{title}</h1><p>{about} <a href='openapi.json'>openapi.json</a></p>"]
    rows: list[Cells] = []
    for each in endpoints(document):
        takes, answers = _linked(each.takes or "", names), _linked(each.answers, names)
        rows.append((each.method, _code(each.path), html.escape(each.text), takes, answers))
    parts.append(_table(("method", "path", "what it does", "body", "answer"), rows))
    for name in models(document):
        text = document["components"]["schemas"][name].get("description", "")
        parts.append(f"<h3 id='{name}'>{name}</h3><p>{html.escape(text)}</p>")
        found: list[Cells] = [
            (_code(row.name), _linked(row.type, names), html.escape(row.default), html.escape(row.text))
            for row in fields(document, name)
        ]
        parts.append(_table(("field", "type", "default", "meaning"), found))
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{title}</title>"
    body = "".join(parts)
    return f"<!doctype html><html lang='en'><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>"


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"


def _linked(text: str, names: set[str]) -> str:
    words = [f"<a href='#{word}'>{word}</a>" if word in names else html.escape(word) for word in text.split(" ")]
    return " ".join(words)


def _table(head: Cells, rows: list[Cells]) -> str:
    top = "".join(f"<th>{each}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"
