"""What a workload is: items, a program of the language, and the same program written with the plain openai client.

Knows no server and no clock. Both writings must send the same prompts, which tests compare; every output is greedy and
of a given length, or held to a schema or to choices, so that all systems do the same work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import palmette as pt
from benchmarks.paper.material import Draw

Item = dict[str, Any]
Message = dict[str, str]


class Plain(Protocol):
    """An OpenAI-compatible API, as an ordinary program would call it: each call sends all of its text."""

    async def complete(self, prompt: str, max_tokens: int) -> str:
        """Exactly so many greedy tokens."""
        ...

    async def choose(self, prompt: str, choices: Sequence[str]) -> str:
        """One of the choices, held to them by the server's structured outputs."""
        ...

    async def letter(self, prompt: str, choices: Sequence[str]) -> str:
        """One of the choices, each of a single token: the likeliest by the log-probabilities of the first token; ""
        where none is among those that the server tells."""
        ...

    async def chat(self, messages: Sequence[Message], max_tokens: int) -> str:
        """The assistant's turn: exactly so many greedy tokens."""
        ...

    async def fill(self, messages: Sequence[Message], schema: dict[str, Any], max_tokens: int) -> str:
        """The assistant's turn: JSON of the schema."""
        ...


@dataclass(frozen=True)
class Workload:
    """`items(draw)`: the arguments of each program, all of which start at once.

    `program` and `plain` take an item's fields; `plain` gives the variables named in `outputs`, which the program has
    written, too.
    """

    name: str
    title: str
    items: Callable[[Draw], list[Item]]
    program: pt.Program
    plain: Callable[..., Awaitable[dict[str, Any]]]
    outputs: tuple[str, ...]


def written(name: str, tokens: int) -> Any:
    """Exactly so many greedy tokens."""
    return pt.gen(name, max_tokens=tokens, temperature=0, ignore_eos=True)


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


def system(content: str) -> Message:
    return {"role": "system", "content": content}
