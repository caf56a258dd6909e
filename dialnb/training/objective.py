"""What the loop asks of a method: examples that build batches, and an objective that turns a batch into a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import nn

from dialnb.models.tokens import Tokens


@dataclass(frozen=True)
class Batch:
    """One chunk of examples on the host.

    ``tokens`` are named groups of sequences; ``arrays`` named numbers; ``counts`` say over how many items each term
    of the objective is averaged here (see :meth:`Objective.terms`); ``size`` is the number of examples.
    """

    size: int
    tokens: dict[str, Tokens] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def tensor(self, name: str, device: torch.device) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.arrays[name])).to(device, non_blocking=True)


class Examples(Protocol):
    """A dataset as the loop sees it. ``groups`` (optional) are disjoint index arrays that never share a batch."""

    groups: Sequence[np.ndarray] | None

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        """The batch of the given rows; everything random in it comes from ``rng``."""


class Objective(nn.Module):
    """A method: it owns its heads and nothing else. Two kinds of loss, either may be left out:

    - in-batch: ``embed`` gives per-example tensors of the local rows (heads applied), the loop gathers them over all
      processes and chunks, ``loss`` sees the whole batch;
    - averaged: ``terms`` gives mean losses over ``batch.counts[name]`` items; the loop weighs them by the counts of
      all processes and chunks, so that the sum is the mean over the whole batch.
    """

    def embed(self, encoder, batch: Batch) -> dict[str, torch.Tensor]:
        return {}

    def loss(self, vectors: dict[str, torch.Tensor]) -> torch.Tensor:
        raise TypeError(f"{type(self).__name__} embeds but defines no loss")

    def terms(self, encoder, batch: Batch) -> dict[str, torch.Tensor]:
        return {}

    def describe(self) -> dict:
        """Configuration for provenance."""
        return {"objective": type(self).__name__}


class Sum(Objective):
    """Several objectives at once, their losses added (TOD-BERT: response contrast plus masked language model)."""

    def __init__(self, **parts: Objective) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def embed(self, encoder, batch):
        return {f"{n}.{k}": v for n, part in self.parts.items() for k, v in part.embed(encoder, batch).items()}

    def loss(self, vectors):
        total = 0.0
        for name, part in self.parts.items():
            own = {k.removeprefix(f"{name}."): v for k, v in vectors.items() if k.startswith(f"{name}.")}
            if own:
                total = total + part.loss(own)
        return total

    def terms(self, encoder, batch):
        return {k: v for part in self.parts.values() for k, v in part.terms(encoder, batch).items()}

    def describe(self):
        return {name: part.describe() for name, part in self.parts.items()}
