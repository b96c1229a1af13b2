"""What an infinite cache would have reused, in execution order: the bound that reuse is measured against.

Holds tokens only: no pages, no tree, no leases. Called by the scheduler for its metrics, and by benchmarks.
"""

from __future__ import annotations

from bisect import bisect_left

from palmette.radix_cache.key import common_tokens, reusable_part
from palmette.runtime.messages import tokens

Sequence = tuple[str, bytes]  # namespace, token key


class ReuseOracle:
    """Remembers computed sequences; answers with the longest common prefix with any of them.

    At most `max_tokens` tokens are kept (4 bytes each); beyond that the sequences observed longest ago are
    dropped, and what is answered is a lower bound. A sequence that begins another is covered by it and not
    kept, so the longest common prefix is always with one of two neighbours in byte order.
    """

    def __init__(self, max_tokens: int = 8_000_000) -> None:
        assert max_tokens > 0, f"an oracle of {max_tokens} tokens"
        self.max_tokens = max_tokens
        self.tokens = 0
        self.complete = True  # nothing was dropped so far: answers are exact
        self._sorted: dict[str, list[bytes]] = {}
        self._by_age: dict[Sequence, None] = {}

    def observe(self, key: bytes, namespace: str) -> None:
        """The tokens of `key` have been computed. A longer version of a sequence replaces the shorter one."""
        if not key:
            return
        keys = self._sorted.setdefault(namespace, [])
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at].startswith(key):
            return
        if at and key.startswith(keys[at - 1]):
            at -= 1
            self._forget((namespace, keys.pop(at)))
        keys.insert(at, key)
        self._by_age[namespace, key] = None
        self.tokens += tokens.count(key)
        while self.tokens > self.max_tokens:
            self._drop_oldest()

    def reusable(self, key: bytes, namespace: str) -> int:
        """Tokens of `key` that needn't be computed: at most its tokens − 1."""
        keys = self._sorted.get(namespace, [])
        part = reusable_part(key)
        at = bisect_left(keys, part)
        return max((common_tokens(part, other) for other in keys[max(0, at - 1) : at + 1]), default=0)

    def clear(self) -> None:
        """Forgets all; answers are lower bounds from now on."""
        self._sorted.clear()
        self._by_age.clear()
        self.tokens = 0
        self.complete = False

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._by_age))
        namespace, key = oldest
        keys = self._sorted[namespace]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self._sorted[namespace]
        self._forget(oldest)
        self.complete = False

    def _forget(self, sequence: Sequence) -> None:
        del self._by_age[sequence]
        self.tokens -= tokens.count(sequence[1])
