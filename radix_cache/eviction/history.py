"""What the policy that learns remembers of the past, in columns of fixed size: followed uses and evicted places.

However long the cache runs, a request leaves no object behind. Knows no nodes and no model. Called by survival.py and
learned.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

WINDOW = 16384  # uses that are followed
PLACES = 2 * WINDOW
RECORD = Struct("<QdqqHH")  # hash, and the fields of a place
MOST = 2**16 - 1


class Uses:
    """Uses that are followed until the next, numbered from 0 as they come; the last WINDOW are remembered.

    Of each when it was, the pace it had then, and its traits as numbers of bins, `traits` of them below 65,536.
    """

    def __init__(self, traits: int) -> None:
        self.end = 0  # number of the next
        self._width = traits
        self._times = array("d", bytes(8 * WINDOW))
        self._paces = bytearray(WINDOW)
        self._traits = array("H", bytes(2 * WINDOW * traits))
        self._over = bytearray(WINDOW)

    @property
    def begin(self) -> int:
        """The oldest that is remembered."""
        return max(0, self.end - WINDOW)

    def add(self, time: float, pace: int, traits: Sequence[int]) -> int:
        """Follows a use, in order of time, and returns its number."""
        row, width = self.end % WINDOW, self._width
        self._times[row], self._paces[row], self._over[row] = time, pace, False
        self._traits[row * width : (row + 1) * width] = array("H", traits)
        self.end += 1
        return self.end - 1

    def waits(self, number: int) -> bool:
        """Whether it is remembered and not used again yet."""
        return number >= self.begin and not self._over[number % WINDOW]

    def close(self, number: int) -> None:
        """It is used again."""
        self._over[number % WINDOW] = True

    def time(self, number: int) -> float:
        return self._times[number % WINDOW]

    def pace(self, number: int) -> int:
        return self._paces[number % WINDOW]

    def traits(self, number: int) -> Sequence[int]:
        row, width = number % WINDOW, self._width
        return self._traits[row * width : (row + 1) * width]


class Place(NamedTuple):
    """An evicted node: last use, where in bytes what was there reached, its uses and its path's, its followed use."""

    last_used: float
    reach: int
    uses: int
    turn: int
    use: int | None


class Places:
    """Evicted nodes by a hash of their place: a table of PLACES rows, in which what comes later takes a row over."""

    def __init__(self) -> None:
        self._rows = bytearray(RECORD.size * PLACES)

    def keep(self, at: int, place: Place) -> None:
        use = 0 if place.use is None else place.use + 1
        uses, turn = min(place.uses, MOST), min(place.turn, MOST)
        RECORD.pack_into(self._rows, at % PLACES * RECORD.size, at, place.last_used, place.reach, use, uses, turn)

    def take(self, at: int) -> Place | None:
        """What was there, which is forgotten."""
        row = at % PLACES * RECORD.size
        kept, last_used, reach, use, uses, turn = RECORD.unpack_from(self._rows, row)
        if kept != at:
            return None
        RECORD.pack_into(self._rows, row, 0, 0.0, 0, 0, 0, 0)
        return Place(last_used, reach, uses, turn, use - 1 if use else None)
