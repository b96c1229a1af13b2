"""How deeply llguidance recurses over a Lark text, told before it does: beyond its stack it takes the process with it.

It follows each rule into the rules it uses, and each group into its parts. A bound for every order in which it may do
so: rules that need one another count together. Knows Lark's form only; called by start.py for every text.
"""

from __future__ import annotations

import re

from palmette.runtime.errors import GrammarError

MAX_DEPTH = 1_600  # of rules inside one another, two groups as one rule; a stack of 8 MiB has room for 2,000

_SILENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|/(?:[^/\\\n]|\\.)+/|//[^\n]*|#[^\n]*')
_HEAD = re.compile(r"(?m)^[ \t]*[?!]*([A-Za-z_][\w-]*)[^|\n:]*:")
_NAME = re.compile(r"[A-Za-z_][\w-]*")


def check_depth(lark: str) -> None:
    """Raises GrammarError where llguidance would go too deep."""
    weights: dict[str, int] = {}
    uses: dict[str, list[str]] = {}
    bare = _SILENT.sub('""', lark)
    heads = list(_HEAD.finditer(bare))
    for head, after in zip(heads, [*heads[1:], None], strict=False):
        body = bare[head.end() : None if after is None else after.start()]
        weights[head[1]] = 2 + nesting(body)
        uses[head[1]] = _NAME.findall(body)
    if sum(weights.values()) <= 2 * MAX_DEPTH:
        return
    if _depth(weights, uses) > 2 * MAX_DEPTH:
        raise GrammarError(
            f"The rules and groups of the grammar lie inside one another over more than {MAX_DEPTH:,} levels.",
            hint="Put what follows one another into one rule, or use fewer rules.",
        )


def nesting(body: str) -> int:
    """Groups inside one another, at most."""
    depth = deepest = 0
    for character in body:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _depth(weights: dict[str, int], uses: dict[str, list[str]]) -> int:
    """The heaviest path, where rules that need one another (a strongly connected component) are one step of it.

    Tarjan's algorithm with a stack of its own: components come out after those they use.
    """
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    component: list[str] = []  # members of components that aren't complete
    depths: dict[str, int] = {}  # of rules whose component is
    for root in weights:
        if root in index:
            continue
        index[root] = lowest[root] = len(index)
        component.append(root)
        under_way = [(root, iter(uses[root]))]
        while under_way:
            name, rest = under_way[-1]
            for other in rest:
                if other not in weights or other in depths:
                    continue
                if other in index:
                    lowest[name] = min(lowest[name], index[other])
                    continue
                index[other] = lowest[other] = len(index)
                component.append(other)
                under_way.append((other, iter(uses[other])))
                break
            else:
                under_way.pop()
                if under_way:
                    user = under_way[-1][0]
                    lowest[user] = min(lowest[user], lowest[name])
                if lowest[name] == index[name]:
                    members = [component.pop()]
                    while members[-1] != name:
                        members.append(component.pop())
                    below = max((depths.get(other, 0) for member in members for other in uses[member]), default=0)
                    depths.update(dict.fromkeys(members, below + sum(weights[member] for member in members)))
    return max(depths.values())
