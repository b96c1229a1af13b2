"""RadixCache under random programs of requests (cache_model.py says what each verb must do)."""

from __future__ import annotations

from cache_model import BASES, CacheModel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

NAMESPACES = st.sampled_from(["", "", "other"])
MORE = st.lists(st.sampled_from([1, 2, 256, 257]), max_size=6)
INDEX = st.integers(0, 1000)
CUTS = st.sampled_from([0, 0, 0, 1, 4, 5])
SOME = st.lists(st.sampled_from([1, 2, 257]), min_size=1, max_size=5)
running = precondition(lambda self: self.model.requests)
prompted = precondition(lambda self: self.model.prompts)


class CacheMachine(RuleBasedStateMachine):
    page_size = 4

    @initialize(
        tokens=st.integers(40, 250),
        pinned_share=st.sampled_from([0.1, 0.4, 1.0]),
        eviction=st.sampled_from(["lru", "program"]),
    )
    def start(self, tokens: int, pinned_share: float, eviction: str) -> None:
        pages = max(2, tokens * max(1, self.page_size // 8) // self.page_size)
        self.model = CacheModel(pages, self.page_size, pinned_share=pinned_share, eviction=eviction)

    @rule(base=st.integers(0, len(BASES) - 1), share=st.floats(0, 1), more=MORE, namespace=NAMESPACES)
    def match(self, base: int, share: float, more: list[int], namespace: str) -> None:
        self.model.match(base, share, more, namespace)

    @prompted
    @rule(index=INDEX, cut=CUTS)
    def match_again(self, index: int, cut: int) -> None:
        self.model.match_again(index, cut)

    @running
    @rule()
    def run_the_newest(self) -> None:
        self.model.run_the_newest()

    @running
    @rule(index=INDEX, more=SOME)
    def fork(self, index: int, more: list[int]) -> None:
        self.model.fork(index, more)

    @running
    @rule(index=INDEX, cut=st.sampled_from([1, 3, 4, 9, 17, 70]))
    def truncate(self, index: int, cut: int) -> None:
        self.model.truncate(index, cut)

    @running
    @rule(index=INDEX, tokens=st.sampled_from([1, 4, 7, 50, 1000]))
    def compute(self, index: int, tokens: int) -> None:
        self.model.compute(index, tokens)

    @running
    @rule(index=INDEX, token=st.sampled_from([1, 2, 257]))
    def decode(self, index: int, token: int) -> None:
        self.model.decode(index, token)

    @running
    @rule(index=INDEX)
    def insert(self, index: int) -> None:
        self.model.insert(index)

    @running
    @rule(index=INDEX)
    def free_losers(self, index: int) -> None:
        self.model.free_losers(index)

    @running
    @rule(index=INDEX)
    def finish_or_abort(self, index: int) -> None:
        self.model.finish(index)

    @running
    @rule(index=INDEX)
    def drop(self, index: int) -> None:
        self.model.drop(index)

    @rule(share=st.floats(0, 1))
    def evict(self, share: float) -> None:
        self.model.evict(share)

    @rule()
    def ask_too_much(self) -> None:
        self.model.ask_too_much()

    @rule()
    def clear(self) -> None:
        self.model.clear()

    @prompted
    @rule(index=INDEX, cut=CUTS, seconds=st.sampled_from([0.0, 3.0, 10.0, 50.0]))
    def pin(self, index: int, cut: int, seconds: float) -> None:
        self.model.pin(index, cut, seconds)

    @prompted
    @rule(index=INDEX, cut=CUTS)
    def unpin(self, index: int, cut: int) -> None:
        self.model.unpin(index, cut)

    @prompted
    @rule(index=INDEX, cut=CUTS, ahead=st.sampled_from([0.5, 5.0]), priority=st.integers(0, 3))
    def hint(self, index: int, cut: int, ahead: float, priority: int) -> None:
        self.model.hint(index, cut, ahead, priority)

    @prompted
    @rule(index=INDEX, start=st.integers(1, 20), count=st.sampled_from([1, 5, 40]))
    def score(self, index: int, start: int, count: int) -> None:
        self.model.score(index, start, count)

    @rule(seconds=st.sampled_from([0.5, 2.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.model.wait(seconds)

    @invariant()
    def sound(self) -> None:
        self.model.check_counts()
        self.model.check()

    def teardown(self) -> None:
        self.model.end()


def machine(page_size: int, examples: int) -> type[RuleBasedStateMachine.TestCase]:
    tested = type(f"CacheMachine{page_size}", (CacheMachine,), {"page_size": page_size})
    case = tested.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=50)
    return case


TestPages1 = machine(1, 50)
TestPages2 = machine(2, 25)
TestPages3 = machine(3, 25)
TestPages4 = machine(4, 40)
TestPages16 = machine(16, 25)
TestPages32 = machine(32, 10)
TestPages64 = machine(64, 10)
