"""What the losses have in common: precision, normalisation, checks, and in-batch softmax in bounded memory."""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dialnb.errors import TrainingError, check_known

BLOCK = 2**25
"""Most similarities held at a time (128 MB in float32). A batch that fits, up to 5,792 vectors, is one block."""


def in_full_precision(function: Callable) -> Callable:
    """Run a loss in float32, or wider if an input is wider, with autocast off.

    A cosine near 1 rounded to bfloat16 and divided by a temperature of 0.05 is a logit that may be wrong by 0.04.
    """

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        floating = [value.dtype for value in given if value.is_floating_point()]
        dtype = functools.reduce(torch.promote_types, floating, torch.float32)

        def widen(value: object) -> object:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        with torch.autocast(given[0].device.type if given else "cpu", enabled=False):
            return function(*map(widen, args), **{name: widen(value) for name, value in kwargs.items()})

    return wrapper


def unit(vectors: Tensor) -> Tensor:
    """Scale the last dimension to length 1. A zero vector stays zero and gets no gradient, rather than one of 1e12."""
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norm.masked_fill(norm < 1e-12, torch.inf)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the entries where ``mask`` holds (last dimension); 0, with a zero gradient, where there are none."""
    return values.masked_fill(~mask, 0).sum(-1) / mask.sum(-1).clamp(min=1)


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """Mean of the per-row losses, or the rows themselves."""
    check_known("reduction", reduction, ("mean", "none"))
    return losses.mean() if reduction == "mean" else losses


def check_temperature(loss: str, temperature: float) -> None:
    """Refuse a temperature that is zero, negative or no number."""
    if not (isinstance(temperature, int | float) and 0 < temperature < math.inf):
        raise TrainingError(f"{loss} needs a temperature above 0, but got {temperature}; the papers use 0.05 to 0.5.")


def check_same_shape(loss: str, **tensors: Tensor) -> None:
    """Refuse tensors of different shapes, naming them."""
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        found = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
        raise TrainingError(f"{loss} needs tensors of one shape, but got {found}.")


def check_batch(loss: str, **tensors: Tensor) -> None:
    """Refuse anything but equally shaped matrices of at least two rows: a row alone has no in-batch negatives."""
    check_same_shape(loss, **tensors)
    shape = next(iter(tensors.values())).shape
    if len(shape) != 2:
        raise TrainingError(f"{loss} needs matrices [batch, dimension], but got {' and '.join(tensors)} {list(shape)}.")
    if shape[0] < 2:
        raise TrainingError(
            f"{loss} takes its negatives from the batch and needs at least 2 rows, but got {shape[0]}; "
            "use a larger batch, or drop the last incomplete one."
        )


def check_ids(loss: str, name: str, ids: Tensor | None, rows: int) -> None:
    """Refuse identifiers that are not one per row."""
    if ids is not None and ids.shape != (rows,):
        raise TrainingError(f"{loss} needs one entry of {name} per row, [{rows}], but got {list(ids.shape)}.")


def by_blocks(rows: Callable[[Tensor, Tensor], Tensor], anchors: Tensor, candidates: int) -> Tensor:
    """Per-anchor losses ``rows(anchors, positions)``, holding at most `BLOCK` similarities at a time.

    Blocks are recomputed in the backward pass instead of kept, so memory grows linearly with the batch; value and
    gradient are those of the single block.
    """
    positions = torch.arange(len(anchors), device=anchors.device)
    size = max(1, BLOCK // candidates)
    if size >= len(anchors):
        return rows(anchors, positions)
    blocks = zip(anchors.split(size), positions.split(size))
    return torch.cat([checkpoint(rows, *block, use_reentrant=False, preserve_rng_state=False) for block in blocks])


def in_batch_cross_entropy(anchors: Tensor, candidates: Tensor, same: Tensor | None = None) -> Tensor:
    """``-log softmax_j(anchor_i · candidate_j)`` at ``j = i`` for each anchor ``i``.

    Candidates beyond the number of anchors are negatives of every row. With ``same`` (one identifier per row), other
    rows that carry the anchor's identifier are left out of its denominator.
    """

    def rows(block: Tensor, own: Tensor) -> Tensor:
        logits = block @ candidates.T
        if same is not None:
            duplicate = (same[own, None] == same).scatter(1, own[:, None], False)
            logits = logits.masked_fill(duplicate, -torch.inf)
        return F.cross_entropy(logits, own, reduction="none")

    return by_blocks(rows, anchors, len(candidates))
