"""A real process for the training tests: it trains into FOLDER until it is killed, interrupted or done."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import tiny
import torch

from dialnb.training import TrainingSettings, train

RUN = TrainingSettings(batch_size=8, epochs=3, learning_rate=1e-3, schedule="onecycle", checkpoint_every=1)


class Slow(tiny.Pairs):
    """Leaves the parent time to kill us between two checkpoints."""

    def embed(self, encoder, batch):
        time.sleep(0.05)
        return super().embed(encoder, batch)


def training(kind: type[tiny.Pairs], folder: Path | None, **options):
    """The run that is killed, interrupted and resumed: dropout, redrawn masks, twelve steps."""
    encoder = tiny.encoder(dropout=0.1)
    torch.manual_seed(3)
    objective = kind(encoder.dim)
    result = train(
        encoder, objective, tiny.Everything(encoder, 30, redrawn=True), RUN, folder, show_progress=False, **options
    )
    return encoder, objective, result


if __name__ == "__main__":
    torch.set_num_threads(1)
    training(Slow, Path(sys.argv[1]))
