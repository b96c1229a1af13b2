"""Programs that run programs: how deep they are nested, and what is said where that has no end.

Bodies run within their chain (bodies.py), in whatever thread or task they are in; whoever runs a program asks for the
next one (calls.py). Knows no states.
"""

from __future__ import annotations

from contextvars import ContextVar, Token

from palmette.lang.errors import Location, ProgramError
from palmette.runtime.errors import InvalidRequest

MOST_NESTED = 64
"""Programs that run within each other. Each keeps a branch open, and a thread where it has one of its own."""

ADVICE = (
    "Give it an end: pass the depth along (def f(s, task, depth=0)) and return at its limit, or say it as a loop, or as"
    " repeat(…, at_most=…)."
)

_running: ContextVar[tuple[str, ...]] = ContextVar("palmette_programs", default=())


def chain_with(name: str, where: Location) -> tuple[str, ...]:
    """The programs that run around this line, and `name` within them. Raises ProgramError where they are too many."""
    chain = (*_running.get(), name)
    if len(chain) > MOST_NESTED:
        raise endless(f"{MOST_NESTED} programs run within each other ({_shown(chain)})", where, f"{name}.run")
    return chain


def enter(chain: tuple[str, ...]) -> Token[tuple[str, ...]]:
    """The body of the chain's last program begins; `leave` must follow with what this gives."""
    return _running.set(chain)


def leave(before: Token[tuple[str, ...]]) -> None:
    _running.reset(before)


def endless(what: str, where: Location, node: str) -> ProgramError:
    """The failure of a program that calls itself without an end."""
    return ProgramError(InvalidRequest(f"{what}; there seems to be no end to it.", hint=ADVICE), where, node)


def _shown(chain: tuple[str, ...]) -> str:
    names = chain if len(set(chain[-8:])) > 1 else chain[-3:]
    return "… → " + " → ".join(names[-6:])
