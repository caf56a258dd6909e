"""What the training loop asks of examples: how many there are, and batches of them."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from dialnb.tokens import Tokens


@dataclass(frozen=True)
class Batch:
    """One chunk of examples on the host.

    ``tokens`` are named groups of sequences; ``arrays`` named numbers; ``counts`` say over how many items each term
    of the objective is averaged here (see :meth:`Objective.terms`); ``size`` is the number of examples.
    """

    size: int
    tokens: dict[str, Tokens] = field(default_factory=dict)
    arrays: dict[str, ndarray] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def tensor(self, name: str, device: torch.device) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.arrays[name])).to(device, non_blocking=True)


class Examples(Protocol):
    """A dataset as the loop sees it; it may have ``groups``, disjoint index arrays that never share a batch."""

    def __len__(self) -> int: ...

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        """The batch of the given rows; everything random in it comes from ``rng``."""
