"""`make disconnects`: clients that go away at random moments, mixed with normal load, against a real server.

Every kind of request is cut off at every stage: before its body is sent, inside it, before the answer, inside a stream,
while it waits in the queue. Meanwhile other clients ask for fixed greedy outputs, which must stay what they are alone.
At the end nothing runs or waits, and every page is free or in the tree. A smaller run is a slow test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
from server_process import serving

KINDS = ("completion", "chat", "generate", "constrained", "branch")
MOMENTS = ("head", "body", "sent", "soon", "first", "later")
STEADY = ("Once upon a time", "The three primary colours are", "def fibonacci(n):", "In 1969, people")
SETTLE_SECONDS = 20.0


@dataclass
class Outcome:
    cut: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    changed: list[str] = field(default_factory=list)
    left: dict[str, float] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not self.changed and self.answered > 0 and not any(self.left.values())


async def run(url: str, *, count: int, seed: int, at_once: int = 24) -> Outcome:
    """`count` disconnects, `at_once` of them at a time, beside steady clients."""
    outcome, rng = Outcome(), random.Random(seed)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as http:
        alone = [await steady(http, prompt) for prompt in STEADY]
        over = asyncio.Event()

        async def beside(index: int) -> None:
            while not over.is_set():
                text = await steady(http, STEADY[index])
                outcome.answered += 1
                if text != alone[index]:
                    outcome.changed.append(f"{STEADY[index]!r}: {text!r} instead of {alone[index]!r}")

        others = [asyncio.ensure_future(beside(index)) for index in range(len(STEADY))]
        room = asyncio.Semaphore(at_once)

        async def cut(number: int) -> None:
            async with room:
                kind, moment = rng.choice(KINDS), rng.choice(MOMENTS)
                await leave(url, kind, moment, random.Random(seed * 1_000_003 + number))
                outcome.cut[f"{kind} {moment}"] += 1

        await asyncio.gather(*(cut(number) for number in range(count)))
        over.set()
        await asyncio.gather(*others)
        outcome.left = await settled(http)
    return outcome


async def steady(http: httpx.AsyncClient, prompt: str) -> str:
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    answer = await http.post("/v1/completions", json=body)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["text"])


def body_of(kind: str, rng: random.Random) -> tuple[str, dict[str, object]]:
    prompt = " ".join(rng.choices(("alpha", "beta", "gamma", "delta", "epsilon"), k=rng.randint(5, 400)))
    tokens = rng.choice((1, 20, 200))
    stream = rng.random() < 0.7
    common: dict[str, object] = {"max_tokens": tokens, "ignore_eos": True, "stream": stream, "n": rng.choice((1, 1, 3))}
    match kind:
        case "completion":
            return "/v1/completions", {"prompt": prompt, "logprobs": rng.choice((None, 3)), **common}
        case "chat":
            return "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **common}
        case "generate":
            return "/generate", {"text": [prompt, prompt + " x"], **common}
        case "constrained":
            pattern = "[a-z]{" + str(rng.randint(20, 100)) + "}"
            return "/v1/completions", {"prompt": prompt, **common, "regex": pattern, "ignore_eos": False}
    parts = [{"type": "Text", "text": prompt}]
    return "/v1/branches/{branch}/generate", {"parts": parts, "params": {"max_tokens": tokens, "ignore_eos": True}}


async def leave(url: str, kind: str, moment: str, rng: random.Random) -> None:
    """One request on a connection of its own, cut off at `moment`."""
    path, body = body_of(kind, rng)
    address = httpx.URL(url)
    if "{branch}" in path:
        async with httpx.AsyncClient(base_url=url, timeout=300) as http:
            path = path.format(branch=(await http.post("/v1/branches", json={})).json()["id"])
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address.host}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        match moment:
            case "head":
                writer.write(head[: rng.randrange(len(head))])
            case "body":
                writer.write(head + data[: rng.randrange(len(data))])
            case _:
                writer.write(head + data)
        await writer.drain()
        if moment == "soon":
            await asyncio.sleep(rng.random() * 0.2)
        elif moment in ("first", "later"):
            await reader.read(1)
            if moment == "later":
                await asyncio.sleep(rng.random())
    finally:
        if rng.random() < 0.5:
            writer.transport.abort()  # a reset
        else:
            writer.close()


async def settled(http: httpx.AsyncClient) -> dict[str, float]:
    """What still runs, waits, or holds pages of its own; waited for, a while."""
    limit = time.monotonic() + SETTLE_SECONDS
    while True:
        metrics = (await http.get("/metrics")).text
        left = {name: gauge(metrics, name) for name in LEFT}
        if not any(left.values()) or time.monotonic() > limit:
            return left
        await asyncio.sleep(0.5)


LEFT = (
    "palmette_requests_running",
    "palmette_requests_waiting",
    "palmette_open_requests",
    'palmette_pages{state="private"}',
    'palmette_pages{state="quarantined"}',
    "palmette_tree_resets_total",
)


def gauge(metrics: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", metrics, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="make disconnects")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="smollm2-135m")
    given = parser.parse_args()
    begun = time.monotonic()
    with serving(("--model", given.model, "--kv-tokens", "16384")) as url:
        outcome = asyncio.run(run(url, count=given.count, seed=given.seed))
        health = httpx.get(f"{url}/health").json()
    print(f"{sum(outcome.cut.values())} disconnects in {time.monotonic() - begun:.0f} s:")
    for moment in MOMENTS:
        print(f"  {moment}: {sum(count for name, count in outcome.cut.items() if name.endswith(moment))}")
    print(f"{outcome.answered} steady answers, {len(outcome.changed)} changed; left at the end: {outcome.left}")
    print(f"health: {health['status']}, engine restarts: {health['engine_restarts']}")
    for line in outcome.changed[:10]:
        print(line)
    return 0 if outcome.good and health["status"] == "ok" and not health["engine_restarts"] else 1


if __name__ == "__main__":
    sys.exit(main())
