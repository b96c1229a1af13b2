"""The process in which a large or slow grammar is compiled: reads jobs from its input, writes answers to its output.

It has a bound on its memory and an alarm for its time, so that no source can harm more than this process. What another
library is to build it tries out here, before the engine's process does. Started by contained.py, which ends it where
nothing is to do for a while; it ends by itself where its input does.
"""

from __future__ import annotations

import os
import resource
import signal
from functools import cache
from pathlib import Path

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import Blueprint, Foreign, RuleText, pack
from palmette.runtime.grammar.compiling.drawing import draw
from palmette.runtime.grammar.llg.start import vet
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.schema.compile import build_xgrammar, xgrammar_backend
from palmette.runtime.grammar.tag_marks import Marks
from palmette.runtime.vocabulary import Vocabulary

ALARM_SECONDS = 2.0  # beyond a job's time, until which its parent should have ended this process
LENGTH_BYTES = 8
READY = b"+"  # written once, when it begins to read
NICENESS = 10


class Job(msgspec.Struct, frozen=True):
    """`specials`, `eos_ids`: of the vocabulary, for grammars that name special tokens. `pieces`: its tokens, for a
    library that builds nothing without them."""

    source: GrammarSource
    specials: dict[int, str]
    eos_ids: tuple[int, ...]
    limits: Limits
    pieces: tuple[bytes, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no blueprint. Sent behind a zero byte; a blueprint comes behind a one."""

    message: str
    hint: str = ""
    param: str | None = None


def read_exactly(file: int, size: int) -> bytes:
    """Fewer bytes where the file ends before."""
    parts = bytearray()
    while len(parts) < size:
        part = os.read(file, min(size - len(parts), 1 << 20))
        if not part:
            break
        parts += part
    return bytes(parts)


def write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def answer(job: Job, memory_bytes: int) -> bytes:
    """What is sent back."""
    kind = job.source.kind
    try:
        return b"\1" + pack(_vetted(job, memory_bytes))
    except GrammarError as error:
        refusal = Refusal(error.message, error.hint, error.param)
    except RecursionError:
        refusal = Refusal(f"The {kind} is nested too deeply.", "Nest it less.", kind)
    except MemoryError:
        refusal = Refusal(
            f"The {kind} needs more than {memory_bytes >> 20:,} MiB to compile.", "Make it smaller, or simpler.", kind
        )
    return b"\0" + msgspec.msgpack.encode(refusal)


def _vetted(job: Job, memory_bytes: int) -> Blueprint:
    blueprint = draw(job.source, Marks(job.specials, job.eos_ids), job.limits)
    match blueprint:
        case RuleText():
            vet(blueprint, job.source.kind)
        case Foreign():
            _load_backend(memory_bytes)
            build_xgrammar(job.source, _Pieces(Vocabulary(job.pieces, job.specials, job.eos_ids)))
    return blueprint


class _Pieces:
    """A TokenSpace for what encodes nothing."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        raise AssertionError(f"nothing is encoded while a grammar is built: {text!r}")


@cache
def _load_backend(memory_bytes: int) -> None:
    """What the library takes itself isn't the source's."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    xgrammar_backend()
    _bound_memory(memory_bytes)


def main(memory_bytes: int) -> int:
    """`memory_bytes`: beyond what the process has by now."""
    os.nice(NICENESS)  # outputs that are being written go first
    _bound_memory(memory_bytes)
    requests, replies = 0, 1
    write_all(replies, READY)
    while len(size := read_exactly(requests, LENGTH_BYTES)) == LENGTH_BYTES:
        job = msgspec.msgpack.decode(read_exactly(requests, int.from_bytes(size, "little")), type=Job)
        signal.setitimer(signal.ITIMER_REAL, job.limits.seconds + ALARM_SECONDS)  # its default action ends the process
        said = answer(job, memory_bytes)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_all(replies, frame(said))
    return 0


def _bound_memory(more: int) -> None:
    statm = Path("/proc/self/statm")
    if statm.exists():
        pages = int(statm.read_text().split()[0])
        bound = pages * resource.getpagesize() + more
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (bound if most == resource.RLIM_INFINITY else min(bound, most), most))
