"""The order in which an object's properties are written: as the schemas name them.

Called by goals.py.
"""

from __future__ import annotations

from palmette.runtime.grammar.schema.document import Document, Place
from palmette.runtime.grammar.schema.shapes import Claim, Goal


class PropertyOrder:
    """Of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._orders: dict[frozenset[Claim], dict[str, int]] = {}

    def of(self, goal: Goal) -> dict[str, int]:
        """name → its place: as the schemas name their properties, in the document's order; then the required ones."""
        found = self._orders.get(goal.key)
        if found is None:
            names: dict[str, None] = {}
            required: dict[str, None] = {}
            for claim in goal.claims:
                self._gather(claim.place, names, required, set())
            found = {name: index for index, name in enumerate(dict.fromkeys([*names, *required]))}
            self._orders[goal.key] = found
        return found

    def _gather(self, place: Place, names: dict[str, None], required: dict[str, None], passed: set[str]) -> None:
        if isinstance(place.schema, bool) or place.path in passed:
            return
        passed.add(place.path)
        said = self._document.keywords(place)
        required.update(dict.fromkeys(said.plain.get("required", ())))
        for keyword in said.order:
            if keyword == "properties":
                names.update(dict.fromkeys(said.named.get("properties", ())))
            elif keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                target = self._document.target(place, keyword, said.plain[keyword])
                self._gather(target, names, required, passed)
            elif keyword in ("allOf", "anyOf", "oneOf"):
                for inner in said.many[keyword]:
                    self._gather(inner, names, required, passed)
            elif keyword in ("if", "then", "else", "not"):
                self._gather(said.one[keyword], names, required, passed)
            elif keyword in ("dependentSchemas", "dependencies"):
                for inner in said.named.get("dependentSchemas", {}).values():
                    self._gather(inner, names, required, passed)
