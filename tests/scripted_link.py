"""An engine link that replays given tokens in given chunks: for tests of the front without an engine.

Stops are the engine's own StopChecker, so that finishes are what an engine would send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from palmette.runtime.errors import Aborted, EngineDied
from palmette.runtime.link import Deliver, OpenRequests
from palmette.runtime.messages.replies import (
    Counters,
    EngineReady,
    Failed,
    Finish,
    Flushed,
    Generated,
    Heartbeat,
    Reply,
    Scored,
    TokenLogprob,
    TreeDump,
    TreeNode,
    Usage,
)
from palmette.runtime.messages.requests import Abort, DumpTree, FlushCache, Generate, Request, Score
from palmette.runtime.messages.tokens import count, pack
from palmette.runtime.scheduler.stops import StopChecker
from palmette.runtime.vocabulary import Vocabulary

READY = EngineReady(
    model="scripted", context_length=256, kv_tokens=1024, page_size=16, threads=1, dtype="none", kernels="none",
    load_seconds=0.0,
)  # fmt: skip


def finish_of(request: Generate, vocabulary: Vocabulary, script: Iterable[int]) -> tuple[list[int], Finish]:
    """The tokens that an engine which samples `script` would send, and how they end."""
    params = request.params
    eos = () if params.ignore_eos else vocabulary.eos_ids
    checker = StopChecker(
        vocabulary, strings=params.stop, token_ids={*eos, *params.stop_token_ids}, min_tokens=params.min_tokens
    )
    tokens: list[int] = []
    stop = None
    for token in script:
        if params.max_tokens is not None and len(tokens) >= params.max_tokens:
            break
        tokens.append(token)
        stop = checker.accept(token, len(tokens))
        if stop is not None:
            break
    usage = Usage(prompt_tokens=count(request.prompt), completion_tokens=len(tokens), cached_tokens=1)
    if stop is None:
        return tokens, Finish(reason="length", usage=usage, kept_tokens=len(tokens))
    return tokens, Finish(
        reason="stop", usage=usage, kept_tokens=stop.kept_tokens, kept_bytes=stop.kept_bytes, matched=stop.matched
    )


class ScriptedLink:
    """`script(request)` gives the sampled tokens; `sizes` the tokens of each reply, repeated (0: as one)."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        script: Callable[[Generate], Sequence[int]],
        *,
        sizes: Sequence[int] = (1,),
        ready: EngineReady = READY,
    ) -> None:
        self.vocabulary = vocabulary
        self.script = script
        self.sizes = sizes
        self.ready = ready
        self.sent: list[Request] = []
        self.go = asyncio.Event()  # cleared: an output stops after its first reply
        self.go.set()
        self.open = OpenRequests()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._deliver: Deliver | None = None

    def start(self, deliver: Deliver) -> None:
        self._deliver = deliver
        deliver([self.ready])

    def aborted(self) -> list[str]:
        return [request.id for request in self.sent if isinstance(request, Abort)]

    def prompts(self) -> list[bytes]:
        return [request.prompt for request in self.sent if isinstance(request, Generate)]

    def beat(self, counters: Counters | None = None) -> None:
        self.reply(Heartbeat(counters or Counters()))

    def die(self) -> None:
        """Every open request fails, as when an engine process ends."""
        for task in self._tasks.values():
            task.cancel()
        assert self._deliver is not None
        self._deliver(self.open.fail_all(EngineDied("The engine died.")))

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def send(self, request: Request) -> None:
        self.sent.append(request)
        self.open.note_sent(request)
        match request:
            case Generate():
                self._tasks[request.id] = asyncio.ensure_future(self._generate(request))
            case Score():
                asyncio.get_running_loop().call_soon(self._score, request)
            case Abort(id=request_id):
                self._abort(request_id)
            case FlushCache(id=request_id):
                self.reply(Flushed(request_id, 7))
            case DumpTree(id=request_id):
                node = TreeNode(parent=None, namespace="", tokens=pack([5]), pages=1, leases=0, last_used=0.0)
                self.reply(TreeDump(request_id, 16, (node,)))

    def reply(self, *replies: Reply) -> None:
        assert self._deliver is not None
        known = self.open.note_replies(replies)
        if known:
            self._deliver(known)

    async def _generate(self, request: Generate) -> None:
        tokens, finish = finish_of(request, self.vocabulary, self.script(request))
        position, turn = 0, 0
        while True:
            await asyncio.sleep(0)
            size = self.sizes[turn % len(self.sizes)] or len(tokens)
            turn += 1
            part = tokens[position : position + size]
            position += size
            logprobs = None
            if request.params.logprobs:
                top = tuple((token, -0.5) for token in range(request.params.top_logprobs))
                logprobs = tuple(TokenLogprob(token, -float(token), top) for token in part)
            last = position >= len(tokens)
            self.reply(Generated(id=request.id, tokens=pack(part), logprobs=logprobs, finish=finish if last else None))
            if last:
                return
            await self.go.wait()

    def _score(self, request: Score) -> None:
        logprobs = tuple(tuple(-1.0 for _ in range(count(each))) for each in request.continuations)
        usage = Usage(prompt_tokens=count(request.prefix))
        self.reply(Scored(id=request.id, logprobs=logprobs, usage=usage))

    def _abort(self, request_id: str) -> None:
        task = self._tasks.pop(request_id, None)
        if task is None:
            self.reply(Failed(request_id, Aborted("Aborted.").info()))
            return
        task.cancel()
        prompt = next(count(each.prompt) for each in self.sent if isinstance(each, Generate) and each.id == request_id)
        finish = Finish(reason="abort", usage=Usage(prompt_tokens=prompt, cached_tokens=1), kept_tokens=10**6)
        self.reply(Generated(id=request_id, tokens=b"", finish=finish))
