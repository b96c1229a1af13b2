"""Log-probabilities of prompt tokens that the cache kept: taken instead of computed, and given back for the next.

Knows sequences and the cache's two verbs for them; nothing of steps or replies. Called before a sequence is matched,
and when one leaves.
"""

from __future__ import annotations

from palmette.radix_cache.cache import RadixCache
from palmette.runtime.messages.replies import TokenLogprob
from palmette.runtime.scheduler.sequence import Scoring, Sequence


def recall(sequence: Sequence, cache: RadixCache) -> int:
    """Takes the scores that are known of those it wants next, so that more of its prompt can be matched; returns how
    many. The most likely tokens beside them are not kept: who wants those computes them."""
    scoring = sequence.scoring
    if scoring is None or scoring.top_count or scoring.next >= sequence.prompt_length:
        return 0
    known = cache.scored(sequence.key(sequence.prompt_length), sequence.namespace, scoring.next)
    for position, logprob in enumerate(known, scoring.next):
        scoring.results.append(TokenLogprob(sequence.token(position), logprob))
    scoring.next += len(known)
    return len(known)


def keep(key: bytes, namespace: str, scoring: Scoring, cache: RadixCache) -> None:
    """Keeps what `scoring` holds of `key`, whose tokens are cached now."""
    if scoring.results:
        logprobs = [result.logprob for result in scoring.results if result.logprob is not None]
        cache.keep_scores(key, namespace, scoring.next - len(scoring.results), logprobs)
