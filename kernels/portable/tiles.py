"""Cuts a step's queries into tiles and puts tiles of like shape into groups that are computed together.

Which tiles meet in a group decides speed alone: a tile's result is a function of its own queries and KV. Also remembers
which row counts a tile's products may have. Used by attention.py.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from palmette.kernels.portable.row_blocks import Verified, places, probe, same_bits, threads, verify
from palmette.kernels.protocol import Batch, indices

BLOCK = 128  # positions
TILE_QUERIES = (1, 4, 16, 64)
TILE_ROWS = (4, 8, 16, 32, 64, 128, 192, 256, 512)  # rows of a tile's products: queries × heads a KV head, padded
BASE_TILE_ROWS = 16
GROUP_LANES = {1: 8192, 4: 8192, 16: 4096, 64: 1024}  # KV positions of a group, by the queries of its tiles


@dataclass(frozen=True)
class Tile:
    """`count` queries of one row: the batch's tokens from `first` on, at the positions from `position` on."""

    row: int
    first: int
    count: int
    position: int

    @property
    def end(self) -> int:
        return self.position + self.count

    @property
    def blocks(self) -> int:
        return -(-self.end // BLOCK)


@dataclass(frozen=True)
class TileGroup:
    """n tiles of Q queries, over `blocks` KV blocks."""

    queries: int  # Q
    blocks: int
    masked_from: int  # every query sees all of the blocks before this one
    tokens: Tensor  # int64 [n × Q]: index into the batch; a short tile repeats its last query
    pages: Tensor  # int64 [n × pages that hold the blocks]
    hidden: Tensor  # bool [n, 1, masked blocks, rows, BLOCK]: lanes that a query may not see
    unwritten: Tensor  # bool [n, 1, masked blocks × BLOCK, 1]: lanes beyond the tile's last position
    kept: Tensor | None  # int64: which of the n × Q results are real; None: all
    targets: Tensor  # int64: the tokens that those belong to

    def seeing(self, lanes: Tensor) -> Tensor:
        """The rows that see any of the chosen lanes (bool [n, kv_heads, blocks × BLOCK]): bool [n, kv_heads, rows]."""
        first = self.masked_from * BLOCK
        masked = lanes[:, :, first:].view(*lanes.shape[:2], self.blocks - self.masked_from, 1, BLOCK) & ~self.hidden
        return lanes[:, :, :first].any(-1, keepdim=True) | masked.any(-1).any(2)


def cut(batch: Batch, most_queries: int) -> list[Tile]:
    """Every row's tiles. `most_queries` is one of TILE_QUERIES."""
    tiles = []
    starts = batch.row_starts.tolist()
    for row, length in enumerate(batch.row_lengths.tolist()):
        start, end = starts[row], starts[row + 1]
        offset = length - end  # position = index into the batch + offset
        for first in range(start, end, most_queries):
            tiles.append(Tile(row, first, min(most_queries, end - first), first + offset))
    return tiles


def plan_groups(batch: Batch, share: int, row_counts: tuple[int, ...]) -> list[TileGroup]:
    """The step's groups. `share`: query heads a KV head; `row_counts`: what a tile's products may have, ascending."""
    most_rows = row_counts[-1]
    most_queries = max(queries for queries in TILE_QUERIES if queries == 1 or queries * share <= most_rows)
    by_queries: dict[int, list[Tile]] = {}
    for tile in cut(batch, most_queries):
        queries = min(queries for queries in TILE_QUERIES if queries >= tile.count)
        by_queries.setdefault(queries, []).append(tile)
    groups = []
    for queries, tiles in by_queries.items():
        used = queries * share  # a share beyond every count gets a multiple of the largest
        rows = next((count for count in row_counts if count >= used), -(-used // most_rows) * most_rows)
        for members in _pack(sorted(tiles, key=lambda tile: tile.blocks), GROUP_LANES[queries]):
            groups.append(_group(batch, members, queries, share, rows))
    return groups


def _pack(tiles: list[Tile], lanes: int) -> list[list[Tile]]:
    """Runs of tiles, ascending in blocks, that gather at most `lanes` positions each (or are one tile)."""
    packed: list[list[Tile]] = []
    for tile in tiles:
        if packed and (len(packed[-1]) + 1) * tile.blocks * BLOCK <= lanes:
            packed[-1].append(tile)
        else:
            packed.append([tile])
    return packed


def _group(batch: Batch, tiles: list[Tile], queries: int, share: int, rows: int) -> TileGroup:
    blocks = max(tile.blocks for tile in tiles)
    masked_from = min((tile.position + 1) // BLOCK for tile in tiles)
    within = torch.arange(queries)
    counts = torch.tensor([tile.count for tile in tiles])
    steps = torch.minimum(within, counts.unsqueeze(1) - 1)  # [n, Q]
    tokens = (torch.tensor([tile.first for tile in tiles]).unsqueeze(1) + steps).view(-1)
    positions = torch.tensor([tile.position for tile in tiles]).unsqueeze(1) + steps
    lanes = torch.arange(masked_from * BLOCK, blocks * BLOCK)
    seen_to = torch.nn.functional.pad(positions.repeat_interleave(share, dim=1), (0, rows - queries * share))
    ends = torch.tensor([tile.end for tile in tiles])
    full = all(tile.count == queries for tile in tiles)
    kept = None if full else (within < counts.unsqueeze(1)).view(-1).nonzero().view(-1)
    return TileGroup(
        queries=queries,
        blocks=blocks,
        masked_from=masked_from,
        tokens=tokens,
        pages=_pages(batch, [tile.row for tile in tiles], -(-blocks * BLOCK // batch.page_size)),
        hidden=lanes.view(1, 1, -1, 1, BLOCK) > seen_to.view(-1, 1, 1, rows, 1),
        unwritten=lanes.view(1, 1, -1, 1) >= ends.view(-1, 1, 1, 1),
        kept=kept,
        targets=tokens if kept is None else tokens[kept],
    )


def _pages(batch: Batch, rows: list[int], count: int) -> Tensor:
    """The first `count` pages of each row; beyond a row's table page 0, whose lanes are hidden."""
    tables = indices(batch.block_tables[rows, :count])
    return torch.nn.functional.pad(tables, (0, count - tables.shape[1])).reshape(-1)


class TileShapes:
    """The row counts of a tile's two products that were seen to give each row the base count's bits."""

    def __init__(self) -> None:
        self._verified: dict[tuple[int, int], Verified] = {}

    def verified(self, head_dim: int) -> Verified:
        key = (head_dim, torch.get_num_threads())
        found = self._verified.get(key)
        if found is None:
            found = self._verified[key] = _verified_tiles(head_dim)
        return found


def _verified_tiles(head_dim: int) -> Verified:
    """Tries both products of a tile, alone and three at a time, at both ends of the probe."""
    total = TILE_ROWS[-1]
    queries, block = probe(total, head_dim, torch.float32), probe(BLOCK, head_dim, torch.float32)
    weights = torch.rand(total, BLOCK, generator=torch.Generator().manual_seed(0xB10C))

    def results(part: slice, copies: int) -> Tensor:
        """→ [copies, rows, BLOCK + head_dim]."""
        blocks = block.repeat(copies, 1, 1)
        scores = torch.bmm(queries[part].repeat(copies, 1, 1), blocks.transpose(1, 2))
        return torch.cat((scores, torch.bmm(weights[part].repeat(copies, 1, 1), blocks)), dim=-1)

    with threads(1):
        starts = range(0, total, BASE_TILE_ROWS)
        base = torch.cat([results(slice(start, start + BASE_TILE_ROWS), 1) for start in starts], dim=1)

    def gives_base_bits(rows: int) -> bool:
        return all(
            same_bits(results(part, copies), base[:, part].repeat(copies, 1, 1))
            for part in places(total, rows)
            for copies in (1, 3)
        )

    found = verify(gives_base_bits, TILE_ROWS, BASE_TILE_ROWS)
    if not found.counts:
        warnings.warn(f"This BLAS has no batch-invariant products for heads of {head_dim}.", stacklevel=2)
        return Verified((BASE_TILE_ROWS,), 1)
    return found
