"""One linear layer on frozen vectors, its rate and weight decay chosen on validation data (DiaEval)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from dialnb.errors import DataError

RATES = (1e-3, 1e-2)
DECAYS = (0.0, 1e-4, 1e-2)


@dataclass(frozen=True)
class LinearProbe:
    """A fitted layer and the point of the grid, epoch and validation score it comes from."""

    weight: np.ndarray
    bias: np.ndarray
    learning_rate: float
    weight_decay: float
    epoch: int
    validation: float

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """Scores [n, classes]; a class is predicted where its logit is largest, or positive for several labels."""
        return np.asarray(vectors, np.float32) @ self.weight.T + self.bias


def fit_linear(
    train: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    score: Callable[[np.ndarray, np.ndarray], float],
    *,
    rates: Sequence[float] = RATES,
    decays: Sequence[float] = DECAYS,
    epochs: int = 200,
    patience: int = 10,
    batch_size: int = 256,
    seed: int = 0,
) -> LinearProbe:
    """The best layer over a grid of learning rate × weight decay (AdamW), with early stopping at every point.

    Targets are class numbers [n] (softmax cross-entropy) or a 0/1 matrix [n, classes] (sigmoid cross-entropy).
    ``score(logits, targets)`` is the validation metric. Features are used as they are; weights start at zero, so the
    seed only orders the batches. Of equal validation scores the earlier grid point wins.
    """
    (vectors, targets), (held_out, held_out_targets) = train, validation
    if not len(vectors) or not len(held_out):
        raise DataError(f"a linear probe needs training and validation vectors, got {len(vectors)} and {len(held_out)}")
    several = targets.ndim == 2
    classes = targets.shape[1] if several else 1 + int(max(targets.max(), held_out_targets.max()))
    inputs = torch.as_tensor(np.asarray(vectors, np.float32))
    wanted = torch.as_tensor(targets.astype(np.float32 if several else np.int64))
    unseen = torch.as_tensor(np.asarray(held_out, np.float32))
    loss_of = functional.binary_cross_entropy_with_logits if several else functional.cross_entropy
    best: LinearProbe | None = None
    for rate, decay in ((rate, decay) for rate in rates for decay in decays):
        generator = torch.Generator().manual_seed(seed)
        weight = torch.zeros(classes, inputs.shape[1], requires_grad=True)
        bias = torch.zeros(classes, requires_grad=True)
        optimiser = torch.optim.AdamW([weight, bias], lr=rate, weight_decay=decay)
        top, fruitless = -np.inf, 0
        for epoch in range(1, epochs + 1):
            for rows in torch.randperm(len(inputs), generator=generator).split(batch_size):
                optimiser.zero_grad()
                loss_of(functional.linear(inputs[rows], weight, bias), wanted[rows]).backward()
                optimiser.step()
            with torch.no_grad():
                value = score(functional.linear(unseen, weight, bias).numpy(), held_out_targets)
            fruitless = 0 if value > top else fruitless + 1
            top = max(top, value)
            if best is None or value > best.validation:
                layer = weight.detach().numpy().copy(), bias.detach().numpy().copy()
                best = LinearProbe(*layer, rate, decay, epoch, value)
            if fruitless > patience:
                break
    return best
