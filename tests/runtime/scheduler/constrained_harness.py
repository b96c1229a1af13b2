"""Requests under grammars on an engine core with the hash worker: a small vocabulary, patterns, what came out."""

from __future__ import annotations

from typing import Any

from engine_harness import Harness, generate
from hash_worker import HashWorker
from late_harness import LateHarness

from palmette.runtime.grammar.compile import Compiler
from palmette.runtime.messages.grammar import Jump, constraint
from palmette.runtime.messages.replies import Generated
from palmette.runtime.messages.requests import Request
from palmette.runtime.vocabulary import Vocabulary

PIECES = (
    b"",
    *(bytes([each]) for each in b"abcdefghij0123456789-, "),
    b"ab",
    b"abc",
    b"bc",
    b"cde",
    b"20",
    b"2026",
    b"-0",
)
SIZE = len(PIECES)
VOCABULARY = Vocabulary(PIECES, {0: "<eos>"}, (0,))
PATTERNS = (
    r"2026-0[1-9]-[0-9]{2}",
    r"(abc, )*abcde",
    r"[a-j]{3,6}(-[0-9]+)?",
    r"(ab|abc|bcd){2,5}",
    r"a+",
    r"abcdeabcde",
)


class LongestPiece:
    """The canonical tokens are the longest pieces from the left."""

    vocabulary = VOCABULARY

    def encode(self, text: str) -> list[int]:
        data, tokens = text.encode(), []
        while data:
            fits = [token for token, piece in enumerate(PIECES) if piece and data.startswith(piece)]
            if not fits:
                break
            tokens.append(max(fits, key=lambda token: len(PIECES[token])))
            data = data[len(PIECES[tokens[-1]]) :]
        return tokens


COMPILER = Compiler(LongestPiece())


def make_worker(pages: int, page_size: int, *, slots: int, context: int) -> HashWorker:
    return HashWorker(pages, page_size, slots=slots, context=context, vocabulary=SIZE)


def harness(compiler: Compiler = COMPILER, **options: Any) -> Harness:
    return Harness(make_worker, VOCABULARY, compiler=compiler, **options)


def late(compiler: Compiler = COMPILER, **options: Any) -> LateHarness:
    return LateHarness(make_worker, VOCABULARY, compiler=compiler, **options)


def constrained(name: str, pattern: str, jump: Jump = "bytes", prompt: int = 5, **options: Any) -> Request:
    wanted = constraint(regex=pattern, jump=jump)
    return generate(
        name, [1 + i % (SIZE - 1) for i in range(prompt)], constraint=wanted, **{"max_tokens": 40, **options}
    )


def complete(name: str, pattern: str, **options: Any) -> Request:
    wanted = constraint(regex=pattern, jump=options.pop("jump", "bytes"), complete=True)
    return generate(name, [1, 2, 3], constraint=wanted, **options)


def text(run: Harness, name: str) -> str:
    last = run.replies[name][-1]
    assert isinstance(last, Generated), last
    assert last.finish is not None
    return b"".join(PIECES[token] for token in run.tokens(name)[: last.finish.kept_tokens]).decode()


def finish(run: Harness, name: str) -> Any:
    return run.replies[name][-1].finish  # type: ignore[union-attr]
