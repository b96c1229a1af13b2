"""Subschemas of the same value (allOf, anyOf, if, dependentSchemas …): what claims on them inherit, and the options
that they open.

Called by goals.py.
"""

from __future__ import annotations

from palmette.runtime.grammar.schema.branch import Branch, Option, Pending
from palmette.runtime.grammar.schema.document import Place
from palmette.runtime.grammar.schema.shapes import Claim


class Below:
    """How claims on in-place subschemas inherit their parent's watchers and chain."""

    def __init__(self, scopes: tuple[str, ...], ancestors: tuple[str, ...]) -> None:
        self.scopes = scopes
        self.ancestors = ancestors

    def claim(self, place: Place) -> Pending:
        return Pending(Claim(place), self.scopes, self.ancestors)

    def denial(self, place: Place) -> Pending:
        return Pending(Claim(place, False), (), self.ancestors)


def without(name: str) -> Option:
    """Objects that don't have `name`."""

    def effect(branch: Branch) -> None:
        branch.only("object")
        branch.forbid(name)

    return Option(effect=effect)


def requiring(names: list[str], *claims: Pending) -> Option:
    """Objects that have `names`, and (without claims) all that is no object."""

    def effect(branch: Branch) -> None:
        if claims:
            branch.only("object")
        if "object" in branch.types:
            for name in names:
                branch.require(name)

    return Option(claims, effect)


def no_object() -> Option:
    """All that is no object."""
    return Option(effect=lambda branch: branch.types.discard("object"))
