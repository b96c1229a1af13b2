"""What is known of a cached path's future, told to the cache. Called by the core."""

from __future__ import annotations

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.hints import Hint as Future
from palmette.runtime.messages.hints import Hint


def honour(hint: Hint, cache: RadixCache, now: float) -> None:
    """A hint is never answered; one of a path that isn't cached does nothing."""
    if hint.next_use_seconds is not None or hint.last_use or hint.tool_wait_seconds is not None:
        next_use, wait = hint.next_use_seconds, hint.tool_wait_seconds
        future = Future(
            next_use=None if next_use is None else now + next_use,
            last_use=hint.last_use,
            waits_until=None if wait is None else now + wait,
        )
        cache.paths.hint(hint.tokens, hint.namespace, future, priority=hint.priority)
    elif hint.priority is not None:
        cache.paths.hint(hint.tokens, hint.namespace, priority=hint.priority)
    if hint.pin_seconds is not None:
        if hint.pin_seconds > 0:
            cache.paths.pin(hint.tokens, hint.namespace, hint.pin_seconds)
        else:
            cache.paths.unpin(hint.tokens, hint.namespace)
