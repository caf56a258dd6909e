"""A transformer's parts for a CPU: the numbers of PyTorch's own operators, arranged for how a CPU spends its time.

- ``linear`` multiplies by a weight laid out in rows, which matrix libraries do about a tenth faster.
- ``gelu`` keeps its slope from the forward pass, where it costs one exponential.
- ``dropout`` draws sixteen random bits for each number instead of a whole float.
- ``attention`` lays short sequences side by side in tiles of 64 tokens and masks what belongs to another sequence: a
  few products of useful size instead of thousands of tiny ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

TILE = 64
Groups = tuple[tuple[int, int], ...]


def serves(x: torch.Tensor) -> bool:
    """Whether the functions below are meant for tensors like ``x``."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t().contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx, slope):
        (x, weight), (for_x, for_weight, for_bias) = ctx.saved_tensors, ctx.needs_input_grad
        return (
            slope @ weight if for_x else None,
            slope.t() @ x if for_weight else None,
            slope.sum(0) if for_bias else None,
        )


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """``x weight^T + bias`` for a matrix ``x``."""
    return _Linear.apply(x, weight, bias)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        below = torch.special.ndtr(x)
        slope = x.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi)).mul_(x).add_(below)
        ctx.save_for_backward(slope)
        return below.mul_(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, outer):
        return outer * ctx.saved_tensors[0]


def gelu(x: torch.Tensor) -> torch.Tensor:
    """``x P(N(0, 1) <= x)``, the exact form; its derivative is ``P + x p``."""
    return _Gelu.apply(x) if x.requires_grad and torch.is_grad_enabled() else F.gelu(x)


