"""Paged attention in plain torch: one function of (row position, KV), whatever else is in the batch (design rule 1c).

KV is cut into absolute blocks of BLOCK positions, whatever the page size. A query's weights are exp(score − maximum),
the maximum taken over all that it sees; sums run inside a block, then over the blocks in ascending order, from zero.
Hidden lanes, and blocks beyond a row's own, add exact zeros, also where what they hold isn't finite. Each product has
one fixed shape: a tile's rows × a block. Reads K and V as stored and widens them to float32. Made once a step by
kernels.py; tiles.py plans the shapes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from palmette.kernels.portable.row_blocks import threads
from palmette.kernels.portable.tiles import BLOCK, TileGroup


class Scratch:
    """Memory that is used again by every layer and step: fresh memory costs more in page faults than the arithmetic."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Uninitialised memory of this shape, valid until the name is taken again."""
        count = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < count or buffer.dtype != dtype:
            buffer = self._buffers[name] = torch.empty(count, dtype=dtype)
        return buffer[:count].view(shape)


class PortableAttention:
    """One step's attention over the planned groups."""

    def __init__(self, groups: list[TileGroup], scale: float, scratch: Scratch, thread_count: int) -> None:
        self.groups = groups
        self.thread_count = thread_count
        self.scale = scale
        self.scratch = scratch

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(q)
        with threads(self.thread_count):
            for group in self.groups:
                result = self._attend_group(group, q, keys, values)
                if group.kept is not None:
                    result = result.index_select(0, group.kept)
                out.index_copy_(0, group.targets, result.to(q.dtype))
        return out

    def _attend_group(self, group: TileGroup, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """→ [n × Q, heads, head_dim] float32."""
        kv_heads, head_dim = keys.shape[2:]
        n, _, _, rows, _ = group.hidden.shape
        blocks, masked_from = group.blocks, group.masked_from
        products = n * kv_heads * blocks

        tiles = self._tiles(group, q, kv_heads)
        k = self._gather(keys, group).view(products, BLOCK, head_dim)
        weights = self.scratch.take("weights", products, rows, BLOCK)
        torch.bmm(tiles, k.transpose(1, 2), out=weights)
        weights = weights.view(n, kv_heads, blocks, rows, BLOCK)
        weights[:, :, masked_from:].masked_fill_(group.hidden, float("-inf"))
        weights.sub_(weights.amax(-1, keepdim=True).amax(2, keepdim=True)).exp_()

        v = self._gather(values, group)
        v[:, :, masked_from * BLOCK :].masked_fill_(group.unwritten, 0.0)
        total = _weighed(weights, v, tiles)  # whose queries are no longer needed
        if not total.isfinite().all():  # a weight of 0 makes NaN of what isn't finite
            broken = v.isfinite().all(-1).logical_not_()
            total = _weighed(weights, v.nan_to_num_(0.0, 0.0, 0.0), tiles)
            total.masked_fill_(group.seeing(broken).unsqueeze(-1), float("nan"))
        total.div_(_fold(weights.sum(-1, keepdim=True)))
        share = q.shape[1] // kv_heads
        result = total[:, :, : group.queries * share].view(n, kv_heads, group.queries, share, head_dim)
        return result.transpose(1, 2).reshape(-1, q.shape[1], head_dim)

    def _tiles(self, group: TileGroup, q: Tensor, kv_heads: int) -> Tensor:
        """The scaled queries, once for each block: [n × kv_heads × blocks, rows, head_dim]; rows beyond are zero."""
        heads, head_dim = q.shape[1:]
        n, _, _, rows, _ = group.hidden.shape
        share = heads // kv_heads
        tile = q.new_zeros(n, kv_heads, rows, head_dim, dtype=torch.float32)
        picked = q.index_select(0, group.tokens).view(n, group.queries, kv_heads, share, head_dim)
        used = tile[:, :, : group.queries * share].view(n, kv_heads, group.queries, share, head_dim)
        used.copy_(picked.transpose(1, 2)).mul_(self.scale)
        tiles = self.scratch.take("tiles", n, kv_heads, group.blocks, rows, head_dim)
        return tiles.copy_(tile.unsqueeze(2)).view(-1, rows, head_dim)

    def _gather(self, stored: Tensor, group: TileGroup) -> Tensor:
        """The KV of a group's tiles: [n, kv_heads, blocks × BLOCK, head_dim] float32, valid until the next gather."""
        kv_heads, head_dim = stored.shape[2:]
        n, lanes = group.hidden.shape[0], group.blocks * BLOCK
        flat = stored.view(stored.shape[0], -1)
        pages = self.scratch.take("pages", group.pages.shape[0], flat.shape[1], dtype=stored.dtype)
        torch.index_select(flat, 0, group.pages, out=pages)
        picked = pages.view(n, -1, kv_heads, head_dim)[:, :lanes]
        return self.scratch.take("gathered", n, kv_heads, lanes, head_dim).copy_(picked.transpose(1, 2))


def _weighed(weights: Tensor, values: Tensor, scratch: Tensor) -> Tensor:
    """weights [n, kv_heads, blocks, rows, BLOCK] × values [n, kv_heads, blocks × BLOCK, head_dim] → [n, kv_heads, rows,
    head_dim]. `scratch` [n × kv_heads × blocks, rows, head_dim] is overwritten."""
    products, rows, head_dim = scratch.shape
    torch.bmm(weights.view(products, rows, BLOCK), values.view(products, BLOCK, head_dim), out=scratch)
    return _fold(scratch.view(*weights.shape[:3], rows, head_dim))


def _fold(parts: Tensor) -> Tensor:
    """The sum over the blocks (dimension 2) in ascending order. It starts from zero, so it never is −0."""
    total = torch.zeros_like(parts[:, :, 0])
    for part in parts.unbind(2):
        total += part
    return total
