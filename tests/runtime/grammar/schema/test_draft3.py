"""Draft 3 is read before anything is checked, so what is nested without end must not stop its reader."""

from __future__ import annotations

import contextlib

import pytest

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.schema.document import read

DECLARED = '{"$schema":"http://json-schema.org/draft-03/schema#","items":'


@pytest.mark.parametrize(
    ("before", "after"),
    [('{"items":', "}"), ('{"extends":[', "]}"), ('{"properties":{"a":', "}}"), ('{"type":[', "]}"),
     ('{"disallow":[', "]}")],
)  # fmt: skip
@pytest.mark.parametrize("head", ["", DECLARED])
@pytest.mark.parametrize("leaf", ["{}", '{"type":"any"}'])
def test_what_is_nested_deeply_is_refused_at_worst(before: str, after: str, head: str, leaf: str) -> None:
    for levels in (20, 240, 480):
        text = head + before * levels + leaf + after * levels + "}" * bool(head)
        with contextlib.suppress(GrammarError):
            read(text)
