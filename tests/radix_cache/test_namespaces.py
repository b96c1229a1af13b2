"""Namespaces can't see one another in any verb of the cache, and are composed without ambiguity."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.hints import Hint
from palmette.radix_cache.invariants import check_invariants
from palmette.runtime.messages.namespaces import namespace
from palmette.runtime.messages.tokens import pack

PARTS = st.text(st.sampled_from("a1:0"), max_size=4)


@given(st.tuples(PARTS, PARTS, PARTS), st.tuples(PARTS, PARTS, PARTS))
def test_different_parts_give_different_namespaces(left: tuple[str, str, str], right: tuple[str, str, str]) -> None:
    one, other = (namespace(salt, adapter=adapter, model=model) for salt, adapter, model in (left, right))
    assert (one == other) == (left == right)


def test_without_parts_it_is_the_default() -> None:
    assert namespace() == ""


def test_no_verb_sees_another_namespace() -> None:
    cache = RadixCache(32, 4, pinned_share=1.0)
    key = pack(range(10))
    for name in ("mine", "theirs"):
        lease = cache.match(key, name)
        assert (lease.length, lease.tail) == (0, None)
        table = cache.allocate(3)
        assert cache.insert(lease, pack(range(8)), table) == [], "no page of another namespace takes its place"
        cache.finish(lease, key, table)
    nodes = {name: list(root.subtree()) for name, root in cache.tree.roots.items()}
    theirs = [(node.uses, node.last_used, node.hint, node.priority, node.pins, node.scores) for node in nodes["theirs"]]

    assert cache.paths.pin(key, "mine", 60) == 10
    cache.paths.hint(key, "mine", Hint(last_use=True), priority=7)
    cache.paths.keep_scores(key, "mine", 1, array("f", [-1.0] * 9))
    cache.match(key + pack([9]), "mine").release()
    assert not cache.paths.unpin(key, "theirs")
    assert not cache.paths.scored(key, "theirs", 1)
    assert [
        (node.uses, node.last_used, node.hint, node.priority, node.pins, node.scores) for node in nodes["theirs"]
    ] == theirs
    for verb in (cache.peek(key, "third"), cache.paths.pin(key, "third", 9), len(cache.paths.scored(key, "third", 1))):
        assert verb == 0
    cache.paths.hint(key, "third", Hint(last_use=True))
    assert set(cache.tree.roots) == {"mine", "theirs"}, "asking makes none"
    assert check_invariants(cache, []) == []
    assert cache.clear() == 6
