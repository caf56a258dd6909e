"""Triton kernels for self-attention over many short sequences (at most 128 tokens).

Dialogue utterances have about 15 tokens: a kernel made for long contexts spends most of its tile on nothing. Here one
program owns one (sequence, head): it reads q, k and v once, holds the whole score matrix in registers, and writes the
output once. The backward pass recomputes the scores, so nothing but the inputs is kept. The dropout mask is a
counter-based function of (seed, sequence, head, row, column), the same in both directions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _probabilities(q, k, scale, columns, length, PRECISION: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(columns[None, :] < length, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def _keep_scale(seed, program, rows, p, BLOCK: tl.constexpr):
    """Dropout multipliers: 0 with probability p, else 1 / (1 - p)."""
    place = program * BLOCK * BLOCK + rows[:, None] * BLOCK + rows[None, :]
    return tl.where(tl.rand(seed, place) >= p, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _load(qkv, starts, stride, heads, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The rows of this program's sequence and head: q, k, v, and where they lie."""
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
    return q, k, v, token, column, inside, rows, length, sequence * heads + head


@triton.jit
def _forward(
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
    q, k, v, token, column, inside, rows, length, program = _load(qkv, starts, stride, heads, SIZE, BLOCK)
    weights = _probabilities(q, k, scale, rows, length, PRECISION)
    if DROPOUT:
        weights *= _keep_scale(tl.load(seed), program, rows, p, BLOCK)
    result = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    tl.store(out + token * heads * SIZE + column, result.to(v.dtype), mask=inside)


@triton.jit
def _backward(
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
    q, k, v, token, column, inside, rows, length, program = _load(qkv, starts, stride, heads, SIZE, BLOCK)
    g = tl.load(grad + token * heads * SIZE + column, mask=inside, other=0.0)
    weights = _probabilities(q, k, scale, rows, length, PRECISION)
    into_weights = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    kept = weights
    if DROPOUT:
        keep = _keep_scale(tl.load(seed), program, rows, p, BLOCK)
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


def _constants(qkv: torch.Tensor, block: int, dropout: float) -> dict:
    return {
        "SIZE": qkv.shape[-1],
        "BLOCK": block,
        "DROPOUT": dropout > 0,
        "PRECISION": "ieee" if qkv.dtype == torch.float32 else "tf32",
        "num_warps": {16: 1, 32: 2, 64: 4}.get(block, 8),
    }


@torch.library.custom_op("dialnb::short_attention", mutates_args=())
def short_attention(
    qkv: torch.Tensor, starts: torch.Tensor, seed: torch.Tensor, block: int, dropout: float
) -> torch.Tensor:
    """Attention of ``[tokens, 3, heads, size]`` within the sequences bounded by ``starts``, none longer than ``block``
    (a power of two from 16); gives ``[tokens, heads, size]``."""
    qkv = qkv.contiguous()
    tokens, _, heads, size = qkv.shape
    out = torch.empty((tokens, heads, size), dtype=qkv.dtype, device=qkv.device)
    _forward[(len(starts) - 1, heads)](
        qkv, out, starts, seed, size**-0.5, dropout, qkv.stride(0), heads, **_constants(qkv, block, dropout)
    )
    return out


@short_attention.register_fake
def _(qkv, starts, seed, block, dropout):
    return qkv.new_empty((qkv.shape[0], *qkv.shape[2:]))


@torch.library.custom_op("dialnb::short_attention_backward", mutates_args=())
def _short_attention_backward(
    grad: torch.Tensor, qkv: torch.Tensor, starts: torch.Tensor, seed: torch.Tensor, block: int, dropout: float
) -> torch.Tensor:
    qkv, grad = qkv.contiguous(), grad.contiguous()
    heads, size = qkv.shape[2:]
    out = torch.empty_like(qkv)
    _backward[(len(starts) - 1, heads)](
        qkv, grad, out, starts, seed, size**-0.5, dropout, qkv.stride(0), heads, **_constants(qkv, block, dropout)
    )
    return out


@_short_attention_backward.register_fake
def _(grad, qkv, starts, seed, block, dropout):
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _remember(ctx, inputs, output):
    qkv, starts, seed, ctx.block, ctx.dropout = inputs
    ctx.save_for_backward(qkv, starts, seed)


def _gradient(ctx, grad):
    return _short_attention_backward(grad, *ctx.saved_tensors, ctx.block, ctx.dropout), None, None, None, None


short_attention.register_autograd(_gradient, setup_context=_remember)