def keep(shape: torch.Size, p: float, dtype: torch.dtype) -> torch.Tensor:
    """Independent factors: 0 with probability ``p`` (to 1/65,536), else ``1 / (1 - p)``."""
    count = math.prod(shape)
    bits = torch.empty(count // 4 + 1, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:count]
    return (bits >= round(p * 65536) - 32768).to(dtype).mul_(1 / (1 - p)).view(shape)


def dropout(x: torch.Tensor, p: float) -> torch.Tensor:
    return x * keep(x.shape, p, x.dtype) if p else x


# --- attention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiles:
    """Where each token of a run of sequences lies in tiles of equal size."""

    tokens: torch.Tensor  # [tiles, size]: the token at every place; places left over repeat token 0
    places: torch.Tensor  # [tokens]: the place of every token
    bias: (
        torch.Tensor | None
    )  # [tiles, 1, size, size]: 0 within a sequence, else minus infinity; None: all one sequence


def make_tiles(groups: Groups) -> list[Tiles]:
    """Tiles for ascending (length, how many): the short sequences share theirs, each longer length has its own."""
    lengths = np.repeat([n for n, _ in groups if n <= TILE], [c for n, c in groups if n <= TILE])
    made = [_shared(lengths)] if len(lengths) else []
    for length, count in groups:
        if length > TILE:
            places = torch.arange(length * count)
            made.append(Tiles(places.view(count, length), places, None))
    return made


def _shared(lengths: np.ndarray) -> Tiles:
    """Each tile is filled from the longest sequence that is left downwards, then with the shortest ones."""
    starts = np.empty(len(lengths), np.int64)
    short, long, free = 0, len(lengths) - 1, 0
    tile = -1
    while short <= long:
        if lengths[long] <= free:
            chosen, long = long, long - 1
        elif lengths[short] <= free:
            chosen, short = short, short + 1
        else:
            tile, free = tile + 1, TILE
            continue
        starts[chosen] = tile * TILE + TILE - free
        free -= lengths[chosen]
    offsets = np.cumsum(lengths) - lengths
    places = np.repeat(starts - offsets, lengths) + np.arange(lengths.sum())
    tokens, owner = np.zeros((tile + 1) * TILE, np.int64), np.full((tile + 1) * TILE, -1)
    tokens[places], owner[places] = np.arange(len(places)), np.repeat(np.arange(len(lengths)), lengths)
    owner = owner.reshape(-1, 1, TILE)
    bias = np.where(owner[..., None] == owner[:, :, None], np.float32(0), np.float32(-np.inf))
    return Tiles(torch.from_numpy(tokens).view(-1, TILE), torch.from_numpy(places), torch.from_numpy(bias))


class _Attention(torch.autograd.Function):
    """Softmax attention over tiles, queries, keys and values in one tensor ``[tokens, 3, heads, head]``.

    Rows that fill up a tile attend to each other only, so whatever they hold reaches no real token, nor its gradient.
    """

    @staticmethod
    def forward(ctx, qkv, tiles: Tiles, p: float):
        _, _, heads, width = qkv.shape
        count, size = tiles.tokens.shape
        part = torch.arange(heads).view(1, heads, 1)
        rows = tiles.tokens[:, None] * (3 * heads) + part
        rows = torch.stack([rows, rows + heads, rows + 2 * heads])
        q, k, v = qkv.reshape(-1, width).index_select(0, rows.flatten()).view(3, count * heads, size, width)
        q = q.mul_(width**-0.5)
        scores = torch.bmm(q, k.transpose(1, 2).contiguous())
        if tiles.bias is not None:
            scores.view(count, heads, size, size).add_(tiles.bias)
        shares = torch.softmax(scores, -1)
        kept = keep(shares.shape, p, shares.dtype) if p else None
        out = torch.bmm(shares if kept is None else shares * kept, v)
        back = (tiles.places // size)[:, None] * (heads * size) + torch.arange(heads) * size
        back = back + (tiles.places % size)[:, None]
        ctx.save_for_backward(q, k, v, shares, kept, back)
        ctx.tiles = tiles
        return out.view(-1, width).index_select(0, back.flatten()).view(-1, heads, width)

    @staticmethod
    @once_differentiable
    def backward(ctx, slope):
        q, k, v, shares, kept, back = ctx.saved_tensors
        _, heads, width = slope.shape
        rows = ctx.tiles.tokens[:, None] * heads + torch.arange(heads).view(1, heads, 1)
        slope = slope.reshape(-1, width).index_select(0, rows.flatten()).view_as(q)
        used = shares if kept is None else shares * kept
        for_shares = torch.bmm(slope, v.transpose(1, 2).contiguous())
        if kept is not None:
            for_shares.mul_(kept)
        for_scores = torch._softmax_backward_data(for_shares, shares, -1, shares.dtype)
        gradients = q.new_empty(3, *q.shape)
        torch.bmm(for_scores, k, out=gradients[0]).mul_(width**-0.5)
        torch.bmm(for_scores.transpose(1, 2), q, out=gradients[1])
        torch.bmm(used.transpose(1, 2), slope, out=gradients[2])
        each = torch.arange(3).view(1, 3, 1) * (gradients[0].numel() // width) + back[:, None]
        return gradients.view(-1, width).index_select(0, each.flatten()).view(*each.shape, width), None, None


def first_attention(q: torch.Tensor, kv: torch.Tensor, groups: Groups, p: float = 0.0) -> torch.Tensor:
    """One query per sequence, ``q [sequences, heads, head]``, over its sequence's ``kv [tokens, 2, heads, head]``."""
    q, outputs = q * q.shape[-1] ** -0.5, []
    counts = [count for _, count in groups]
    parts = zip(groups, q.split(counts), kv.split([n * c for n, c in groups]), strict=True)
    for (length, count), query, part in parts:
        keys, values = part.view(count, length, *part.shape[1:]).unbind(2)
        shares = dropout((query[:, None] * keys).sum(-1).softmax(1), p)
        outputs.append((shares[..., None] * values).sum(1))
    return torch.cat(outputs)


def attention(qkv: torch.Tensor, tiles: list[Tiles], p: float = 0.0) -> torch.Tensor:
    """Every token attends to its own sequence; ``p`` is the dropout on attention's probabilities."""
    parts = qkv.split([len(t.places) for t in tiles])
    outputs = [_Attention.apply(part, t, p) for part, t in zip(parts, tiles, strict=True)]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
