"""`make server-page`: writes the tables of docs/server.md from the schemas and limits. A test compares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from scripted_link import ScriptedLink

from palmette.runtime.api import limits
from palmette.runtime.api.app import create_app
from palmette.runtime.api.reference import markdown
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.frontend import Frontend
from palmette.runtime.metrics import FrontMetrics
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.turns import TurnRenderer

ROOT = Path(__file__).resolve().parent.parent


def with_tables(root: Path) -> str:
    """The page as it should be: what stands between its marks, made anew."""
    page = (root / "docs" / "server.md").read_text()
    for name, table in _tables().items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        assert page.count(begin) == page.count(end) == 1, f"docs/server.md has no place for {name}"
        page = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + table + end, page, flags=re.DOTALL)  # noqa: B023
    return page


def _tables() -> Mapping[str, str]:
    tokenizer = load_tokenizer(resolve("tiny"))
    link = ScriptedLink(tokenizer.vocabulary, lambda _: [])
    frontend = Frontend(link, tokenizer, TurnRenderer.of(tokenizer), model="tiny", context_length=256)
    document = create_app(frontend).openapi()
    return {"tables": markdown(document), "limits": _limits(), "metrics": _metrics()}


def _limits() -> str:
    rows = [f"| {row.what} | {row.most} | {row.status} | {row.flag and f'`{row.flag}`'} |" for row in limits.table()]
    return "\n".join(["| what | at most | beyond | flag |", "|---|---|---|---|", *rows]) + "\n"


def _metrics() -> str:
    rows = []
    for family in FrontMetrics().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        shown = f", by `{'`, `'.join(labels)}`" if labels else ""
        rows.append(f"| `{name}` | {family.type} | {family.documentation}{shown} |")
    return "\n".join(["| metric | kind | what it is |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "server.md").write_text(with_tables(ROOT))
