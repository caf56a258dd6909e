"""Post-training on the target corpus (UMS's "+" models): masked words with next sentences, or masked words alone.

The corpus is the context utterances of the rows with label 1, each closed by [EOT]; the responses are left out. UMS
masks ten fixed copies of it; here segments, next sentences and masks are redrawn every time a row is visited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError
from dialnb.examples.batches import Batch
from dialnb.examples.manipulations import MARKS, MAX_LENGTH, Layout, bare_pieces, trim
from dialnb.examples.masking import MaskedExamples
from dialnb.tokens import Tokens

Pieces = list[np.ndarray]
Masks = TypeVar("Masks", bound=MaskedExamples)


@dataclass
class WholeWordMasks(MaskedExamples):
    """BERT's whole-word masking: words are chosen until 15 % of a sequence's pieces, at most ``limit``, are masked."""

    continues: np.ndarray | None = None  # which ids continue a word ("##ing")
    limit: int = 70

    @classmethod
    def from_tokens(cls, encoder, tokens: Tokens, probability: float = 0.15) -> WholeWordMasks:
        masks = _sparing_marks(super().from_tokens(encoder, tokens, probability), encoder)
        names = encoder.tokenizer.convert_ids_to_tokens(list(range(len(encoder.tokenizer))))
        masks.continues = np.array([name.startswith("##") for name in names])
        return masks

    def choose(self, tokens: Tokens, rng: np.random.Generator) -> np.ndarray:
        chosen = [np.zeros(0, np.int64)]
        for start, end in zip(tokens.offsets[:-1], tokens.offsets[1:]):
            ids = tokens.ids[start:end]
            places = np.flatnonzero(~np.isin(ids, list(self.special)))
            words = np.cumsum(~self.continues[ids[places]])  # number of the word that a piece belongs to
            sizes = np.bincount(words)
            budget = min(self.limit, max(1, round(self.probability * len(ids))))
            order = rng.permutation(np.flatnonzero(sizes))
            taken = order[np.cumsum(sizes[order]) <= budget]
            chosen.append(start + places[np.isin(words, taken)])
        return np.concatenate(chosen)


@dataclass
class NextSentenceExamples:
    """BERT+: pairs of segments from a dialogue, the second replaced by one of another dialogue half of the time.

    A row is a run of at most ``max_length`` tokens of one dialogue. Tokens ``masked``, arrays of the masks and
    ``next_label`` (0: is next, 1: is random); one input in ten is cut short at random, as BERT's are.
    """

    layout: Layout
    runs: list[Pieces]
    dialogues: np.ndarray
    masks: WholeWordMasks
    short: float = 0.1
    groups: None = None

    def __len__(self) -> int:
        return len(self.runs)

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        pairs = [self.pair(int(row), rng) for row in rows]
        inputs = [self.write(first, second, rng) for first, second, _ in pairs]
        tokens = Tokens.from_lists(*zip(*inputs, strict=True))
        masked, arrays = self.masks.mask(tokens, rng)
        arrays["next_label"] = np.array([label for *_, label in pairs], np.int64)
        return Batch(len(rows), {"masked": masked}, arrays, {"mlm": len(arrays["masked_label"]), "nsp": len(rows)})

    def pair(self, row: int, rng: np.random.Generator) -> tuple[Pieces, Pieces, int]:
        """Two segments of a run, or the first and a segment of another dialogue."""
        run = self.runs[row]
        split = int(rng.integers(1, max(2, len(run))))
        if len(run) > 1 and rng.random() < 0.5:
            return run[:split], run[split:], 0
        other = row
        while self.dialogues[other] == self.dialogues[row]:
            other = int(rng.integers(len(self.runs)))
        return run[:split], self.runs[other][int(rng.integers(len(self.runs[other]))) :], 1

    def write(self, first: Pieces, second: Pieces, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        room = self.layout.max_length - 3
        target = int(rng.integers(2, room + 1)) if rng.random() < self.short else room
        start, end = np.concatenate(first), np.concatenate(second)
        lost, shortened = trim(len(start), len(end), target)
        start, end = start[lost:], end[: len(end) - shortened]
        ids = np.concatenate([[self.layout.cls], start, [self.layout.sep], end, [self.layout.sep]], dtype=np.int32)
        types = np.repeat([0, self.layout.second_segment], [len(start) + 2, len(end) + 1])
        return ids, types


def dialogue_runs(
    encoder, groups: Iterable[SelectionGroup], max_length: int = MAX_LENGTH, cache=None
) -> tuple[Layout, list[Pieces], np.ndarray]:
    """Runs of closed context utterances of at most ``max_length`` - 3 tokens, and the number of each one's dialogue."""
    contexts = list(dict.fromkeys(group.context for group in groups if any(group.labels)))
    texts = list(dict.fromkeys(text for context in contexts for text in context))
    layout = Layout.of(encoder, max_length)
    room = layout.max_length - 3
    closed = [np.append(piece[: room - 1], np.int32(layout.eot)) for piece in bare_pieces(encoder, texts, cache)]
    pieces = dict(zip(texts, closed))
    runs: list[Pieces] = []
    dialogues: list[int] = []
    for number, context in enumerate(contexts):
        length = room + 1
        for text in context:
            if length + len(pieces[text]) > room:
                runs.append([])
                dialogues.append(number)
                length = 0
            runs[-1].append(pieces[text])
            length += len(pieces[text])
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
    rows = [np.concatenate([[layout.cls], *run, [layout.sep]]) for run in runs]
    return _sparing_marks(MaskedExamples.from_tokens(encoder, Tokens.from_lists(rows)), encoder)


def _sparing_marks(masks: Masks, encoder) -> Masks:
    """[EOT] and the other marks are not for masking."""
    masks.special |= set(encoder.tokenizer.convert_tokens_to_ids(list(MARKS.values())))
    return masks
