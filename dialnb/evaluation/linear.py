"""One linear layer on frozen vectors, its rate and weight decay chosen on validation data (DiaEval)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

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
    seed only orders the batches. Of equal validation scores the earlier grid point wins. All points are fitted side by
    side, on the same batches.
    """
    (vectors, targets), (held_out, held_out_targets) = train, validation
    if not len(vectors) or not len(held_out):
        raise DataError(f"a linear probe needs training and validation vectors, got {len(vectors)} and {len(held_out)}")
    several = targets.ndim == 2
    classes = targets.shape[1] if several else 1 + int(max(targets.max(), held_out_targets.max()))
    inputs, unseen = _with_ones(vectors), _with_ones(held_out)
    wanted = torch.as_tensor(targets.astype(np.float32)) if several else torch.eye(classes)[targets.astype(np.int64)]
    points = [(rate, decay) for rate in rates for decay in decays]
    steps = _AdamW(points, classes, inputs.shape[1])
    generator = torch.Generator().manual_seed(seed)
    best: dict[int, LinearProbe] = {}
    fruitless = np.zeros(len(points), np.int64)
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(len(inputs), generator=generator).split(batch_size):
            logits = steps.logits(inputs[rows])
            found = logits.sigmoid() / classes if several else logits.softmax(-1)
            share = wanted[rows][:, None] / (classes if several else 1)
            steps.step((found - share) / len(rows), inputs[rows])
        held = steps.logits(unseen).numpy()
        for i in np.flatnonzero(fruitless <= patience):
            value = score(held[:, i], held_out_targets)
            if i not in best or value > best[i].validation:
                layer = steps.layers[i].numpy()
                best[i] = LinearProbe(layer[:, :-1].copy(), layer[:, -1].copy(), *points[i], epoch, value)
                fruitless[i] = 0
            else:
                fruitless[i] += 1
        if (fruitless > patience).all():
            break
    return max((best[i] for i in range(len(points))), key=lambda probe: probe.validation)


def _with_ones(vectors: np.ndarray) -> torch.Tensor:
    """Vectors with a last coordinate of 1, which carries the bias."""
    plain = np.asarray(vectors, np.float32)
    return torch.from_numpy(np.hstack([plain, np.ones((len(plain), 1), np.float32)]))


class _AdamW:
    """The layers of all points of the grid, moved together: AdamW with a rate and a weight decay for each."""

    def __init__(self, points: Sequence[tuple[float, float]], classes: int, width: int) -> None:
        self.layers = torch.zeros(len(points), classes, width)
        self.first, self.second, self.count = torch.zeros_like(self.layers), torch.zeros_like(self.layers), 0
        self.rates, decays = (torch.tensor(values)[:, None, None] for values in zip(*points))
        self.kept = 1 - self.rates * decays

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """[n, points, classes]"""
        return (inputs @ self.layers.flatten(0, 1).T).unflatten(1, self.layers.shape[:2])

    def step(self, error: torch.Tensor, inputs: torch.Tensor) -> None:
        """``error`` is the gradient of each point's loss with respect to its logits [n, points, classes]."""
        gradient = (error.flatten(1).T @ inputs).view_as(self.layers)
        self.count += 1
        self.layers *= self.kept
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        spread = (self.second / (1 - 0.999**self.count)).sqrt_().add_(1e-8)
        self.layers -= self.rates / (1 - 0.9**self.count) * self.first / spread
