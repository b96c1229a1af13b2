"""`palmette.Engine` as a library: its arguments, its answers, its end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from palmette.runtime.engine import Engine
from palmette.runtime.errors import ContextLengthExceeded, InvalidRequest, ModelNotFound, NeverFits
from palmette.runtime.frontend import Message


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("tiny", threads=1, kv_tokens=4096) as running:
        yield running


def test_prompts_of_every_kind(engine: Engine) -> None:
    options = {"max_tokens": 5, "temperature": 0.0, "ignore_eos": True}
    text = engine.generate("the model", **options)
    assert len(text.tokens) == 5
    assert [output.text for output in engine.generate(["the model", "the model"], **options)] == [text.text] * 2
    assert len(engine.generate([5, 6, 7], **options).tokens) == 5
    assert len(engine.generate([Message("user", "hello")], **options).tokens) == 5


def test_wrong_arguments_are_named(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="There is no option 'max_new_tokens'"):
        engine.generate("a", max_new_tokens=5)
    with pytest.raises(InvalidRequest, match="was given where"):
        engine.generate("a", {"max_tokens": 5})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="temperature=-1"):
        engine.generate("a", temperature=-1.0)
    with pytest.raises(ContextLengthExceeded, match="max_tokens is 5000"):
        engine.generate("a", max_tokens=5000)
    with pytest.raises(InvalidRequest, match="page_size=0"):
        Engine("tiny", page_size=0)
    with pytest.raises(InvalidRequest, match="There is no option 'modle'"):
        Engine(modle="tiny")
    with pytest.raises(ModelNotFound):
        Engine("no-such-model")
    with pytest.raises(NeverFits, match="less than one page"):
        Engine("tiny", kv_tokens=3)
    assert engine.generate("still here", max_tokens=1).tokens


def test_a_pool_smaller_than_the_context_bounds_it() -> None:
    with Engine("tiny", kv_tokens=64, threads=1) as small:
        assert small.ready.context_length == 64
        assert len(small.generate([5] * 60, ignore_eos=True).tokens) == 4
        with pytest.raises(ContextLengthExceeded, match="context length is 64"):
            small.generate([5] * 65)


def test_a_closed_engine_says_so() -> None:
    engine = Engine("tiny", threads=1)
    engine.close()
    engine.close()
    with pytest.raises(InvalidRequest, match="closed"):
        engine.generate("a")


def test_a_script_may_end_while_its_engine_works() -> None:
    """Python's exit must not take the engine's thread out of a kernel; that aborted one exit in ten or so."""
    program = (
        "import atexit, threading, palmette\n"
        "atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))\n"  # behind the engine's
        "engine = palmette.Engine('tiny', kv_tokens=4096, threads=1)\n"
        "@palmette.function\n"
        "def long(s): s += 'Once' + palmette.gen('x', max_tokens=2000, ignore_eos=True)\n"
        "state = long.run(backend=engine, stream=True)\n"
        "next(iter(state.text_iter('x')))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "palmette-front" in done.stdout
    assert "palmette-engine" not in done.stdout


def test_the_collector_leaves_alone_what_was_there_before_the_engine() -> None:
    """Until the engine is closed; what comes after is collected. In a process of its own: others have engines open."""
    program = (
        "import gc, weakref, palmette\n"
        "class Cycle: pass\n"
        "def cycle():\n"
        "    one = Cycle(); one.itself = one\n"
        "    return weakref.ref(one)\n"
        "with palmette.Engine('tiny', kv_tokens=256, threads=1) as engine:\n"
        "    with palmette.Engine('tiny', kv_tokens=256, threads=1): pass\n"
        "    assert gc.get_freeze_count() > 10_000\n"
        "    engine.generate('Once', max_tokens=2)\n"
        "    later = cycle(); gc.collect(); assert later() is None\n"
        "assert gc.get_freeze_count() == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
