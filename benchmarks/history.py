"""What is reused of chat histories that clients send back as text, with and without the ids of earlier outputs.

    python -m benchmarks.history [--data DIR] [--chats 8] [--turns 6] [--tokens 96] [--temperature 1.0]

Chats of several turns through the frontend, as /v1/chat/completions has them: messages are texts, every answer
comes back in the next request. The ceiling of a request is what its chat has computed before: prompt and output of the
turn before, less the last token, which is only sampled. One chat in three calls tools.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.text import load_corpus
from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DEFAULT_MODEL, EngineConfig
from palmette.runtime.engine import build_core, build_frontend
from palmette.runtime.frontend import ChatMessage, ChatTurn, Frontend, ToolCall, collect_chats
from palmette.runtime.link import LocalLink
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.parsers.protocol import Tool

TOOL = Tool(
    name="search",
    description="Looks something up.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "maxLength": 60}, "pages": {"type": "integer", "maximum": 9}},
        "required": ["query"],
    },
)
CALLING = 3  # of so many chats one calls tools


@dataclass
class Tally:
    """Prompt tokens of all turns but the first of each chat, how many of them were cached, and could have been."""

    prompt: int = 0
    cached: int = 0
    ceiling: int = 0

    def add(self, prompt: int, cached: int, ceiling: int) -> None:
        self.prompt += prompt
        self.cached += cached
        self.ceiling += min(ceiling, prompt - 1)


@dataclass(frozen=True)
class Load:
    chats: int
    turns: int
    tokens: int
    temperature: float


async def run_chat(frontend: Frontend, texts: Sequence[str], load: Load, number: int, tally: Tally) -> None:
    calls = number % CALLING == 0
    messages: list[ChatMessage] = [ChatMessage(role="system", content="You answer briefly.")]
    computed = 0
    for at in range(load.turns):
        last = messages[-1]
        if last.tool_calls:
            messages += [ChatMessage(role="tool", content=texts[at], tool_call_id=call.id) for call in last.tool_calls]
        else:
            messages.append(ChatMessage(role="user", content=texts[at]))
        turn = ChatTurn(
            messages=tuple(messages),
            tools=(TOOL,) if calls else (),
            tool_choice="required" if calls and at % 2 == 0 else "auto",
            parallel_tool_calls=False,
        )
        params = SamplingParams(max_tokens=load.tokens, temperature=load.temperature, seed=1000 * number + at)
        prepared = await frontend.chats.prepare(turn, params)
        (output,) = await collect_chats([frontend.chats.submit(prepared)])
        usage = output.finish.usage
        if at:
            tally.add(usage.prompt_tokens, usage.cached_tokens, computed)
        computed = usage.prompt_tokens + usage.completion_tokens - 1
        messages.append(
            ChatMessage(
                role="assistant",
                content=output.content,
                tool_calls=tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in output.calls),
            )
        )


async def measure(model: str, texts: Sequence[str], load: Load, *, output_ids: bool) -> Tally:
    """All chats at once, on an engine of its own."""
    config = EngineConfig(model=model, output_ids=output_ids, kv_tokens=load.chats * 8192, max_running=load.chats)
    frontend = build_frontend(config, resolve(model), LocalLink(build_core(config)))
    frontend.start()
    await frontend.wait_ready()
    tally = Tally()
    try:
        each = [texts[at * load.turns : (at + 1) * load.turns] for at in range(load.chats)]
        await asyncio.gather(*(run_chat(frontend, own, load, number, tally) for number, own in enumerate(each)))
    finally:
        await frontend.close()
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=96, help="of an output, at most")
    parser.add_argument("--temperature", type=float, nargs="*", default=[0.0, 1.0])
    given = parser.parse_args()
    corpus = load_corpus(given.data)
    texts = [text[:400] for text in corpus.turns]
    random.Random(0).shuffle(texts)
    texts = (texts * (given.chats * given.turns // len(texts) + 1))[: given.chats * given.turns]
    table = Table("temperature", "ids of outputs", "prompt tokens", "reused", "ceiling", "short of it")
    for temperature in given.temperature:
        for output_ids in (False, True):
            load = Load(given.chats, given.turns, given.tokens, temperature)
            tally = asyncio.run(measure(given.model, texts, load, output_ids=output_ids))
            reused, ceiling = tally.cached / tally.prompt, tally.ceiling / tally.prompt
            table.add_row(
                f"{temperature:g}", "kept" if output_ids else "encoded again", f"{tally.prompt:,}",
                f"{reused:.4f}", f"{ceiling:.4f}", f"{ceiling - reused:.4f}",
            )  # fmt: skip
    Console().print(f"{given.model}; messages from {corpus.source}", table)


if __name__ == "__main__":
    main()
