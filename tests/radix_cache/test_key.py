"""radix_cache.key: comparing packed tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.key import common_tokens, reusable_part
from palmette.runtime.messages.tokens import pack

TOKENS = st.lists(st.sampled_from([0, 1, 2, 256, 257, 65537, 2**31 - 1, -1]), max_size=40)


@given(TOKENS, TOKENS, TOKENS)
def test_common_tokens_counts_equal_leading_tokens(start: list[int], left: list[int], right: list[int]) -> None:
    a, b = start + left, start + right
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_tokens(pack(a), pack(b)) == expected
    for skipped in range(min(3, len(b) + 1)):
        assert common_tokens(pack(b[skipped:]), pack(b), skipped * 4) == len(b) - skipped


def test_ids_that_share_some_bytes_share_nothing() -> None:
    assert common_tokens(pack([7, 0x0101]), pack([7, 0x0201])) == 1  # little-endian: three of four bytes agree


def test_the_last_token_is_never_reusable() -> None:
    assert reusable_part(pack([1, 2, 3])) == pack([1, 2])
    assert reusable_part(pack([1])) == reusable_part(b"") == b""
