"""One output as it comes: its text, tokens and log-probabilities, what is reported of it, and the value it becomes.

Filled by the interpreter, chunk by chunk; pushes text into the variable's streams on the way.
"""

from __future__ import annotations

import itertools
from typing import Any

from palmette.lang.nodes import GenNode
from palmette.lang.streams import TextStream
from palmette.runtime.messages.branches import Chunk
from palmette.runtime.messages.replies import Finish, TokenLogprob, Usage

call_ids = itertools.count(1)


class OutputRecord:
    """`stream`, `thoughts`: where the variable's text, and its reasoning, are read while they grow."""

    def __init__(self, node: GenNode, stream: TextStream | None, thoughts: TextStream | None = None) -> None:
        self.meta: dict[str, Any] = {"id": f"gen-{next(call_ids)}"}
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        self._node = node
        self._stream = stream
        self._thoughts = thoughts
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    def add(self, chunk: Chunk) -> str:
        """Take a chunk in; returns what it adds to the answer."""
        text = chunk.text if self._node.reasoning is None else chunk.answer
        if chunk.logprobs:
            self._logprobs += chunk.logprobs
        if chunk.finish is not None:
            self._report(chunk, chunk.finish)
        if text:
            self._text.append(text)
        if self._stream is not None and (text or chunk.finish is not None):
            self._stream.push(text, self.meta)
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
            if self._thoughts is not None:
                self._thoughts.push(chunk.reasoning)
        return text

    def value(self) -> Any:
        """The answer's text, or what its type makes of it. Raises NotOfType."""
        text = "".join(self._text)
        if self._node.type is None:
            return text
        return self._node.type.value(text, cut_off=self.finish is not None and self.finish.reason == "length")

    def _report(self, chunk: Chunk, finish: Finish) -> None:
        self.finish, self.usage = finish, chunk.usage or finish.usage
        meta = {
            **self.meta,
            **usage_report(self.usage),
            "finish_reason": {"type": finish.reason, "matched": finish.matched},
        }
        if chunk.logprobs is not None or self._logprobs:
            meta["output_token_logprobs"] = [(entry.logprob, entry.token, None) for entry in self._logprobs]
            if any(entry.top for entry in self._logprobs):
                meta["output_top_logprobs"] = [
                    [(logprob, token, None) for token, logprob in entry.top] for entry in self._logprobs
                ]
        self.meta = meta  # another one, as readers of the stream have those before


def usage_report(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "reusable_tokens": usage.reusable_tokens,
        "computed_tokens": usage.computed_tokens,
        "e2e_latency": usage.total_seconds,
    }
