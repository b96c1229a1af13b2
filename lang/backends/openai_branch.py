"""A state over an OpenAI-compatible API: what a program has appended, as messages or text, sent whole with each call.

What such an API can't do is refused by name. Opened by the backend (openai.py), which sends the requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Literal, Protocol

import msgspec

from palmette.lang.backends.base import BackendBranch, Result
from palmette.lang.backends.chat_json import usage_of
from palmette.runtime.errors import PalmetteError, Unsupported
from palmette.runtime.messages.branches import (
    BeginRole,
    Chunk,
    EndRole,
    ExtendStep,
    GenerateStep,
    Part,
    Step,
    Text,
)
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.replies import Finish, FinishReason, Usage
from palmette.runtime.messages.sampling import SamplingParams

Api = Literal["chat", "completions"]
_FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class OpenAIApi(Protocol):
    """What a branch needs of its backend; the options are openai.py's."""

    model: str
    extensions: bool
    strict: bool
    spec_tokens: int
    extra_body: dict[str, Any]

    def options(self, params: SamplingParams) -> dict[str, Any]: ...

    def stream(self, api: Api, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]: ...


class OpenAIBranch:
    """What a program has appended: text, or turns with perhaps one open."""

    def __init__(self, backend: OpenAIApi) -> None:
        self._backend = backend
        self._turns: tuple[dict[str, str], ...] = ()
        self._role: str | None = None
        self._text = ""  # of the open turn, or before all turns

    async def run(self, steps: Sequence[Step], *, last: bool = False) -> AsyncGenerator[tuple[int, Result], None]:
        done = 0
        group = self._guessable(steps)
        if len(group) > 1:
            async for number, chunk in self._guessed(group):
                done = number + 1 if chunk.finish is not None else done
                yield number, chunk
        for number, step in list(enumerate(steps))[done:]:
            before = self._turns, self._role, self._text
            try:
                match step:
                    case GenerateStep():
                        async with aclosing(self._generate(step)) as chunks:
                            async for chunk in chunks:
                                yield number, chunk
                    case ExtendStep(parts=parts):
                        yield number, Chunk(appended=self._append(parts))
                    case _:
                        raise Unsupported(
                            "select: an OpenAI-compatible API doesn't score given choices.",
                            hint="Let the model write one: gen(json_schema={'enum': […]}) in a chat.",
                            param="choices",
                        )
            except PalmetteError:
                self._turns, self._role, self._text = before
                raise

    def _guessable(self, steps: Sequence[Step]) -> list[GenerateStep]:
        """The gens at the beginning of `steps` that one completion may answer: text, sampled alike, with stops."""
        group: list[GenerateStep] = []
        if not self._backend.spec_tokens or self._turns or self._role is not None:
            return group
        for step in steps:
            if not isinstance(step, GenerateStep) or not all(isinstance(part, Text) for part in step.parts):
                break
            alike = msgspec.structs.replace(step.params, stop=(), max_tokens=None, seed=None)
            if not step.params.stop or step.params.constraint is not None or step.reasoning is not None:
                break
            if group and alike != msgspec.structs.replace(group[0].params, stop=(), max_tokens=None, seed=None):
                break
            group.append(step)
        return group

    async def _guessed(self, group: Sequence[GenerateStep]) -> AsyncGenerator[tuple[int, Chunk], None]:
        """Answers from one call, as far as it wrote what the program has between its gens.

        Tokens aren't known here; an output of no more bytes than its max_tokens surely has no more tokens.
        """
        first = group[0]
        most = self._backend.spec_tokens + (first.params.max_tokens or 0)
        params = msgspec.structs.replace(first.params, stop=(), max_tokens=most)
        before, own = self._text, [_text(step) for step in group]
        self._text += own[0]
        try:
            api, body = self._request(GenerateStep(params=params, priority=first.priority))
            async with aclosing(self._backend.stream(api, body)) as events:
                written, used = await _whole(events)
        finally:
            self._text = before
        for number, step in enumerate(group):
            lead = own[number] if number else ""
            ends = [end for stop in step.params.stop if (end := written.find(stop, len(lead))) >= 0]
            if not written.startswith(lead) or not ends:
                return
            output = written[len(lead) : min(ends)]
            if step.params.max_tokens is not None and len(output.encode()) > step.params.max_tokens:
                return
            written = written[min(ends) :]
            self._text += own[number] + output
            usage = used if number == 0 else Usage()
            yield number, Chunk(text=output, answer=output, appended=own[number])
            finish = Finish(reason="stop", usage=usage, kept_tokens=0, kept_bytes=output.encode())
            yield number, Chunk(finish=finish, usage=usage)

    async def _generate(self, step: GenerateStep) -> AsyncGenerator[Chunk, None]:
        appended = self._append(step.parts)
        api, body = self._request(step)
        texts: list[str] = []
        usage: dict[str, Any] = {}
        reason: FinishReason = "stop"
        yield Chunk(appended=appended)
        async with aclosing(self._backend.stream(api, body)) as events:
            async for event in events:
                usage = event.get("usage") or usage
                for choice in event.get("choices") or ():
                    delta = choice.get("delta") or {}
                    text = (delta.get("content") if api == "chat" else choice.get("text")) or ""
                    thought = (delta.get("reasoning_content") or delta.get("reasoning") or "") if api == "chat" else ""
                    reason = _FINISHES.get(choice.get("finish_reason") or "stop", "stop")
                    texts.append(text)
                    if text or thought:
                        yield Chunk(text=text, answer=text, reasoning=thought if step.reasoning else "")
        whole = "".join(texts)
        self._text += whole
        used = usage_of(usage)
        # No token ids are known, so the history keeps the text.
        yield Chunk(finish=Finish(reason=reason, usage=used, kept_tokens=0, kept_bytes=whole.encode()), usage=used)

    async def fork(self, parts: Sequence[Part], count: int) -> list[BackendBranch]:
        self._append(parts)
        forks: list[BackendBranch] = []
        for _ in range(count):
            fork = OpenAIBranch(self._backend)
            fork._turns, fork._role, fork._text = self._turns, self._role, self._text
            forks.append(fork)
        return forks

    async def hint(self, hint: BranchHint) -> None:
        """The API's cache is its own."""

    async def close(self) -> None:
        """Nothing lives on the server."""

    def drop(self) -> bool:
        return True

    def _append(self, parts: Sequence[Part]) -> str:
        """Append `parts`; returns the text that a state shows of them. Turns are shown as "role: …"."""
        shown: list[str] = []
        for part in parts:
            match part:
                case Text(text):
                    if self._turns and self._role is None:
                        raise Unsupported(
                            f"text outside of turns ({text!r:.60}): a chat API takes turns alone.",
                            hint="Put it into s.user(…) or another turn.",
                        )
                    self._text += text
                    shown.append(text)
                case BeginRole(role):
                    if self._text:
                        raise Unsupported(
                            f"turns behind text ({self._text!r:.60}): a chat API takes turns alone.",
                            hint="Put the text into a turn, as in s.system(…).",
                        )
                    self._role = role
                    shown.append(f"{role}: ")
                case EndRole(role):
                    self._turns = (*self._turns, {"role": role, "content": self._text})
                    self._role, self._text = None, ""
                    shown.append("\n")
                case _:
                    raise Unsupported("token ids: an OpenAI-compatible API takes text.")
        return "".join(shown)

    def _request(self, step: GenerateStep) -> tuple[Api, dict[str, Any]]:
        """What is sent for a gen. Raises Unsupported by name for what the API doesn't know."""
        api: Api = "chat" if self._turns or self._role is not None else "completions"
        backend = self._backend
        body: dict[str, Any] = {"model": backend.model, "stream": True, "stream_options": {"include_usage": True}}
        body |= backend.options(step.params)
        body |= self._held(step.params, api)
        if step.priority is not None:
            raise Unsupported(f"priority={step.priority!r}: an OpenAI-compatible API has none.", param="priority")
        if api == "completions":
            if step.reasoning is not None:
                raise Unsupported("separate_reasoning: completions don't tell reasoning apart.", hint="Use turns.")
            return api, {**body, "prompt": self._text, **backend.extra_body}
        if self._role != "assistant":
            raise Unsupported(
                f"gen in {'the turn of ' + self._role if self._role else 'no turn'}: a chat API writes the turns of the"
                " assistant.",
                hint="Write it as s += assistant(gen(…)).",
            )
        messages = list(self._turns)
        if self._text:
            if not backend.extensions:
                raise Unsupported(
                    f"gen behind text ({self._text!r:.60}) in the assistant's turn: a chat API writes whole turns.",
                    hint="Some servers go on with a turn: OpenAI(…, extensions=True).",
                )
            messages.append({"role": "assistant", "content": self._text})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return api, {**body, "messages": messages, **backend.extra_body}

    def _held(self, params: SamplingParams, api: Api) -> dict[str, Any]:
        """How the API is told what the output must match."""
        if params.constraint is None:
            return {}
        grammar = params.constraint.grammar
        if grammar.kind != "json_schema" or api != "chat":
            where = "" if api == "chat" else " in completions"
            raise Unsupported(
                f"An output that follows a {grammar.kind.replace('_', ' ')}{where} is not possible over an"
                " OpenAI-compatible API.",
                hint="JSON schemas are, in the assistant's turns.",
                param=grammar.kind,
            )
        schema = {"name": "output", "schema": msgspec.json.decode(grammar.text), "strict": self._backend.strict}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _text(step: GenerateStep) -> str:
    return "".join(part.text for part in step.parts if isinstance(part, Text))


async def _whole(events: AsyncIterator[dict[str, Any]]) -> tuple[str, Usage]:
    """A completion's text, and what it used."""
    texts: list[str] = []
    usage: dict[str, Any] = {}
    async for event in events:
        usage = event.get("usage") or usage
        texts += [choice.get("text") or "" for choice in event.get("choices") or ()]
    return "".join(texts), usage_of(usage)
