"""What an infinite cache would have reused, in execution order; compared with what a system says it reused.

reusable(request) = min(prompt − 1, longest common prefix with the tokens computed by any sequence that
started before). The last output token of a sequence is never computed, only sampled. Called by loop.py and
tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

_Node = dict[int, "_Node"]


class TokenTrie:
    """A trie over token ids that forgets nothing."""

    def __init__(self) -> None:
        self._root: _Node = {}

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many leading tokens some inserted sequence shares."""
        node = self._root
        for length, token in enumerate(tokens):
            child = node.get(token)
            if child is None:
                return length
            node = child
        return len(tokens)

    def insert(self, tokens: Sequence[int]) -> None:
        node = self._root
        for token in tokens:
            node = node.setdefault(token, {})


class Answered(Protocol):
    """A finished call: its ids, and when it started and ended (seconds of one clock)."""

    @property
    def prompt(self) -> Sequence[int]: ...
    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def started(self) -> float: ...
    @property
    def finished(self) -> float: ...
    @property
    def cached_tokens(self) -> int | None: ...


@dataclass(frozen=True)
class Reuse:
    """Prompt tokens of the measured calls. `cached` is what the system reported; None: it reports nothing."""

    prompt_tokens: int
    reusable: int
    cached: int | None

    @property
    def ceiling(self) -> float:
        return self.reusable / self.prompt_tokens

    @property
    def reached(self) -> float | None:
        return None if self.cached is None else self.cached / self.prompt_tokens


def reuse(measured: Iterable[Answered], primed: Iterable[Answered] = ()) -> Reuse:
    """Replays starts and ends in their order. `primed` calls fill the cache; they aren't counted."""
    measured, primed = list(measured), list(primed)
    trie = TokenTrie()
    for call in primed:
        trie.insert([*call.prompt, *call.tokens[:-1]])
    starts = [(call.started, 1, call) for call in measured]
    ends = [(call.finished, 0, call) for call in measured]
    reusable = 0
    for _, is_start, call in sorted(starts + ends, key=lambda event: event[:2]):
        if is_start:
            reusable += min(len(call.prompt) - 1, trie.common_prefix(call.prompt))
            trie.insert(call.prompt)
        else:
            trie.insert([*call.prompt, *call.tokens[:-1]])
    reported = [call.cached_tokens for call in measured]
    known = [cached for cached in reported if cached is not None]
    return Reuse(
        prompt_tokens=sum(len(call.prompt) for call in measured),
        reusable=reusable,
        cached=sum(known) if len(known) == len(reported) else None,
    )
