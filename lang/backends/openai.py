"""Programs on any OpenAI-compatible API: turns over chat completions, text without turns over completions.

A branch is kept here, as messages or text, and sent whole with each call; nothing of it lives on the server. What such
an API can't do is refused by name before anything is sent: scores of given choices, grammars that aren't JSON schemas,
log-probabilities by token id. Options that only some servers know (vLLM, SGLang, llama.cpp) go with `extensions=True`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from palmette.lang.backends.base import BackendBranch, Result, ToolChat
from palmette.lang.backends.chat_json import PostedChat, usage_of
from palmette.lang.backends.wire import Answer, Server
from palmette.lang.loop import language_loop, run_on
from palmette.runtime.errors import (
    EngineDied,
    Forbidden,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    PalmetteError,
    Unsupported,
)
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
from palmette.runtime.messages.tool_chats import AskTurn

Api = Literal["chat", "completions"]

HOSTED = "https://api.openai.com/v1"
_SENT = ("max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
_EXTENSIONS = ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids")
_NEVER = ("stop_regex", "logprobs", "top_logprobs")
_DEFAULTS = SamplingParams()
_FINISHES: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class OpenAI:
    """A backend over any OpenAI-compatible API: `model` at `base_url` (with its /v1).

    `extensions`: the server knows top_k, min_p, repetition_penalty, min_tokens, ignore_eos, stop_token_ids, and goes on
    with an assistant's turn that has begun. `strict`: of JSON schemas, as the API names it. `max_tokens_name`: newer
    hosted models want "max_completion_tokens". `extra_body` goes into each request.

    `spec_tokens`: where several gens of a text follow each other, one call writes up to so many tokens past the first
    one's stop; the gens behind it are answered from them as long as what was written has the program's own text between
    them, word for word. `calls` counts those made.
    """

    name = "openai"

    def __init__(
        self,
        model: str,
        base_url: str = HOSTED,
        api_key: str | None = None,
        *,
        extensions: bool = False,
        strict: bool = True,
        max_tokens_name: str = "max_tokens",
        spec_tokens: int = 0,
        extra_body: dict[str, Any] | None = None,
        verify: bool | str = True,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise InvalidRequest(f"model={model!r} is not the name of a model.", param="model")
        if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
            raise InvalidRequest(
                f"base_url={base_url!r} is not a URL.", hint=f"Write it as {HOSTED}.", param="base_url"
            )
        self.model = model
        self.base_url = base_url.rstrip("/")
        self.extensions = extensions
        self.strict = strict
        self.max_tokens_name = max_tokens_name
        if not isinstance(spec_tokens, int) or isinstance(spec_tokens, bool) or spec_tokens < 0:
            raise InvalidRequest(f"spec_tokens={spec_tokens!r} is not a number of tokens.", param="spec_tokens")
        self.spec_tokens = spec_tokens
        self.calls = 0
        self.extra_body = dict(extra_body or {})
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._verify = verify
        self._server: Server | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return language_loop()

    async def open(self, *, namespace: str = "") -> BackendBranch:
        self._check_namespace(namespace)
        return _Branch(self)

    def _check_namespace(self, namespace: str) -> None:
        if namespace:
            raise Unsupported(
                f"namespace={namespace!r}: an OpenAI-compatible API has no namespaces of its cache.", param="namespace"
            )

    def options(self, params: SamplingParams) -> dict[str, Any]:
        """Sampling parameters as the API names them. Raises Unsupported by name for those it doesn't know."""
        body: dict[str, Any] = {name: getattr(params, name) for name in _SENT if getattr(params, name) is not None}
        if "max_tokens" in body:
            body[self.max_tokens_name] = body.pop("max_tokens")
        for name in (*_EXTENSIONS, *_NEVER):
            value = getattr(params, name)
            if value == getattr(_DEFAULTS, name):
                continue
            if name in _NEVER or not self.extensions:
                hint = "Some servers know it: OpenAI(…, extensions=True)." if name in _EXTENSIONS else "Leave it out."
                raise Unsupported(
                    f"{name}={value!r} is not an option of OpenAI-compatible APIs.", hint=hint, param=name
                )
            body[name] = value
        if params.stop:
            body["stop"] = list(params.stop)
        if params.logit_bias:
            body["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
        return body

    async def flush_cache(self) -> int:
        raise Unsupported("An OpenAI-compatible API has no way to flush its cache.")

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def shutdown(self) -> None:
        """Close the connections, from any thread."""
        run_on(self.loop, self.close())

    async def stream(self, api: Api, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a call's answer."""
        path = "/chat/completions" if api == "chat" else "/completions"
        self.calls += 1
        async with self._posted(path, body) as answer:
            async for data in _events(answer.pieces):
                if data == b"[DONE]":
                    continue
                event: dict[str, Any] = msgspec.json.decode(data)
                if event.get("error"):
                    raise InternalError(f"{self.base_url}{path}: {_said(event)}")
                yield event

    def open_tool_chat(self, *, namespace: str = "", state: str = "") -> ToolChat:
        """A conversation with tools, in the model's own format of calls."""
        self._check_namespace(namespace)
        return PostedChat(self._post_turn)

    async def _post_turn(self, turn: AskTurn, body: dict[str, Any]) -> dict[str, Any]:
        if turn.priority is not None:
            raise Unsupported(f"priority={turn.priority!r}: an OpenAI-compatible API has none.", param="priority")
        sent = {"model": self.model, **self.options(turn.params), **body, **self.extra_body}
        self.calls += 1
        async with self._posted("/chat/completions", sent) as answer:
            reply: dict[str, Any] = msgspec.json.decode(await answer.body())
            return reply

    @contextlib.asynccontextmanager
    async def _posted(self, path: str, body: dict[str, Any]) -> AsyncIterator[Answer]:
        """The answer to a POST. Raises what the API refuses; EngineDied where it doesn't answer."""
        if self._server is None:  # made on the loop that uses it
            self._server = Server(self.base_url, self._headers, verify=self._verify)
        try:
            async with self._server.request("POST", path, msgspec.json.encode(body)) as answer:
                if not answer.ok:
                    raise await self._refused(path, answer)
                yield answer
        except (OSError, msgspec.DecodeError) as error:
            raise EngineDied(
                f"The API at {self.base_url} did not answer ({type(error).__name__}: {error}).", hint="Is it running?"
            ) from error

    async def _refused(self, path: str, answer: Answer) -> PalmetteError:
        body = await answer.body()
        try:
            said = _said(msgspec.json.decode(body))
        except msgspec.DecodeError:
            said = repr(body[:200])
        message = f"{self.base_url}{path} answered with status {answer.status}: {said}"
        match answer.status:
            case 401 | 403:
                return Forbidden(message, hint="Give api_key=.", param="api_key")
            case 404:
                return ModelNotFound(message, hint="Look at base_url= (with its /v1) and at the model's name.")
            case 429:
                return Overloaded(message, hint="Try again soon.")
            case status if status < 500:
                return InvalidRequest(message)
        return InternalError(message)


class _Branch:
    """What a program has appended: text, or turns with perhaps one open."""

    def __init__(self, backend: OpenAI) -> None:
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
            fork = _Branch(self._backend)
            fork._turns, fork._role, fork._text = self._turns, self._role, self._text
            forks.append(fork)
        return forks

    async def hint(self, hint: BranchHint) -> None:
        """The API's cache is its own."""

    async def close(self) -> None:
        """Nothing lives on the server."""

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


async def _events(data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events."""
    rest = b""
    async for piece in data:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


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


def _said(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message") if isinstance(error, dict) else error or body)[:500]
