"""What a source comes to before a vocabulary comes in: automata, or rules for llguidance; of a source for another
library, that it builds it within bounds. It crosses processes.

Drawn by compiling/drawing.py, here or in a child process (compiling/contained.py); `drawing.finish` makes a Grammar of
it. Knows no tokens but the ids that rules name.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from palmette.runtime.grammar.automaton.alphabet import Alphabet, Intervals
from palmette.runtime.grammar.automaton.automaton import Automaton
from palmette.runtime.grammar.automaton.dfa import Dfa
from palmette.runtime.grammar.schema.distinct import Node

S = TypeVar("S", bound=np.generic)


class Automata(msgspec.Struct, frozen=True):
    """Of a regex or of choices one; of a stop pattern three."""

    automata: tuple[Automaton, ...]


class RuleText(msgspec.Struct, frozen=True, kw_only=True):
    """`lark`: in llguidance's dialect; `as_text`: the same over plain texts, where `lark` names special tokens.

    Of a schema also `distinct`, where items are compared, and what best effort has let through.
    """

    lark: str
    as_text: str | None = None
    distinct: Node | None = None
    approximated: tuple[str, ...] = ()
    vetted: bool = False
    """llguidance has built it before, within bounds."""


class Foreign(msgspec.Struct, frozen=True, tag="foreign"):
    """Another library builds it, from the source."""


Blueprint = Automata | RuleText | Foreign


class _PackedAutomaton(msgspec.Struct, frozen=True):
    classes: int
    intervals: Intervals
    step: bytes  # int32[nodes, 256]
    reaches: bytes  # bool[nodes, classes]
    delta: bytes  # int32[states, classes]
    finals: bytes  # bool[states]
    start: int


class _PackedNode(msgspec.Struct, frozen=True, array_like=True):
    """A Node; others by their number."""

    unique: bool
    free: bool
    many: bool
    loose: bool
    names: dict[str, int | None]
    other: int | None
    items: tuple[int | None, ...]
    item: int | None


class _PackedAutomata(msgspec.Struct, frozen=True, tag="automata"):
    automata: tuple[_PackedAutomaton, ...]


class _PackedRules(msgspec.Struct, frozen=True, tag="rules"):
    lark: str
    as_text: str | None
    nodes: tuple[_PackedNode, ...]
    approximated: tuple[str, ...]


_PACKED: Any = _PackedAutomata | _PackedRules | Foreign


def pack(blueprint: Blueprint) -> bytes:
    """As bytes for another process."""
    match blueprint:
        case Automata(automata):
            packed: Any = _PackedAutomata(tuple(map(_pack_automaton, automata)))
        case RuleText():
            nodes = _pack_nodes(blueprint.distinct)
            packed = _PackedRules(blueprint.lark, blueprint.as_text, nodes, blueprint.approximated)
        case Foreign():
            packed = blueprint
    return msgspec.msgpack.encode(packed)


def unpack(data: bytes | memoryview) -> Blueprint:
    """What `pack` made, by a process that has seen that llguidance builds it. Raises msgspec.DecodeError."""
    packed = msgspec.msgpack.decode(data, type=_PACKED)
    if isinstance(packed, Foreign):
        return packed
    if isinstance(packed, _PackedAutomata):
        return Automata(tuple(map(_unpack_automaton, packed.automata)))
    assert isinstance(packed, _PackedRules)
    return RuleText(
        lark=packed.lark,
        as_text=packed.as_text,
        distinct=_unpack_nodes(packed.nodes),
        approximated=packed.approximated,
        vetted=True,
    )


def _pack_automaton(automaton: Automaton) -> _PackedAutomaton:
    alphabet, dfa = automaton.alphabet, automaton.dfa
    return _PackedAutomaton(
        alphabet.classes,
        alphabet.intervals,
        alphabet.step.astype("<i4").tobytes(),
        alphabet.reaches.tobytes(),
        dfa.delta.astype("<i4").tobytes(),
        dfa.finals.tobytes(),
        dfa.start,
    )


def _unpack_automaton(packed: _PackedAutomaton) -> Automaton:
    step = _table(packed.step, np.dtype(np.int32), 256)
    reaches = _table(packed.reaches, np.dtype(np.bool_), packed.classes)
    delta = _table(packed.delta, np.dtype(np.int32), packed.classes)
    dfa = Dfa(delta, np.frombuffer(packed.finals, np.bool_), packed.start)
    return Automaton(Alphabet(packed.classes, packed.intervals, step, reaches), dfa)


def _table(data: bytes, dtype: np.dtype[S], columns: int) -> npt.NDArray[S]:
    return np.frombuffer(data, dtype).reshape(-1, columns)


def _pack_nodes(root: Node | None) -> tuple[_PackedNode, ...]:
    """The root first."""
    if root is None:
        return ()
    numbers: dict[int, int] = {}
    order: list[Node] = []

    def number(node: Node | None) -> int | None:
        if node is None:
            return None
        if id(node) not in numbers:
            numbers[id(node)] = len(order)
            order.append(node)
        return numbers[id(node)]

    number(root)
    packed: list[_PackedNode] = []
    for node in order:  # grows as it is read
        names = {name: number(child) for name, child in node.names.items()}
        items = tuple(map(number, node.items))
        other, item = number(node.other), number(node.item)
        packed.append(_PackedNode(node.unique, node.free, node.many, node.loose, names, other, items, item))
    return tuple(packed)


def _unpack_nodes(packed: tuple[_PackedNode, ...]) -> Node | None:
    nodes = [Node(each.unique, each.free, each.many, each.loose) for each in packed]

    def at(number: int | None) -> Node | None:
        return None if number is None else nodes[number]

    for node, each in zip(nodes, packed, strict=True):
        node.names = {name: at(number) for name, number in each.names.items()}
        node.other, node.items, node.item = at(each.other), [*map(at, each.items)], at(each.item)
    return nodes[0] if nodes else None
