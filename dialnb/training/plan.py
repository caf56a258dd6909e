"""Which rows each step sees: a pure function of (seed, step), so that a run can stop anywhere and go on."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from dialnb.errors import TrainingError

STORED = 1 << 21  # rows; the order of more would be most of what a process holds, so it is computed


def computed_order(places: range, size: int, tables: ndarray) -> ndarray:
    """The rows at some ``places`` of a random order of ``size`` rows, of which nothing else is computed or stored.

    A Feistel network, one round for each of the random ``tables``, permutes the numbers below the square of their
    length; a number that lands beyond the last row goes through it again until it does not.
    """
    rows, side = np.array(places), tables.shape[1]
    beyond = rows < size
    while beyond.any():
        left, right = np.divmod(rows[beyond], side)
        for table in tables:
            left, right = right, left ^ table[right]
        rows[beyond] = left * side + right
        beyond = rows >= size
    return rows


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
        groups: Sequence[ndarray] | None = None,
        drop_last: bool = False,
    ) -> None:
        self.groups = [range(size)] if groups is None else groups
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.computed = groups is None and size > STORED
        rest = 0 if drop_last else max(0, batch_size - 2)  # what a last batch may lack
        counts = [(len(group) + rest) // batch_size for group in self.groups]
        self.order = np.argwhere(np.arange(max(counts, default=0))[:, None] < counts)  # turn and group of every step
        if not len(self.order):
            raise TrainingError(
                f"there is nothing to train on: {size} examples make no batch of {batch_size}"
                f"{' (incomplete ones are dropped)' if drop_last else ''}; a batch needs at least 2 examples"
            )
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.order)

    def _shuffle(self, epoch: int) -> Any:
        rng = np.random.default_rng([self.seed, 24, epoch])
        if self.computed:
            side = 1 << -(-self.size.bit_length() // 2)
            return rng.integers(side, size=(4, side))
        return [rng.permutation(group) for group in self.groups]

    def rows(self, step: int) -> ndarray:
        """The rows of the whole (all processes') batch of 0-based ``step``."""
        epoch, place = divmod(step, len(self.order))
        turn, group = self.order[place]
        drawn, part = self._shuffled(epoch), slice(turn * self.batch_size, (turn + 1) * self.batch_size)
        return computed_order(range(self.size)[part], self.size, drawn) if self.computed else drawn[group][part]
