"""RadixCache under random programs of requests, against a store that remembers what each slot was computed
from.

A slot holds (namespace, all tokens up to its own). Whatever the cache hands out must hold exactly what the
request would have computed itself; whatever is in the tree must hold what its path says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from palmette.radix_cache.cache import Lease, RadixCache
from palmette.radix_cache.invariants import check_invariants
from palmette.radix_cache.key import common_tokens, reusable_part
from palmette.radix_cache.pages import OutOfPages, PageId
from palmette.runtime.messages.tokens import pack

BASES = [
    [1, 2, 3, 4] * 10,
    [1, 2, 3, 4] * 4 + [257, 2, 3] * 8,
    [1, 2, 65537] * 12,
    [0] * 40,
]
PROMPTS = st.builds(
    lambda base, cut, more: BASES[base][:cut] + more,
    st.integers(0, len(BASES) - 1),
    st.integers(1, 40),
    st.lists(st.sampled_from([1, 2, 256, 257]), max_size=6),
)
NAMESPACES = st.sampled_from(["", "", "other"])
INDEX = st.integers(0, 1000)


@dataclass(eq=False)
class Running:
    namespace: str
    lease: Lease
    tokens: list[int]
    computed: int
    table: list[PageId]
    losers: list[PageId] = field(default_factory=list)

    @property
    def key(self) -> bytes:
        return pack(self.tokens[: self.computed])

    @property
    def private(self) -> list[PageId]:
        return self.table[len(self.lease.pages) :] + self.losers


class CacheMachine(RuleBasedStateMachine):
    page_size = 4

    @initialize(tokens=st.integers(40, 250))
    def start(self, tokens: int) -> None:
        clock = count()
        self.cache = RadixCache(tokens // self.page_size, self.page_size, clock=lambda: float(next(clock)))
        self.store: dict[int, list[tuple[str, bytes] | None]] = {}
        self.requests: list[Running] = []
        self.prompts: list[tuple[str, list[int]]] = []

    # What a worker would do

    def expected(self, namespace: str, tokens: list[int], position: int) -> tuple[str, bytes]:
        return namespace, pack(tokens[: position + 1])

    def allocate(self, n: int) -> list[PageId]:
        pages = self.cache.allocate(n)
        self.store.update((page, [None] * self.page_size) for page in pages)
        return pages

    def holds(self, page: PageId, slots: int, request: Running, start: int) -> bool:
        return self.store[page][:slots] == [
            self.expected(request.namespace, request.tokens, start + slot) for slot in range(slots)
        ]

    # Rules

    def admit(self, tokens: list[int], namespace: str) -> None:
        key = pack(tokens)
        best = max((common_tokens(reusable_part(key), path) for path in self.paths(namespace)), default=0)
        assert self.cache.peek(key, namespace) == best, "peek finds the longest cached prefix"
        lease = self.cache.match(key, namespace)
        assert self.cache.peek(key, namespace) == best
        tail = lease.tail
        assert lease.length + (tail.slots if tail else 0) == best
        assert best <= len(tokens) - 1
        request = Running(namespace, lease, tokens, lease.length, list(lease.pages))
        for index, page in enumerate(lease.pages):
            assert self.holds(page, self.page_size, request, index * self.page_size)
        needed = -(-len(tokens) // self.page_size) - len(lease.pages)
        try:
            request.table += self.allocate(needed)
        except OutOfPages:
            lease.drop_tail()
            try:
                request.table += self.allocate(needed)
            except OutOfPages:
                assert needed > self.cache.available(), "a refusal is never early"
                lease.release()
                return
        self.requests.append(request)

    @rule(tokens=PROMPTS, namespace=NAMESPACES)
    def match(self, tokens: list[int], namespace: str) -> None:
        self.prompts.append((namespace, tokens))
        self.admit(tokens, namespace)

    @precondition(lambda self: self.prompts)
    @rule(index=INDEX, cut=st.sampled_from([0, 0, 0, 1, 4, 5]))
    def match_again(self, index: int, cut: int) -> None:
        namespace, tokens = self.prompts[index % len(self.prompts)]
        self.admit(tokens[: max(1, len(tokens) - cut)], namespace)

    @precondition(lambda self: self.requests)
    @rule()
    def run_the_newest(self) -> None:
        newest = len(self.requests) - 1
        self.compute(newest, 100)
        self.insert(newest)
        self.finish_or_abort(newest)

    @precondition(lambda self: self.requests)
    @rule(index=INDEX, more=st.lists(st.sampled_from([1, 2, 257]), min_size=1, max_size=5))
    def fork(self, index: int, more: list[int]) -> None:
        request = self.requests[index % len(self.requests)]
        self.admit(request.tokens + more, request.namespace)

    @precondition(lambda self: self.requests)
    @rule(index=INDEX, tokens=st.sampled_from([1, 4, 7, 100]))
    def compute(self, index: int, tokens: int) -> None:
        request = self.requests[index % len(self.requests)]
        if (tail := request.lease.tail) is not None:
            assert self.holds(tail.page, tail.slots, request, request.computed)
            own = request.table[len(request.lease.pages)]
            self.store[own][: tail.slots] = self.store[tail.page][: tail.slots]
            request.computed += tail.slots
            request.lease.drop_tail()
        for position in range(request.computed, min(request.computed + tokens, len(request.tokens))):
            index, slot = divmod(position, self.page_size)
            assert index >= len(request.lease.pages), "shared pages are never written"
            self.store[request.table[index]][slot] = self.expected(request.namespace, request.tokens, position)
            request.computed = position + 1

    @precondition(lambda self: self.requests)
    @rule(index=INDEX, token=st.sampled_from([1, 2, 257]))
    def decode(self, index: int, token: int) -> None:
        request = self.requests[index % len(self.requests)]
        if len(request.tokens) == len(request.table) * self.page_size:
            try:
                request.table += self.allocate(1)
            except OutOfPages:
                return
        request.tokens.append(token)

    @precondition(lambda self: self.requests)
    @rule(index=INDEX)
    def insert(self, index: int) -> None:
        request = self.requests[index % len(self.requests)]
        if request.lease.tail is not None:
            return
        for remap in self.cache.insert(request.lease, request.key, request.table):
            assert request.table[remap.index] == remap.old_page
            assert self.store[remap.old_page] == self.store[remap.new_page]
            request.table[remap.index] = remap.new_page
            request.losers.append(remap.old_page)
        assert request.lease.length == request.computed // self.page_size * self.page_size
        assert list(request.lease.pages) == request.table[: len(request.lease.pages)]

    @precondition(lambda self: self.requests)
    @rule(index=INDEX)
    def free_losers(self, index: int) -> None:
        request = self.requests[index % len(self.requests)]
        self.cache.free(request.losers)
        request.losers = []

    @precondition(lambda self: self.requests)
    @rule(index=INDEX)
    def finish_or_abort(self, index: int) -> None:
        request = self.requests.pop(index % len(self.requests))
        self.cache.free(request.losers)
        self.cache.finish(request.lease, request.key, request.table)
        kept = self.cache.peek(request.key + pack([9]), request.namespace)
        assert kept >= request.computed, "all that was computed is cached"

    @precondition(lambda self: self.requests)
    @rule(index=INDEX)
    def drop(self, index: int) -> None:
        request = self.requests.pop(index % len(self.requests))
        self.cache.free(request.private)
        request.lease.release()

    @rule(share=st.floats(0, 1))
    def evict(self, share: float) -> None:
        available = self.cache.available()
        pages = self.cache.allocate(int(share * available))
        assert self.cache.available() == available - len(pages), "evictable pages can all be had"
        self.cache.free(pages)

    @rule()
    def ask_too_much(self) -> None:
        before = (self.cache.free_count, self.cache.cached_pages)
        with pytest.raises(OutOfPages):
            self.cache.allocate(self.cache.available() + 1)
        assert (self.cache.free_count, self.cache.cached_pages) == before

    @rule()
    def clear(self) -> None:
        free = self.cache.free_count
        assert self.cache.clear() == self.cache.free_count - free
        assert self.cache.available() == self.cache.free_count

    # What always holds

    def paths(self, namespace: str) -> list[bytes]:
        root = self.cache.tree.roots.get(namespace)
        nodes = root.subtree() if root is not None else ()
        return [b"".join(step.key for step in reversed(list(node.path()))) for node in nodes]

    @invariant()
    def sound(self) -> None:
        assert check_invariants(self.cache, [request.private for request in self.requests]) == []

    @invariant()
    def tree_pages_hold_what_their_path_says(self) -> None:
        for namespace, root in self.cache.tree.roots.items():
            for node in root.subtree():
                path = b"".join(step.key for step in reversed(list(node.path())))
                start = (len(path) - len(node.key)) // 4
                slots = [slot for page in node.pages for slot in self.store[page]]
                for offset in range(len(node.key) // 4):
                    assert slots[offset] == (namespace, path[: (start + offset + 1) * 4])

    def teardown(self) -> None:
        for request in self.requests:
            self.cache.free(request.losers)
            self.cache.finish(request.lease, request.key, request.table)
        self.cache.clear()
        assert self.cache.free_count == self.cache.pages
        assert not self.cache.tree.roots
        assert not self.cache.leases


class CacheMachine1(CacheMachine):
    page_size = 1


class CacheMachine16(CacheMachine):
    page_size = 16


LIMITS = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestPages1 = CacheMachine1.TestCase
TestPages4 = CacheMachine.TestCase
TestPages16 = CacheMachine16.TestCase
TestPages1.settings = TestPages4.settings = TestPages16.settings = LIMITS
