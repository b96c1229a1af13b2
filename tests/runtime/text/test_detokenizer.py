"""Streams equal non-streams: any chunking of any tokens gives the text of decoding them at once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.text.detokenizer import Detokenizer
from palmette.runtime.text.tokenizer import SpecialTokens, VocabularyTokenizer
from palmette.runtime.vocabulary import Vocabulary

# Single bytes, halves of characters, whole words, and two special tokens.
PIECES = (
    *(bytes([byte]) for byte in range(256)),
    "é".encode()[:1],
    "🎉".encode()[:3],
    "日本".encode()[1:],
    b"word ",
    b"",
    b"",
)
VOCABULARY = Vocabulary(PIECES, {260: "<|a|>", 261: "<|ü|>"}, (261,))
TOKENS = st.lists(st.integers(0, len(PIECES) - 1) | st.sampled_from(list("aé日🎉".encode())), max_size=40)


@given(tokens=TOKENS, cuts=st.lists(st.integers(0, 40), max_size=12), skip=st.booleans())
def test_chunks_add_up_to_the_whole(tokens: list[int], cuts: list[int], skip: bool) -> None:
    whole = VocabularyTokenizer(VOCABULARY, SpecialTokens()).decode(tokens, skip_special=skip)
    stream = Detokenizer(VOCABULARY, skip_special=skip)
    edges = [0, *sorted(min(cut, len(tokens)) for cut in cuts), len(tokens)]
    parts = [stream.feed(tokens[start:end]) for start, end in itertools.pairwise(edges)]
    assert "".join(parts) + stream.flush() == whole


@given(text=st.text(max_size=20), size=st.integers(1, 3))
def test_valid_text_never_shows_a_replacement(text: str, size: int) -> None:
    data = text.encode()
    stream = Detokenizer(VOCABULARY)
    shown = "".join(stream.feed(list(data[at : at + size])) for at in range(0, len(data), size))
    assert shown + stream.flush() == text


def test_an_incomplete_character_is_held_back_and_flushed_as_replacement() -> None:
    stream = Detokenizer(VOCABULARY)
    assert stream.feed([ord("a"), *"🎉".encode()[:3]]) == "a"
    assert stream.feed("🎉".encode()[3:]) == "🎉"
    assert stream.feed("é".encode()[:1]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.feed([ord("b")]) == "b"


def test_kept_bytes_of_a_stop_follow_the_tokens() -> None:
    stream = Detokenizer(VOCABULARY)
    assert stream.feed(list("é".encode()[:1]), "é".encode()[1:] + b"x") == "éx"


def test_special_tokens_show_only_where_asked_for() -> None:
    assert Detokenizer(VOCABULARY).feed([260, 259, 261]) == "word "
    assert Detokenizer(VOCABULARY, skip_special=False).feed([260, 259, 261]) == "<|a|>word <|ü|>"


def test_a_token_outside_the_vocabulary_is_named_and_padding_makes_room() -> None:
    for token in (-1, len(PIECES)):
        with pytest.raises(InvalidRequest, match=rf"Token {token}\b"):
            Detokenizer(VOCABULARY).feed([token])
    assert VOCABULARY.sized(300).size == 300
    assert VOCABULARY.sized(3).pieces == VOCABULARY.pieces[:3]
    assert all(token < 3 for token in VOCABULARY.sized(3).special_pieces)
    assert Detokenizer(VOCABULARY.sized(300)).feed([299, ord("a")]) == "a"
