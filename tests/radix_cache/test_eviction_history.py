"""radix_cache.eviction.history: columns and rows against a list and a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.eviction.history import PLACES, WINDOW, Place, Places, Uses


def test_the_last_uses_are_remembered() -> None:
    uses = Uses(traits=2)
    for number in range(WINDOW + 10):
        assert uses.add(float(number), number % 8, [number % 7, number % 1000]) == number
        if number % 3 == 0:
            uses.close(number)
    assert uses.begin == 10
    for number in range(WINDOW + 10):
        assert uses.waits(number) == (number >= 10 and number % 3 != 0)
    for number in range(10, WINDOW + 10):
        assert uses.time(number) == number
        assert uses.pace(number) == number % 8
        assert list(uses.traits(number)) == [number % 7, number % 1000]


places = st.builds(
    Place,
    st.floats(0, 1e9),
    st.integers(0, 2**40),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**16 - 1),
    st.none() | st.integers(0, 2**40),
)
hashes = st.integers(1, 3).flatmap(lambda row: st.sampled_from([row, row + PLACES, row + 2**40 * PLACES]))


@given(st.lists(st.tuples(hashes, st.none() | places), max_size=40))
def test_what_comes_later_takes_the_row_over(steps: list[tuple[int, Place | None]]) -> None:
    kept, rows = Places(), dict[int, tuple[int, Place]]()
    for at, place in steps:
        row = at % PLACES
        if place is not None:
            kept.keep(at, place)
            rows[row] = (at, place)
        else:
            known = rows[row][1] if row in rows and rows[row][0] == at else None
            assert kept.take(at) == known
            if known is not None:
                del rows[row]


def test_counts_stop_at_their_most() -> None:
    kept = Places()
    kept.keep(5, Place(1.0, 2, 10**6, 10**7, None))
    assert kept.take(5) == Place(1.0, 2, 2**16 - 1, 2**16 - 1, None)
