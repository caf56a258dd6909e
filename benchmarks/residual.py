"""`python -m benchmarks.residual`: does a kernel for the residual connection pay? A candidate, not in the library yet.

Dropout, sum and layer normalisation one by one are a dozen passes over the batch, half of them in float32: a third of
what a GPU computes in a training step of a narrow encoder. Here they are one pass there and one back, with sums and
statistics in float32 and a dropout mask that is a function of (seed, row, column), the same in both directions.

Printed are whole training steps of DSE's loss, as the library takes them, with the kernel, and compiled.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 2048
"""Parts into which the rows are divided on the way back: each sums the gradients of weight and shift over its own."""


@triton.jit
def _keep_scale(seed, place, p):
    """Dropout multipliers: 0 with probability p, else 1 / (1 - p)."""
    return tl.where(tl.rand(tl.load(seed), place) >= p, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _forward(
    x,
    change,
    weight,
    shift,
    out,
    kept,
    mean,
    deviation,
    seed,
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
        new *= _keep_scale(seed, place, p)
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
def _backward(
    grad,
    kept,
    weight,
    mean,
    deviation,
    into_x,
    into_change,
    sums,
    seed,
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
            new *= _keep_scale(seed, place, p)
        tl.store(into_change + place, new.to(into_change.dtype.element_ty), inside)
    place = program * WIDTH + column
    tl.store(sums + place, into_weight, inside)
    tl.store(sums + programs * WIDTH + place, into_shift, inside)


class _AddAndNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, change: Tensor, weight: Tensor, shift: Tensor, seed: Tensor, dropout, eps) -> Tensor:
        x, change = x.contiguous(), change.contiguous()
        rows, width = x.shape
        out, kept = torch.empty_like(x), torch.empty_like(x)
        mean, deviation = torch.empty((2, rows), dtype=torch.float32, device=x.device)
        ctx.constants = {
            "WIDTH": width,
            "BLOCK": triton.next_power_of_2(width),
            "DROPOUT": dropout > 0,
            "num_warps": 4 if width <= 512 else 8,
        }
        given = x, change, weight, shift, out, kept, mean, deviation, seed
        _forward[(rows,)](*given, dropout, eps, **ctx.constants)
        ctx.save_for_backward(kept, weight, mean, deviation, seed)
        ctx.dropout = dropout
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept, weight, mean, deviation, seed = ctx.saved_tensors
        rows, width = kept.shape
        into_x, into_change = torch.empty_like(kept), torch.empty_like(kept)
        sums = torch.empty((2, min(rows, PROGRAMS), width), dtype=torch.float32, device=kept.device)
        given = grad.contiguous(), kept, weight, mean, deviation, into_x, into_change, sums, seed
        _backward[(sums.shape[1],)](*given, ctx.dropout, rows, **ctx.constants)
        return into_x, into_change, *sums.sum(1).unbind(), None, None, None


def add_and_norm(x: Tensor, change: Tensor, dropout: float, part: tuple[Tensor, Tensor], eps: float) -> Tensor:
    """``layer_norm(x + dropout(change))`` of ``[rows, width]``, as ``packed._add_and_norm`` has it."""
    seed = torch.zeros(1, dtype=torch.int64, device=x.device)
    if dropout:
        seed.random_(0, 2**31)
    return _AddAndNorm.apply(x, change, *part, seed, dropout, eps)


def main() -> int:
    from benchmarks.engine import random_encoder
    from benchmarks.steps import keep, measure_training, parse, trainings
    from dialnb.models import packed
    from dialnb.models.encoder import load_encoder

    options = parse("residual", __doc__)
    if not torch.cuda.is_available():
        print("the kernel needs a GPU", file=sys.stderr)
        return 1
    tokenizer, device = load_encoder("mini", device="cpu").tokenizer, torch.device("cuda")
    rows, plain = [], packed._add_and_norm
    for shape in ("minilm", "base"):
        for way in ("as it is", "kernel", "compiled"):
            packed._add_and_norm = add_and_norm if way == "kernel" else plain
            encoder = random_encoder(shape, tokenizer, device)
            for name, objective, examples, settings in trainings(encoder, device):
                settings = replace(settings, compiled=way == "compiled")
                found = measure_training(encoder, objective, examples, settings, options.steps)
                rows.append({"shape": shape, "way": way, "step": name, **found})
                print(rows[-1], flush=True)
    packed._add_and_norm = plain
    keep(rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
