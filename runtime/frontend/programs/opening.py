"""What programs begin with, and how much of that two of them share, in a time that doesn't follow their length.

Pure; used by the gate, in the event loop.
"""

from __future__ import annotations

CHUNK = 256  # characters


class Opening:
    """A text that is compared with others by its beginning. Ordered as texts are."""

    __slots__ = ("_chain", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._chain: list[int] = []  # of each whole chunk: a hash of all up to its end
        before = 0
        for end in range(CHUNK, len(text) + 1, CHUNK):
            before = hash((before, text[end - CHUNK : end]))
            self._chain.append(before)

    def __len__(self) -> int:
        return len(self.text)

    def __lt__(self, other: Opening) -> bool:
        same = self.alike(other)
        return self.text[same : same + 1] < other.text[same : same + 1]

    def alike(self, other: Opening) -> int:
        """Characters that both begin with."""
        least, most = 0, min(len(self._chain), len(other._chain))
        while least < most:
            middle = (least + most + 1) // 2
            if self._chain[middle - 1] == other._chain[middle - 1]:
                least = middle
            else:
                most = middle - 1
        begin = least * CHUNK
        one, two = self.text[begin : begin + CHUNK], other.text[begin : begin + CHUNK]
        return begin + next(
            (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
        )
