from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from palmette.runtime.grammar.trie import vocabulary_trie
from palmette.runtime.vocabulary import Vocabulary


@settings(deadline=None)
@given(st.lists(st.binary(max_size=5), max_size=40))
def test_every_token_is_where_its_bytes_lead(pieces: list[bytes]) -> None:
    trie = vocabulary_trie(Vocabulary(tuple(pieces), {}, ()))
    prefixes = {piece[:n] for piece in pieces for n in range(len(piece) + 1)} | {b""}
    assert trie.nodes == len(prefixes)
    assert trie.depth == max(map(len, pieces), default=0)
    for prefix in prefixes:
        node = trie.find(prefix)
        assert node is not None
        assert sorted(trie.ending_at(node)) == [t for t, piece in enumerate(pieces) if piece == prefix != b""]
    for token, piece in enumerate(pieces):
        assert trie.token_node[token] == (trie.find(piece) if piece else 0)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3), max_size=20), st.binary(max_size=4))
def test_what_no_token_starts_with_is_not_found(pieces: list[bytes], data: bytes) -> None:
    trie = vocabulary_trie(Vocabulary(tuple(pieces), {}, ()))
    assert (trie.find(data) is not None) == (not data or any(piece.startswith(data) for piece in pieces))
