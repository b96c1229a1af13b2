"""In-batch sharing: of several sequences with one uncached prefix one computes it, the others wait for just that.

Takes no pages and decides no order. Called by admission for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from palmette.radix_cache.key import common_tokens
from palmette.runtime.scheduler.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Wait:
    """For `other` to have computed its first `until` tokens; whoever waits shares them."""

    other: Sequence
    until: int

    @property
    def over(self) -> bool:
        """Computed, or the other does not run any more (ended, failed, aborted, retracted): then the next candidate
        with this prefix computes it."""
        other = self.other
        return other.slot is None or other.computed >= self.until or other.decoding


class PrefixSharing:
    """Remembers who waits for whom, so that asking again costs nothing while the other computes."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._waits: dict[Sequence, Wait] = {}

    def awaits(self, candidate: Sequence, prefilling: Iterable[Sequence], peek: Callable[[Sequence], int]) -> bool:
        """Whether one of `prefilling` will leave more of the candidate's prefix in the tree than is there now, which
        `peek` tells. The wait is bounded: a running prefill advances in every step."""
        wait = self._waits.get(candidate)
        if wait is not None:
            if not wait.over:
                return True
            del self._waits[candidate]
        matched = peek(candidate)
        for other in prefilling:
            until = self._left_by(other, candidate, matched)
            if until > matched and not (found := Wait(other, until)).over:
                self._waits[candidate] = found
                return True
        return False

    def forget(self, candidate: Sequence) -> None:
        """It waits for nothing any more: admitted, ended, or overdue."""
        self._waits.pop(candidate, None)

    def _left_by(self, other: Sequence, candidate: Sequence, matched: int) -> int:
        """Tokens of the candidate's prefix that the tree will have through `other`; 0 where it adds nothing."""
        if other.namespace != candidate.namespace:
            return 0
        part = candidate.key(candidate.matchable - 1)
        # A quick no for most: the page after the match differs.
        if not other.tokens.startswith(part[: 4 * (matched + 1)]):
            return 0
        shared = common_tokens(part, bytes(other.tokens))
        # A score leaves its last page when it ends, which is soon; a generation whole pages only.
        return shared if other.generation is None else shared // self._page_size * self._page_size
