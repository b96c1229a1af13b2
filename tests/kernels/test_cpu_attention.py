"""Native attention alone: against reference/ in float64, and bit by bit however a token's row is made up and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_paths import native_library, native_paths

from palmette.kernels.cpu.library import Attention, Floats, Ints, KvStorage, LayerPages, Library
from palmette.kernels.protocol import Batch
from palmette.kernels.reference.kernels import ReferenceKernels
from palmette.radix_cache.packed_store import PackedKVStore

SPLIT = 256  # positions, as in native/attention.h
DTYPES: dict[KvStorage, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "int8": torch.int8,
}


@pytest.fixture(scope="session")
def library() -> Library:
    return native_library()


@dataclass(frozen=True)
class Row:
    """Tokens [first, end) of a sequence; its first `shared` positions are the stem's."""

    first: int
    end: int
    shared: int


@dataclass(frozen=True)
class Case:
    kv: KvStorage
    kv_heads: int
    group: int
    head_dim: int
    page_size: int
    rows: tuple[Row, ...]
    attention: Attention
    spread: float = 1.0  # of the queries
    peak: bool = False  # one position's keys are far larger
    seed: int = 0

    def random(self, what: int, *shape: int) -> Floats:
        return np.random.default_rng((self.seed, what)).standard_normal(shape).astype(np.float32)

    def kv_of(self, row: int) -> tuple[Floats, Floats]:
        """K and V of a row's sequence: [end, kv_heads, head_dim]."""
        end, shared = self.rows[row].end, self.rows[row].shared
        both = []
        for what in (0, 1):
            stem = self.random(what, max(r.end for r in self.rows), self.kv_heads, self.head_dim)
            own = self.random(10 + 2 * row + what, end, self.kv_heads, self.head_dim)
            both.append(np.concatenate([stem[:shared], own[shared:]]))
        k, v = both
        if self.peak:  # the same for all that share it
            k[37:38] *= 40
        return k, v

    def queries(self, row: int) -> Floats:
        """All of a row's sequence: [end, heads, head_dim], scaled."""
        q = self.random(1000 + row, self.rows[row].end, self.kv_heads * self.group, self.head_dim)
        return q * np.float32(self.spread * self.head_dim**-0.5)


