"""A command line that answers while the model writes. End with an empty line or Ctrl-D.

palmette run examples/stream_cli.py
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterable, Iterator

import palmette as sgl


@sgl.function
def talk(s, lines):
    """`lines` may still be coming: the program waits for each."""
    s += sgl.system("You are a friendly assistant. Keep answers short.")
    for number, line in enumerate(lines):
        s += sgl.user(line)
        s += sgl.assistant(sgl.gen(f"reply{number}", max_tokens=64))


def replies(lines: Iterable[str], **options: object) -> Iterator[Iterator[str]]:
    """For each line the pieces of its reply, as they come."""
    asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    state = talk.run(iter(asked.get, None), stream=True, **options)
    for number, line in enumerate(lines):
        asked.put(line)
        yield state.text_iter(f"reply{number}")
    asked.put(None)
    state.sync()


def typed() -> Iterator[str]:
    print("> ", end="", flush=True)
    for line in sys.stdin:
        if not line.strip():
            return
        yield line.strip()
        print("\n> ", end="", flush=True)


if __name__ == "__main__":
    for pieces in replies(typed(), temperature=0.7):
        for piece in pieces:
            print(piece, end="", flush=True)
    print()
