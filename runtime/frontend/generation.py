"""One running generation as an iterator of chunks. Closing it, or cancelling the task that waits, aborts it.

Made by Frontend.submit; used by branches and the api.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from palmette.runtime.errors import InternalError
from palmette.runtime.frontend.calls import Call
from palmette.runtime.frontend.output import OutputText, Piece
from palmette.runtime.messages.branches import Chunk
from palmette.runtime.messages.replies import Finish, Generated, TokenLogprob, Usage
from palmette.runtime.messages.tokens import pack, unpack

AT_ONCE = 4  # outputs put together in one turn of the event loop
COMPILE_SECONDS = 1.0  # that the beginning of a stream waits to hear that its grammar is none


class Closes(Protocol):
    """A generation of any kind."""

    def close(self) -> None: ...


G = TypeVar("G", bound=Closes)
T = TypeVar("T")


class Generation:
    """An async iterator of Chunk. The last chunk has `finish` and `usage`.

    Raises the engine's error where the request failed, Aborted where it was closed while waiting. The tokens of the
    chunks are the kept tokens; a chunk's `logprobs` belong to its tokens.
    """

    def __init__(self, call: Call, output: OutputText, *, logprobs: bool, compiles: bool = False) -> None:
        """`compiles`: the engine has to compile something of its request first, and may refuse it."""
        self._call = call
        self._output = output
        self._logprobs = logprobs
        self._compiles = compiles
        self._ended = False

    @property
    def id(self) -> str:
        return self._call.id

    @property
    def output(self) -> OutputText:
        return self._output

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Chunk:
        while not self._ended:
            try:
                replies = await self._call.replies()
            except BaseException:
                self.close()
                raise
            chunk = self._chunk([reply for reply in replies if isinstance(reply, Generated)])
            if chunk is not None:
                return chunk
        raise StopAsyncIteration

    async def begun(self) -> None:
        """Waits a moment for the first reply, where the request may be refused for what it has compiled.

        Raises the refusal: a stream that hasn't begun can still answer with it.
        """
        if self._compiles and not self._ended:
            await self._call.heard(COMPILE_SECONDS)

    def close(self) -> None:
        """Abort the request unless it has finished. Idempotent."""
        self._ended = True
        self._call.give_up()

    async def aclose(self) -> None:
        self.close()

    def _chunk(self, replies: list[Generated]) -> Chunk | None:
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        finish: Finish | None = None
        for reply in replies:
            tokens += unpack(reply.tokens)
            logprobs += reply.logprobs or ()
            finish = reply.finish
        if self._logprobs and len(logprobs) != len(tokens):
            self.close()
            raise InternalError(f"The engine sent {len(logprobs)} logprobs for {len(tokens)} tokens.")
        if finish is None:
            piece = self._output.push(tokens, logprobs, held=replies[-1].held_bytes if replies else 0)
            return self._as_chunk(piece) if piece.text or piece.tokens else None
        self._ended = True
        piece, finish = self._output.finish(finish, tokens, logprobs)
        return self._as_chunk(piece, finish)

    def _as_chunk(self, piece: Piece, finish: Finish | None = None) -> Chunk:
        return Chunk(
            text=piece.text,
            tokens=pack(piece.tokens),
            logprobs=piece.logprobs if self._logprobs else None,
            finish=finish,
            usage=finish.usage if finish is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Output:
    """A whole output. `tokens` are the kept ones."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish: Finish

    @property
    def usage(self) -> Usage:
        return self.finish.usage


async def collect(generations: Sequence[Generation]) -> list[Output]:
    """Every output, in the order of `generations`. Where one fails, or the caller is cancelled, all are closed."""
    return await gather(generations, _whole)


async def gather(generations: Sequence[G], whole: Callable[[G], Awaitable[T]]) -> list[T]:
    """`collect` of what `whole` makes of each."""
    outputs: list[T] = []
    try:
        for generation in generations:
            outputs.append(await whole(generation))
            if len(outputs) % AT_ONCE == 0:
                await asyncio.sleep(0)  # where all of them are there already, others have their turn between
        return outputs
    finally:
        for generation in generations:
            generation.close()


async def _whole(generation: Generation) -> Output:
    chunks = [chunk async for chunk in generation]
    finish = chunks[-1].finish
    assert finish is not None, "a generation ends with a finish, or raises"
    return Output(
        "".join(chunk.text for chunk in chunks),
        tuple(unpack(b"".join(chunk.tokens for chunk in chunks))),
        tuple(logprob for chunk in chunks for logprob in chunk.logprobs or ()),
        finish,
    )
