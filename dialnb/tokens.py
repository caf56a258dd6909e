"""Token sequences without padding.

``Tokens`` is a ragged array on the host: all ids in one flat array plus offsets. ``pack`` moves a batch of it to the
device as one long row of real tokens, sequences sorted by length, so that no position is ever wasted on padding and
sequences of equal length lie side by side (``groups``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch


@dataclass(frozen=True)
class Tokens(Sequence):
    """A ragged array of token ids; ``types`` are segment ids (0/1) where the input has two segments.

    >>> tokens = Tokens.from_lists([[2, 7, 3], [2, 3]])
    >>> len(tokens), tokens[0].tolist(), tokens[[1, 0]].ids.tolist()
    (2, [2, 7, 3], [2, 3, 2, 7, 3])
    """

    ids: np.ndarray
    offsets: np.ndarray
    types: np.ndarray | None = None

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int]], types: Iterable[Sequence[int]] | None = None) -> Tokens:
        rows = list(rows)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        flat = np.concatenate([np.asarray(row, np.int32) for row in rows]) if rows else np.zeros(0, np.int32)
        kinds = (
            None if types is None else np.concatenate([np.zeros(0, np.int8), *(np.asarray(t, np.int8) for t in types)])
        )
        return cls(flat, offsets, kinds)

    @classmethod
    def concatenate(cls, parts: Sequence[Tokens]) -> Tokens:
        """All sequences of ``parts``, in order."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.concatenate([[0], *[part.lengths for part in parts]])
        types = None
        if any(part.types is not None for part in parts):
            types = np.concatenate([np.zeros(len(p.ids), np.int8) if p.types is None else p.types for p in parts])
        return cls(np.concatenate([part.ids for part in parts]), np.cumsum(sizes, dtype=np.int64), types)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index):
        """One sequence (an array) for an integer, a new ``Tokens`` for a slice, a mask, or a list of positions."""
        if isinstance(index, (int, np.integer)):
            if not -len(self) <= index < len(self):
                raise IndexError(index)
            index = index % len(self)
            return self.ids[self.offsets[index] : self.offsets[index + 1]]
        if isinstance(index, slice) or np.asarray(index).dtype == bool:
            index = np.arange(len(self))[index]
        index = np.asarray(index, np.int64)
        if len(index) and not -len(self) <= index.min() <= index.max() < len(self):
            raise IndexError(f"a position among {index.min()} to {index.max()} is outside {len(self)} sequences")
        index = np.where(index < 0, index + len(self), index)
        starts, lengths = self.offsets[index], self.offsets[index + 1] - self.offsets[index]
        offsets = np.zeros(len(index) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        where = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Tokens(self.ids[where], offsets, None if self.types is None else self.types[where])

    @cached_property
    def layout(self) -> tuple[torch.Tensor, list[int], tuple[tuple[int, int], ...]]:
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
        flat = torch.from_numpy(np.concatenate(columns, dtype=np.int64))
        values, counts = np.unique(packed.lengths, return_counts=True)
        groups = tuple(zip(values.tolist(), counts.tolist(), strict=True))
        return flat.pin_memory() if torch.cuda.is_available() else flat, [len(c) for c in columns], groups

    def padded(self, pad: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Rectangular ids and a 0/1 mask, for transformers that cannot read packed sequences."""
        width = int(self.lengths.max(initial=1))
        mask = np.arange(width) < self.lengths[:, None]
        ids = np.full(mask.shape, pad, np.int64)
        ids[mask] = self.ids
        return ids, mask.astype(np.int64)


@dataclass(frozen=True)
class Packed:
    """One batch on the device: real tokens only, shorter sequences first."""

    ids: torch.Tensor  # [tokens] int64
    positions: torch.Tensor  # [tokens] int64, restarting at 0 in every sequence
    types: torch.Tensor | None  # [tokens] int64
    lengths: torch.Tensor  # [sequences] int64, ascending
    starts: torch.Tensor  # [sequences + 1] int32, cumulative
    rank: torch.Tensor  # [sequences] int64: where sequence i of the caller's order lies in the packed order
    groups: tuple[tuple[int, int], ...]  # (length, how many), ascending; host side

    @property
    def max_length(self) -> int:
        return self.groups[-1][0]

    def places(self, sequences: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
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
