"""Random patterns over a small alphabet, and vocabularies to constrain, for the tests of this folder."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from palmette.runtime.vocabulary import Vocabulary

LETTERS = "abAZ019_ é-\nßſK٣€😀"
ATOMS = [
    *"abZ09_é€😀", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", "[ab]", "[^a]", r"[\w-]", r"[^\d\n]", "[a-é]", r"\n",
    r"\x41", r"\u00e9", "(?i:a)", "(?i:ß)", "(?i:[k-s])", "(?s:.)", "(?a:\\w)", "[😀-😂]", "[^\\W\\d]",
]  # fmt: skip


def _repeats(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}", "*?", "{,2}"])
    return st.builds(lambda part, count: f"(?:{part}){count}", inner, counts)


def _choices(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})")


def _sequences(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=0, max_size=4).map("".join)


regular = st.recursive(
    st.sampled_from(ATOMS), lambda inner: st.one_of(_repeats(inner), _choices(inner), _sequences(inner)), max_leaves=8
)
"""Patterns that both `re` and we take, of every construct but those that look around."""

looking = st.builds(
    lambda look, ahead, first, second, end: f"{first}(?{look}{ahead}){second}{end}",
    st.sampled_from("=!"), st.one_of(regular, regular.map(lambda part: part + "$")), regular, regular,
    st.sampled_from(["", "$", r"\Z"]),
)  # fmt: skip
"""Patterns that look ahead."""

texts = st.text(alphabet=LETTERS, max_size=8)


class Words:
    """A TokenSpace that takes the longest piece first: every byte is a token, and so are `words`."""

    def __init__(self, words: list[bytes]) -> None:
        pieces = dict.fromkeys([*(bytes([byte]) for byte in range(256)), *words])
        self.end = len(pieces)
        self.vocabulary = Vocabulary((*pieces, b"", b""), {self.end: "<end>", self.end + 1: "<tool>"}, (self.end,))
        self._ids = {piece: token for token, piece in enumerate(pieces)}
        self._longest = max(map(len, pieces))

    def encode(self, text: str) -> list[int]:
        data, tokens = text.encode(), []
        while data:
            length = next(n for n in range(min(self._longest, len(data)), 0, -1) if data[:n] in self._ids)
            tokens.append(self._ids[data[:length]])
            data = data[length:]
        return tokens

    def tokenisation(self, text: str, chance: random.Random) -> list[int]:
        """Any tokens that spell `text`."""
        data, tokens = text.encode(), []
        while data:
            lengths = [n for n in range(1, min(self._longest, len(data)) + 1) if data[:n] in self._ids]
            length = chance.choice(lengths)
            tokens.append(self._ids[data[:length]])
            data = data[length:]
        return tokens


WORDS = Words([
    b"aa", b"ab", b"ba", b"abc", b"a1", b"01", b"19", b" a", b"  ", b"\n\n", b"_a", b"-1", "é".encode(), b"a\xc3",
    b"\xa9a", b"\xe2\x82", b"\x82\xac", b"\xac0", b"\xf0\x9f", b"\x98\x80", "€€".encode(), b"Za", b"\xc3\xa9\xc3",
    b"aaaa", b"bbb",
])  # fmt: skip
"""Tokens that join and split characters."""
