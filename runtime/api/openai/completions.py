"""POST /v1/completions, as OpenAI's clients speak it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import orjson
from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.document import GENERATING, operation
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import PlainResponse
from palmette.runtime.api.openai.answers import CompletionAnswer, CompletionChunk
from palmette.runtime.api.openai.completions_schemas import CompletionBody
from palmette.runtime.api.openai.replies import CompletionLogprobs, now, usage_json
from palmette.runtime.api.request_ids import own_id
from palmette.runtime.api.streams import DONE, EventStream, event, merged, unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.frontend import Frontend, Generation, Output, collect
from palmette.runtime.messages.replies import Finish, Usage
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import TOKEN_BYTES, count, unpack


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
        call = _Completion(surface, body, prompts, own_id(request, "cmpl-"))
        await call.open(caller_of(request))
        if body.stream:
            return call.stream()
        return PlainResponse(await unless_gone(request, call.answer()), headers=body.headers)

    return routes


class _Completion:
    """One request: its generations (all opened before any answer begins, so that a bad one is refused)."""

    def __init__(self, surface: Surface, body: CompletionBody, prompts: list[bytes], answer_id: str) -> None:
        self._surface = surface
        self._body = body
        self._prompts = prompts
        self._id = answer_id
        self._created = now()
        self._best_of = body.n if body.best_of is None else body.best_of
        self._check()
        self._echo = Echo(surface.frontend, prompts, body.prompt)
        self._scores: list[Generation] = []
        self._generations: list[Generation] = []

    async def open(self, caller: Caller) -> None:
        """Raises what any of the requests is refused for; none of them is open then."""
        surface, body, prompts, params = self._surface, self._body, self._prompts, self._params()
        scored = body.echo and body.logprobs is not None
        if scored and body.stream:  # the prompt's log-probabilities come first, so they are asked for alone
            nothing = msgspec.structs.replace(params, max_tokens=0, min_tokens=0, constraint=None)
            self._scores = await surface.submit_all(
                prompts,
                nothing,
                request_id=f"{self._id}-echo",
                caller=caller,
                fields=body,
                watched=True,
                prompt_logprobs_from=0,
            )
        try:
            self._generations = await surface.submit_all(
                prompts,
                params,
                request_id=self._id,
                count=self._best_of,
                caller=caller,
                fields=body,
                watched=body.stream,
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
        tokens = sum(len(output.tokens) for output in outputs) + self._body.echo * sum(map(count, self._prompts))
        size = tokens * (1 + 10 * (self._body.logprobs is not None) * (1 + (self._body.logprobs or 0)))
        return await self._surface.beside(size, lambda: orjson.dumps(self._answer(outputs)), used=outputs)

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

    def __init__(self, frontend: Frontend, prompts: Sequence[bytes], given: Any) -> None:
        """`prompts`: the packed token ids of what was `given`: a text, token ids, or a list of either."""
        self._frontend = frontend
        self._prompts = prompts
        self._given = given if isinstance(given, list) else [given]

    def text(self, number: int) -> str:
        given = self._given_text(number)
        return self._frontend.text_of_packed(self._prompts[number]) if given is None else given

    def logprobs(self, number: int, form: CompletionLogprobs, finish: Finish) -> dict[str, Any]:
        first, given = self._prompts[number][:TOKEN_BYTES], self._given_text(number)
        start = self._frontend.text_of_packed(first)
        added = given is not None and bool(start) and not given.startswith(start)  # BOS, which nobody wrote
        return form.prompt([*unpack(first), *(finish.prompt_logprobs or ())], silent=int(added))

    def _given_text(self, number: int) -> str | None:
        """None where it was given as token ids."""
        given = self._given[number]
        return given if isinstance(given, str) else None


def _mean_logprob(output: Output) -> float:
    values = [each.logprob for each in output.logprobs if each.logprob is not None]  # forced tokens have none
    return sum(values) / len(values) if values else float("-inf")
