"""radix_cache.oracle: reuse of an infinite cache, against brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.key import common_tokens
from palmette.radix_cache.oracle import ReuseOracle
from palmette.runtime.messages.tokens import pack

SEQUENCES = st.lists(
    st.tuples(st.sampled_from(["", "b"]), st.lists(st.sampled_from([0, 1, 256]), max_size=12)), max_size=25
)


@given(SEQUENCES)
def test_reusable_is_the_longest_common_prefix_with_anything_before(
    sequences: list[tuple[str, list[int]]],
) -> None:
    oracle = ReuseOracle()
    seen: list[tuple[str, bytes]] = []
    for namespace, sequence in sequences:
        key = pack(sequence)
        best = max((common_tokens(key, other) for name, other in seen if name == namespace), default=0)
        assert oracle.reusable(key, namespace) == max(0, min(len(sequence) - 1, best))
        oracle.observe(key, namespace)
        seen.append((namespace, key))
    assert oracle.complete


def test_a_growing_sequence_is_kept_once() -> None:
    oracle = ReuseOracle()
    for length in range(1, 6):
        oracle.observe(pack(range(length)), "")
    oracle.observe(pack(range(3)), "")
    assert oracle.tokens == 5
    assert oracle.reusable(pack(range(9)), "") == 5


@given(SEQUENCES)
def test_with_a_bound_the_figure_is_a_lower_bound(sequences: list[tuple[str, list[int]]]) -> None:
    exact, bounded = ReuseOracle(), ReuseOracle(max_tokens=10)
    for namespace, sequence in sequences:
        key = pack(sequence)
        if bounded.complete:
            assert bounded.reusable(key, namespace) == exact.reusable(key, namespace)
        assert bounded.reusable(key, namespace) <= exact.reusable(key, namespace)
        for oracle in (exact, bounded):
            oracle.observe(key, namespace)
        assert bounded.tokens <= 10


def test_the_oldest_is_dropped_first() -> None:
    oracle = ReuseOracle(max_tokens=6)
    for start in (10, 20, 30):
        oracle.observe(pack([start, start + 1, start + 2]), "")
    assert not oracle.complete
    assert oracle.reusable(pack([10, 11, 12, 13]), "") == 0
    assert oracle.reusable(pack([20, 21, 22, 23]), "") == 3
