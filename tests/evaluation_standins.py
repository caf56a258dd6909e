"""Stand-ins with the contract of an encoder, small enough to follow by hand."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from dialnb.tokens import Tokens


class TableEncoder:
    """Looks vectors up in a table and remembers every text it was asked for."""

    def __init__(self, table: Mapping[str, Sequence[float]]) -> None:
        self.table = dict(table)
        self.asked: list[str] = []
        self.settings: list[dict] = []

    def encode(self, texts, **settings):
        self.asked += texts
        self.settings.append(settings)
        return np.array([self.table[text] for text in texts], np.float32)


class WordEncoder(nn.Module):
    """A trainable bag of word embeddings with the interface that fine-tuning relies on."""

    def __init__(self, dim: int = 16, words: int = 512, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        self.dim, self.words = dim, words
        self.table = nn.Embedding(words, dim)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            self.table.weight.copy_(torch.randn(words, dim, generator=torch.Generator().manual_seed(seed)))

    @property
    def device(self):
        return self.table.weight.device

    def tokenize(self, texts, max_length=64, truncate="right"):
        rows = [[1 + zlib.crc32(word.encode()) % (self.words - 1) for word in text.split()] or [0] for text in texts]
        return Tokens.from_lists(row[:max_length] if truncate == "right" else row[-max_length:] for row in rows)

    def embed(self, ids, pooling="mean"):
        assert pooling == "mean"
        return torch.stack([self.dropout(self.table(torch.as_tensor(row))).mean(0) for row in ids])

    def clone(self):
        return copy.deepcopy(self)

    @torch.no_grad()
    def encode(self, texts, max_length=64, truncate="right"):
        if not len(texts):
            return np.zeros((0, self.dim), np.float32)
        return self.embed(self.tokenize(texts, max_length, truncate)).numpy()
