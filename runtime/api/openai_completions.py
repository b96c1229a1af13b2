"""POST /v1/completions, as OpenAI's clients speak it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from palmette.runtime.api.access import Caller, caller_of
from palmette.runtime.api.bodies import read
from palmette.runtime.api.errors import error_body
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.openai_replies import CompletionLogprobs, now, usage_json
from palmette.runtime.api.schemas_completions import CompletionBody
from palmette.runtime.api.streams import DONE, EventStream, event, merged, unless_gone
from palmette.runtime.api.surface import Surface
from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend import Output, collect
from palmette.runtime.messages.replies import Usage
from palmette.runtime.messages.sampling import SamplingParams

DEFAULT_MAX_TOKENS = 16


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/completions")
    async def completions(request: Request) -> Response:
        body = await read(request, CompletionBody)
        surface.check_model(body.model)
        if body.prompt is None:
            body.prompt = ""
        prompts = await surface.prompts(body.prompt, "prompt")
        call = _Completion(surface, body, prompts, caller_of(request))
        if body.stream:
            return call.stream()
        return JsonResponse(await unless_gone(request, call.answer()), headers=body.headers)

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
        self._generations = surface.submit_all(
            prompts,
            self._params(),
            request_id=self._id,
            count=self._best_of,
            caller=caller,
            fields=body,
            prompt_logprobs_from=0 if body.echo and body.logprobs is not None else None,
        )

    def _check(self) -> None:
        body = self._body
        if self._best_of < body.n:
            raise InvalidRequest(f"best_of={body.best_of!r} is less than n={body.n!r}.", param="best_of")
        if self._best_of > body.n and body.stream:
            raise InvalidRequest("best_of can't be streamed.", hint="Leave out one of them.", param="best_of")
        if body.echo and body.stream and body.logprobs is not None:
            raise Unsupported(
                "echo with logprobs can't be streamed: the prompt's log-probabilities are known at the end.",
                hint="Leave out stream.",
                param="stream",
            )

    def _params(self) -> SamplingParams:
        body = self._body
        longest = max(len(prompt) for prompt in self._prompts)
        limit = body.max_tokens
        if limit is None:
            room = self._surface.frontend.context_length - longest
            limit = max(min(DEFAULT_MAX_TOKENS, room), 1)
        wanted = body.logprobs is not None or self._best_of > body.n
        return body.sampling(max_tokens=limit, logprobs=wanted, top_logprobs=body.logprobs or 0)

    async def answer(self) -> dict[str, Any]:
        outputs = await collect(self._generations)
        groups = [outputs[at : at + self._best_of] for at in range(0, len(outputs), self._best_of)]
        choices: list[dict[str, Any]] = []
        for prompt, group in zip(self._prompts, groups, strict=True):
            if self._best_of > self._body.n:
                group = sorted(group, key=_mean_logprob, reverse=True)[: self._body.n]
            choices += [self._choice(prompt, output, len(choices) + index) for index, output in enumerate(group)]
        usage = usage_json([o.usage for o in outputs], prompts=[group[0].usage for group in groups])
        return {**self._head(), "choices": choices, "usage": usage}

    def _choice(self, prompt: Sequence[int], output: Output, index: int) -> dict[str, Any]:
        body = self._body
        form = CompletionLogprobs(self._surface.frontend.vocabulary)
        text = output.text
        shown: dict[str, list[Any]] | None = None
        if body.echo:
            text = self._surface.frontend.text_of(prompt) + text
        if body.logprobs is not None:
            echoed = form.prompt([*prompt[:1], *(output.finish.prompt_logprobs or ())] if body.echo else [])
            shown = {name: echoed[name] + values for name, values in form.next(output.logprobs).items()}
        return {"index": index, "text": text, "logprobs": shown, "finish_reason": output.finish.reason}

    def stream(self) -> EventStream:
        return EventStream(
            self._events(),
            lambda error: event(error_body(error)),
            headers=self._body.headers,
            owned=self._generations,
        )

    async def _events(self) -> AsyncIterator[bytes]:
        body = self._body
        usages: dict[int, Usage] = {}
        forms = [CompletionLogprobs(self._surface.frontend.vocabulary) for _ in self._generations]
        echoed: set[int] = set()
        async for index, chunk in merged(self._generations):
            text = chunk.text
            if body.echo and index not in echoed:
                echoed.add(index)
                text = self._surface.frontend.text_of(self._prompts[index // body.n]) + text
            shown = forms[index].next(chunk.logprobs or ()) if body.logprobs is not None else None
            reason = chunk.finish.reason if chunk.finish is not None else None
            if chunk.usage is not None:
                usages[index] = chunk.usage
            choice = {"index": index, "text": text, "logprobs": shown, "finish_reason": reason}
            yield event({**self._head(), "choices": [choice], **self._no_usage()})
        if self._wants_usage():
            ordered = [usages[index] for index in range(len(self._generations))]
            usage = usage_json(ordered, prompts=ordered[:: body.n])
            yield event({**self._head(), "choices": [], "usage": usage})
        yield DONE

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


def _mean_logprob(output: Output) -> float:
    values = [each.logprob for each in output.logprobs if each.logprob is not None]  # forced tokens have none
    return sum(values) / len(values) if values else float("-inf")
