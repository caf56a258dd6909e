"""Baselines without training on dialogues: average word vectors, and transformations of an encoder's space.

>>> whitened = Transformed(encoder, whiten)                              # doctest: +SKIP
>>> flowing = Transformed(encoder, flow)                                 # doctest: +SKIP
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from dialnb.errors import DataError


@dataclass
class WordVectors:
    """Average of the encoder's input word vectors, special tokens left out (where GloVe's cannot be had)."""

    encoder: Any

    def encode(self, texts: Sequence[str], max_length: int | None = None, **_: Any) -> ndarray:
        """Vectors ``[n, width of the word table]``; a text without words is the zero vector."""
        tokens = self.encoder.tokenize(texts, max_length)
        table = self.encoder.transformer.get_input_embeddings().weight.detach().float().cpu().numpy()
        words = ~np.isin(tokens.ids, self.encoder.tokenizer.all_special_ids)
        rows = np.repeat(np.arange(len(tokens)), tokens.lengths)[words]
        sums = np.zeros((len(tokens), table.shape[1]), np.float32)
        np.add.at(sums, rows, table[tokens.ids[words]])
        return sums / np.maximum(np.bincount(rows, minlength=len(tokens)), 1)[:, None]


@dataclass
class Transformed:
    """An encoder whose vectors pass through a transformation of the whole set: whitening, or a flow.

    As in the papers, the transformation is fitted on the very sentences that are encoded together.
    """

    encoder: Any
    transform: Callable[[ndarray], ndarray]

    def encode(self, texts: Sequence[str], **settings: Any) -> ndarray:
        return self.transform(self.encoder.encode(texts, **settings))


class Coupling(nn.Module):
    """Affine coupling: one half of the (shuffled) dimensions scales and shifts the other half; Glow and RealNVP."""

    def __init__(self, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.order: Tensor
        self.register_buffer("order", torch.randperm(dim, generator=generator))
        self.kept = dim // 2
        first, last = nn.Linear(self.kept, 128), nn.Linear(128, 2 * (dim - self.kept))
        self.net = nn.Sequential(first, nn.ReLU(), last)
        nn.init.normal_(first.weight, std=self.kept**-0.5, generator=generator)
        for parameter in (first.bias, *last.parameters()):  # every layer starts as a permutation
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The new point, and the log-determinant of the change."""
        kept, moved = x[:, self.order].tensor_split([self.kept], 1)
        scale, shift = self.net(kept).chunk(2, -1)
        scale = torch.tanh(scale)
        return torch.cat([kept, moved * scale.exp() + shift], 1), scale.sum(1)


class Flow(nn.Module):
    """A normalising flow, ``z = f(x)`` invertible with z standard normal: BERT-flow's map to an isotropic space."""

    def __init__(self, dim: int, layers: int = 4, seed: int = 0) -> None:
        super().__init__()
        if dim < 2:
            raise DataError(f"a flow couples one half of the dimensions with the other: it needs at least 2, got {dim}")
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(Coupling(dim, generator) for _ in range(layers))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``f(x)`` and the log-determinant of its Jacobian."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, change = layer(x)
            total = total + change
        return x, total


def flow(vectors: ndarray, steps: int = 200, seed: int = 0) -> ndarray:
    """The flow baseline: standardise ``vectors``, fit a :class:`Flow` to them by maximum likelihood, and apply it.

    The encoder is not touched, as in BERT-flow.
    """
    points = np.asarray(vectors, np.float32)
    spread = points.std(0)
    x = torch.from_numpy((points - points.mean(0)) / np.where(spread > 0, spread, 1))
    model = Flow(x.shape[1], seed=seed)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        optimiser.zero_grad()
        z, change = model(x[torch.from_numpy(rng.integers(len(x), size=256))])
        likelihood = (change - z.square().sum(1) / 2).mean() / x.shape[1]  # per dimension, but for a constant
        (-likelihood).backward()
        optimiser.step()
    with torch.no_grad():
        return model(x)[0].numpy()
