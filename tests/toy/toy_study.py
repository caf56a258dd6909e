"""The toy paper's own steps: train a tiny encoder, measure something of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pandas as pd
import tiny

from dialnb.training import TrainingSettings, train
from dialnb.training.objectives import PairObjective


class Slow(tiny.Everything):
    """The tiny examples, with a pause (TOY_PAUSE seconds) before each batch, so that a test can kill a run half-way."""

    def batch(self, rows, rng):
        time.sleep(float(os.environ.get("TOY_PAUSE") or 0))
        return super().batch(rows, rng)


def train_toy(steps: int, rate: float, seed: int, folder: Path) -> dict:
    """Train the tiny encoder with a checkpoint every second step."""
    encoder = tiny.encoder(dropout=0.1)
    examples = Slow(encoder, 24)
    settings = TrainingSettings(
        batch_size=8, epochs=1000, max_steps=steps, learning_rate=rate, seed=seed, checkpoint_every=2
    )
    objective = PairObjective(encoder.dim, "weighted_symmetric", "linear")
    result = train(encoder, objective, examples, settings, folder, name="train Toy")
    return {"encoder": encoder, "training": result}


def measure(encoder, shots: tuple[int, ...]) -> pd.DataFrame:
    """How far the vectors of the first k sentences scatter: a number that depends on every weight."""
    vectors = encoder.encode(tiny.sentences(12))
    rows = [{"metric": "spread", "shots": k, "seed": 1, "value": float(vectors[:k].std()), "n": k} for k in shots]
    return pd.DataFrame(rows).assign(task="toy", dataset="words", protocol="paper")
