"""`make memory`: what a server holds after 10,000 requests is what it held after 1,000, and 20 MB at most.

A real server over the tiny model (front and engine process counted together); requests of every kind, no two alike, so
that every cache is filled and goes on being used.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time

import httpx
import psutil
from server_process import serving

SERVER = ("--model", "tiny", "--kv-tokens", "16384")
AT_ONCE = 16
ALLOWED = 20 << 20


def body_of(rng: random.Random) -> tuple[str, dict[str, object]]:
    prompt = " ".join(f"{rng.randrange(10**6):x}" for _ in range(rng.randint(1, 60)))
    common: dict[str, object] = {"max_tokens": rng.randint(1, 16), "stream": rng.random() < 0.5}
    match rng.randrange(6):
        case 0:
            return "/v1/completions", {"prompt": prompt, "logprobs": 3, "echo": True, "n": 2, **common}
        case 1:
            return "/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], **common}
        case 2:
            return "/v1/completions", {"prompt": prompt, "regex": f"[a-z]{{1,{rng.randint(2, 500)}}}", **common}
        case 3:
            schema = {"type": "object", "properties": {f"k{rng.randrange(10**6)}": {"type": "integer"}}}
            return "/v1/completions", {"prompt": prompt, "json_schema": schema, **common}
        case 4:
            return "/generate", {"text": prompt, "cache_salt": f"{rng.randrange(10**6)}", **common}
    return "/v1/completions", {"prompt": prompt, "no_such_field": prompt}


async def ask(url: str, count: int, rng: random.Random) -> None:
    room = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:

        async def one() -> None:
            async with room:
                path, body = body_of(rng)
                answer = await http.post(path, json=body)
                assert answer.status_code == (400 if "no_such_field" in body else 200), answer.text

        for begin in range(0, count, 500):
            await asyncio.gather(*(one() for _ in range(min(500, count - begin))))


def resident(server: psutil.Process) -> list[int]:
    """Bytes of the front and of its engine."""
    return [process.memory_info().rss for process in (server, *server.children(recursive=True))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make memory")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, begun = random.Random(given.seed), time.monotonic()
    with serving(SERVER) as url:
        server = next(child for child in psutil.Process().children() if "serve" in child.cmdline())
        asyncio.run(ask(url, given.first, rng))
        before = resident(server)
        asyncio.run(ask(url, given.count - given.first, rng))
        after = resident(server)
    grown = sum(after) - sum(before)
    seconds = time.monotonic() - begun
    for name, at, values in (("first", given.first, before), ("last", given.count, after)):
        print(f"{name}: after {at} requests {', '.join(f'{each / 2**20:.1f} MB' for each in values)} (front, engine)")
    print(f"{grown / 2**20:+.1f} MB in {seconds:.0f} s; {ALLOWED / 2**20:.0f} MB are allowed")
    return 0 if grown <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
