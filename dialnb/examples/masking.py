"""Masked-language-model examples (BERT's 15 % with 80/10/10), redrawn every time a row is visited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.errors import DataError
from dialnb.examples.batches import Batch
from dialnb.examples.manipulations import MARKS
from dialnb.examples.pairs import PairExamples
from dialnb.tokens import Tokens


def continuing_pieces(tokenizer) -> ndarray:
    """Which ids go on with a word ("##ing")."""
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return np.array([piece.startswith("##") for piece in pieces])


@dataclass
class MaskedExamples:
    """Sequences with masks drawn on the fly. ``special`` ids are never masked; ``vocabulary`` bounds random ids."""

    tokens: Tokens
    mask_id: int
    special: frozenset[int]
    vocabulary: int
    probability: float = 0.15

    @classmethod
    def from_tokens(cls, encoder, tokens: Tokens, probability: float = 0.15) -> MaskedExamples:
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token_id is None:
            raise DataError(f"the tokenizer of encoder {encoder.name!r} has no mask token, so nothing can be masked")
        words = encoder.transformer.get_input_embeddings().num_embeddings
        marks = tokenizer.convert_tokens_to_ids(list(MARKS.values()))  # of one without marks: its unknown word
        special = {*tokenizer.all_special_ids, *marks} - {None}
        return cls(tokens, tokenizer.mask_token_id, frozenset(special), words, probability)

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        masked, arrays = self.mask(self.tokens[rows], rng)
        counts = {"mlm": len(arrays["masked_label"]), "rtd": len(masked.ids)}
        return Batch(len(rows), {"masked": masked}, arrays, counts)

    def choose(self, tokens: Tokens, rng: Generator) -> ndarray:
        """Places in ``tokens.ids`` that are to be predicted, ascending."""
        allowed = ~np.isin(tokens.ids, list(self.special))
        return np.flatnonzero(allowed & (rng.random(len(tokens.ids)) < self.probability))

    def mask(self, tokens: Tokens, rng: Generator) -> tuple[Tokens, dict[str, ndarray]]:
        """Corrupted copy and where to predict what: sequence, position, label."""
        ids = tokens.ids.copy()
        chosen = self.choose(tokens, rng)
        labels = ids[chosen].astype(np.int64)
        fate = rng.random(len(chosen))
        ids[chosen[fate < 0.8]] = self.mask_id
        swapped = chosen[fate >= 0.9]
        ids[swapped] = rng.integers(0, self.vocabulary, len(swapped), dtype=np.int32)
        sequence = np.searchsorted(tokens.offsets, chosen, side="right") - 1
        arrays = {
            "masked_sequence": sequence,
            "masked_position": chosen - tokens.offsets[sequence],
            "masked_label": labels,
        }
        return Tokens(ids, tokens.offsets, tokens.types), arrays


@dataclass
class MaskedPairExamples(PairExamples):
    """Pairs whose first sides are read a second time with masks (TOD-BERT: response contrast plus language model)."""

    masking: MaskedExamples | None = None

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        pair = super().batch(rows, rng).tokens
        masked, arrays = self.masking.mask(self.tokens[self.first[rows]], rng)
        return Batch(len(rows), pair | {"masked": masked}, arrays, {"mlm": len(arrays["masked_label"])})
