"""Triton kernels for what an encoder does between its matrix products, on many short sequences.

Attention: dialogue utterances have about 15 tokens, and a kernel made for long contexts spends most of its tile on
nothing. Here one program owns one (sequence, head): it reads q, k and v once, holds the whole score matrix in
registers, and writes the output once. The backward pass recomputes the scores, so nothing but the inputs is kept.

The residual connection: dropout, sum and layer normalisation are one pass there and one back, where torch takes a
dozen, half of them in float32; sums and statistics are in float32.

A dropout mask is a function of seed and place, the same in both directions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 1024
"""Parts into which the rows are divided on the way back: each sums the gradients of weight and shift over its own."""


@triton.jit
def _mixed(x):
    """A hash of 32 bits by shifts and products; philox, which `tl.rand` is, would take longer than all else here."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _keep_scale(seed, use, place, p):
    """Dropout multipliers: 0 with probability p, else 1 / (1 - p); every ``use`` of a seed has its own."""
    key = _mixed(tl.load(seed).to(tl.uint32) * 4 + use)
    drawn = _mixed(_mixed(place.to(tl.uint32) ^ key) + key)
    return tl.where((drawn >> 8).to(tl.float32) >= p * (1 << 24), 1.0 / (1.0 - p), 0.0)


@triton.jit
def _probabilities(q, k, scale, columns, length, PRECISION: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(columns[None, :] < length, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _load(qkv, starts, stride, heads, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The rows of this program's sequence and head: q, k, v, where they lie, and the place of each score."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - start
    rows = tl.arange(0, BLOCK)
    inside = rows[:, None] < length
    token = (start + rows).to(tl.int64)[:, None]
    column = head * SIZE + tl.arange(0, SIZE)[None, :]
    place = token * stride + column
    q = tl.load(qkv + place, mask=inside, other=0.0)
    k = tl.load(qkv + place + heads * SIZE, mask=inside, other=0.0)
    v = tl.load(qkv + place + 2 * heads * SIZE, mask=inside, other=0.0)
    scores = ((sequence * heads + head) * BLOCK + rows[:, None]) * BLOCK + rows[None, :]
    return q, k, v, token, column, inside, rows, length, scores


@triton.jit
def _attend(
    qkv,
    out,
    starts,
    seed,
    scale,
    p,
    stride,
    heads,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    q, k, v, token, column, inside, rows, length, place = _load(qkv, starts, stride, heads, SIZE, BLOCK)
    weights = _probabilities(q, k, scale, rows, length, PRECISION)
    if DROPOUT:
        weights *= _keep_scale(seed, 0, place, p)
    result = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    tl.store(out + token * heads * SIZE + column, result.to(v.dtype), mask=inside)


@triton.jit
def _attend_back(
    qkv,
    grad,
    out,
    starts,
    seed,
    scale,
    p,
    stride,
    heads,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    DROPOUT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    q, k, v, token, column, inside, rows, length, place = _load(qkv, starts, stride, heads, SIZE, BLOCK)
    g = tl.load(grad + token * heads * SIZE + column, mask=inside, other=0.0)
    weights = _probabilities(q, k, scale, rows, length, PRECISION)
    into_weights = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    kept = weights
    if DROPOUT:
        keep = _keep_scale(seed, 0, place, p)
        kept = weights * keep
        into_weights *= keep
    into_scores = weights * (into_weights - tl.sum(weights * into_weights, 1)[:, None]) * scale
    into_scores = into_scores.to(q.dtype)
    dq = tl.dot(into_scores, k, input_precision=PRECISION)
    dk = tl.dot(tl.trans(into_scores), q, input_precision=PRECISION)
    dv = tl.dot(tl.trans(kept.to(g.dtype)), g, input_precision=PRECISION)
    place = out + token * 3 * heads * SIZE + column
    tl.store(place, dq.to(q.dtype), mask=inside)
    tl.store(place + heads * SIZE, dk.to(q.dtype), mask=inside)
    tl.store(place + 2 * heads * SIZE, dv.to(q.dtype), mask=inside)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv: Tensor, starts: Tensor, seed: Tensor, block: int, dropout: float) -> Tensor:
        qkv = qkv.contiguous()
        tokens, _, heads, size = qkv.shape
        ctx.grid, ctx.numbers = (len(starts) - 1, heads), (size**-0.5, dropout, qkv.stride(0), heads)
        ctx.constants = {
            "SIZE": size,
            "BLOCK": block,
            "DROPOUT": dropout > 0,
            "PRECISION": "ieee" if qkv.dtype == torch.float32 else "tf32",
            "num_warps": {16: 1, 32: 2, 64: 4}.get(block, 8),
        }
        out = qkv.new_empty((tokens, heads, size))
        _attend[ctx.grid](qkv, out, starts, seed, *ctx.numbers, **ctx.constants)
        ctx.save_for_backward(qkv, starts, seed)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, starts, seed = ctx.saved_tensors
        out = torch.empty_like(qkv)
        _attend_back[ctx.grid](qkv, grad.contiguous(), out, starts, seed, *ctx.numbers, **ctx.constants)
        return out, None, None, None, None


def short_attention(qkv: Tensor, starts: Tensor, seed: Tensor, block: int, dropout: float) -> Tensor:
    """Attention of ``[tokens, 3, heads, size]`` within the sequences bounded by ``starts``, none longer than ``block``
    (a power of two from 16); gives ``[tokens, heads, size]``."""
    return _Attention.apply(qkv, starts, seed, block, dropout)


@triton.jit
def _add_and_norm(
    x,
    change,
    weight,
    shift,
    out,
    kept,
    mean,
    deviation,
    seed,
    use,
    p,
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside, place = column < WIDTH, row * WIDTH + column
    new = tl.load(change + place, inside, 0.0).to(tl.float32)
    if DROPOUT:
        new *= _keep_scale(seed, use, place, p)
    narrow = (tl.load(x + place, inside, 0.0).to(tl.float32) + new).to(kept.dtype.element_ty)
    tl.store(kept + place, narrow, inside)
    wide = narrow.to(tl.float32)
    average = tl.sum(wide, 0) / WIDTH
    centred = tl.where(inside, wide - average, 0.0)
    root = tl.sqrt(tl.sum(centred * centred, 0) / WIDTH + eps)
    tl.store(mean + row, average)
    tl.store(deviation + row, root)
    result = centred / root * tl.load(weight + column, inside, 0.0) + tl.load(shift + column, inside, 0.0)
    tl.store(out + place, result.to(out.dtype.element_ty), inside)


@triton.jit
def _add_and_norm_back(
    grad,
    kept,
    weight,
    mean,
    deviation,
    into_x,
    into_change,
    sums,
    seed,
    use,
    p,
    rows,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    DROPOUT: tl.constexpr,
):
    program, programs, column = tl.program_id(0), tl.num_programs(0), tl.arange(0, BLOCK)
    inside = column < WIDTH
    scale = tl.load(weight + column, inside, 0.0)
    into_weight = tl.zeros((BLOCK,), tl.float32)
    into_shift = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, programs):
        place = row * WIDTH + column
        g = tl.load(grad + place, inside, 0.0).to(tl.float32)
        root = tl.load(deviation + row)
        wide = tl.load(kept + place, inside, 0.0).to(tl.float32)
        normal = tl.where(inside, (wide - tl.load(mean + row)) / root, 0.0)
        into_weight += g * normal
        into_shift += g
        g *= scale
        new = (g - normal * (tl.sum(g * normal, 0) / WIDTH) - tl.sum(g, 0) / WIDTH) / root
        tl.store(into_x + place, new.to(into_x.dtype.element_ty), inside)
        if DROPOUT:
            new *= _keep_scale(seed, use, place, p)
        tl.store(into_change + place, new.to(into_change.dtype.element_ty), inside)
    place = program * WIDTH + column
    tl.store(sums + place, into_weight, inside)
    tl.store(sums + programs * WIDTH + place, into_shift, inside)


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, change: Tensor, weight: Tensor, shift: Tensor, seed: Tensor, use, dropout, eps):
        x, change = x.contiguous(), change.contiguous()
        rows, width = x.shape
        out, kept = torch.empty_like(x), torch.empty_like(x)
        mean, deviation = torch.empty((2, rows), dtype=torch.float32, device=x.device)
        ctx.numbers, ctx.constants = (
            (use, dropout),
            {
                "WIDTH": width,
                "BLOCK": triton.next_power_of_2(width),
                "DROPOUT": dropout > 0,
                "num_warps": 4 if width <= 512 else 8,
            },
        )
        given = x, change, weight, shift, out, kept, mean, deviation, seed
        _add_and_norm[(rows,)](*given, *ctx.numbers, eps, **ctx.constants)
        ctx.save_for_backward(kept, weight, mean, deviation, seed)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept, weight, mean, deviation, seed = ctx.saved_tensors
        rows, width = kept.shape
        into_x, into_change = torch.empty_like(kept), torch.empty_like(kept)
        sums = torch.empty((2, min(rows, PROGRAMS), width), dtype=torch.float32, device=kept.device)
        given = grad.contiguous(), kept, weight, mean, deviation, into_x, into_change, sums, seed
        _add_and_norm_back[(sums.shape[1],)](*given, *ctx.numbers, rows, **ctx.constants)
        return into_x, into_change, *sums.sum(1).unbind(), None, None, None, None


def add_and_norm(
    x: Tensor, change: Tensor, part: tuple[Tensor, Tensor], seed: Tensor, use: int, dropout: float, eps: float
) -> Tensor:
    """``layer_norm(x + dropout(change))`` of ``[rows, width]``; ``use`` from 1 to 3 tells the masks of one seed
    apart."""
    return _Residual.apply(x, change, *part, seed, use, dropout, eps)
