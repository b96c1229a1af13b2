"""Streams equal non-streams: for every chunking, with stops inside tokens and characters cut between tokens."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from palmette.runtime.frontend.output import OutputText
from palmette.runtime.messages.replies import Finish, TokenLogprob, Usage
from palmette.runtime.scheduler.stops import StopChecker
from palmette.runtime.vocabulary import Vocabulary

EURO = "€".encode()
PIECES = (
    b"",
    b"a",
    b"b",
    b"ab",
    b"<",
    b"</s",
    b">x",
    EURO[:1],
    EURO[1:2],
    EURO[2:],
    EURO[2:] + b"<",
    b" \xf0\x9f",
    b"\x98\x80ab",
)
VOCABULARY = Vocabulary(PIECES, {0: "<special>"}, eos_ids=())
STOPS = ("a", "ab", "ba", "<", "</s>", "</s>x", "€<", "b<", "😀")

tokens_strategy = st.lists(st.integers(0, len(PIECES) - 1), max_size=24)
stops_strategy = st.lists(st.sampled_from(STOPS), max_size=3, unique=True)


def stopped(tokens: list[int], stops: list[str], min_tokens: int) -> tuple[list[int], Finish]:
    checker = StopChecker(VOCABULARY, strings=stops, min_tokens=min_tokens)
    for at, token in enumerate(tokens, 1):
        stop = checker.accept(token, at)
        if stop is not None:
            return tokens[:at], Finish(
                reason="stop",
                usage=Usage(),
                kept_tokens=stop.kept_tokens,
                kept_bytes=stop.kept_bytes,
                matched=stop.matched,
            )
    return tokens, Finish(reason="length", usage=Usage(), kept_tokens=len(tokens))


@given(tokens_strategy, stops_strategy, st.integers(0, 3), st.lists(st.integers(0, 4), min_size=1, max_size=12))
@example([7, 8, 10], ["<"], 0, [1])
@example([7, 10], ["<"], 0, [1])
def test_every_chunking_gives_the_same_text_and_tokens(
    tokens: list[int], stops: list[str], min_tokens: int, sizes: list[int]
) -> None:
    tokens, finish = stopped(tokens, stops, min_tokens)
    data = VOCABULARY.text(tokens[: finish.kept_tokens]) + finish.kept_bytes
    output = OutputText(VOCABULARY, stops=stops)
    text, sent, logprobs = "", [], []
    position = 0
    for size in sizes:
        part = tokens[position : position + size]
        if position + size >= len(tokens):
            break
        position += size
        piece = output.push(part, [TokenLogprob(token, 0.0) for token in part])
        text += piece.text
        sent += piece.tokens
        logprobs += [each.token for each in piece.logprobs]
        shown, tail = output.handed_out()
        assert list(shown) == sent
        assert (VOCABULARY.text(sent) + tail).decode("utf-8", "replace") == text
    part = tokens[position:]
    piece, seen = output.finish(finish, part, [TokenLogprob(token, 0.0) for token in part])
    text += piece.text
    sent += piece.tokens
    logprobs += [each.token for each in piece.logprobs]
    assert text == data.decode("utf-8", "replace")
    assert sent == logprobs == tokens[: seen.kept_tokens]
    assert VOCABULARY.text(sent) + seen.kept_bytes == data
    assert output.handed_out() == (tuple(sent), seen.kept_bytes)
    assert seen.kept_tokens >= finish.kept_tokens - 3


def test_text_is_handed_out_as_soon_as_no_stop_can_change_it() -> None:
    output = OutputText(VOCABULARY, stops=["</s>"])
    assert output.push([1]).text == "a"
    assert output.push([4]).text == ""  # "<" may begin the stop
    assert output.push([2]).text == "<b"
    assert output.push([7, 8]).text == ""  # two thirds of a character
    assert output.push([9]).text == "€"


def test_a_stop_that_completes_a_character_keeps_whole_characters() -> None:
    output = OutputText(VOCABULARY, stops=["<"])
    assert output.push([1, 7, 8]).text == "a"
    finish = Finish(reason="stop", usage=Usage(), kept_tokens=3, kept_bytes=EURO[2:])
    piece, seen = output.finish(finish, [10])
    assert piece.text == "€"
    assert (seen.kept_tokens, seen.kept_bytes) == (1, EURO)
    assert output.handed_out() == ((1,), EURO)


def test_tokens_beyond_the_tokenizer_spell_nothing() -> None:
    output = OutputText(VOCABULARY)
    assert output.push([1, 400]).tokens == (1, 400)


SPELLED = {0: b"[mark]"}


@given(tokens_strategy, stops_strategy, st.lists(st.integers(0, 4), min_size=1, max_size=12))
@example([1, 0, 2], ["ab"], [1])
@example([1, 0, 0, 1], ["ab"], [1, 1])
def test_spelled_special_tokens_stand_where_they_came_and_stops_go_over_them(
    tokens: list[int], stops: list[str], sizes: list[int]
) -> None:
    tokens, finish = stopped(tokens, stops, 0)
    output = OutputText(VOCABULARY, stops=stops, spelled=SPELLED)
    text, sent = "", []
    position = 0
    for size in sizes:
        if position + size >= len(tokens):
            break
        piece = output.push(tokens[position : position + size])
        position += size
        text += piece.text
        sent += piece.tokens
    piece, seen = output.finish(finish, tokens[position:])
    text += piece.text
    sent += piece.tokens
    kept = tokens[: seen.kept_tokens]
    spelled = b"".join(SPELLED.get(token, PIECES[token]) for token in kept)
    assert sent == kept
    assert text == (spelled + seen.kept_bytes).decode("utf-8", "replace")
    assert output.tokens_before(len(text)) >= len(kept)
    assert all(output.tokens_before(at) <= output.tokens_before(at + 1) for at in range(len(text)))


def test_what_may_become_a_stop_is_held_back_over_a_spelled_token() -> None:
    output = OutputText(VOCABULARY, stops=["ab"], spelled=SPELLED)
    assert output.push([2, 0]).text == "b[mark]"
    assert output.push([1]).text == ""
    assert output.push([0]).text == ""  # behind what may still be cut off
    assert output.push([1]).text == "a[mark]"
    assert output.tokens_before(1) == 1
    assert output.tokens_before(2) == 2


def test_tokens_are_counted_by_the_characters_in_which_they_begin() -> None:
    output = OutputText(VOCABULARY)
    output.push([1, 7, 8, 9, 2])
    assert [output.tokens_before(at) for at in range(4)] == [0, 1, 4, 5]
