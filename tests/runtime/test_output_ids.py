"""The map from messages to the ids of outputs: what counts as the same message, and that it stays bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.frontend import ToolCall
from palmette.runtime.frontend.output_ids import MOST_ALIKE, KnownOutput, OutputIds, OutputPlace, message_key
from palmette.runtime.messages.tokens import count, pack


def output(text: str, tokens: int = 1, prefix: bytes = b"") -> KnownOutput:
    return KnownOutput(place=OutputPlace(lead=">", prefix=prefix), text=text, tokens=pack(range(tokens)))


def call(arguments: str, name: str = "f", id: str = "1") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def test_what_a_client_may_change_of_a_message_does_not_count() -> None:
    key = message_key("", None, [call('{"a": 1, "b": 2}')])
    assert message_key("", "", [call('{"b":2,"a":1}', id="2")]) == key
    for other in (
        message_key("x", None, [call('{"a": 1, "b": 2}')]),
        message_key("", "t", [call('{"a": 1, "b": 2}')]),
        message_key("", None, [call('{"a": 1, "b": 3}')]),
        message_key("", None, [call('{"a": 1, "b": 2}', name="g")]),
        message_key("", None, [call('{"a": 1, "b": 2}')] * 2),
        message_key("", None, []),
    ):
        assert other != key
    assert message_key("", "\ud800", [call("[" * 100_000)])  # whatever a client sends


def test_the_newest_of_a_message_comes_first_and_of_a_place_only_one_stays() -> None:
    known = OutputIds()
    for at in range(MOST_ALIKE + 2):
        known.remember(b"k", output("a", prefix=bytes([at])))
    assert [each.place.prefix[0] for each in known.find(b"k")] == list(range(MOST_ALIKE + 1, 1, -1))
    known.remember(b"k", output("b", prefix=bytes([3])))
    assert [each.text for each in known.find(b"k")] == ["b", *["a"] * (MOST_ALIKE - 1)]


@given(
    most=st.integers(1, 30),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 12), st.integers(0, 5), st.booleans()), max_size=30),
)
def test_it_never_holds_more_than_it_may_and_forgets_what_was_not_asked_for(
    most: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    known = OutputIds(most)
    order: list[bytes] = []  # oldest first
    for number, tokens, prefix, ask in steps:
        key = bytes([number])
        if ask:
            if known.find(key):
                order.remove(key)
                order.append(key)
            continue
        known.remember(key, output("x", tokens, bytes([prefix])))
        order = [each for each in order if each != key] + [key]
        kept = list(known._outputs)
        assert kept == order[len(order) - len(kept) :]
        order = kept
        held = sum(count(each.tokens) for outputs in known._outputs.values() for each in outputs)
        assert held == known._held <= most
