"""radix_cache.events: hashes that chain, and what a listener hears (test_cache_machine.py mirrors whole programs)."""

from __future__ import annotations

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.key import page_hashes, root_hash
from palmette.radix_cache.quarantine import quarantine
from palmette.runtime.messages.kv_events import KvEvent, PagesCleared, PagesRemoved, PagesStored
from palmette.runtime.messages.tokens import pack

PAGE = 4
BYTES = 4 * PAGE


def run(cache: RadixCache, tokens: list[int], namespace: str = "") -> None:
    lease = cache.match(pack(tokens), namespace)
    needed = -(-len(tokens) // PAGE) - len(lease.pages)
    lease.drop_tail()
    cache.finish(lease, pack(tokens), [*lease.pages, *cache.allocate(needed)])


def test_a_hash_says_all_that_came_before() -> None:
    whole = page_hashes(root_hash("a"), pack(range(10)), BYTES)
    assert len(whole) == 2
    assert page_hashes(whole[0], pack(range(4, 8)), BYTES) == whole[1:]
    assert page_hashes(root_hash("b"), pack(range(8)), BYTES)[0] != whole[0]
    assert page_hashes(root_hash("a"), pack([9, *range(1, 8)]), BYTES)[1] != whole[1]


def test_whole_pages_are_told_once_however_nodes_are_cut() -> None:
    heard: list[KvEvent] = []
    cache = RadixCache(16, PAGE)
    cache.listen(heard.append)
    run(cache, list(range(10)))
    one, two = page_hashes(root_hash(""), pack(range(8)), BYTES)
    assert heard == [PagesStored("", PAGE, root_hash(""), (one, two), pack(range(8)))]
    heard.clear()
    run(cache, [*range(4), 7, 7, 7, 7])
    [other] = page_hashes(one, pack([7] * 4), BYTES)
    assert heard == [PagesStored("", PAGE, one, (other,), pack([7] * 4))]
    heard.clear()
    cache.clear()
    assert sorted(hashed for event in heard if isinstance(event, PagesRemoved) for hashed in event.hashes) == sorted(
        (one, two, other)
    )


def test_a_late_listener_and_a_snapshot_hear_what_is_there() -> None:
    cache = RadixCache(16, PAGE)
    run(cache, list(range(8)))
    run(cache, [*range(4), *[5] * 4], "")
    run(cache, list(range(8)), "b")
    heard: list[KvEvent] = []
    events = cache.listen(heard.append)
    first, *rest = events.snapshot()
    assert first == PagesCleared()
    assert sorted(map(repr, rest)) == sorted(map(repr, heard))
    known = {root_hash(""), root_hash("b")}
    for event in heard:
        assert isinstance(event, PagesStored)
        assert event.parent in known, "parents first"
        known.update(event.hashes)
    assert len(known) == 2 + 5


def test_a_quarantine_removes_what_it_drops() -> None:
    heard: list[KvEvent] = []
    cache = RadixCache(16, PAGE)
    cache.listen(heard.append)
    run(cache, list(range(12)))
    heard.clear()
    quarantine(cache, [], list(cache.tree.roots[""].children))
    assert [len(event.hashes) for event in heard if isinstance(event, PagesRemoved)] == [3]
    assert not list(cache.tree.nodes())
