"""Token sequences without padding.

``Tokens`` is a ragged array on the host: all ids in one flat array plus offsets. ``pack`` moves a batch of it to the
device as one long row of real tokens, sequences sorted by length, so that no position is ever wasted on padding and
sequences of equal length lie side by side (``groups``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

Integers = Sequence[int] | ndarray


def joined(parts: Iterable[Integers], dtype: type = np.int32) -> ndarray:
    """All numbers of ``parts`` in one row; of no parts an empty one."""
    return np.concatenate([np.zeros(0, dtype), *parts], dtype=dtype, casting="unsafe")


def offsets_of(lengths: Integers) -> ndarray:
    """Where each of several sequences that lie one after the other begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)], dtype=np.int64, casting="unsafe")


def stretches(starts: ndarray, lengths: ndarray) -> ndarray:
    """The places of a flat array that lie in the given stretches of it, stretch after stretch."""
    starts, lengths = np.ravel(starts), np.ravel(lengths)
    offsets = offsets_of(lengths)
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])


class Numbers(dict[Any, int]):
    """Distinct texts (or anything else), numbered in the order in which they are asked for.

    >>> numbers = Numbers()
    >>> numbers["yes"], numbers["no"], numbers["yes"], list(numbers)
    (0, 1, 0, ['yes', 'no'])
    """

    def __missing__(self, text: Any) -> int:
        self[text] = len(self)
        return self[text]

    def of(self, texts: Iterable[Any]) -> ndarray:
        """The number of every text."""
        return np.array([self[text] for text in texts], np.int64)


@dataclass(frozen=True)
class Tokens(Sequence[Any]):
    """A ragged array of token ids; ``types`` are segment ids (0/1) where the input has two segments.

    >>> tokens = Tokens.from_lists([[2, 7, 3], [2, 3]])
    >>> len(tokens), tokens[0].tolist(), tokens[[1, 0]].ids.tolist()
    (2, [2, 7, 3], [2, 3, 2, 7, 3])
    """

    ids: ndarray
    offsets: ndarray
    types: ndarray | None = None

    @classmethod
    def from_lists(cls, rows: Iterable[Integers], types: Iterable[Integers] | None = None) -> Tokens:
        rows = list(rows)
        segments = None if types is None else joined(types, np.int8)
        return cls(joined(rows), offsets_of([len(row) for row in rows]), segments)

    @classmethod
    def concatenate(cls, parts: Sequence[Tokens]) -> Tokens:
        """All sequences of ``parts``, in order."""
        if len(parts) == 1:
            return parts[0]
        types = None
        if any(part.types is not None for part in parts):
            types = joined((np.zeros(len(p.ids)) if p.types is None else p.types for p in parts), np.int8)
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(joined(part.ids for part in parts), offsets_of(lengths), types)

    @property
    def lengths(self) -> ndarray:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        """One sequence (an array) for an integer, a new ``Tokens`` for a slice, a mask, or a list of positions."""
        if isinstance(index, list) and not index:
            index = slice(0)
        starts, ends = self.offsets[:-1][index], self.offsets[1:][index]
        if np.ndim(starts) == 0:
            return self.ids[starts:ends]
        where = stretches(starts, ends - starts)
        types = None if self.types is None else self.types[where]
        return Tokens(self.ids[where], offsets_of(ends - starts), types)

    @cached_property
    def layout(self) -> tuple[Tensor, list[int], tuple[tuple[int, int], ...]]:
        """The host's half of ``pack``, done once (by the loop: ahead of time, in another thread): all columns of the
        packed batch in one tensor, their sizes, and the groups of equal length."""
        if len(self) == 0:
            raise ValueError("cannot pack an empty batch: there is no sequence in it")
        if self.lengths.min() < 1:
            raise ValueError("cannot pack a sequence without tokens: every sequence needs at least one id")
        order = np.argsort(self.lengths, kind="stable")
        packed = self[order]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        positions = np.arange(len(packed.ids)) - np.repeat(packed.offsets[:-1], packed.lengths)
        columns = [packed.ids, positions, packed.lengths, rank]
        if packed.types is not None:
            columns.append(packed.types)
        flat = torch.from_numpy(joined(columns, np.int64))
        values, counts = np.unique(packed.lengths, return_counts=True)
        groups = tuple(zip(values.tolist(), counts.tolist()))
        return flat.pin_memory() if torch.cuda.is_available() else flat, [len(c) for c in columns], groups

    def padded(self, pad: int = 0) -> tuple[ndarray, ndarray]:
        """Rectangular ids and a 0/1 mask, for transformers that cannot read packed sequences."""
        width = int(self.lengths.max(initial=1))
        mask = np.arange(width) < self.lengths[:, None]
        ids = np.full(mask.shape, pad, np.int64)
        ids[mask] = self.ids
        return ids, mask.astype(np.int64)


@dataclass(frozen=True)
class Packed:
    """One batch on the device: real tokens only, shorter sequences first."""

    ids: Tensor  # [tokens] int64
    positions: Tensor  # [tokens] int64, restarting at 0 in every sequence
    types: Tensor | None  # [tokens] int64
    lengths: Tensor  # [sequences] int64, ascending
    starts: Tensor  # [sequences + 1] int32, cumulative
    rank: Tensor  # [sequences] int64: where sequence i of the caller's order lies in the packed order
    groups: tuple[tuple[int, int], ...]  # (length, how many), ascending; host side

    @property
    def max_length(self) -> int:
        return self.groups[-1][0]

    def places(self, sequences: Tensor, positions: Tensor) -> Tensor:
        """Rows of the packed token axis that hold position ``positions[i]`` of the caller's ``sequences[i]``."""
        return self.starts[:-1].long()[self.rank[sequences]] + positions


def pack(tokens: Tokens, device: torch.device | str = "cpu") -> Packed:
    """Sort by length (stable), lay the real tokens in one row and move everything to ``device`` in one copy."""
    flat, sizes, groups = tokens.layout
    if torch.device(device).type == "cuda":
        flat = flat.to(device, non_blocking=True)
    ids, positions, lengths, rank, *types = torch.split(flat, sizes)
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    return Packed(ids, positions, types[0] if types else None, lengths, starts, rank, groups)
