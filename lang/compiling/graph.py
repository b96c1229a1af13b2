"""The graph of a traced program: what it appends and computes, and what waits for what. As text, mermaid and SVG.

Made of a plan (runtime/messages/programs.py) and the names of its slots; knows neither states nor backends.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from palmette.lang.compiling.symbols import shown
from palmette.runtime.messages import programs as plans
from palmette.runtime.messages.branches import BeginRole, EndRole, Text
from palmette.runtime.messages.programs import Insert, Operation, Plan, Value

Kind = Literal["text", "role", "gen", "select", "fork", "join", "variable", "call", "when", "end"]
LABEL = 44  # characters of a text that are shown
BOX = (190, 34)  # of a node in the SVG, in pixels
GAP = (24, 30)
COLOURS: Mapping[Kind, str] = {
    "text": "#f2f2f2",
    "role": "#e4e4ef",
    "gen": "#cfe8cf",
    "select": "#d8e6f5",
    "fork": "#fbe5c8",
    "join": "#fbe5c8",
    "variable": "#f5ecd8",
    "call": "#f3d6d6",
    "when": "#efe0f5",
    "end": "#e0e0e0",
}


@dataclass(frozen=True, slots=True)
class GraphNode:
    """`id`: its number; `track`: the state that it belongs to (0: the program's own); `after`: nodes that it waits for;
    `reads`, `writes`: names of variables."""

    id: int
    track: int
    kind: Kind
    label: str
    after: tuple[int, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(slots=True)
class Graph:
    """`str(graph)`, `.mermaid()`, `.svg()`; in notebooks it shows itself."""

    name: str
    plan: Plan
    nodes: list[GraphNode] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, plan: Plan, names: Mapping[int, str]) -> Graph:
        """The graph of `plan`; `names`: what its slots are called."""
        return cls(name, plan, _Drawing(plan, names).nodes())

    def kinds(self) -> dict[Kind, int]:
        """How many nodes there are of each kind."""
        counts: dict[Kind, int] = {}
        for node in self.nodes:
            counts[node.kind] = counts.get(node.kind, 0) + 1
        return counts

    def named(self, variable: str) -> list[GraphNode]:
        """The nodes that write `variable`."""
        return [node for node in self.nodes if variable in node.writes]

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.nodes)} nodes, {len(self.plan.tracks)} states"]
        for node in self.nodes:
            previous = node.id - 1
            waits = [f"{other}" for other in node.after if other != previous]
            behind = f"  (after {', '.join(waits)})" if waits else ""
            lines.append(f"{'  ' * (1 + self._depth(node.track))}{node.id:>3} {node.label}{behind}")
        return "\n".join(lines)

    def mermaid(self) -> str:
        """As a mermaid flowchart."""
        lines = ["flowchart TD"]
        for track, nodes in itertools.groupby(self.nodes, key=lambda node: node.track):
            lines.append(f'  subgraph s{track}_{lines.__len__()}["state {track}"]')
            lines += [f'    n{node.id}["{_mermaid(node.label)}"]' for node in nodes]
            lines.append("  end")
        lines += [f"  n{other} --> n{node.id}" for node in self.nodes for other in node.after]
        return "\n".join(lines) + "\n"

    def svg(self) -> str:
        """As an SVG picture: a column for each state, what waits lower than what it waits for."""
        rows = self._rows()
        width, height = BOX
        step_x, step_y = width + GAP[0], height + GAP[1]
        at = {node.id: (node.track * step_x + GAP[0], rows[node.id] * step_y + GAP[1]) for node in self.nodes}
        whole = (len(self.plan.tracks) * step_x + GAP[0], (max(rows.values(), default=0) + 1) * step_y + GAP[1])
        pieces = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole[0]}" height="{whole[1]}" '
            f'font-family="sans-serif" font-size="11"><title>{html.escape(self.name)}</title>'
        ]
        for node in self.nodes:
            x, y = at[node.id]
            for other in node.after:
                from_x, from_y = at[other]
                pieces.append(
                    f'<path d="M{from_x + width / 2:g} {from_y + height} L{x + width / 2:g} {y}" '
                    'stroke="#888" fill="none"/>'
                )
        for node in self.nodes:
            x, y = at[node.id]
            label = html.escape(node.label if len(node.label) <= 30 else node.label[:29] + "…")
            pieces.append(
                f'<g><title>{html.escape(node.label)}</title><rect x="{x}" y="{y}" width="{width}" height="{height}" '
                f'rx="4" fill="{COLOURS[node.kind]}" stroke="#666"/>'
                f'<text x="{x + width / 2:g}" y="{y + height / 2 + 4:g}" text-anchor="middle">{label}</text></g>'
            )
        return "".join(pieces) + "</svg>"

    def _repr_svg_(self) -> str:
        return self.svg()

    def _rows(self) -> dict[int, int]:
        rows: dict[int, int] = {}
        for node in self._in_order():
            rows[node.id] = 1 + max((rows.get(other, -1) for other in node.after), default=-1)
        return rows

    def _in_order(self) -> Iterator[GraphNode]:
        """Every node behind those that it waits for."""
        done: set[int] = set()
        waiting = list(self.nodes)
        while waiting:
            ready = [node for node in waiting if all(other in done for other in node.after)]
            for node in ready or waiting:  # a plan that waits for itself is drawn, too
                done.add(node.id)
                yield node
            waiting = [node for node in waiting if node.id not in done]

    def _depth(self, track: int) -> int:
        parents = {
            child: parent
            for parent, operations in enumerate(self.plan.tracks)
            for each in operations
            if isinstance(each, plans.Divide)
            for child in each.tracks
        }
        depth = 0
        while track in parents:
            track, depth = parents[track], depth + 1
        return depth


class _Drawing:
    """Nodes of a plan, track by track: a fork's states stand behind it."""

    def __init__(self, plan: Plan, names: Mapping[int, str]) -> None:
        self._plan = plan
        self._names = names
        self._nodes: list[GraphNode] = []
        self._writer: dict[int, list[int]] = {}  # of a slot: nodes
        self._first: dict[tuple[int, int], int] = {}  # of an operation: its first node
        self._last: dict[int, int] = {}  # of a track that has been drawn: its last node
        self._jumps: list[tuple[int, int, int]] = []

    def nodes(self) -> list[GraphNode]:
        self._track(0, None)
        extra: dict[int, list[int]] = {}
        for track, target, source in self._jumps:
            extra.setdefault(self._first[track, target], []).append(source)
        return [
            GraphNode(
                node.id,
                node.track,
                node.kind,
                node.label,
                tuple(dict.fromkeys((*node.after, *extra.get(node.id, ())))),
                node.reads,
                node.writes,
            )
            for node in self._nodes
        ]

    def _track(self, track: int, start: int | None) -> None:
        previous = start
        for at, operation in enumerate(self._plan.tracks[track]):
            first = len(self._nodes)
            for kind, label, values in _appended(operation, self._name):
                previous = self._add(track, kind, label, previous, values)
            kind, label = self._described(operation)
            needed = [value for value in plans.reads(operation) if value not in _inserted(operation)]
            if isinstance(operation, plans.Call):
                needed += [each for each in operation.arguments if isinstance(each, Value)]
            ended = [self._last[each] for each in operation.tracks] if isinstance(operation, plans.Join) else []
            written = plans.writes(operation)
            previous = self._add(track, kind, label, previous, needed, ended, written)
            self._first[track, at] = first
            if isinstance(operation, plans.Jump):
                self._jumps.append((track, operation.target, previous))
                if operation.condition is None:
                    previous = None
            elif isinstance(operation, plans.Divide):
                for child in operation.tracks:
                    self._track(child, previous)
        self._last[track] = len(self._nodes) - 1 if previous is None else previous

    def _add(
        self,
        track: int,
        kind: Kind,
        label: str,
        previous: int | None,
        values: list[Value],
        also: list[int] | None = None,
        written: tuple[int, ...] = (),
    ) -> int:
        number = len(self._nodes)
        after = [] if previous is None else [previous]
        after += [writer for value in values for writer in self._writer.get(value.slot, ())] + (also or [])
        reads = tuple(dict.fromkeys(self._names[value.slot] for value in values))
        writes = tuple(dict.fromkeys(self._names[slot] for slot in written))
        self._nodes.append(GraphNode(number, track, kind, label, tuple(dict.fromkeys(after)), reads, writes))
        for slot in written:
            self._writer.setdefault(slot, []).append(number)
        return number

    def _name(self, value: Value) -> str:
        changes = "".join(f".{change}()" for change in value.changes if change in ("strip", "lower", "upper"))
        return f"s[{self._names[value.slot]!r}]{changes}"

    def _described(self, operation: Operation) -> tuple[Kind, str]:
        names = ", ".join(dict.fromkeys(self._names[slot] for slot in plans.writes(operation)))
        match operation:
            case plans.Write(params=params):
                several = f" × {len(params)}" if len(params) > 1 else ""
                return "gen", f"gen {names}{several}, at most {params[0].max_tokens} tokens"
            case plans.Choose(choices=choices):
                return "select", f"select {names} of {', '.join(map(repr, choices))}"
            case plans.Divide(tracks=tracks):
                return "fork", f"fork into states {', '.join(map(str, tracks))}"
            case plans.Join(tracks=tracks):
                return "join", f"join: append states {', '.join(map(str, tracks))}"
            case plans.Mark(slot=slot):
                return "variable", f"variable {self._names[slot]} begins"
            case plans.Note():
                return "variable", f"variable {names} is the text"
            case plans.Call(arguments=arguments):
                shown_ = ", ".join(self._name(each) if isinstance(each, Value) else repr(each) for each in arguments)
                return "call", f"call {names}({shown_})"
            case plans.Settle():
                return "variable", f"variables {names}" if names else "the branches meet"
            case plans.Jump(condition=None):
                return "when", "go on behind the branches"
            case plans.Jump(condition=condition):
                assert condition is not None
                return "when", f"when {shown(condition, self._name)}"
            case _:
                return "end", "end"


def _inserted(operation: Operation) -> list[Value]:
    return [part.value for part in operation.parts if isinstance(part, Insert)]


def _appended(operation: Operation, name: object) -> Iterator[tuple[Kind, str, list[Value]]]:
    """Text and turns before an operation."""
    for part in operation.parts:
        match part:
            case Text(text):
                cut = text if len(text) <= LABEL else text[: LABEL - 1] + "…"
                yield "text", f"text {cut!r}", []
            case Insert(value):
                yield "text", f"text of {name(value)}", [value]  # type: ignore[operator]
            case BeginRole(role):
                yield "role", f"{role} begins", []
            case EndRole(role):
                yield "role", f"{role} ends", []


def _mermaid(label: str) -> str:
    return label.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
