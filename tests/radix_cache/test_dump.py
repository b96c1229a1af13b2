"""radix_cache.dump: the message and the drawing."""

from __future__ import annotations

import pytest

from palmette.radix_cache.cache import RadixCache
from palmette.radix_cache.dump import draw, to_message
from palmette.runtime.messages.tokens import pack, unpack


def decode(key: bytes) -> str:
    return "".join(map(chr, unpack(key)))


def cached(*texts: str, namespace: str = "") -> RadixCache:
    cache = RadixCache(5000, 4)
    for text in texts:
        key = pack(map(ord, text))
        lease = cache.match(key, namespace)
        lease.drop_tail()
        cache.finish(lease, key, [*lease.pages, *cache.allocate(-(-len(text) // 4) - len(lease.pages))])
    return cache


def test_the_message_lists_parents_first_and_says_all() -> None:
    cache = cached("one two three", "one two four", namespace="tenant")
    lease = cache.match(pack(map(ord, "one two three")), "tenant")
    nodes = to_message(cache)
    assert [node.parent for node in nodes] == [None, 0, 1, 1, 3]
    assert [decode(node.tokens) for node in nodes] == ["", "one two ", "four", "thre", "e"]
    assert [node.leases for node in nodes] == [1, 1, 0, 1, 0]
    assert [node.uses for node in nodes] == [3, 2, 0, 1, 0]
    assert {node.namespace for node in nodes} == {"tenant"}
    assert sum(node.pages for node in nodes) == cache.cached_pages
    lease.release()


def test_the_drawing() -> None:
    cache = cached("one two three", "one two four", "日本\n語の本")
    drawing = draw(to_message(cache), 4, decode, width=64)
    assert drawing.splitlines() == [
        "radix tree: 6 nodes, 23 tokens in 7 pages of 4, 82% full",
        "                                  tokens   pages  reused  in use",
        "●",
        "├─ one two                             8       2      ×1",
        "│  ├─ four                             4       1",
        "│  └─ three                            5       2",
        "└─ 日本⏎語の本                         6       2",
    ]


def test_an_empty_tree_is_one_line() -> None:
    assert draw((), 16, decode) == "radix tree: 0 nodes, 0 tokens in 0 pages of 16"


@pytest.mark.parametrize("max_lines", [5, 8, 13, 40, 500])
def test_what_does_not_fit_is_summarised(max_lines: int) -> None:
    cache = cached(*[f"question {i:03} of many {j}" for i in range(60) for j in range(3)])
    nodes = to_message(cache)
    lines = draw(nodes, 4, decode, max_lines=max_lines).splitlines()
    assert len(lines) <= max_lines
    if max_lines < 200:
        assert any("more branches" in line for line in lines)
    else:
        assert not any("more branch" in line for line in lines)


def test_long_texts_show_their_beginning_and_end_and_decode_little() -> None:
    decoded = 0

    def counting(key: bytes) -> str:
        nonlocal decoded
        decoded += len(key) // 4
        return decode(key)

    cache = cached("start " + "x" * 10_000 + " end")
    lines = draw(to_message(cache), 4, counting, width=80).splitlines()
    assert lines[-1].startswith("└─ start xxx")
    assert " end  " in lines[-1]
    assert max(map(len, lines)) <= 80
    assert decoded <= 200


def test_namespaces_are_named() -> None:
    cache = cached("a tenant's words", namespace="tenant")
    assert "● tenant" in draw(to_message(cache), 4, decode)
