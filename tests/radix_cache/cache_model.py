"""Requests, a worker's memory and a mirror around a RadixCache, in plain dictionaries: what each verb must do.

A slot holds a digest of the namespace and all tokens up to its own. Whatever the cache hands out must hold exactly
what the request would have computed itself; whatever is in the tree must hold what its path says. Driven by the rule
machine (test_cache_machine.py) and the soak (tests/soak.py); a verb takes plain numbers and picks from what there is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

from palmette.radix_cache.cache import Lease, RadixCache
from palmette.radix_cache.eviction import eviction_policy
from palmette.radix_cache.hints import Hint
from palmette.radix_cache.invariants import check_invariants
from palmette.radix_cache.key import common_tokens, reusable_part, root_hash
from palmette.radix_cache.pages import OutOfPages, PageId
from palmette.runtime.messages.kv_events import KvEvent, PagesRemoved, PagesStored
from palmette.runtime.messages.tokens import pack, unpack

BASES = (
    [1, 2, 3, 4] * 10,
    [1, 2, 3, 4] * 4 + [257, 2, 3] * 8,
    [1, 2, 65537] * 12,
    [0] * 40,
)
REMEMBERED = 200  # prompts that are sent again


def digests(namespace: str, tokens: Iterable[int], before: int | None = None) -> list[int]:
    """One of each token and all before it; `before`: that of the token before the first."""
    digest = crc32(namespace.encode()) if before is None else before
    return [digest := hash((digest, token)) for token in tokens]


def logprob(digest: int) -> float:
    """What the model would say of the token with this digest: a float32."""
    return array("f", [-(digest % 1_000_003) / 2**16])[0]


@dataclass(eq=False)
class Running:
    namespace: str
    lease: Lease
    tokens: list[int]
    computed: int
    table: list[PageId]
    losers: list[PageId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.digests = digests(self.namespace, self.tokens)

    @property
    def key(self) -> bytes:
        return pack(self.tokens[: self.computed])

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.digests += digests(self.namespace, [token], self.digests[-1])

    @property
    def private(self) -> list[PageId]:
        return self.table[len(self.lease.pages) :] + self.losers


class CacheModel:
    """`thorough`: also what costs a look at the whole tree is checked in every verb."""

    def __init__(
        self, pages: int, page_size: int, *, thorough: bool = True, pinned_share: float = 0.4, eviction: str = "lru"
    ) -> None:
        self.now = 0.0
        self.page_size = page_size
        self.thorough = thorough
        self.cache = RadixCache(
            pages,
            page_size,
            eviction=eviction_policy(eviction),
            clock=lambda: self.now,
            pinned_share=pinned_share,
        )
        self.store: dict[int, list[int | None]] = {}
        self.requests: list[Running] = []
        self.prompts: list[tuple[str, list[int]]] = []
        self.mirror: dict[bytes, tuple[str, bytes]] = {}
        self.cache.listen(self.hear)

    def request(self, index: int) -> Running:
        return self.requests[index % len(self.requests)]

    def prompt(self, index: int, cut: int) -> tuple[str, list[int]]:
        namespace, tokens = self.prompts[index % len(self.prompts)]
        return namespace, tokens[: max(1, len(tokens) - cut)]

    # What a worker and a mirror would do

    def allocate(self, n: int) -> list[PageId]:
        pinned = self.pinned()
        spare = self.cache.available() - sum(len(pages) for pages in pinned.values())
        pages = list(self.cache.allocate(n))
        if n <= spare:
            assert self.pinned() == pinned, "pinned pages go last"
        self.store.update((page, [None] * self.page_size) for page in pages)
        return pages

    def pinned(self) -> dict[int, list[int]]:
        """Pages that a live pin covers and no lease holds, by node."""
        self.cache.tree.expire_pins()
        assert all(expires > self.now for expires in self.cache.pins.expires.values())
        nodes = {node for pinned in self.cache.pins.expires for node in pinned.path() if node.spare}
        return {id(node): node.pages.tolist() for node in nodes}

    def holds(self, page: PageId, slots: int, request: Running, start: int) -> bool:
        return self.store[page][:slots] == request.digests[start : start + slots]

    def hear(self, event: KvEvent) -> None:
        if isinstance(event, PagesStored):
            parent = event.parent
            path = b"" if parent == root_hash(event.namespace) else self.mirror[parent][1]
            size = event.page_size * 4
            assert len(event.tokens) == size * len(event.hashes)
            for index, hashed in enumerate(event.hashes):
                assert hashed not in self.mirror, "a page is stored once"
                path += event.tokens[index * size : (index + 1) * size]
                self.mirror[hashed] = (event.namespace, path)
        else:
            assert isinstance(event, PagesRemoved)
            for hashed in event.hashes:
                del self.mirror[hashed]

    # Verbs

    def admit(self, tokens: list[int], namespace: str) -> None:
        key = pack(tokens)
        best = self.cache.peek(key, namespace)
        if self.thorough:
            longest = (common_tokens(reusable_part(key), path) for path in self.paths(namespace))
            assert best == max(longest, default=0), "peek finds the longest cached prefix"
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

    def match(self, base: int, share: float, more: list[int], namespace: str) -> None:
        """A prompt of a base's first tokens, some pages long at most, and `more` behind them."""
        whole = BASES[base] * max(1, self.page_size // 8)
        tokens = whole[: max(1, round(share * len(whole)))] + more
        self.prompts.append((namespace, tokens))
        del self.prompts[:-REMEMBERED]
        self.admit(tokens, namespace)

    def match_again(self, index: int, cut: int) -> None:
        namespace, tokens = self.prompt(index, cut)
        self.admit(tokens, namespace)

    def fork(self, index: int, more: list[int]) -> None:
        request = self.request(index)
        self.admit(request.tokens + more, request.namespace)

    def truncate(self, index: int, cut: int) -> None:
        """The branch of a request ends earlier: what is computed goes to the tree, a shorter one is matched."""
        request = self.request(index)
        tokens = request.tokens[: max(1, len(request.tokens) - cut)]
        self.finish(index)
        self.admit(tokens, request.namespace)

    def run_the_newest(self) -> None:
        newest = len(self.requests) - 1
        self.compute(newest, len(self.requests[newest].tokens))
        self.insert(newest)
        self.finish(newest)

    def compute(self, index: int, tokens: int) -> None:
        request = self.request(index)
        if (tail := request.lease.tail) is not None:
            assert self.holds(tail.page, tail.slots, request, request.computed)
            own = request.table[len(request.lease.pages)]
            self.store[own][: tail.slots] = self.store[tail.page][: tail.slots]
            request.computed += tail.slots
            request.lease.drop_tail()
        for position in range(request.computed, min(request.computed + tokens, len(request.tokens))):
            page, slot = divmod(position, self.page_size)
            assert page >= len(request.lease.pages), "shared pages are never written"
            self.store[request.table[page]][slot] = request.digests[position]
            request.computed = position + 1

    def decode(self, index: int, token: int) -> None:
        request = self.request(index)
        if len(request.tokens) == len(request.table) * self.page_size:
            try:
                request.table += self.allocate(1)
            except OutOfPages:
                return
        request.append(token)

    def insert(self, index: int) -> None:
        request = self.request(index)
        if request.lease.tail is not None:
            return
        for remap in self.cache.insert(request.lease, request.key, request.table):
            assert request.table[remap.index] == remap.old_page
            assert self.store[remap.old_page] == self.store[remap.new_page]
            request.table[remap.index] = remap.new_page
            request.losers.append(remap.old_page)
        assert request.lease.length == request.computed // self.page_size * self.page_size
        assert list(request.lease.pages) == request.table[: len(request.lease.pages)]

    def free_losers(self, index: int) -> None:
        request = self.request(index)
        self.cache.free(request.losers)
        request.losers = []

    def finish(self, index: int) -> None:
        """Finished or aborted: all the same to the cache."""
        request = self.requests.pop(index % len(self.requests))
        self.cache.free(request.losers)
        self.cache.finish(request.lease, request.key, request.table)
        kept = self.cache.peek(request.key + pack([9]), request.namespace)
        assert kept >= request.computed, "all that was computed is cached"

    def drop(self, index: int) -> None:
        request = self.requests.pop(index % len(self.requests))
        self.cache.free(request.private)
        request.lease.release()

    def evict(self, share: float) -> None:
        available = self.cache.available()
        pages = self.allocate(int(share * available))
        assert self.cache.available() == available - len(pages), "evictable pages can all be had"
        self.cache.free(pages)

    def ask_too_much(self) -> None:
        before = (self.cache.free_count, self.cache.cached_pages)
        try:
            self.cache.allocate(self.cache.available() + 1)
        except OutOfPages:
            assert (self.cache.free_count, self.cache.cached_pages) == before
        else:
            raise AssertionError("more than there is was given")

    def clear(self) -> None:
        free = self.cache.free_count
        assert self.cache.clear() == self.cache.free_count - free
        assert self.cache.available() == self.cache.free_count

    def pin(self, index: int, cut: int, seconds: float) -> None:
        namespace, tokens = self.prompt(index, cut)
        there = self.cache.peek(pack([*tokens, 9]), namespace)
        pinned = self.cache.paths.pin(pack(tokens), namespace, seconds)
        assert pinned in (0, there), "all that is cached is pinned, or nothing"

    def unpin(self, index: int, cut: int) -> None:
        namespace, tokens = self.prompt(index, cut)
        pins = len(self.cache.pins)
        assert self.cache.paths.unpin(pack(tokens), namespace) == (len(self.cache.pins) == pins - 1)

    def hint(self, index: int, cut: int, ahead: float, priority: int) -> None:
        namespace, tokens = self.prompt(index, cut)
        hint = Hint(next_use=self.now + ahead, last_use=ahead < 1)
        self.cache.paths.hint(pack(tokens), namespace, hint, priority=priority)

    def score(self, index: int, start: int, count: int) -> None:
        """Keeps what the model would say of some of a prompt's tokens; what is kept comes back as it was."""
        namespace, tokens = self.prompt(index, 0)
        key = pack(tokens)
        values = [logprob(digest) for digest in digests(namespace, tokens)]
        before = self.cache.paths.scored(key, namespace, start)
        self.cache.paths.keep_scores(key, namespace, start, array("f", values[start : start + count]))
        after = self.cache.paths.scored(key, namespace, start)
        assert before.tolist() == values[start : start + len(before)]
        assert after.tolist() == values[start : start + len(after)]
        there = self.cache.peek(key + pack([9]), namespace)
        assert len(after) >= max(len(before), min(start + count, there, len(tokens)) - start)
        beside = {start: {index: logprob(digests(namespace, [*tokens[:start], index])[-1])}}
        self.cache.paths.keep_beside(key, namespace, beside)
        if start <= there:
            assert self.cache.paths.beside(key, namespace, start)[start].items() >= beside[start].items()

    def wait(self, seconds: float) -> None:
        self.now += seconds

    # What always holds

    def paths(self, namespace: str) -> list[bytes]:
        root = self.cache.tree.roots.get(namespace)
        nodes = root.subtree() if root is not None else ()
        return [b"".join(step.key for step in reversed(list(node.path()))) for node in nodes]

    def check_counts(self) -> None:
        """Cheap: each page is counted once."""
        cache = self.cache
        private = sum(len(request.private) for request in self.requests)
        assert cache.free_count + cache.cached_pages + private == cache.pages
        assert 0 <= cache.tree.evictable <= cache.cached_pages
        assert cache.pinned_pages <= min(cache.pins.capacity, cache.cached_pages)

    def check(self) -> None:
        """From scratch: structure, contents, log-probabilities, mirror."""
        assert check_invariants(self.cache, [request.private for request in self.requests]) == []
        whole: set[tuple[str, bytes]] = set()
        size = self.page_size * 4
        for namespace, root in self.cache.tree.roots.items():
            for node in root.subtree():
                path = b"".join(step.key for step in reversed(list(node.path())))
                start = len(path) - len(node.key)
                slots = [slot for page in node.pages for slot in self.store[page]]
                known = digests(namespace, unpack(path))[start // 4 :]
                assert slots[: len(known)] == known
                if node.scores is not None:
                    kept = zip(node.scores.own, known, strict=True)
                    assert all(score == logprob(digest) for score, digest in kept if score == score)
                    for index, beside in node.scores.beside.items():
                        before = unpack(path[: start + 4 * (index + 1)])
                        for token, score in beside.items():
                            assert score == logprob(digests(namespace, [*before, token])[-1])
                whole.update((namespace, path[:end]) for end in range(start + size, len(path) + 1, size))
        assert whole == set(self.mirror.values()), "the mirror has the tree's whole pages"
        assert len(whole) == len(self.mirror)

    def end(self) -> None:
        """Everything is given back."""
        while self.requests:
            self.finish(0)
        self.cache.clear()
        assert self.cache.free_count == self.cache.pages
        assert not self.cache.tree.roots
        assert not self.cache.leases
        assert not self.cache.pins
        assert not self.mirror
