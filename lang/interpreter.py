"""Executes one state's nodes, in order, on the backend's event loop.

Programs write nodes from their own thread (`submit`, cheap: text waits for the next verb); one task at a time drains
them and ends when nothing is left, so an idle state costs neither a thread nor a task. The interpreter owns the
branch and its history, from which a lost branch is opened again. It must not know of engines, tokens' meaning or
templates; the states of lang/state.py are its only callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from palmette.lang.backends.base import Backend, BackendBranch
from palmette.lang.choices import report
from palmette.lang.errors import Location, ProgramError
from palmette.lang.instructions import (
    PASSIVE,
    Barrier,
    Concatenate,
    End,
    Fork,
    Generation,
    Node,
    ScopeBegin,
    ScopeEnd,
    Selection,
)
from palmette.lang.nodes import RoleBegin, RoleEnd, TextNode
from palmette.lang.streams import TextStream
from palmette.lang.transcript import Transcript
from palmette.lang.variables import Scope, Variable, started_future
from palmette.runtime.errors import Aborted, BranchLost, EngineDied, InternalError
from palmette.runtime.messages.branches import BeginRole, Chunk, EndRole, Part, Text, Tokens
from palmette.runtime.messages.replies import Finish, TokenLogprob, Usage
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack

T = TypeVar("T")
_call_ids = itertools.count(1)


class Interpreter:
    """One state's execution. `submit`, `abandon` and `fail_from_outside` may be called from any thread."""

    def __init__(self, backend: Backend, scope: Scope, *, namespace: str = "", waits_for_fork: bool = False) -> None:
        self.backend = backend
        self.loop = backend.loop
        self.scope = scope
        self.stream = TextStream()
        self.usages: list[Usage] = []
        self.done: Future[None] = started_future()
        self.failure: ProgramError | None = None
        self.transcript = Transcript()
        self._namespace = namespace
        self._branch: BackendBranch | None = None
        self._history: list[Part] = []  # what the branch holds
        self._pending: list[tuple[Part, str | None]] = []  # parts not sent yet; their text, where known here
        self._fork_piece = self._fork_part = 0
        self._scope_starts: dict[Variable, int] = {}
        self._queue: deque[tuple[Node, Location]] = deque()
        self._lock = threading.Lock()
        self._running = False
        self._waits_for_fork = waits_for_fork
        self._task: asyncio.Task[None] | None = None

    # Called from the program's thread

    def submit(self, nodes: Sequence[Node], where: Location) -> None:
        """Append `nodes`. Raises the state's failure where it has failed."""
        wake = not all(isinstance(node, PASSIVE) for node in nodes)
        with self._lock:
            if self.failure is not None:
                raise self.failure.again() from self.failure.cause
            self._queue.extend((node, where) for node in nodes)
            start = wake and not self._running and not self._waits_for_fork
            self._running = self._running or start
        if start and not self._call_soon(self._start):
            self._engine_is_gone(where, str(nodes[-1]))

    def fail(self, error: ProgramError) -> None:
        """Fail the state from any thread: its readers get `error` now, what runs is aborted."""
        if self._take_failure(error) and not self._call_soon(self._stop):
            self.done.set_exception(error)

    def _call_soon(self, callback: Callable[[], None]) -> bool:
        """False where the loop is closed: its engine was closed."""
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return False
        return True

    def _engine_is_gone(self, where: Location, node: str) -> None:
        cause = EngineDied("The engine of this program was closed.", hint="Run it on another engine.")
        error = ProgramError(cause, where, node)
        if self._take_failure(error):
            self.done.set_exception(error)
        raise error

    # On the loop

    def _start(self) -> None:
        self._task = self.loop.create_task(self._drain())

    def _stop(self) -> None:
        running = self._task
        if running is not None:
            running.cancel()
        self._task = self.loop.create_task(self._stopped(running))

    async def _stopped(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        await self._release()

    async def _drain(self) -> None:
        while (item := self._next()) is not None:
            node, where = item
            try:
                await self._execute(node, where)
            except Exception as cause:
                self._take_failure(_failed(cause, where, str(node)))
            except asyncio.CancelledError as cause:
                if self._take_failure(_failed(cause, where, str(node))):
                    await self._release()  # cancelled by another than `_stop`, which releases itself
                raise
        if self.failure is not None:
            await self._release()

    def _next(self) -> tuple[Node, Location] | None:
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._running = False
            return None

    def _take_failure(self, error: ProgramError) -> bool:
        """Record the first failure and tell everybody who waits; False where the state is over already."""
        with self._lock:
            if self.failure is not None or self.done.done():
                return False
            self.failure = error
            dropped = [node for node, _ in self._queue]
            self._queue.clear()
        for node in dropped:
            if isinstance(node, Barrier):
                node.reached.set_exception(error)
            elif isinstance(node, Fork):
                for child in node.children:
                    child.fail(error)
        self.scope.fail(error)
        self.stream.end(error)
        return True

    async def _release(self) -> None:
        """Close the branch, and say that the state is over."""
        try:
            await self._forget_branch()
        finally:
            self.stream.end(self.failure)
            if not self.done.done():
                if self.failure is None:
                    self.done.set_result(None)
                else:
                    self.done.set_exception(self.failure)

    async def _forget_branch(self) -> None:
        branch, self._branch = self._branch, None
        if branch is not None:
            with contextlib.suppress(BranchLost, EngineDied):  # then nothing is left to close
                await branch.close()

    async def _execute(self, node: Node, where: Location) -> None:
        match node:
            case TextNode(text):
                self._pending.append((Text(text), text))
                self.transcript.write(text)
            case RoleBegin(role):
                self._pending.append((BeginRole(role), None))
                self.transcript.begin(role)
            case RoleEnd(role):
                self._pending.append((EndRole(role), None))
                self.transcript.end()
            case Generation():
                await self._generate(node)
            case Selection():
                await self._select(node)
            case Fork(children):
                await self._fork(children, where)
            case Concatenate(children):
                await self._concatenate(children)
            case Barrier(reached, text):
                await self._reach(reached, text, where)
            case ScopeBegin(variable):
                await self._flush()
                self._scope_starts[variable] = len(self.transcript.pieces)
            case ScopeEnd(variable):
                await self._flush()
                variable.fill("".join(self.transcript.pieces[self._scope_starts.pop(variable) :]))
            case End():
                await self._end()

    # Verbs

    async def _generate(self, generation: Generation) -> None:
        variable = generation.variable
        meta: dict[str, Any] = {"id": f"gen-{next(_call_ids)}"}
        pieces: list[str] = []
        tokens = bytearray()
        logprobs: list[TokenLogprob] = []
        finish: Finish | None = None
        async for chunk in self._chunks(generation.params):
            if self._pending:
                self._commit(chunk.appended)
            tokens += chunk.tokens
            logprobs += chunk.logprobs or ()
            if chunk.finish is not None:
                finish = chunk.finish
                self._report(meta, chunk, finish, logprobs if generation.params.logprobs else None)
            if chunk.text:
                pieces.append(chunk.text)
                self._grow(chunk.text)
                self.transcript.write(chunk.text)
            if variable is not None and (chunk.text or finish is not None):
                variable.stream.push(chunk.text, dict(meta))
        if finish is None:
            raise InternalError("The backend's stream of a generation ended without a finish.")
        self._keep(bytes(tokens), finish)
        if variable is not None:
            variable.fill("".join(pieces), meta)

    async def _chunks(self, params: SamplingParams) -> AsyncIterator[Chunk]:
        """The chunks of one generation; asked for once more where the branch was lost before the first of them."""
        for last_try in (False, True):
            emitted, appended = False, ""
            try:
                branch = await self._opened()
                stream = branch.generate(self._parts(), params)
                try:
                    async for chunk in stream:
                        appended += chunk.appended
                        if chunk.text or chunk.tokens or chunk.finish is not None:
                            emitted = True
                            yield _with_appended(chunk, appended)
                            appended = ""
                finally:
                    await _aclose(stream)
                return
            except (BranchLost, EngineDied):
                if emitted or last_try:
                    raise
                await self._forget_branch()

    def _report(self, meta: dict[str, Any], chunk: Chunk, finish: Finish, logprobs: list[TokenLogprob] | None) -> None:
        usage = chunk.usage or finish.usage
        self.usages.append(usage)
        meta |= usage_report(usage)
        meta["finish_reason"] = {"type": finish.reason, "matched": finish.matched}
        if logprobs is not None:
            meta["output_token_logprobs"] = [(entry.logprob, entry.token, None) for entry in logprobs]
            if any(entry.top for entry in logprobs):
                meta["output_top_logprobs"] = [
                    [(logprob, token, None) for token, logprob in entry.top] for entry in logprobs
                ]

    def _keep(self, tokens: bytes, finish: Finish) -> None:
        """Remember what the branch keeps of a generation: whole tokens, and bytes that a stop left over."""
        kept = tokens[: 4 * finish.kept_tokens]
        if kept:
            self._history.append(Tokens(kept))
        if finish.kept_bytes:
            self._history.append(Text(finish.kept_bytes.decode("utf-8", "replace")))

    async def _select(self, selection: Selection) -> None:
        choices, method = selection.node.choices, selection.node.method
        parts = self._parts()
        scores = await self._verb(lambda branch: branch.score(parts, choices, unconditional=method.unconditional))
        self._commit(scores.appended)
        index, details = method.decide(scores)
        chosen = choices[index]
        self._pending.append((Tokens(pack(scores.tokens[index])), chosen))
        self.transcript.write(chosen)
        self.usages.append(scores.usage)
        if selection.variable is not None:
            meta = {
                "id": f"select-{next(_call_ids)}",
                **usage_report(scores.usage),
                **report(scores),
                **details,
            }
            selection.variable.stream.push(chosen, meta)
            selection.variable.fill(chosen, meta)

    async def _fork(self, children: tuple[Interpreter, ...], where: Location) -> None:
        try:
            if any(text is None for _, text in self._pending):
                await self._flush()
            parts = self._parts()
            branches = await self._verb(lambda branch: branch.fork(parts, len(children)))
            self._commit(self._known_text() or "")
        except BaseException as cause:
            error = self.failure or _failed(cause, where, str(Fork(children)))
            for child in children:
                child.fail(error)
            raise
        for child, branch in zip(children, branches, strict=True):
            child._begin(branch, self._history, self.transcript)

    def _begin(self, branch: BackendBranch, history: list[Part], transcript: Transcript) -> None:
        """Start a forked state where its parent stands."""
        self._branch = branch
        self._history, self._fork_part = list(history), len(history)
        self.transcript, self._fork_piece = transcript.copy(), len(transcript.pieces)
        with self._lock:
            self._waits_for_fork = False
            failed = self.failure is not None
            start = not failed and any(not isinstance(node, PASSIVE) for node, _ in self._queue)
            self._running = self._running or start
        if start:
            self._start()
        elif failed:
            self._task = self.loop.create_task(self._release())

    async def _concatenate(self, children: tuple[Interpreter, ...]) -> None:
        for child in children:
            await asyncio.wrap_future(child.done)
        for child in children:
            texts = child.transcript.pieces[child._fork_piece :]
            parts = child._history[child._fork_part :]
            if not parts:
                continue
            self._pending += [(part, "") for part in parts[:-1]]
            self._pending.append((parts[-1], "".join(texts)))
            self.transcript.write("".join(texts))

    async def _reach(self, reached: Future[None], text: bool, where: Location) -> None:
        try:
            if text:
                await self._flush()
        except BaseException as cause:
            reached.set_exception(self.failure or _failed(cause, where, "text()"))
            raise
        reached.set_result(None)

    async def _flush(self) -> None:
        """Send what is pending, so that the transcript's text is up to date."""
        if self._pending:
            parts = self._parts()
            self._commit(await self._verb(lambda branch: branch.extend(parts)))

    async def _end(self) -> None:
        """Nothing will be computed any more: only template text that is not known here has to be asked for."""
        known = self._known_text()
        if known is None:
            await self._flush()
        else:
            self._commit(known)
        await self._release()

    async def _verb(self, call: Callable[[BackendBranch], Awaitable[T]]) -> T:
        """A verb that emits nothing before it ends: tried once more on a branch opened again from its history."""
        try:
            return await call(await self._opened())
        except (BranchLost, EngineDied):
            await self._forget_branch()
            return await call(await self._opened())

    async def _opened(self) -> BackendBranch:
        if self._branch is None:
            branch = await self.backend.open(namespace=self._namespace)
            if self._history:
                await branch.extend(self._history)
            self._branch = branch
        return self._branch

    def _parts(self) -> list[Part]:
        return [part for part, _ in self._pending]

    def _known_text(self) -> str | None:
        texts = [text for _, text in self._pending]
        return None if None in texts else "".join(text or "" for text in texts)

    def _commit(self, appended: str) -> None:
        """The pending parts are in the branch now, and added `appended`."""
        self._history += self._parts()
        self._pending.clear()
        if appended:
            self._grow(appended)

    def _grow(self, text: str) -> None:
        self.transcript.pieces.append(text)
        self.stream.push(text)


def usage_report(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "reusable_tokens": usage.reusable_tokens,
        "computed_tokens": usage.computed_tokens,
        "e2e_latency": usage.total_seconds,
    }


def _with_appended(chunk: Chunk, appended: str) -> Chunk:
    if chunk.appended == appended:
        return chunk
    return Chunk(
        text=chunk.text,
        tokens=chunk.tokens,
        logprobs=chunk.logprobs,
        appended=appended,
        finish=chunk.finish,
        usage=chunk.usage,
    )


async def _aclose(stream: AsyncIterator[Chunk]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


def _failed(cause: BaseException, where: Location, node: str) -> ProgramError:
    if isinstance(cause, ProgramError):
        return cause
    if isinstance(cause, asyncio.CancelledError):
        cause = Aborted("The program was stopped while this ran.")
    return ProgramError(cause, where, node)
