"""What every surface of the api is given, and what they share: prompts read, generations opened together."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from palmette.runtime.api.access import Caller
from palmette.runtime.api.limits import MOST_OUTPUTS
from palmette.runtime.api.openai.replies import now
from palmette.runtime.api.scheduling_fields import SchedulingFields
from palmette.runtime.errors import InvalidRequest, ModelNotFound
from palmette.runtime.frontend import Frontend, Generation
from palmette.runtime.messages.requests import UNWATCHED_SECONDS
from palmette.runtime.messages.sampling import SamplingParams, output_seed
from palmette.runtime.messages.tokens import pack

OPENED_AT_ONCE = 8  # generations, in one turn of the loop
LARGE_ANSWER = 1000  # tokens, or log-probabilities: about as much as a millisecond writes

T = TypeVar("T")


@dataclass(frozen=True)
class Surface:
    frontend: Frontend
    names: tuple[str, ...]  # of the one model; answers bear the first
    started: int = field(default_factory=now)

    @property
    def model(self) -> str:
        return self.names[0]

    def check_model(self, name: str) -> None:
        """A request may leave the model out, or call it by any of its names. Raises ModelNotFound."""
        if name not in ("", "default", *self.names):
            served = ", ".join(map(repr, self.names))
            raise ModelNotFound(
                f"Model {name!r} is not served here.", hint=f"Use {served}, or leave it out.", param="model"
            )

    async def beside(self, size: int, work: Callable[[], T], *, used: list[Any] | None = None) -> T:
        """`work` on so many values: at once where they are few, else in a thread, so that the loop goes on. What the
        work alone has `used` is given up there too, which takes its time as well."""
        if size < LARGE_ANSWER:
            return work()
        try:
            return await self.frontend.offload.run(work)
        finally:
            if used is not None:
                self.frontend.offload.free(used)

    async def submit_all(
        self,
        prompts: Sequence[bytes],
        params: SamplingParams,
        *,
        request_id: str,
        count: int = 1,
        caller: Caller,
        fields: SchedulingFields,
        watched: bool,
        prompt_logprobs_from: int | None = None,
        field: str = "prompt",
    ) -> list[Generation]:
        """`count` generations of each prompt (packed), prompt by prompt; all of them or, where one is refused, none.
        `watched`: they are streamed. `field`: of the body, that holds the prompts.

        With a seed, output i of a prompt has seed + i, in 64 bits. Others have their turn between any few.
        """
        namespace, scheduling = fields.cache_namespace(caller), fields.scheduling(caller)
        check_outputs(len(prompts), count, field)
        single = count * len(prompts) == 1
        group = 1 if len(params.logit_bias) > LARGE_ANSWER else OPENED_AT_ONCE
        opened: list[Generation] = []
        try:
            for packed in prompts:
                for choice in range(count):
                    own = params
                    if params.seed is not None:
                        own = msgspec.structs.replace(params, seed=output_seed(params.seed, choice))
                    generation = self.frontend.submit_packed(
                        packed,
                        own,
                        namespace=namespace,
                        scheduling=scheduling,
                        request_id=request_id if single else f"{request_id}-{len(opened)}",
                        prompt_logprobs_from=prompt_logprobs_from,
                        reply_seconds=0.0 if watched else UNWATCHED_SECONDS,
                        field=field,
                    )
                    opened.append(generation)
                    if len(opened) % group == 0:
                        await asyncio.sleep(0)
        except BaseException:
            for generation in opened:
                generation.close()
            raise
        return opened

    async def prompts(self, given: Any, name: str, *, special: bool = False) -> list[bytes]:
        """Token ids, packed, of `given`: a text, token ids, or a list of either. `special`: special tokens that a text
        spells are those tokens."""
        prompts = await self.beside(ids_in(given), lambda: split_prompts(given, name))
        check_outputs(len(prompts), 1, name)
        tokens: list[bytes] = []
        for prompt in prompts:
            tokens.append(await self._packed(prompt, special=special))
            await asyncio.sleep(0)  # others have their turn between any two
        return tokens

    async def _packed(self, prompt: str | list[int], *, special: bool) -> bytes:
        if isinstance(prompt, str):
            return await self.frontend.packed_of(prompt, special=special)

        def packed() -> bytes:
            self.frontend.check_tokens(prompt)
            return pack(prompt or [self.frontend.editor.start_token])

        return await self.beside(len(prompt) // 10, packed)  # a tenth of the time that writing one takes


def ids_in(given: Any) -> int:
    """About how many token ids there are to be looked at."""
    if not isinstance(given, list) or len(given) > LARGE_ANSWER:
        return len(given) if isinstance(given, list) else 0
    return sum(len(each) for each in given if isinstance(each, list)) // 10


def check_outputs(prompts: int, count: int, field: str = "prompt") -> None:
    """`field`: that holds the prompts."""
    if count < 1:
        raise InvalidRequest(f"n={count!r} is less than 1.", hint="Leave it out for one output.", param="n")
    if count * prompts > MOST_OUTPUTS:
        raise InvalidRequest(
            f"{prompts} {'prompts' if prompts > 1 else 'prompt'} with {count} of each make {count * prompts} outputs;"
            f" a request has {MOST_OUTPUTS} at most.",
            hint="Send several requests.",
            param="n" if prompts == 1 else field,
        )


def split_prompts(given: Any, name: str) -> list[str | list[int]]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if all(isinstance(item, str) for item in given):
            return list(given)
        if _is_ids(given):
            return [given]
        if all(isinstance(item, list) and _is_ids(item) for item in given):
            return list(given)
    raise InvalidRequest(
        f"{name!r} is neither a text, nor token ids, nor a non-empty list of either (got {reprlib.repr(given)}).",
        param=name,
    )


def _is_ids(value: list[Any]) -> bool:
    return set(map(type, value)) <= {int}