@dataclass(frozen=True)
class Stored:
    """A case in poisoned, shuffled pages: as the kernels keep it, and plainly in float64."""

    case: Case
    store: PackedKVStore
    pages: LayerPages
    tables: Ints
    plain: tuple[torch.Tensor, torch.Tensor]  # [pages, page_size, kv_heads, head_dim]

    @classmethod
    def of(cls, case: Case, library: Library, page_size: int, *, share: bool) -> Stored:
        """`share`: rows point at the same pages where whole pages are the stem's, else each has its own copy."""
        needed = [-(-row.end // page_size) for row in case.rows]
        count = sum(needed) + 2
        store = PackedKVStore(1, count, page_size, case.kv_heads, case.head_dim, DTYPES[case.kv], poison=True)
        pages = LayerPages(case.kv, page_size, int(store.key_addresses[0]), int(store.value_addresses[0]))
        shuffled = np.random.default_rng(case.seed).permutation(count)
        tables = np.full((len(case.rows), max(needed)), count - 1, np.int32)
        plain = np.full((2, count * page_size, case.kv_heads, case.head_dim), np.nan)
        stems: dict[int, int] = {}
        used = 0
        for index, row in enumerate(case.rows):
            for page in range(needed[index]):
                common = share and (page + 1) * page_size <= row.shared
                if not common or page not in stems:
                    tables[index, page] = shuffled[used]
                    used += 1
                if common:
                    tables[index, page] = stems.setdefault(page, int(tables[index, page]))
            k, v = case.kv_of(index)
            places = np.arange(row.end)
            slots = (tables[index, places // page_size] * page_size + places % page_size).astype(np.int32)
            library.write_kv(pages, slots, k, v)
            plain[0][slots], plain[1][slots] = as_stored(k, case.kv), as_stored(v, case.kv)
        shaped = torch.from_numpy(plain.reshape(2, count, page_size, case.kv_heads, case.head_dim))
        return cls(case, store, pages, tables, (shaped[0], shaped[1]))

    def attend(self, library: Library, rows: list[tuple[int, int, int]], threads: int = 1) -> Floats:
        """Tokens [first, end) of each (row, first, end), in one call."""
        return library.attention(
            np.concatenate([self.case.queries(row)[first:end] for row, first, end in rows]),
            self.pages,
            kv_heads=self.case.kv_heads,
            positions=np.concatenate([np.arange(first, end, dtype=np.int32) for _, first, end in rows]),
            row_starts=np.cumsum([0, *(end - first for _, first, end in rows)], dtype=np.int32),
            tables=np.ascontiguousarray(self.tables[[row for row, _, _ in rows]]),
            attention=self.case.attention,
            threads=threads,
        )

    def reference(self) -> tuple[npt.NDArray[np.float64], float]:
        """All rows in float64, and how far the kernels may be from it: sums are float32. Where KV is bfloat16, queries
        are rounded to it (here, too), and so are weights, by at most 2^-9 of each."""
        case = self.case
        rows = case.rows
        q = np.concatenate([case.queries(i)[row.first : row.end] for i, row in enumerate(rows)])
        q = as_stored(q, "bfloat16") if case.kv == "bfloat16" else q.astype(np.float64)
        empty = np.zeros(0, np.int32)
        batch = Batch(
            tokens=empty,
            positions=np.concatenate([np.arange(row.first, row.end, dtype=np.int32) for row in rows]),
            write_slots=empty,
            row_starts=np.cumsum([0, *(row.end - row.first for row in rows)], dtype=np.int32),
            block_tables=self.tables,
            logits_at=empty,
            page_size=self.pages.page_size,
        )
        kind = case.attention
        attention = ReferenceKernels().attention(
            batch, heads=q.shape[1], kv_heads=case.kv_heads, head_dim=case.head_dim, scale=1.0, window=kind.window,
            soft_cap=kind.soft_cap, sinks=None if kind.sinks is None else torch.from_numpy(kind.sinks),
        )  # fmt: skip
        exact = attention.attend(torch.from_numpy(q), *self.plain).numpy()
        size = np.linalg.norm(q, axis=-1).max() * np.linalg.norm(np.nan_to_num(self.plain[0].numpy()), axis=-1).max()
        most = float(np.abs(np.nan_to_num(self.plain[1].numpy())).max())
        rounding = 2**-9 if case.kv == "bfloat16" else 0.0
        return exact, (4e-7 * float(size) + 3e-6 + rounding) * most


def as_stored(x: Floats, kv: KvStorage) -> npt.NDArray[np.float64]:
    """What is kept of x [tokens, kv_heads, head_dim]."""
    if kv == "int8":  # a scale per token and head, ties to even
        most = np.abs(x).max(-1, keepdims=True)
        quants = np.rint(x * (np.float32(127) / most)).astype(np.float64)
        return quants * (most / np.float32(127)).astype(np.float64)
    return torch.from_numpy(x).to(DTYPES[kv]).to(torch.float64).numpy()


def bits(x: Floats) -> Ints:
    return x.view(np.int32)


ROWS = st.builds(
    lambda end, count, shared: Row(max(0, end - count), end, min(shared, end)),
    st.one_of(st.integers(1, 40), st.integers(200, 700)),
    st.sampled_from([1, 1, 1, 2, 7, 19]),
    st.sampled_from([0, 256, 512, 600]),
)


@st.composite
def cases(draw: st.DrawFn, *, most_rows: int = 7) -> Case:
    kv_heads, group = draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 4, 7, 8, 16]))
    sinks = draw(st.sampled_from([None, 0.0, -30.0, 30.0]))
    attention = Attention(
        window=draw(st.one_of(st.none(), st.sampled_from([1, 5, 64, 65, 256, 300]))),
        soft_cap=draw(st.sampled_from([None, None, 0.5, 30.0])),
        sinks=None if sinks is None else np.linspace(sinks - 2, sinks + 2, kv_heads * group, dtype=np.float32),
    )
    return Case(
        draw(st.sampled_from(list(DTYPES))),
        kv_heads,
        group,
        draw(st.sampled_from([16, 32, 64, 80, 96, 128])),
        draw(st.sampled_from([1, 4, 16, 32, 64])),
        tuple(draw(st.lists(ROWS, min_size=1, max_size=most_rows))),
        attention,
        draw(st.sampled_from([1e-20, 1.0, 1.0, 30.0, 3000.0])),
        draw(st.booleans()),
        draw(st.integers(0, 1000)),
    )


@settings(max_examples=25)
@given(cases(most_rows=4), st.booleans())
def test_attention_is_close_to_float64(library: Library, case: Case, share: bool) -> None:
    stored = Stored.of(case, library, case.page_size, share=share)
    out = stored.attend(library, [(i, row.first, row.end) for i, row in enumerate(case.rows)])
    exact, bound = stored.reference()
    assert np.abs(out - exact).max() <= bound


@pytest.mark.parametrize(("kv", "most"), [("bfloat16", 2e-3), ("float32", 1e-6), ("int8", 1e-6)])
def test_how_far_from_float64_it_typically_is(library: Library, kv: KvStorage, most: float) -> None:
    """Root mean square, in units of the output's own: far below what the bounds of the worst case allow."""
    case = Case(kv, 2, 3, 64, 16, (Row(600, 640, 0), Row(20, 40, 0)), Attention())
    stored = Stored.of(case, library, 16, share=False)
    exact, _ = stored.reference()
    away = stored.attend(library, [(i, row.first, row.end) for i, row in enumerate(case.rows)]) - exact
    assert np.sqrt((away**2).mean()) <= most * np.sqrt((exact**2).mean())


@settings(max_examples=25)
@given(cases(), st.sampled_from([1, 4, 16, 32, 64]), st.integers(1, 3), st.randoms(use_true_random=False))
def test_a_token_has_the_same_bits_however_it_is_batched_and_stored(
    library: Library, case: Case, page_size: int, threads: int, random: Any
) -> None:
    """Together with shared pages (cascade), shuffled, in several threads, against each token alone in its own pages."""
    shared = Stored.of(case, library, case.page_size, share=True)
    private = Stored.of(case, library, page_size, share=False)
    rows = [(i, row.first, row.end) for i, row in enumerate(case.rows)]
    random.shuffle(rows)
    together = shared.attend(library, rows, threads)
    alone = [private.attend(library, [(row, at, at + 1)]) for row, first, end in rows for at in range(first, end)]
    assert not np.isnan(together).any()
    assert (bits(together) == bits(np.concatenate(alone))).all()


@pytest.mark.parametrize("window", [None, 100, 300])
def test_many_rows_behind_one_prefix(library: Library, window: int | None) -> None:
    """Tiles of every size; some rows leave the prefix early, and windows hide it from some."""
    rows = tuple(
        Row(end - 1, end, min(end, 2 * SPLIT)) for end in (513, 530, 300, 900, 700, 513, 1030, 40, 512, 256, 257)
    )
    case = Case("bfloat16", 2, 3, 64, 16, rows, Attention(window=window))
    calls = [(i, row.first, row.end) for i, row in enumerate(rows)]
    together = Stored.of(case, library, 16, share=True).attend(library, calls, 2)
    private = Stored.of(case, library, 16, share=False)
    alone = np.concatenate([private.attend(library, [call]) for call in calls])
    assert (bits(together) == bits(alone)).all()


def test_what_a_window_hides_is_not_read(library: Library) -> None:
    """Blocks of 64 before the window may be gone: their table entries lead nowhere."""
    case = Case("float32", 1, 4, 32, 16, (Row(600, 612, 0), Row(699, 700, 0)), Attention(window=70))
    stored = Stored.of(case, library, 16, share=False)
    calls = [(0, 600, 612), (1, 699, 700)]
    before = stored.attend(library, calls)
    stored.tables[0, : (600 - 69) // 64 * 4] = 2**30
    stored.tables[1, : (699 - 69) // 64 * 4] = 2**30
    assert (bits(stored.attend(library, calls)) == bits(before)).all()


def test_int8_keeps_half_a_step(library: Library) -> None:
    """Values come back, from a token that sees itself alone, within half a step of the head's largest."""
    case = Case("int8", 2, 1, 80, 16, (Row(0, 1, 0),), Attention())
    stored = Stored.of(case, library, 16, share=False)
    _, v = case.kv_of(0)
    back = stored.attend(library, [(0, 0, 1)])
    assert (np.abs(back - v) <= np.abs(v).max(-1, keepdims=True) / 254 * 1.0001).all()
    slot = stored.tables[0, :1] * 16
    for value in (0.0, 1e-38):
        flat = np.full((1, 2, 80), value, np.float32)
        library.write_kv(stored.pages, slot, flat, flat)
        assert (stored.attend(library, [(0, 0, 1)]) == 0).all()
    broken = np.where(np.arange(160).reshape(1, 2, 80) == 3, np.inf, 1).astype(np.float32)
    library.write_kv(stored.pages, slot, broken, broken)
    assert np.isnan(stored.attend(library, [(0, 0, 1)])[0, 0]).all()  # shows instead of being cut to the range


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kv", list(DTYPES))
def test_all_paths_give_the_same_bits(library: Library, kv: KvStorage) -> None:
    rows = (Row(0, 9, 0), Row(300, 330, 256), Row(700, 701, 256), Row(512, 513, 256))
    calls = [(i, row.first, row.end) for i, row in enumerate(rows)]
    case = Case(kv, 2, 3, 80, 16, rows, Attention(300, 20.0, np.zeros(6, np.float32)))
    expected = Stored.of(case, library, 16, share=True).attend(library, calls)
    for path in native_paths():
        other = native_library(path)
        assert (bits(Stored.of(case, other, 16, share=True).attend(other, calls)) == bits(expected)).all(), path
        assert_broken_queries_show(other, kv)
        assert_broken_positions_stay_theirs(other, kv)


@pytest.mark.parametrize("kv", list(DTYPES))
def test_what_is_not_finite_reaches_those_who_see_it_and_nobody_else(library: Library, kv: KvStorage) -> None:
    assert_broken_positions_stay_theirs(library, kv)
    assert_broken_queries_show(library, kv)


def assert_broken_positions_stay_theirs(library: Library, kv: KvStorage) -> None:
    """Tokens that can't see a position keep their bits, whatever it holds: earlier ones in its own chunk, and those
    whose window has passed it, in tiles with others that see it. All that see it show it."""
    chunk = Case(kv, 2, 3, 48, 16, (Row(0, 150, 0), Row(290, 340, 0)), Attention())
    singles = tuple(Row(end - 1, end, 600) for end in (801, 790, 803, 770))  # one tile a split
    for case, at in (
        *((chunk, at) for at in (0, 1, 62, 63, 64, 149, 300)),
        *((replace(chunk, group=group, page_size=1), 101) for group in (1, 8, 16)),
        *((replace(chunk, attention=Attention(30, 20.0, np.zeros(6, np.float32))), at) for at in (5, 64, 131, 300)),
        *((replace(chunk, rows=singles, attention=Attention(300)), at) for at in (470, 495, 499, 502)),
    ):
        whole = Stored.of(case, library, case.page_size, share=True)
        calls = [(i, row.first, row.end) for i, row in enumerate(case.rows)]
        before = whole.attend(library, calls)
        position = np.concatenate([np.arange(first, end) for _, first, end in calls])
        seen = (position >= at) & (position < at + (case.attention.window or 10_000))
        pages = {
            int(table[at // case.page_size]) for row, table in zip(case.rows, whole.tables, strict=True) if at < row.end
        }
        slots = np.array([page * case.page_size + at % case.page_size for page in pages], np.int32)
        fine = np.ones((len(slots), case.kv_heads, case.head_dim), np.float32)
        for odd in (np.nan, np.inf):
            for k, v in ((fine * np.float32(odd), fine), (fine, fine * np.float32(odd))):
                library.write_kv(whole.pages, slots, k, v)
                after = whole.attend(library, calls)
                assert (bits(after[~seen]) == bits(before[~seen])).all(), (case, at, odd)
                assert not np.isfinite(after[seen]).any(), (case, at, odd)


def assert_broken_queries_show(library: Library, kv: KvStorage) -> None:
    """A NaN stays one, whichever bits it has, when queries are rounded to what KV is stored as."""
    stored = Stored.of(Case(kv, 1, 1, 48, 16, (Row(0, 5, 0),), Attention()), library, 16, share=False)
    for pattern in (0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF):
        for dim in (3, 31, 40):  # in whole vectors, and in what is left
            q = np.ones((1, 1, 48), np.float32)
            q.view(np.uint32)[..., dim] = pattern
            out = library.attention(
                q, stored.pages, kv_heads=1, positions=np.array([4], np.int32), row_starts=np.array([0, 1], np.int32),
                tables=stored.tables,
            )  # fmt: skip
            assert np.isnan(out).all(), (hex(pattern), dim)


def test_tanh(library: Library) -> None:
    x = np.concatenate([np.linspace(-12, 12, 20_001), [1e-30, -1e-30, 1e30, -1e30, 0.0]]).astype(np.float32)
    exact = np.tanh(x.astype(np.float64))
    assert (np.abs(library.tanh(x) - exact) <= 3e-7 * np.abs(exact)).all()
