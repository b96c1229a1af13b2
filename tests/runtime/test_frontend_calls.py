"""Ids of open requests: one answer each, also where a client takes an id again."""

from __future__ import annotations

import pytest

from palmette.runtime.errors import Aborted, InvalidRequest, Overloaded
from palmette.runtime.frontend.calls import Call, OpenCalls
from palmette.runtime.messages.replies import Finish, Generated, Usage
from palmette.runtime.messages.requests import Abort, Generate, Request
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.metrics import FrontMetrics


class Link:
    def __init__(self) -> None:
        self.sent: list[Request] = []

    def send(self, request: Request) -> None:
        self.sent.append(request)


async def test_an_id_that_was_given_up_is_free_again_when_the_engine_has_ended_it() -> None:
    """Else the last reply of the first request would end the second."""
    link = Link()
    calls = OpenCalls(link, FrontMetrics(), limit=2, queued_tokens=100)  # type: ignore[arg-type]
    request = Generate(id="mine", prompt=pack([1]), params=SamplingParams())
    first = calls.open(request)
    first.give_up()
    with pytest.raises(Aborted):
        await first.replies()
    assert (len(calls), link.sent) == (0, [request, Abort("mine")])
    with pytest.raises(InvalidRequest, match="'mine' is still being ended"):
        calls.open(request)
    calls.deliver([Generated(id="mine", tokens=pack([5]))])
    with pytest.raises(InvalidRequest, match="'mine'"):
        calls.open(request)
    calls.deliver([Generated(id="mine", tokens=b"", finish=Finish(reason="abort", usage=Usage(), kept_tokens=1))])
    second = calls.open(request)
    calls.deliver([Generated(id="mine", tokens=pack([7]))])
    assert [reply.tokens for reply in await second.replies() if isinstance(reply, Generated)] == [pack([7])]


async def test_prompt_tokens_that_wait_for_an_answer_are_bounded() -> None:
    calls = OpenCalls(Link(), FrontMetrics(), limit=9, queued_tokens=100)  # type: ignore[arg-type]

    def ask(name: str, tokens: int) -> Call:
        return calls.open(Generate(id=name, prompt=pack([1] * tokens), params=SamplingParams()))

    alone = ask("alone", 300)  # nobody is before it
    with pytest.raises(Overloaded, match="300 prompt tokens wait"):
        ask("second", 1)
    calls.deliver([Generated(id="alone", tokens=pack([5]))])
    second = ask("second", 60)
    with pytest.raises(Overloaded, match="has 41"):
        ask("third", 41)
    ask("third", 40)
    second.give_up()
    ask("fourth", 60)
    alone.give_up()
