"""Which draft of JSON Schema a `$schema` names.

Most names are of the standard's own host; some publishers have names of their own for a draft. A name that isn't known
is no reason to refuse a schema, since its keywords mean the same in all drafts or tell by their form; but a dialect
that is made from a draft with vocabularies may switch keywords off, and is refused. Called by document.py.
"""

from __future__ import annotations

import re
from typing import Any

from palmette.runtime.errors import GrammarError

DEFAULT = 2020

_OWN = re.compile(r"draft[-/]?(?:v)?0?([3-7])(?![0-9])")
_YEARS = {"draft/2019-09": 2019, "draft/2020-12": 2020, "draft/next": 2020}
_PUBLISHERS = {
    "com.snowplowanalytics.self-desc/": 4,  # Iglu, Snowplow
    "provider.definition.schema": 7,  # CloudFormation's resource types
    "spec.openapis.org/oas/3.1/": 2020,
    "spec.openapis.org/oas/3.2/": 2020,
}
_WITH_VOCABULARIES = ("2019-09", "2020-12")


def draft_of(schema: Any) -> int:
    """3, 4, 6, 7, 2019 or 2020. Raises GrammarError for a dialect of which it can't be told what it enforces."""
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if name is None:
        return DEFAULT
    if not isinstance(name, str):
        raise _refused(name, "it must be a text")
    if "json-schema.org/" in name:
        for part, draft in _YEARS.items():
            if part in name:
                return draft
    for part, draft in _PUBLISHERS.items():
        if part in name:
            return draft
    own = _OWN.search(name)
    if own:
        return 4 if own[1] == "5" else int(own[1])
    if any(year in name for year in _WITH_VOCABULARIES):
        raise _refused(name, "it may leave out some of its draft's keywords")
    return DEFAULT


def _refused(name: Any, why: str) -> GrammarError:
    shown = repr(name)
    return GrammarError(
        f"The $schema {shown if len(shown) <= 80 else shown[:80] + '…'} is a dialect that isn't known here: {why}.",
        hint="Known: drafts 3, 4, 6, 7, 2019-09 and 2020-12.",
        param="json_schema",
    )
