"""Stops on bytes: what is kept, what is matched, for every way the text is cut into tokens."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.scheduler.stops import Stop, StopChecker
from palmette.runtime.vocabulary import Vocabulary


def run(pieces: list[bytes], *, strings: list[str], min_tokens: int = 0) -> tuple[Stop | None, int]:
    checker = StopChecker(Vocabulary(tuple(pieces), {}, ()), strings=strings, min_tokens=min_tokens)
    for count in range(1, len(pieces) + 1):
        stop = checker.accept(count - 1, count)
        if stop is not None:
            return stop, count
    return None, len(pieces)


def test_a_stop_inside_a_token_keeps_the_bytes_before_it() -> None:
    stop, _ = run([b"ab", b"cd\n\nef"], strings=["\n\n"])
    assert stop == Stop("\n\n", 1, b"cd")


def test_a_stop_over_three_tokens() -> None:
    stop, count = run([b"hello ", b"S", b"TO", b"P!"], strings=["STOP"])
    assert (stop, count) == (Stop("STOP", 1, b""), 4)


def test_the_earliest_match_wins_and_then_the_longest() -> None:
    assert run([b"xxENDxx"], strings=["xx", "END", "xxE"])[0] == Stop("xxE", 0, b"")


def test_stop_tokens_and_min_tokens() -> None:
    vocabulary = Vocabulary((b"a", b"b", b""), {2: "<eos>"}, (2,))
    checker = StopChecker(vocabulary, token_ids=[2], min_tokens=2)
    assert checker.accept(2, 1) is None
    assert checker.accept(2, 2) == Stop(2, 1, b"")
    assert run([b"a\n", b"b", b"\n"], strings=["\n"], min_tokens=2)[0] == Stop("\n", 2, b"")


def test_a_stop_across_a_split_character() -> None:
    text = "ok é end".encode()
    assert run([text[:4], text[4:]], strings=["é"])[0] == Stop("é", 0, b"ok ")


@given(
    st.text("ab\n", max_size=30),
    st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3),
    st.data(),
)
def test_any_cut_stops_at_the_first_place_where_a_string_is_complete(
    text: str, strings: list[str], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=8)))
    bounds = [0, *[cut for cut in cuts if cut < len(text)], len(text)]
    pieces = [text[a:b].encode() for a, b in itertools.pairwise(bounds) if a < b]
    stop, count = run(pieces, strings=strings)
    seen = b"".join(pieces[:count]).decode()
    before = b"".join(pieces[: count - 1]).decode()
    assert not any(string in before for string in strings)
    if stop is None:
        assert not any(string in text for string in strings)
        return
    kept = b"".join(pieces[: stop.kept_tokens]) + stop.kept_bytes
    assert kept.decode() == seen[: min(seen.find(string) for string in strings if string in seen)]
    assert isinstance(stop.matched, str)
    assert seen.startswith(stop.matched, len(kept.decode()))
