"""The engine core on the hash worker, and what each request gives alone."""

from __future__ import annotations

from typing import Any

from engine_harness import Harness, MakeWorker
from hash_worker import HashWorker

from palmette.runtime.messages.requests import Request, Shutdown
from palmette.runtime.vocabulary import Vocabulary

SIZE = 24
VOCABULARY = Vocabulary(tuple(bytes([97 + i]) if i else b"" for i in range(SIZE)), {0: "<eos>"}, (0,))


def make_hash_worker(pages: int, page_size: int, *, slots: int, context: int) -> HashWorker:
    return HashWorker(pages, page_size, slots=slots, context=context, vocabulary=SIZE)


class HashHarness(Harness):
    worker: HashWorker

    def __init__(
        self, make_worker: MakeWorker = make_hash_worker, vocabulary: Vocabulary = VOCABULARY, **options: Any
    ) -> None:
        super().__init__(make_worker, vocabulary, **options)


def alone(request: Request) -> Any:
    """The reference: one request at a time in a big pool without a cache, all of its prompt in one chunk."""
    harness = HashHarness(
        pages=600, page_size=1, context=400, prefix_cache=False, step_tokens=1000, check_invariants=False
    )
    harness.run(request)
    assert not isinstance(request, Shutdown)
    return harness.answer(request.id)
