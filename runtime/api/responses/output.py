"""The chunks of one generation as a response: its output items, and the events that tell of them.

Whole answers and streams come from here alike: a whole answer is the response behind the last event. Pure; knows
neither HTTP nor what is kept. Used by routes.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import orjson

from palmette.runtime.api.errors import shortened
from palmette.runtime.api.openai.replies import chat_logprob, now
from palmette.runtime.api.responses.items import Item, output_id
from palmette.runtime.errors import PalmetteError
from palmette.runtime.frontend import ChatChunk, ChatFinish
from palmette.runtime.messages.replies import TokenLogprob
from palmette.runtime.parsers.protocol import ArgumentsDelta, CallBegun, CallEnded, ReasoningDelta, TextDelta
from palmette.runtime.parsers.protocol import Event as Parsed
from palmette.runtime.vocabulary import Vocabulary

Event = dict[str, Any]
Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ENDED: tuple[Status, ...] = ("completed", "incomplete", "failed", "cancelled")
_LAST = {"completed": "response.completed", "failed": "response.failed"}  # others: response.incomplete
_FAULTS = {400: "invalid_prompt", 429: "rate_limit_exceeded"}  # others: server_error


class ResponseWriter:
    """One response as it comes."""

    def __init__(self, head: dict[str, Any], vocabulary: Vocabulary, *, queued: bool = False) -> None:
        """`head`: what of the response is known before it begins; its id among it."""
        self.id: str = head["id"]
        self.status: Status = "queued" if queued else "in_progress"
        self._head = head
        self._suffix = self.id.partition("_")[2]
        self._vocabulary = vocabulary
        self._items: list[Item] = []  # those that are done
        self._open: _Message | _Reasoning | _Call | None = None
        self._tokens: deque[tuple[int, bytes]] = deque()  # log-probabilities that wait for their text, with its run
        self._run = 0  # calls and pieces of reasoning so far
        self._usage: dict[str, Any] | None = None
        self._error: dict[str, Any] | None = None
        self._incomplete: dict[str, Any] | None = None
        self._completed_at: int | None = None
        self._sent = 0

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def items(self) -> list[Item]:
        """The output so far, as input of a response that follows."""
        return [_without_logprobs(item) for item in self._items]

    def response(self) -> dict[str, Any]:
        """The response as it is now, for orjson."""
        output = list(self._items)
        if self._open is not None:
            output.append(self._open.item("in_progress"))
        return {
            **self._head,
            "status": self.status,
            "completed_at": self._completed_at,
            "error": self._error,
            "incomplete_details": self._incomplete,
            "output": output,
            "usage": self._usage,
        }

    # --- what happens ---

    def begin(self) -> list[Event]:
        """Before any chunk."""
        first = "response.queued" if self.status == "queued" else "response.in_progress"
        return [self._life("response.created"), self._life(first)]

    def chunk(self, chunk: ChatChunk) -> list[Event]:
        """The events of one chunk; of the last one, those of the end too."""
        events: list[Event] = []
        never_begun = not chunk.events and chunk.finish is not None and chunk.finish.reason == "abort"
        if self.status == "queued" and not never_begun:
            self.status = "in_progress"
            events.append(self._life("response.in_progress"))
        self._tokens += [(each.run, self._logprob(each.logprob)) for each in chunk.text_logprobs]
        for each in chunk.events:
            events += self._told(each)
        if chunk.finish is not None:
            events += self._finish(chunk.finish)
        return events

    def fail(self, error: PalmetteError) -> list[Event]:
        """What has come stays."""
        code = _FAULTS.get(error.http_status, "server_error")
        self._error = {"code": code, "message": shortened(str(error))}
        return [*self._done(complete=False), *self._end("failed")]

    def cancel(self) -> list[Event]:
        return [*self._done(complete=False), *self._end("cancelled")]

    # --- items ---

    def _told(self, told: Parsed) -> list[Event]:
        match told:
            case TextDelta(text=text):
                events = [] if isinstance(self._open, _Message) else self._next(_Message)
                return [*events, self._text(text)]
            case ReasoningDelta(text=text):
                events = [] if isinstance(self._open, _Reasoning) else self._next(_Reasoning)
                reasoning = self._open
                assert isinstance(reasoning, _Reasoning)
                reasoning.pieces.append(text)
                return [*events, self._of_part("response.reasoning_text.delta", delta=text)]
            case CallBegun(id=call_id, name=name):
                events = self._done()
                self._open = _Call(self._new_id("fc"), call_id, name)
                self._run += 1
                return [*events, self._of_item("response.output_item.added")]
            case ArgumentsDelta(text=text):
                call = self._open
                assert isinstance(call, _Call), "arguments belong to the call begun last"
                call.pieces.append(text)
                return [self._of_call("response.function_call_arguments.delta", delta=text)]
            case CallEnded():
                return self._done()

    def _next(self, kind: type[_Message] | type[_Reasoning]) -> list[Event]:
        """The open item is done, and one of `kind` begins."""
        events = self._done()
        self._run += kind is _Reasoning
        self._open = opened = kind(self._new_id("msg" if kind is _Message else "rs"))
        events.append(self._of_item("response.output_item.added", content=[]))
        events.append(self._of_part("response.content_part.added", part=opened.part()))
        return events

    def _text(self, text: str) -> Event:
        message = self._open
        assert isinstance(message, _Message)
        message.pieces.append(text)
        tokens = self._tokens_now()
        message.logprobs += tokens
        return self._of_part("response.output_text.delta", delta=text, logprobs=_listed(tokens))

    def _tokens_now(self) -> list[bytes]:
        """The log-probabilities of the open message's tokens that were not told yet."""
        tokens: list[bytes] = []
        while self._tokens and self._tokens[0][0] <= self._run:
            run, token = self._tokens.popleft()
            if run == self._run:  # else it is white space around something else
                tokens.append(token)
        return tokens

    def _done(self, *, complete: bool = True) -> list[Event]:
        """The open item ends, if there is one. A call is complete where its end has come."""
        item = self._open
        if item is None:
            return []
        status: Literal["completed", "incomplete"] = "completed" if complete else "incomplete"
        events: list[Event] = []
        match item:
            case _Message():
                item.logprobs += self._tokens_now()
                logprobs = _listed(item.logprobs)
                events.append(self._of_part("response.output_text.done", text=item.text, logprobs=logprobs))
                events.append(self._of_part("response.content_part.done", part=item.part()))
            case _Reasoning():
                events.append(self._of_part("response.reasoning_text.done", text=item.text))
                events.append(self._of_part("response.content_part.done", part=item.part()))
            case _Call():
                events.append(
                    self._of_call("response.function_call_arguments.done", name=item.name, arguments=item.text)
                )
        events.append(self._of_item("response.output_item.done", status=status))
        self._items.append(item.item(status))
        self._open = None
        return events

    def _finish(self, finish: ChatFinish) -> list[Event]:
        usage = finish.usage
        self._usage = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cached_tokens,
                "cache_write_tokens": usage.prompt_tokens - usage.cached_tokens,
            },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": finish.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        if finish.reason == "abort":
            return self.cancel()
        if finish.reason == "length":
            self._incomplete = {"reason": "max_output_tokens"}
            return [*self._done(complete=False), *self._end("incomplete")]
        events = []
        if self._open is None and not self._items:  # an answer without a word is an answer
            events += [*self._next(_Message), self._text("")]
        cut_off = isinstance(self._open, _Call)
        return [*events, *self._done(complete=not cut_off), *self._end("completed")]

    def _end(self, status: Status) -> list[Event]:
        self.status = status
        self._completed_at = now() if status == "completed" else None
        return [self._life(_LAST.get(status, "response.incomplete"))]

    def _new_id(self, kind: Literal["msg", "fc", "rs"]) -> str:
        return output_id(kind, self._suffix, len(self._items))

    def _logprob(self, told: TokenLogprob) -> bytes:
        """Encoded once: it stands in several events."""
        return orjson.dumps(chat_logprob(self._vocabulary, told))

    # --- events ---

    def _event(self, kind: str, **fields: Any) -> Event:
        event = {"type": kind, "sequence_number": self._sent, **fields}
        self._sent += 1
        return event

    def _life(self, kind: str) -> Event:
        return self._event(kind, response=self.response())

    def _of_item(self, kind: str, *, status: Literal["in_progress", "completed", "incomplete"] = "in_progress",
                 **changed: Any) -> Event:  # fmt: skip
        assert self._open is not None
        return self._event(kind, output_index=len(self._items), item={**self._open.item(status), **changed})

    def _of_part(self, kind: str, **fields: Any) -> Event:
        assert self._open is not None
        return self._event(kind, item_id=self._open.id, output_index=len(self._items), content_index=0, **fields)

    def _of_call(self, kind: str, **fields: Any) -> Event:
        assert self._open is not None
        return self._event(kind, item_id=self._open.id, output_index=len(self._items), **fields)


