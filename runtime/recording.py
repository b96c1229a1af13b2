"""`serve --record`: one line of JSON for each request that ends, for `palmette simulate` to replay. Without text.

A tap on the link between front and engine: it sees requests and replies, nothing of HTTP or the scheduler. Tokens
leave it as chained hashes with a salt that is thrown away with the recorder, so that nobody can look up what was said.
Hashing and writing happen in a thread of its own. Used by launch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue

import msgspec

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.link import Deliver, EngineLink
from palmette.runtime.messages.recording import RecordedRequest, RecordingHead
from palmette.runtime.messages.replies import Embedded, Failed, Generated, Reply, Scored, Usage
from palmette.runtime.messages.requests import Embed, Generate, Request, Score
from palmette.runtime.messages.tokens import TOKEN_BYTES, count

BLOCK_TOKENS = 32
HASH_BITS = 53  # an integer that every reader of JSON keeps exactly

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Open:
    request: Generate | Score | Embed
    arrival: float
    output: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _Ended:
    opened: _Open
    finish: str
    usage: Usage | None
    total: float


class Recorder:
    """Takes note of requests and replies, and writes a line when one ends. Not thread-safe: one event loop's.

    Nothing that goes wrong with the file disturbs the requests: it is logged once, and the recording ends there.
    """

    def __init__(
        self, path: Path, *, block_tokens: int = BLOCK_TOKENS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Makes the file. Raises InvalidRequest where there is one already or it can't be made."""
        try:
            self._file = path.open("xb")
        except OSError as error:
            hint = "Give the name of a new file." if isinstance(error, FileExistsError) else ""
            raise InvalidRequest(f"--record {str(path)!r}: {error.strerror}.", hint=hint, param="record") from error
        self._block_bytes = block_tokens * TOKEN_BYTES
        self._clock = clock
        self._start = clock()
        self._salt = secrets.token_bytes(32)
        self._open: dict[str, _Open] = {}
        self._ended: SimpleQueue[_Ended | None] = SimpleQueue()
        self._broken = False
        self._write(msgspec.json.encode(RecordingHead(block_tokens=block_tokens)) + b"\n")
        self._writer = threading.Thread(target=self._write_all, name="palmette-record", daemon=True)
        self._writer.start()

    def sent(self, request: Request) -> None:
        if isinstance(request, Generate | Score | Embed):
            self._open[request.id] = _Open(request, self._clock())

    def answered(self, reply: Reply) -> None:
        if isinstance(reply, Generated):
            opened = self._open.get(reply.id)
            if opened is not None:
                opened.output += reply.tokens
                if reply.finish is not None:
                    self._end(reply.id, reply.finish.reason, reply.finish.usage)
        elif isinstance(reply, Scored):
            self._end(reply.id, "score", reply.usage)
        elif isinstance(reply, Embedded):
            self._end(reply.id, "embed", reply.usage)
        elif isinstance(reply, Failed):
            self._end(reply.id, reply.error.kind, None)

    def close(self) -> None:
        """Writes what has ended; what is still open is left out. Idempotent."""
        if not self._file.closed:
            self._ended.put(None)
            self._writer.join()
            self._file.close()

    def _end(self, request_id: str, finish: str, usage: Usage | None) -> None:
        opened = self._open.pop(request_id, None)
        if opened is not None:
            self._ended.put(_Ended(opened, finish, usage, self._clock() - opened.arrival))

    # --- in the writer's thread ---

    def _write_all(self) -> None:
        while (ended := self._ended.get()) is not None:
            try:
                lines = b"".join(msgspec.json.encode(line) + b"\n" for line in self._lines(ended))
            except Exception:
                log.exception("a request could not be recorded")
                continue
            self._write(lines)

    def _write(self, lines: bytes) -> None:
        if self._broken:
            return
        try:
            self._file.write(lines)
            if self._ended.empty():
                self._file.flush()
        except OSError as error:
            self._broken = True
            log.error("recording ends here: %s", error)

    def _lines(self, ended: _Ended) -> list[RecordedRequest]:
        """One; of a score one for each continuation, of an embedding one for each input."""
        request, usage = ended.opened.request, ended.usage
        if isinstance(request, Generate):
            prompts = [request.prompt]
        elif isinstance(request, Embed):
            prompts = list(request.inputs)
        else:
            prompts = [request.prefix + continuation for continuation in request.continuations]
        output = bytes(ended.opened.output)
        tenant = _hex(self._hashed(request.tenant.encode())) if request.tenant else ""
        return [
            RecordedRequest(
                arrival=round(ended.opened.arrival - self._start, 6),
                prompt_tokens=count(prompt),
                output_tokens=count(output),
                cached_tokens=usage.cached_tokens if usage is not None and len(prompts) == 1 else None,
                first_token=round(usage.first_token_seconds, 6) if usage is not None else None,
                total=round(usage.total_seconds if usage is not None else ended.total, 6),
                finish=ended.finish,
                priority=request.priority,
                tenant=tenant,
                blocks=self._blocks(request.namespace, prompt + output),
            )
            for prompt in prompts
        ]

    def _blocks(self, namespace: str, tokens: bytes) -> list[int]:
        """A hash for each block, of it and all before it; namespaces share none."""
        chained = self._hashed(namespace.encode())
        blocks = []
        for at in range(0, len(tokens), self._block_bytes):
            chained = self._hashed(chained + tokens[at : at + self._block_bytes])
            blocks.append(int.from_bytes(chained[:8], "little") >> (64 - HASH_BITS))
        return blocks

    def _hashed(self, data: bytes) -> bytes:
        return blake2b(data, digest_size=16, key=self._salt).digest()


class RecordingLink:
    """An engine link that tells a recorder what goes through it."""

    def __init__(self, link: EngineLink, recorder: Recorder) -> None:
        self._link = link
        self._recorder = recorder

    def start(self, deliver: Deliver) -> None:
        def tell(replies: Sequence[Reply]) -> None:
            for reply in replies:
                self._recorder.answered(reply)
            deliver(replies)

        self._link.start(tell)

    def send(self, request: Request) -> None:
        self._recorder.sent(request)
        self._link.send(request)

    async def close(self) -> None:
        await self._link.close()
        await asyncio.to_thread(self._recorder.close)


def _hex(digest: bytes) -> str:
    return digest[:4].hex()
