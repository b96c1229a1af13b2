"""The tree as people see it: flat messages from the cache, and a drawing from the messages.

`to_message` reads the cache; `draw` needs only its result, so that a client of the server can draw too.
Neither changes anything. Called by the scheduler (DumpTree), the command line and the demo.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

import msgspec

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.node import Node, Root
from palmette.runtime.messages import tokens
from palmette.runtime.messages.replies import TreeNode
from palmette.runtime.messages.tokens import TOKEN_BYTES

COLUMNS = ("tokens", "pages", "reused", "in use")
COLUMN_WIDTH = 8
NARROWEST_TEXT = 24
VISIBLE = str.maketrans({"\n": "⏎", "\t": "⇥", "\r": "␍", "\ufffd": "·"})


def to_message(cache: RadixCache) -> tuple[TreeNode, ...]:
    """All nodes, parents before children, siblings in key order."""
    index: dict[Node, int] = {}
    dump: list[TreeNode] = []
    namespace = ""
    for node in cache.tree.nodes():
        if isinstance(node, Root):
            namespace = node.namespace
        index[node] = len(dump)
        dump.append(
            TreeNode(
                parent=index[node.parent] if node.parent is not None else None,
                namespace=namespace,
                tokens=node.key,
                pages=len(node.pages),
                leases=node.leases,
                last_used=node.last_used,
                uses=node.uses,
            )
        )
    return tuple(dump)


@dataclass
class _Branch:
    """A node of the drawing, with what lies at and below it."""

    node: TreeNode
    children: list[_Branch] = field(default_factory=list)
    shown: list[_Branch] = field(default_factory=list)
    hidden: list[_Branch] = field(default_factory=list)
    nodes: int = 1
    tokens: int = 0
    pages: int = 0
    weight: int = 0  # tokens held and tokens saved: heavy branches are shown first


def draw(
    nodes: Sequence[TreeNode],
    page_size: int,
    decode: Callable[[bytes], str],
    *,
    width: int = 100,
    max_lines: int = 40,
) -> str:
    """The tree as text, at most about `width` columns and `max_lines` lines.

    `decode` gives the text of packed tokens. Each line shows a node's text, its tokens, pages, how many
    matches it served and how many requests hold it. Where lines run short the branches that hold and save
    most are shown, and each parent says what it leaves out.
    """
    roots = _branches(nodes)
    total = sum(root.tokens for root in roots)
    pages = sum(root.pages for root in roots)
    below = sum(root.nodes - 1 for root in roots)
    fill = f", {total / (pages * page_size):.0%} full" if pages else ""
    title = f"radix tree: {_n(below, 'node')}, {_n(total, 'token')} in {_n(pages, 'page')} of {page_size}{fill}"
    if not roots:
        return title
    text_width = max(NARROWEST_TEXT, width - COLUMN_WIDTH * len(COLUMNS))
    _choose(roots, max_lines - 2)
    lines = [title, " " * text_width + "".join(name.rjust(COLUMN_WIDTH) for name in COLUMNS)]
    for root in roots:
        if root.node.namespace or len(roots) > 1:
            lines.append(f"● {root.node.namespace or 'default namespace'}")
        else:
            lines.append("●")
        lines += _lines(root, decode, text_width)
    return "\n".join(line.rstrip() for line in lines)


def _branches(nodes: Sequence[TreeNode]) -> list[_Branch]:
    """The roots, with everything below counted."""
    branches = [_Branch(node) for node in nodes]
    roots: list[_Branch] = []
    for branch in branches:
        parent = branch.node.parent
        (roots if parent is None else branches[parent].children).append(branch)
    for branch in reversed(branches):
        own = tokens.count(branch.node.tokens)
        branch.tokens += own
        branch.pages += branch.node.pages
        branch.weight += own * (1 + branch.node.uses)
        if (parent := branch.node.parent) is not None:
            above = branches[parent]
            above.nodes += branch.nodes
            above.tokens += branch.tokens
            above.pages += branch.pages
            above.weight += branch.weight
    for branch in reversed(branches):
        _join_only_child(branch)
    return roots


def _join_only_child(branch: _Branch) -> None:
    """A node and the only one behind it, used alike (often a last page that isn't full), are drawn as one."""
    if branch.node.parent is None or len(branch.children) != 1:
        return
    child = branch.children[0]
    if (child.node.uses, child.node.leases) == (branch.node.uses, branch.node.leases):
        branch.node = msgspec.structs.replace(
            branch.node,
            tokens=branch.node.tokens + child.node.tokens,
            pages=branch.node.pages + child.node.pages,
        )
        branch.children = child.children


def _choose(roots: Sequence[_Branch], max_lines: int) -> None:
    """Fills `shown`: heaviest branches first, as long as they and the lines for what is left out fit."""
    frontier: list[tuple[int, int, _Branch, _Branch]] = []
    order = count()

    def reach(parent: _Branch) -> None:
        for child in parent.children:
            heappush(frontier, (-child.weight, next(order), parent, child))

    left = max_lines
    for root in roots:
        left -= 1 + bool(root.children)
        reach(root)
    chosen: set[int] = set()
    while frontier and left >= 0:
        _, _, parent, child = heappop(frontier)
        closes = len(parent.shown) + 1 == len(parent.children)  # its line for what is left out is not needed
        left -= 1 + bool(child.children) - closes
        if left >= 0:
            parent.shown.append(child)
            chosen.add(id(child))
            reach(child)
    for parent in _all(roots):
        parent.shown = [child for child in parent.children if id(child) in chosen]
        parent.hidden = [child for child in parent.children if id(child) not in chosen]


def _all(roots: Sequence[_Branch]) -> list[_Branch]:
    found = list(roots)
    for branch in found:
        found.extend(branch.children)
    return found


def _lines(root: _Branch, decode: Callable[[bytes], str], text_width: int) -> list[str]:
    """The lines below a root, depth first."""
    lines: list[str] = []
    stack: list[tuple[_Branch | str, str, str]] = []  # what to draw, the rails before it, the rails below it

    def push(branch: _Branch, rails: str) -> None:
        items: list[_Branch | str] = list(branch.shown)
        if hidden := branch.hidden:
            items.append(_left_out(hidden))
        for position, item in reversed(list(enumerate(items))):
            last = position == len(items) - 1
            stack.append((item, rails + ("└─ " if last else "├─ "), rails + ("   " if last else "│  ")))

    push(root, "")
    while stack:
        item, before, below = stack.pop()
        if isinstance(item, str):
            lines.append(before + item)
            continue
        node = item.node
        cells = (
            f"{tokens.count(node.tokens):,}",
            f"{node.pages:,}",
            f"×{node.uses:,}" if node.uses else "",
            f"{node.leases:,}" if node.leases else "",
        )
        room = max(8, text_width - len(before) - 1)
        text = before + _excerpt(node.tokens, decode, room)
        lines.append(_pad(text, text_width) + "".join(cell.rjust(COLUMN_WIDTH) for cell in cells))
        push(item, below)
    return lines


def _left_out(branches: Sequence[_Branch]) -> str:
    noun = "branch" if len(branches) == 1 else "branches"
    nodes = _n(sum(branch.nodes for branch in branches), "node")
    held = _n(sum(branch.tokens for branch in branches), "token")
    return f"… {len(branches):,} more {noun}: {nodes}, {held}"


def _excerpt(key: bytes, decode: Callable[[bytes], str], room: int) -> str:
    """The beginning and the end of `key`'s text in `room` columns; only tokens that can show are decoded."""
    budget = room * TOKEN_BYTES
    if len(key) <= 2 * budget:
        text = _clean(decode(key))
        if _columns(text) <= room:
            return text
        start = end = text
    else:
        start, end = _clean(decode(key[:budget])), _clean(decode(key[-budget:]))
    tail = room // 3
    return _fit(start, room - tail - 3) + " … " + _fit(end[::-1], tail)[::-1]


def _clean(text: str) -> str:
    shown = text.translate(VISIBLE)
    return "".join(char if char.isprintable() else "·" for char in shown)


def _columns(text: str) -> int:
    """Terminal columns: wide characters take two, combining ones none."""
    return sum(_char_columns(char) for char in text)


def _char_columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fit(text: str, room: int) -> str:
    """The longest start of `text` within `room` columns."""
    used = 0
    for position, char in enumerate(text):
        used += _char_columns(char)
        if used > room:
            return text[:position]
    return text


def _pad(text: str, width: int) -> str:
    return text + " " * max(0, width - _columns(text))


def _n(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