class _Item:
    """An output item that is still being written."""

    def __init__(self, item_id: str) -> None:
        self.id = item_id
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class _Message(_Item):
    def __init__(self, item_id: str) -> None:
        super().__init__(item_id)
        self.logprobs: list[bytes] = []

    def part(self) -> Item:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": _listed(self.logprobs)}

    def item(self, status: str) -> Item:
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": [self.part()]}


class _Reasoning(_Item):
    def part(self) -> Item:
        return {"type": "reasoning_text", "text": self.text}

    def item(self, status: str) -> Item:
        return {"id": self.id, "type": "reasoning", "status": status, "summary": [], "content": [self.part()]}


class _Call(_Item):
    def __init__(self, item_id: str, call_id: str, name: str) -> None:
        super().__init__(item_id)
        self.call_id = call_id
        self.name = name

    def item(self, status: str) -> Item:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.text,
        }


def fault(error: PalmetteError) -> Event:
    """The event of a stream that failed itself, where not even a failed response can be told of. Its place among the
    others is not known."""
    param = shortened(error.param) if error.param is not None else None
    return {
        "type": "error",
        "sequence_number": 0,
        "code": error.http_code(),
        "message": shortened(str(error)),
        "param": param,
    }


def _listed(encoded: Sequence[bytes]) -> orjson.Fragment:
    return orjson.Fragment(b"[" + b",".join(encoded) + b"]")


def _without_logprobs(item: Item) -> Item:
    if item["type"] != "message":
        return item
    parts = [{key: value for key, value in part.items() if key != "logprobs"} for part in item["content"]]
    return {**item, "content": parts}
