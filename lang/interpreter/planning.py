"""Which nodes go to the backend in one message, and as which steps. Pure; the interpreter is its only caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palmette.lang.errors import Location
from palmette.lang.interpreter.instructions import PASSIVE, Generation, Node, Selection
from palmette.lang.interpreter.outputs import OutputRecord
from palmette.lang.nodes import RoleBegin, RoleEnd, TextNode
from palmette.runtime.messages.branches import BeginRole, EndRole, ExtendStep, Part, Step, Text

_COMPUTES = (Generation, Selection)  # a tuple, as a union would be made anew for each node

Passive = tuple[Node, Part]
"""A node that computes nothing, and what it appends."""


@dataclass(slots=True)
class Planned:
    """A step, the node that it comes from (a turn that ends has none), and the text and turns before it."""

    step: Step
    at: tuple[Location, Node]
    node: Generation | Selection | None = None
    passive: Sequence[Passive] = ()

    def record(self) -> OutputRecord | None:
        return self.node.record() if isinstance(self.node, Generation) else None


def travels(node: Node) -> bool:
    """Whether a node can share a message with its neighbours: nothing is waited for, timed or decided here."""
    if isinstance(node, Generation):
        return node.node.count == 1 and node.timeout is None
    if isinstance(node, Selection):
        return node.node.method.wire_name is not None and node.timeout is None
    return isinstance(node, PASSIVE)


def plan(batch: Sequence[tuple[Node, Location]], pending: Sequence[Part]) -> tuple[list[Planned], list[Passive]]:
    """The steps of `batch` behind `pending`, and the nodes at its end that can wait for the next one.

    Turns at the end are sent, since their text is the template's; plain text waits.
    """
    planned: list[Planned] = []
    parts, passive = list(pending), list[Passive]()
    for node, where in batch:
        if isinstance(node, _COMPUTES):
            planned.append(Planned(node.step(tuple(parts)), (where, node), node, passive))
            parts, passive = [], []
        else:
            part = part_of(node)
            parts.append(part)
            passive.append((node, part))
    if planned and any(isinstance(node, RoleBegin | RoleEnd) for node, _ in passive):
        planned.append(Planned(ExtendStep(parts=tuple(parts)), (batch[-1][1], batch[-1][0]), None, passive))
        passive = []
    return planned, passive


def part_of(node: Node) -> Text | BeginRole | EndRole:
    """What a node that computes nothing appends."""
    match node:
        case TextNode(text):
            return Text(text)
        case RoleBegin(role):
            return BeginRole(role)
        case RoleEnd(role):
            return EndRole(role)
    raise AssertionError(f"{node} computes something")
