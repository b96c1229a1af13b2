"""docs/reference.md is what the code says of itself, and every public name has a place and a docstring."""

from __future__ import annotations

import re
from pathlib import Path

from reference_page import SECTIONS, page, undocumented

import palmette


def test_the_page_is_what_the_code_says(root: Path) -> None:
    assert (root / "docs" / "reference.md").read_text() == page(), "write it anew: make reference"


def test_every_public_name_has_one_place() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == palmette.__all__


def test_every_public_name_says_what_it_is() -> None:
    assert undocumented() == []


def test_every_link_leads_to_a_heading() -> None:
    text = re.sub(r"```.*?```", "", page(), flags=re.DOTALL)
    seen: dict[str, int] = {}
    headings = set()
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        headings.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    links = re.findall(r"\]\(#(.*?)\)", text)
    assert len(links) == len(palmette.__all__)
    assert set(links) <= headings
