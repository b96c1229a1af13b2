"""The process in which a large or slow grammar is compiled: reads jobs from its input, writes answers to its output.

It has a bound on its memory and an alarm for its time, so that no source can harm more than this process. Started by
contained.py; ends where its input does, or where nothing comes for a while.
"""

from __future__ import annotations

import os
import resource
import select
import signal
from pathlib import Path

import msgspec

from palmette.runtime.errors import GrammarError
from palmette.runtime.grammar.blueprint import Blueprint, RuleText, pack
from palmette.runtime.grammar.compiling.drawing import draw
from palmette.runtime.grammar.llg.grammar import vet
from palmette.runtime.grammar.protocol import GrammarSource, Limits
from palmette.runtime.grammar.tag_marks import Marks

IDLE_SECONDS = 60.0
ALARM_SECONDS = 2.0  # beyond a job's time, until which its parent should have ended this process
LENGTH_BYTES = 8
READY = b"+"  # written once, when it begins to read
NICENESS = 10


class Job(msgspec.Struct, frozen=True):
    """`specials`, `eos_ids`: of the vocabulary, for grammars that name special tokens."""

    source: GrammarSource
    specials: dict[int, str]
    eos_ids: tuple[int, ...]
    limits: Limits


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
        return b"\1" + pack(_vetted(job))
    except GrammarError as error:
        refusal = Refusal(error.message, error.hint, error.param)
    except RecursionError:
        refusal = Refusal(f"The {kind} is nested too deeply.", "Nest it less.", kind)
    except MemoryError:
        refusal = Refusal(
            f"The {kind} needs more than {memory_bytes >> 20:,} MiB to compile.", "Make it smaller, or simpler.", kind
        )
    return b"\0" + msgspec.msgpack.encode(refusal)


def _vetted(job: Job) -> Blueprint:
    blueprint = draw(job.source, Marks(job.specials, job.eos_ids), job.limits)
    if isinstance(blueprint, RuleText):
        vet(blueprint, job.source.kind)
    return blueprint


def main(memory_bytes: int) -> int:
    """`memory_bytes`: beyond what the process has by now."""
    os.nice(NICENESS)  # outputs that are being written go first
    _bound_memory(memory_bytes)
    requests, replies = 0, 1
    write_all(replies, READY)
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        size = read_exactly(requests, LENGTH_BYTES)
        if len(size) < LENGTH_BYTES:
            return 0
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
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
