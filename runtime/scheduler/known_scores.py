"""Log-probabilities of tokens that the cache kept: taken instead of computed, and given back for the next.

Knows sequences and the cache's verbs for them; nothing of steps or replies. Called before a sequence is matched, and
when one leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

from palmette.radix_cache.cache import RadixCache
from palmette.runtime.messages.replies import TokenLogprob
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.scheduler.scoring import Scoring
from palmette.runtime.scheduler.sequence import Sequence

NOTHING: Mapping[int, float] = {}


def recall(sequence: Sequence, cache: RadixCache) -> int:
    """Takes the scores that are known of those it wants next, so that more of its prompt can be matched; returns of how
    many positions. The most likely tokens beside them are not kept: who wants those computes them."""
    scoring = sequence.scoring
    if scoring is None or scoring.top_count or scoring.over:
        return 0
    start, key = scoring.next, sequence.key(sequence.prompt_length)
    own = cache.paths.scored(key, sequence.namespace, start)
    beside = cache.paths.beside(key, sequence.namespace, start)
    own_tokens = unpack(sequence.slice(start, start + len(own)))
    for position in range(start, scoring.end):
        known = beside.get(position, NOTHING)
        if position - start < len(own):
            known = {**known, own_tokens[position - start]: own[position - start]}
        tokens = scoring.tokens(position)
        found = [TokenLogprob(token, known[token]) for token in tokens if token in known]
        if len(found) < len(tokens):
            break
        scoring.take(position, found)
    return scoring.next - start


def keep(key: bytes, namespace: str, scoring: Scoring, cache: RadixCache) -> None:
    """Keeps what `scoring` holds of `key`, whose tokens are cached now."""
    if scoring.own:
        cache.paths.keep_scores(key, namespace, scoring.first, scoring.own)
    if scoring.beside:
        cache.paths.keep_beside(key, namespace, scoring.beside)
