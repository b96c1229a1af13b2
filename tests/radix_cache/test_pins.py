"""radix_cache.pins through the cache: what is evicted last, for how long, and how much of it."""

from __future__ import annotations

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.hints import Hint
from palmette.radix_cache.invariants import check_invariants
from palmette.runtime.messages.tokens import pack

PAGE = 4


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def make(pages: int = 16, share: float = 0.5) -> tuple[RadixCache, Clock]:
    clock = Clock()
    return RadixCache(pages, PAGE, clock=clock, pinned_share=share), clock


def run(cache: RadixCache, tokens: list[int], namespace: str = "") -> None:
    lease = cache.match(pack(tokens), namespace)
    needed = -(-len(tokens) // PAGE) - len(lease.pages)
    lease.drop_tail()
    cache.finish(lease, pack(tokens), [*lease.pages, *cache.allocate(needed)])
    assert check_invariants(cache, []) == []


def cached(cache: RadixCache, tokens: list[int], namespace: str = "") -> int:
    return cache.peek(pack([*tokens, 99]), namespace)


def evict(cache: RadixCache, pages: int) -> None:
    cache.free(cache.allocate(cache.free_count + pages))
    assert check_invariants(cache, []) == []


def test_a_pinned_prefix_goes_last_and_is_never_held() -> None:
    cache, _ = make()
    old, young = [1] * 10, [2] * 10
    run(cache, old)
    run(cache, young)
    assert cache.paths.pin(pack(old), "", 60) == 10
    assert cache.pinned_pages == 3, "the page that isn't full too"
    evict(cache, 3)
    assert (cached(cache, old), cached(cache, young)) == (10, 0)
    assert cache.available() == 16, "all of it can be had"
    evict(cache, 1)
    assert cached(cache, old) == 8, "from its end"
    evict(cache, 2)
    assert (cached(cache, old), len(cache.pins), cache.pinned_pages) == (0, 0, 0)


def test_what_is_left_of_a_pin_stays_pinned() -> None:
    cache, _ = make()
    run(cache, [1] * 8)
    run(cache, [*[1] * 8, *[2] * 4])
    cache.paths.pin(pack([*[1] * 8, *[2] * 4]), "", 60)
    evict(cache, 1)
    run(cache, [3] * 8)
    evict(cache, 2)
    assert (cached(cache, [1] * 8), cached(cache, [3] * 8)) == (8, 0)
    assert cache.paths.unpin(pack([1] * 8), "")


def test_a_pin_ends_with_its_time_and_lives_on_when_renewed() -> None:
    for renewed in (False, True):
        cache, clock = make()
        run(cache, [1] * 8)
        cache.paths.pin(pack([1] * 8), "", 10)
        clock.now += 6
        if renewed:
            cache.paths.pin(pack([1] * 8), "", 10)
            assert len(cache.pins) == 1
        clock.now += 6
        run(cache, [2] * 8)
        evict(cache, 2)
        assert cached(cache, [1] * 8) == (8 if renewed else 0)
        assert len(cache.pins) == renewed


def test_unpinned_it_is_like_any_other() -> None:
    cache, _ = make()
    run(cache, [1] * 8)
    run(cache, [2] * 8)
    cache.paths.pin(pack([1] * 8), "", 60)
    assert not cache.paths.unpin(pack([2] * 8), "")
    assert not cache.paths.unpin(pack([9] * 8), "")
    assert cache.paths.unpin(pack([1] * 8), "")
    evict(cache, 2)
    assert (cached(cache, [1] * 8), cached(cache, [2] * 8)) == (0, 8)


def test_a_pin_that_needs_room_ends_those_that_expire_before_it() -> None:
    cache, _ = make(share=0.25)
    for first in (1, 2, 3):
        run(cache, [first] * 8)
    assert cache.paths.pin(pack([1] * 8), "", 100) == 8
    assert cache.paths.pin(pack([2] * 8), "", 50) == 8
    assert cache.paths.pin(pack([3] * 8), "", 60) == 8, "in the place of the second, the soonest to expire"
    assert cache.paths.pin(pack([2] * 8), "", 10) == 0, "all others outlive it"
    assert cache.pinned_pages == 4
    assert check_invariants(cache, []) == []
    assert cache.paths.unpin(pack([1] * 8), "")
    assert cache.paths.unpin(pack([3] * 8), "")


def test_pins_share_what_they_have_in_common() -> None:
    cache, _ = make(share=0.25)
    trunk = [1] * 8
    for last in (2, 3, 4):
        run(cache, [*trunk, *[last] * 4])
    assert cache.paths.pin(pack([*trunk, *[2] * 4]), "", 60) == 12
    assert cache.paths.pin(pack([*trunk, *[3] * 4]), "", 60) == 12
    assert (cache.pinned_pages, len(cache.pins)) == (4, 2)
    assert cache.paths.pin(pack([*trunk, *[4] * 4]), "", 60) == 12
    assert (cache.pinned_pages, len(cache.pins)) == (4, 2)


def test_a_pin_covers_its_tokens_and_not_what_lies_behind() -> None:
    cache, _ = make()
    run(cache, [1] * 16)
    assert cache.paths.pin(pack([1] * 6), "", 60) == 6
    assert cache.pinned_pages == 2
    run(cache, [2] * 8)
    evict(cache, 2)
    assert (cached(cache, [1] * 16), cached(cache, [2] * 8)) == (8, 8)
    assert cache.paths.pin(pack([5] * 6), "", 60) == 0


def test_a_sequence_that_goes_on_behind_a_pin_is_not_pinned() -> None:
    cache, _ = make()
    lease = cache.match(pack([1] * 8), "")
    table = cache.allocate(3)
    cache.insert(lease, pack([1] * 8), table)
    assert cache.paths.pin(pack([1] * 8), "", 60) == 8
    cache.insert(lease, pack([1] * 12), table)
    assert check_invariants(cache, []) == []
    cache.finish(lease, pack([1] * 12), table)
    assert cache.pinned_pages == 2


def test_a_hint_reaches_the_path_and_is_spent_by_a_match() -> None:
    cache, clock = make()
    run(cache, [*[1] * 4, *[2] * 4])
    run(cache, [*[1] * 4, *[3] * 4])
    two, three = pack([*[1] * 4, *[2] * 4]), pack([*[1] * 4, *[3] * 4])
    cache.paths.hint(two, "", Hint(next_use=50.0, last_use=True), priority=2)
    cache.paths.hint(three, "", Hint(next_use=40.0, waits_until=70.0))
    trunk = next(iter(cache.tree.roots[""].children))
    second, third = trunk.children
    assert trunk.hint == Hint(40.0, False, 70.0), "what is shared is used at the earliest, and never for the last time"
    assert (second.hint, third.hint) == (Hint(50.0, True), Hint(40.0, False, 70.0))
    assert (trunk.priority, second.priority, third.priority) == (2, 2, 0)
    with cache.match(two + pack([9]), ""):
        assert (second.hint, third.hint) == (Hint(50.0), Hint(40.0, False, 70.0))
    cache.paths.hint(pack([7]), "", Hint(last_use=True))
    assert clock.now < 40


def test_a_lease_gives_its_priority_to_what_it_touches() -> None:
    cache, _ = make()
    lease = cache.match(pack([1] * 9), "", priority=3)
    cache.finish(lease, pack([1] * 8), cache.allocate(3))
    [node] = cache.tree.roots[""].children
    assert node.priority == 3
    cache.match(pack([1] * 9), "", priority=1).release()
    assert node.priority == 3
