"""Output tokens on their way out: taken into the sequence up to one that ends it, and sent with the next reply.

Knows sequences, stops and replies; nothing of pages or plans. Called by the core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from palmette.runtime.errors import GrammarError, InternalError, InvalidRequest, PalmetteError
from palmette.runtime.messages.replies import Finish, FinishReason, Generated, TokenLogprob
from palmette.runtime.messages.tokens import TOKEN_BYTES, unpack
from palmette.runtime.plan import NOT_FINITE
from palmette.runtime.scheduler.sequence import Sequence
from palmette.runtime.scheduler.stops import Stop


class Ending(NamedTuple):
    """Why an output is over."""

    reason: FinishReason
    stop: Stop | None = None


def append(sequence: Sequence, tokens: Iterable[int], drawn: TokenLogprob | None = None) -> Ending | None:
    """New output tokens, up to one that ends the output. `drawn`: of the first, where it was asked for."""
    generation = sequence.generation
    assert generation is not None
    accept, logprobs = generation.stops.accept, generation.params.logprobs
    for token in tokens:
        sequence.append(token)
        generation.count(token)
        if logprobs:
            generation.unsent_logprobs.append(drawn or TokenLogprob(token, None))
            drawn = None
        stop = accept(token, generation.outputs)
        if stop is not None:
            return Ending("stop", stop)
    constrained, full = generation.constrained, generation.outputs >= generation.max_tokens
    if constrained is not None and constrained.ends(full=full):
        return Ending("stop")
    return Ending("length") if full else None


def fault(sequence: Sequence) -> PalmetteError | None:
    """Why an output that has ended is not what was wanted: its grammar could not make sure of it, or has failed."""
    generation = sequence.generation
    assert generation is not None
    constrained = generation.constrained
    if constrained is None:
        return None
    output = unpack(sequence.slice(sequence.prompt_length, sequence.length))
    problem = constrained.fault(output)
    if not constrained.sound:
        return constrained.broken
    if problem is None:
        return None
    return GrammarError(
        f"The output doesn't meet {problem}, which best effort could not hold it to.",
        hint="Ask again with another seed, or without the keyword.",
    )


def refusal(sequence: Sequence, problem: str) -> PalmetteError:
    """Why no token could be had for it: its grammar broke, or leaves only what min_tokens bars, or else `problem`."""
    generation = sequence.generation
    if generation is None or generation.constrained is None:
        return InternalError(problem)
    broken, least = generation.constrained.broken, generation.params.min_tokens
    if broken is None and problem != NOT_FINITE and generation.barred and generation.outputs < least:
        return InvalidRequest(
            f"Behind {generation.outputs} output tokens the grammar allows only tokens that end the output, which"
            f" min_tokens={least} bars.",
            hint="Lower min_tokens, leave out stop_token_ids, or let the grammar go on for longer.",
            param="min_tokens",
        )
    return broken or InternalError(problem)


def unsent(sequence: Sequence, finish: Finish | None = None) -> Generated:
    """A reply with the output tokens that none has carried yet."""
    generation = sequence.generation
    assert generation is not None
    tokens = bytes(sequence.tokens[len(sequence.tokens) - generation.unsent * TOKEN_BYTES :])
    generation.unsent = 0
    sent = None
    if generation.params.logprobs and tokens:
        sent, generation.unsent_logprobs = tuple(generation.unsent_logprobs), []
    held = generation.stops.held if finish is None else 0
    return Generated(id=sequence.request_id, tokens=tokens, logprobs=sent, finish=finish, held_bytes=held)
