"""Programs on any OpenAI-compatible API: turns over chat completions, text without turns over completions.

A branch is kept here, as messages or text, and sent whole with each call; nothing of it lives on the server. What such
an API can't do is refused by name before anything is sent: scores of given choices, grammars that aren't JSON schemas,
log-probabilities by token id. Options that only some servers know (vLLM, SGLang, llama.cpp) go with `extensions=True`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from palmette.lang.backends.base import BackendBranch, ToolChat
from palmette.lang.backends.chat_json import PostedChat
from palmette.lang.backends.openai_branch import Api, OpenAIBranch
from palmette.lang.backends.wire import Answer, Events, Server
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
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tool_chats import AskTurn

HOSTED = "https://api.openai.com/v1"
_SENT = ("max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
_EXTENSIONS = ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids")
_NEVER = ("stop_regex", "logprobs", "top_logprobs")
_DEFAULTS = SamplingParams()


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
        return OpenAIBranch(self)

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
            async for data in Events(answer):
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


def _said(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message") if isinstance(error, dict) else error or body)[:500]
