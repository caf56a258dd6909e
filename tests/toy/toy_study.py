"""The toy paper's own steps: train a tiny encoder, measure something of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import tiny
from torch import nn

from dialnb.models.encoder import Encoder
from dialnb.training import Batch, Objective, TrainingSettings, train
from dialnb.training.stage import Result


class SlowPairs:
    """Pairs of random sentences, with a pause (TOY_PAUSE seconds) before each batch: time to kill a run half-way."""

    groups = None

    def __init__(self, encoder: Encoder, count: int) -> None:
        self.count, self.tokens = count, encoder.tokenize(tiny.sentences(2 * count))

    def __len__(self) -> int:
        return self.count

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        time.sleep(float(os.environ.get("TOY_PAUSE") or 0))
        return Batch(len(rows), {"first": self.tokens[rows], "second": self.tokens[rows + self.count]})


class Together(Objective):
    """Pull the two sides of an example together, through a head that starts from random numbers."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.head = nn.Linear(dim, dim)

    def embed(self, encoder, batch):
        return {side: self.head(encoder.embed(batch.tokens[side])) for side in ("first", "second")}

    def loss(self, vectors):
        return (vectors["first"] - vectors["second"]).square().mean()


def train_toy(steps: int, rate: float, seed: int, folder: Path) -> Result:
    """Train the tiny encoder with a checkpoint every second step."""
    encoder = tiny.encoder(dropout=0.1)
    examples = SlowPairs(encoder, 24)
    settings = TrainingSettings(
        batch_size=8, epochs=1000, max_steps=steps, learning_rate=rate, seed=seed, checkpoint_every=2
    )
    objective = Together(encoder.dim)
    result = train(encoder, objective, examples, settings, folder, name="train Toy")
    return Result(encoder, result)


def measure(encoder, shots: tuple[int, ...]) -> pd.DataFrame:
    """How far the vectors of the first k sentences scatter: a number that depends on every weight."""
    vectors = encoder.encode(tiny.sentences(12))
    rows = [{"metric": "spread", "shots": k, "seed": 1, "value": float(vectors[:k].std()), "n": k} for k in shots]
    return pd.DataFrame(rows).assign(task="toy", dataset="words", protocol="paper")
