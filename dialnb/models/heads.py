"""What objectives put on top of the encoder while training, and drop afterwards."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dialnb.models.attention import widened
from dialnb.models.packed import linear, part_of


def contrastive_head(dim: int) -> nn.Module:
    """DSE's head: Linear(d, d), ReLU, Linear(d, 128), both without bias."""
    return nn.Sequential(nn.Linear(dim, dim, bias=False), nn.ReLU(), nn.Linear(dim, 128, bias=False))


def tanh_head(dim: int) -> nn.Module:
    """SimCSE's and TaDSE's training head, and TaDSE's alignment layer M_A: Linear(d, d), tanh."""
    return nn.Sequential(nn.Linear(dim, dim), nn.Tanh())


class WordHead(nn.Module):
    """Masked-language-model head: Linear, GELU, LayerNorm, then the word table as output layer (tied), plus a bias."""

    def __init__(self, dim: int, vocabulary: int, width: int | None = None) -> None:
        super().__init__()
        width = width or dim
        self.dense = nn.Linear(dim, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """Logits ``[n, vocabulary]``; the product runs in the precision of ``states``, the logits are float32."""
        inner = self.norm(widened(F.gelu(linear(states, part_of(self.dense)))))
        return widened(F.linear(inner.to(states.dtype), words.to(states.dtype))) + self.bias
