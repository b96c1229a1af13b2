"""OpenVINO GenAI's continuous batching behind HTTP: runs in .venvs/openvino, started by openvino.py.

OpenVINO Model Server isn't in the package index, so this stands in for it. A thread steps the pipeline and gives each
step's tokens to the server's loop in one piece; requests are read and written by uvicorn. Speaks /v1/completions as far
as the drivers use it: a list of ids in, events with the output's ids, its text in the last one (a server that writes
the text of each token does more). Whenever no request is left it prints what was spent in the pipeline and what beside
it. Imports nothing of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import openvino_genai as genai  # type: ignore[import-not-found]
import uvicorn
from openvino import Tensor  # type: ignore[import-not-found]

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

SWITCH_SECONDS = 2e-4  # how long the stepping thread waits at most for the interpreter's lock
CACHE_GB = 2
SEQUENCES = 64  # as many as the widest workload has calls


@dataclass(frozen=True)
class Piece:
    """What a step made of one output. `text`: the whole output's, with the last piece. `error`: it was refused."""

    ids: tuple[int, ...] = ()
    text: str | None = None
    error: str | None = None

    @property
    def last(self) -> bool:
        return self.text is not None or self.error is not None


@dataclass
class Request:
    """An open call. `gone`: its client has left."""

    prompt: list[int]
    max_tokens: int
    ignore_eos: bool
    schema: str | None
    pieces: asyncio.Queue[Piece]
    ids: list[int] = field(default_factory=list)
    gone: bool = False


class Stepper:
    """Owns the pipeline; everything but `submit` runs on one thread."""

    def __init__(self, pipeline: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._pipeline = pipeline
        self._tokenizer = pipeline.get_tokenizer()
        self._loop = loop
        self._arrived: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._open: list[tuple[Request, Any]] = []
        self._number = 0
        threading.Thread(target=self._run, name="stepper", daemon=True).start()

    def submit(self, request: Request) -> None:
        self._arrived.put(request)

    def _run(self) -> None:
        while True:
            self._admit(self._arrived.get())
            self._burst()

    def _burst(self) -> None:
        """Until no request is left. What a step raises ends those that are open."""
        started, steps, stepping, earlier = time.perf_counter(), 0, 0.0, self._number - 1
        while self._open:
            before = time.perf_counter()
            try:
                self._pipeline.step()
            except RuntimeError as error:
                failed = [(request, Piece(error=str(error))) for request, _ in self._open]
                self._open = []
                self._loop.call_soon_threadsafe(_put, failed)
                continue
            stepping += time.perf_counter() - before
            steps += 1
            self._deliver()
            with contextlib.suppress(queue.Empty):
                while True:
                    self._admit(self._arrived.get_nowait())
        calls, beside = self._number - earlier, time.perf_counter() - started - stepping
        print(f"{calls} calls, {steps} steps: {stepping:.3f} s in the pipeline, {beside:.3f} s beside it", flush=True)

    def _admit(self, request: Request) -> None:
        self._number += 1
        try:
            config = self._config(request)
            prompt = Tensor(np.array([request.prompt], dtype=np.int64))
            handle = self._pipeline.add_request(self._number, prompt, config)
        except (RuntimeError, ValueError) as error:
            self._loop.call_soon_threadsafe(request.pieces.put_nowait, Piece(error=str(error)))
        else:
            self._open.append((request, handle))

    def _config(self, request: Request) -> Any:
        config = self._pipeline.get_config()
        config.max_new_tokens = request.max_tokens
        config.ignore_eos = request.ignore_eos
        config.do_sample = False
        config.apply_chat_template = False
        if request.schema is not None:
            config.structured_output_config = genai.StructuredOutputConfig(json_schema=request.schema)
        return config

    def _deliver(self) -> None:
        made: list[tuple[Request, Piece]] = []
        still: list[tuple[Request, Any]] = []
        for request, handle in self._open:
            ids: list[int] = []
            while handle.can_read():
                for output in handle.read().values():
                    ids += output.generated_ids
            request.ids += ids
            ended = handle.get_status() != genai.GenerationStatus.RUNNING
            if ids or ended:
                made.append((request, Piece(tuple(ids), self._tokenizer.decode(request.ids) if ended else None)))
            if request.gone and not ended:
                handle.cancel()
            elif not ended:
                still.append((request, handle))
        self._open = still
        self._loop.call_soon_threadsafe(_put, made)


def _put(made: list[tuple[Request, Piece]]) -> None:
    for request, piece in made:
        request.pieces.put_nowait(piece)


class Application:
    """The ASGI side. The pipeline is loaded before the server starts, so a server that answers is ready."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._stepper: Stepper | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        if scope["path"] == "/health":
            await _answer(send, 200, {})
        elif scope["path"] == "/v1/completions":
            await self._complete(await _body(receive), receive, send)
        else:
            await _answer(send, 404, {"error": f"no {scope['path']!r} here"})

    async def _complete(self, body: dict[str, Any], receive: Receive, send: Send) -> None:
        if self._stepper is None:
            self._stepper = Stepper(self._pipeline, asyncio.get_running_loop())
        wanted = body.get("response_format")
        schema = None if wanted is None else json.dumps(wanted["json_schema"]["schema"])
        request = Request(body["prompt"], body["max_tokens"], bool(body.get("ignore_eos")), schema, asyncio.Queue())
        self._stepper.submit(request)
        first = await request.pieces.get()
        if first.error is not None:
            await _answer(send, 400, {"error": first.error})
            return
        leaving = asyncio.create_task(_left(receive, request))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        piece = first
        while True:
            await send({"type": "http.response.body", "body": _event(piece, request), "more_body": True})
            if piece.last:
                break
            piece = await request.pieces.get()
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        leaving.cancel()


async def _body(receive: Receive) -> dict[str, Any]:
    content, more = b"", True
    while more:
        message = await receive()
        content += message.get("body", b"")
        more = message.get("more_body", False)
    read: dict[str, Any] = json.loads(content)
    return read


async def _left(receive: Receive, request: Request) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    request.gone = True


def _event(piece: Piece, request: Request) -> bytes:
    if piece.error is not None:
        return f"data: {json.dumps({'error': piece.error})}\n\n".encode()
    event: dict[str, Any] = {"choices": [{"index": 0, "text": piece.text or "", "token_ids": piece.ids}]}
    if piece.last:
        event["usage"] = {"prompt_tokens": len(request.prompt), "completion_tokens": len(request.ids)}
    return f"data: {json.dumps(event)}\n\n".encode()


async def _answer(send: Send, status: int, content: dict[str, Any]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


def load(model: Path, threads: int) -> Any:
    """The pipeline on `model`: a GGUF file or a folder of OpenVINO's own format."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GB
    scheduler.enable_prefix_caching = True
    scheduler.max_num_seqs = SEQUENCES
    return genai.ContinuousBatchingPipeline(str(model), scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)
    pipeline = load(arguments.model, arguments.threads)
    uvicorn.run(Application(pipeline), host="127.0.0.1", port=arguments.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
