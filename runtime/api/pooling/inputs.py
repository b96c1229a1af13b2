"""What embeddings, scores and rankings share: many inputs encoded, with each one's path in its errors; many prompts
scored together; usage. Knows no route."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from palmette.runtime.api.surface import Surface, ids_in, split_prompts
from palmette.runtime.errors import ContextLengthExceeded, InvalidRequest, PalmetteError
from palmette.runtime.messages.requests import Scheduling
from palmette.runtime.messages.tokens import count

AT_ONCE = 16  # requests that are sent in one turn of the event loop

T = TypeVar("T")


def check_count(count: int, name: str, most: int) -> None:
    if not 1 <= count <= most:
        raise InvalidRequest(
            f"{name!r} has {count} entries; a request has 1 to {most}.",
            hint="Send several requests." if count else "Give at least one.",
            param=name,
        )


async def token_lists(surface: Surface, given: Any, name: str, most: int) -> list[list[int]]:
    """Token ids of a text, of token ids, or of a list of either. None may be empty or too long for the context."""
    prompts = await surface.beside(ids_in(given), lambda: split_prompts(given, name))
    check_count(len(prompts), name, most)
    alone = isinstance(given, str) or not isinstance(given[0], str | list)
    found: list[list[int]] = []
    for index, prompt in enumerate(prompts):
        path = name if alone else f"{name}.{index}"
        if not prompt:
            raise InvalidRequest(f"{path!r} is empty.", hint="Leave it out.", param=path)
        try:
            tokens = await surface.frontend.tokens_of(prompt)
        except InvalidRequest as error:
            raise at(error, path) from None
        check_room(surface, len(tokens), path)
        found.append(tokens)
        await asyncio.sleep(0)  # others have their turn between any two
    return found


def check_room(surface: Surface, tokens: int, path: str) -> None:
    if tokens > surface.frontend.context_length:
        raise ContextLengthExceeded(
            f"{path!r} makes {tokens} tokens; the context has {surface.frontend.context_length}.",
            hint="Shorten it, or cut it into several.",
            param=path,
        )


def at(error: PalmetteError, path: str) -> PalmetteError:
    """The same error, of the field that the client knows."""
    return type(error)(error.message, hint=error.hint, param=path)


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order; where one fails or this is cancelled, the others are cancelled."""
    tasks: list[asyncio.Task[T]] = []
    try:
        for work in works:
            tasks.append(asyncio.create_task(work))
            if len(tasks) % AT_ONCE == 0:
                await asyncio.sleep(0)  # they begin, then others have their turn
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True)
class Continued:
    """A prompt and what may come behind it, all packed token ids."""

    prompt: bytes
    continuations: Sequence[bytes]

    @property
    def longest(self) -> int:
        """Tokens."""
        return count(self.prompt) + max(map(count, self.continuations))

    @property
    def tokens(self) -> int:
        """The prompt counts once."""
        return count(self.prompt) + sum(map(count, self.continuations))


@dataclass(frozen=True)
class Cost:
    """`cached`: those of the tokens that were not computed for this request."""

    tokens: int
    cached: int


async def score_all(
    surface: Surface, asked: Sequence[Continued], *, namespace: str, scheduling: Scheduling
) -> tuple[list[list[float]], Cost]:
    """Each prompt's continuations' log-probabilities (sums over their tokens), and what they took together."""
    scores = surface.frontend.scores
    found = await together(
        scores.score_tokens(each.prompt, each.continuations, namespace=namespace, scheduling=scheduling)
        for each in asked
    )
    tokens = sum(each.tokens for each in asked)
    computed = sum(each.usage.computed_tokens for each in found)
    logprobs = [[math.fsum(continuation) for continuation in each.logprobs] for each in found]
    return logprobs, Cost(tokens, max(0, tokens - computed))


def share(logprob: float, other: float) -> float:
    """exp(a) / (exp(a) + exp(b)), whatever their size."""
    ahead = logprob - other
    return 1 / (1 + math.exp(-ahead)) if ahead >= 0 else math.exp(ahead) / (1 + math.exp(ahead))


def usage_json(cost: Cost) -> dict[str, Any]:
    details = {"cached_tokens": cost.cached}
    return {"prompt_tokens": cost.tokens, "total_tokens": cost.tokens, "prompt_tokens_details": details}


def texts(given: Any, name: str) -> list[str]:
    """A text, or a list of texts."""
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InvalidRequest(f"{name!r} is neither a text nor a list of texts.", param=name)
    return list(found)
