"""Masked-language-model examples (BERT's 15 % with 80/10/10), redrawn every time a row is visited; alone, beside pairs,
and for post-training on the target corpus (UMS's "+" models), with next sentences or without.

That corpus is the context utterances of the rows with label 1, each closed by [EOT]; the responses are left out. UMS
masks ten fixed copies of it; here segments, next sentences and masks are redrawn every time a row is visited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError
from dialnb.examples.batches import Batch
from dialnb.examples.manipulations import MARKS, MAX_LENGTH, Input, Layout, bare_pieces, input_tokens
from dialnb.examples.pairs import PairExamples
from dialnb.tokens import Numbers, Tokens, joined

Pieces = list[ndarray]


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
    held_out: MaskedExamples | None = None  # what is not trained on

    @classmethod
    def from_tokens(cls, encoder, tokens: Tokens, probability: float = 0.15) -> Self:
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
        counts: dict[str, float] = {"mlm": len(arrays["masked_label"]), "rtd": len(masked.ids)}
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

    masking: MaskedExamples

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        pair = super().batch(rows, rng).tokens
        masked, arrays = self.masking.mask(self.tokens[self.first[rows]], rng)
        return Batch(len(rows), pair | {"masked": masked}, arrays, {"mlm": len(arrays["masked_label"])})


@dataclass
class WholeWordMasks(MaskedExamples):
    """BERT's whole-word masking: words are chosen until 15 % of a sequence's pieces, at most ``limit``, are masked."""

    continues: ndarray = field(init=False)  # which ids continue a word ("##ing")
    limit: int = 70

    @classmethod
    def from_tokens(cls, encoder, tokens: Tokens, probability: float = 0.15) -> Self:
        masks = super().from_tokens(encoder, tokens, probability)
        masks.continues = continuing_pieces(encoder.tokenizer)
        return masks

    def choose(self, tokens: Tokens, rng: Generator) -> ndarray:
        chosen = []
        for start, ids in zip(tokens.offsets, tokens):
            places = np.flatnonzero(~np.isin(ids, list(self.special)))
            words = np.cumsum(~self.continues[ids[places]])  # number of the word that a piece belongs to
            sizes = np.bincount(words)
            budget = min(self.limit, max(1, round(self.probability * len(ids))))
            order = rng.permutation(np.flatnonzero(sizes))
            taken = order[np.cumsum(sizes[order]) <= budget]
            chosen.append(start + places[np.isin(words, taken)])
        return joined(chosen, np.int64)


@dataclass
class NextSentenceExamples:
    """BERT+: pairs of segments from a dialogue, the second replaced by one of another dialogue half of the time.

    A row is a run of at most ``max_length`` tokens of one dialogue. Tokens ``masked``, arrays of the masks and
    ``next_label`` (0: is next, 1: is random); one input in ten is cut short at random, as BERT's are.
    """

    layout: Layout
    runs: list[Pieces]
    dialogues: ndarray
    masks: WholeWordMasks
    short: float = 0.1

    def __len__(self) -> int:
        return len(self.runs)

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        pairs = [self.pair(int(row), rng) for row in rows]
        inputs = [self.write(first, second, rng) for first, second, _ in pairs]
        masked, arrays = self.masks.mask(input_tokens(inputs), rng)
        arrays["next_label"] = np.array([label for *_, label in pairs], np.int64)
        return Batch(len(rows), {"masked": masked}, arrays, {"mlm": len(arrays["masked_label"]), "nsp": len(rows)})

    def pair(self, row: int, rng: Generator) -> tuple[Pieces, Pieces, int]:
        """Two segments of a run, or the first and a segment of another dialogue."""
        run = self.runs[row]
        split = int(rng.integers(1, max(2, len(run))))
        if len(run) > 1 and rng.random() < 0.5:
            return run[:split], run[split:], 0
        other = row
        while self.dialogues[other] == self.dialogues[row]:
            other = int(rng.integers(len(self.runs)))
        return run[:split], self.runs[other][int(rng.integers(len(self.runs[other]))) :], 1

    def write(self, first: Pieces, second: Pieces, rng: Generator) -> Input:
        """Both segments as one input, now and then a short one."""
        longest = self.layout.max_length
        if rng.random() < self.short:
            longest = int(rng.integers(2, longest - 2)) + 3
        return replace(self.layout, max_length=longest).join(first, second)


def dialogue_runs(
    encoder, groups: Iterable[SelectionGroup], max_length: int = MAX_LENGTH, cache=None
) -> tuple[Layout, list[Pieces], ndarray]:
    """Runs of closed context utterances of at most ``max_length`` - 3 tokens, and the number of each one's dialogue."""
    contexts = dict.fromkeys(group.context for group in groups if any(group.labels))
    texts = Numbers()
    numbers = [texts.of(context) for context in contexts]
    layout = Layout.of(encoder, max_length)
    room = layout.max_length - 3
    pieces = [np.append(piece[: room - 1], layout.eot) for piece in bare_pieces(encoder, list(texts), cache)]
    runs: list[Pieces] = []
    dialogues = []
    for dialogue, context in enumerate(numbers):
        length = room + 1
        for number in context:
            length += len(pieces[number])
            if length > room:
                runs.append([])
                dialogues.append(dialogue)
                length = len(pieces[number])
            runs[-1].append(pieces[number])
    return layout, runs, np.array(dialogues)


def next_sentence_examples(
    encoder, groups: Iterable[SelectionGroup], max_length: int = MAX_LENGTH, cache=None
) -> NextSentenceExamples:
    """BERT+: masked words and next sentences on the contexts of ``groups``; ``encoder`` is that of a ``Selector``."""
    layout, runs, dialogues = dialogue_runs(encoder, groups, max_length, cache)
    if len(set(dialogues.tolist())) < 2:
        raise DataError("next sentences need at least 2 different contexts of rows with label 1, to draw random ones")
    masks = WholeWordMasks.from_tokens(encoder, Tokens.from_lists([]))
    return NextSentenceExamples(layout, runs, dialogues, masks)


def replaced_token_examples(
    encoder, groups: Iterable[SelectionGroup], max_length: int = MAX_LENGTH, cache=None
) -> MaskedExamples:
    """ELECTRA+: the same runs as single sequences, masked for ``ReplacedTokenDetection``."""
    layout, runs, _ = dialogue_runs(encoder, groups, max_length, cache)
    rows = [joined([[layout.cls], *run, [layout.sep]]) for run in runs]
    return MaskedExamples.from_tokens(encoder, Tokens.from_lists(rows))
