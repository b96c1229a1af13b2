"""POST /v1/completions, as OpenAI's clients speak it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import orjson
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.answers_openai import CompletionAnswer, CompletionChunk
from palmette.runtime.api.bodies import read
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import PlainResponse
from palmette.runtime.api.openai_replies import CompletionLogprobs, now, usage_json
from palmette.runtime.api.schemas_completions import CompletionBody
from palmette.runtime.api.streams import DONE, EventStream, event, merged, unless_gone
from palmette.runtime.api.surface import Surface, split_prompts
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Frontend, Generation, Output, collect
from palmette.runtime.messages.replies import Finish, Usage
from palmette.runtime.messages.sampling import SamplingParams


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        "/v1/completions",
        **operation(CompletionAnswer, takes=CompletionBody, streams=CompletionChunk, errors=GENERATING, tag="OpenAI"),
    )
    async def completions(request: Request) -> Response:
        """Continue a prompt, as OpenAI's completions do."""
        body = await read(request, CompletionBody)
        surface.check_model(body.model)
        prompts = await surface.prompts(body.prompt, "prompt", special=True)
        call = _Completion(surface, body, prompts, caller_of(request))
        if body.stream:
            return call.stream()
        return PlainResponse(await unless_gone(request, call.answer()), headers=body.headers)

    return routes


class _Completion:
    """One request: its generations (opened at once, so that a bad one is refused before any answer begins)."""

    def __init__(self, surface: Surface, body: CompletionBody, prompts: list[list[int]], caller: Caller) -> None:
        self._surface = surface
        self._body = body
        self._prompts = prompts
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._created = now()
        self._best_of = body.n if body.best_of is None else body.best_of
        self._check()
        self._echo = Echo(surface.frontend, prompts, split_prompts(body.prompt, "prompt"))
        scored = body.echo and body.logprobs is not None
        self._scores: list[Generation] = []
        if scored and body.stream:  # the prompt's log-probabilities come first, so they are asked for alone
            nothing = msgspec.structs.replace(self._params(), max_tokens=0, min_tokens=0, constraint=None)
            self._scores = surface.submit_all(
                prompts, nothing, request_id=f"{self._id}-echo", caller=caller, fields=body, prompt_logprobs_from=0
            )
        try:
            self._generations = surface.submit_all(
                prompts,
                self._params(),
                request_id=self._id,
                count=self._best_of,
                caller=caller,
                fields=body,
                prompt_logprobs_from=0 if scored and not body.stream else None,
            )
        except BaseException:
            for score in self._scores:
                score.close()
            raise

    def _check(self) -> None:
        body = self._body
        if self._best_of < body.n:
            raise InvalidRequest(f"best_of={body.best_of!r} is less than n={body.n!r}.", param="best_of")
        if self._best_of > body.n and body.stream:
            raise InvalidRequest("best_of can't be streamed.", hint="Leave out one of them.", param="best_of")

    def _params(self) -> SamplingParams:
        body = self._body
        wanted = body.logprobs is not None or self._best_of > body.n
        return body.sampling(max_tokens=body.max_tokens, logprobs=wanted, top_logprobs=body.logprobs or 0)

    async def answer(self) -> bytes:
        """The answer as JSON; a long one is put together in a thread."""
        outputs = await collect(self._generations)
        tokens = sum(len(output.tokens) for output in outputs) + self._body.echo * sum(map(len, self._prompts))
        size = tokens * (1 + 10 * (self._body.logprobs is not None) * (1 + (self._body.logprobs or 0)))
        return await self._surface.beside(size, lambda: orjson.dumps(self._answer(outputs)))

    def _answer(self, outputs: list[Output]) -> dict[str, Any]:
        groups = [outputs[at : at + self._best_of] for at in range(0, len(outputs), self._best_of)]
        choices: list[dict[str, Any]] = []
        for number, group in enumerate(groups):
            if self._best_of > self._body.n:
                group = sorted(group, key=_mean_logprob, reverse=True)[: self._body.n]
            choices += [self._choice(number, output, len(choices) + index) for index, output in enumerate(group)]
        usage = usage_json([o.usage for o in outputs], prompts=[group[0].usage for group in groups])
        return {**self._head(), "choices": choices, "usage": usage}

    def _choice(self, number: int, output: Output, index: int) -> dict[str, Any]:
        """`number`: of the prompt that it continues."""
        body = self._body
        text = output.text
        shown: dict[str, list[Any]] | None = None
        form = CompletionLogprobs(self._surface.frontend.vocabulary)
        if body.logprobs is not None:
            echoed = self._echo.logprobs(number, form, output.finish) if body.echo else form.next([])
            shown = {name: echoed[name] + values for name, values in form.next(output.logprobs).items()}
        if body.echo:
            text = self._echo.text(number) + text
        return {"index": index, "text": text, "logprobs": shown, "finish_reason": output.finish.reason}

    def stream(self) -> EventStream:
        return EventStream(
            self._events(),
            lambda error: event(error_body(error)),
            headers=self._body.headers,
            owned=[*self._scores, *self._generations],
        )

    async def _events(self) -> AsyncIterator[bytes]:
        body = self._body
        usages: dict[int, Usage] = {}
        forms = [CompletionLogprobs(self._surface.frontend.vocabulary) for _ in self._generations]
        if body.echo:
            scores = [output.finish for output in await collect(self._scores)]
            for index, form in enumerate(forms):
                number = index // body.n
                shown = self._echo.logprobs(number, form, scores[number]) if scores else None
                yield self._event(index, self._echo.text(number), shown)
        async for index, chunk in merged(self._generations):
            if chunk.usage is not None:
                usages[index] = chunk.usage
            shown = forms[index].next(chunk.logprobs or ()) if body.logprobs is not None else None
            yield self._event(index, chunk.text, shown, chunk.finish.reason if chunk.finish is not None else None)
        if self._wants_usage():
            ordered = [usages[index] for index in range(len(self._generations))]
            usage = usage_json(ordered, prompts=ordered[:: body.n])
            yield event({**self._head(), "choices": [], "usage": usage})
        yield DONE

    def _event(self, index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None = None) -> bytes:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return event({**self._head(), "choices": [choice], **self._no_usage()})

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._surface.model,
        }

    def _wants_usage(self) -> bool:
        return self._body.stream_options is not None and self._body.stream_options.include_usage

    def _no_usage(self) -> dict[str, None]:
        """Where usage is asked for, every chunk before the last says that it has none."""
        return {"usage": None} if self._wants_usage() else {}


class Echo:
    """The prompts as an answer repeats them."""

    def __init__(self, frontend: Frontend, prompts: Sequence[Sequence[int]], given: Sequence[str | list[int]]) -> None:
        """`prompts`: the token ids of what was `given`, one by one."""
        self._frontend = frontend
        self._prompts = prompts
        self._given = given

    def text(self, number: int) -> str:
        given = self._given[number]
        return given if isinstance(given, str) else self._frontend.text_of(given, special=True)

    def logprobs(self, number: int, form: CompletionLogprobs, finish: Finish) -> dict[str, Any]:
        prompt, given = self._prompts[number], self._given[number]
        start = self._frontend.text_of(prompt[:1], special=True)
        added = isinstance(given, str) and bool(start) and not given.startswith(start)  # BOS, which nobody wrote
        return form.prompt([*prompt[:1], *(finish.prompt_logprobs or ())], silent=int(added))


def _mean_logprob(output: Output) -> float:
    values = [each.logprob for each in output.logprobs if each.logprob is not None]  # forced tokens have none
    return sum(values) / len(values) if values else float("-inf")
