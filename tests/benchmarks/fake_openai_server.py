"""A tiny OpenAI-compatible server for the driver's tests: real HTTP, a real prefix cache of ids, no model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.reuse import TokenTrie

VOCABULARY = 97


def continuation(prompt: list[int], count: int) -> list[int]:
    """What the "model" says: a function of the whole prompt."""
    state, output = sum((index + 1) * token for index, token in enumerate(prompt)), []
    for _ in range(count):
        state = (state * 31 + 7) % 1_000_003
        output.append(state % VOCABULARY)
    return output


class FakeServer(ThreadingHTTPServer):
    """`ids`:

    whether it streams token ids (else text only). `short`: tokens it leaves out. `refuse`: answers 400.
    """

    daemon_threads = True

    def __init__(self, *, ids: bool = True, short: int = 0, refuse: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ids, self.short, self.refuse = ids, short, refuse
        self.trie = TokenTrie()
        self.lock = threading.Lock()
        self.open = 0
        self.most_open = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A driver that hangs up is what some tests want; the others fail by what the driver gets."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def cached(self, prompt: list[int]) -> int:
        with self.lock:
            found = min(len(prompt) - 1, self.trie.common_prefix(prompt))
            self.trie.insert(prompt)
            return found

    def events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        prompt: list[int] = body["prompt"]
        cached = self.cached(prompt)
        tokens = continuation(prompt, body["max_tokens"] - self.short)
        for token in tokens:
            choice: dict[str, Any] = {"index": 0, "text": chr(65 + token % 26)}
            if self.ids:
                choice["token_ids"] = [token]
            yield {"choices": [choice]}
        with self.lock:
            self.trie.insert([*prompt, *tokens[:-1]])
        details = {"cached_tokens": cached}
        yield {
            "choices": [],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(tokens),
                "prompt_tokens_details": details,
            },
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.server.refuse:
            self.send_error(400, "prompt too long")
            return
        with self.server.lock:
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in self.server.events(body):
            self._chunk(f"data: {json.dumps(event)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        with self.server.lock:
            self.server.open -= 1

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        """Tests read no request log."""
