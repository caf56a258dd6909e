"""Which rows each step sees: a pure function of (seed, step), so that a run can stop anywhere and go on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dialnb.errors import TrainingError


class BatchPlan:
    """Shuffled batches, epoch after epoch.

    With ``groups`` every batch holds rows of one group and batches cycle through the groups (WMDC: one window size per
    batch) until all are used up. A last batch of a single example is left out: it has no negatives.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int,
        groups: Sequence[np.ndarray] | None = None,
        drop_last: bool = False,
    ) -> None:
        self.groups = [np.arange(size)] if groups is None else [np.asarray(g) for g in groups]
        self.batch_size, self.seed, self.drop_last = batch_size, seed, drop_last
        counts = [self._batches(len(group)) for group in self.groups]
        self.order = [g for turn in range(max(counts, default=0)) for g, count in enumerate(counts) if turn < count]
        if not self.order:
            raise TrainingError(
                f"there is nothing to train on: {size} examples make no batch of {batch_size}"
                f"{' (incomplete ones are dropped)' if drop_last else ''}; a batch needs at least 2 examples"
            )
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)

    def _batches(self, size: int) -> int:
        full, rest = divmod(size, self.batch_size)
        return full + (rest > 1 and not self.drop_last)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.order)

    def _shuffle(self, epoch: int) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed, 24, epoch])
        return [rng.permutation(group) for group in self.groups]

    def rows(self, step: int) -> np.ndarray:
        """The rows of the whole (all processes') batch of 0-based ``step``."""
        epoch, place = divmod(step, len(self.order))
        group = self.order[place]
        turn = self.order[:place].count(group) if len(self.groups) > 1 else place
        return self._shuffled(epoch)[group][turn * self.batch_size : (turn + 1) * self.batch_size]
