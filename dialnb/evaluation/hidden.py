"""One hidden layer on standardised vectors of a frozen encoder: the second reading of DiaEval's "one MLP layer".

Nothing is whitened and nothing is fitted to convergence: AdamW over a small grid of rates and penalties, each stopped
when it no longer gains on validation data.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy import ndarray
from torch import nn
from torch.nn import functional

from dialnb.evaluation.metrics import Score
from dialnb.seeding import seeded

RATES, PENALTIES = (1e-3, 1e-2), (0.0, 1e-2)
"""The grid: rates and weight decays of AdamW."""

WIDTH, BATCH, EPOCHS, PATIENCE = 256, 256, 200, 10
"""Hidden units, rows of a step, most epochs, and epochs without a gain after which a point of the grid ends."""


@dataclass(frozen=True)
class HiddenProbe:
    """The trained layers for vectors as they come, and the point of the grid that they were trained at."""

    layers: nn.Module
    mean: ndarray
    scale: ndarray
    rate: float
    penalty: float

    def logits(self, vectors: ndarray) -> ndarray:
        """Scores [n, classes], read as those of a linear probe."""
        device = next(self.layers.parameters()).device
        with torch.no_grad():
            inputs = torch.from_numpy((vectors - self.mean) / self.scale).float().to(device)
            return self.layers(inputs).double().cpu().numpy()


def fit_hidden(
    train: tuple[ndarray, ndarray],
    validation: tuple[ndarray, ndarray],
    score: Score,
    *,
    rates: Sequence[float] = RATES,
    penalties: Sequence[float] = PENALTIES,
    device: str | torch.device = "cpu",
) -> HiddenProbe:
    """The best weights over the grid by ``score(logits, targets)`` on validation data; of equal ones the earliest.

    Targets are class numbers [n] (softmax cross-entropy) or a 0/1 matrix [n, classes] (sigmoid cross-entropy). All
    points of the grid begin with the same weights and see the rows in the same order.
    """
    (vectors, targets), (held_out, held_out_targets) = train, validation
    several = targets.ndim == 2
    classes = targets.shape[1] if several else 1 + int(max(targets.max(), held_out_targets.max()))
    mean, deviation = vectors.mean(0), vectors.std(0)
    scale = np.where(deviation > 0, deviation, 1.0)
    inputs = torch.from_numpy((vectors - mean) / scale).float().to(device)
    wanted = torch.from_numpy(targets.astype(np.float32 if several else np.int64)).to(device)
    loss = functional.binary_cross_entropy_with_logits if several else functional.cross_entropy
    best: HiddenProbe
    best_value = -np.inf
    for rate, penalty in product(rates, penalties):
        with seeded(1):
            layers = nn.Sequential(nn.Linear(inputs.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes)).to(device)
            optimiser = torch.optim.AdamW(layers.parameters(), lr=rate, weight_decay=penalty)
            probe, fruitless, highest = HiddenProbe(layers, mean, scale, rate, penalty), 0, -np.inf
            for _ in range(EPOCHS):
                for rows in torch.randperm(len(inputs)).to(device).split(BATCH):
                    optimiser.zero_grad()
                    loss(layers(inputs[rows]), wanted[rows]).backward()
                    optimiser.step()
                value = float(score(probe.logits(held_out), held_out_targets))
                fruitless = 0 if value > highest else fruitless + 1
                highest = max(highest, value)
                if value > best_value:
                    best, best_value = deepcopy(probe), value
                if fruitless >= PATIENCE:
                    break
    return best
