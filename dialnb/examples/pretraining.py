"""What a language model reads from the start: utterances with masked words, and stretches of dialogues in two segments
of which it also has to tell whether the second one follows the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from dialnb.data.corpora import Conversation
from dialnb.examples.batches import Batch
from dialnb.examples.masking import MaskedExamples
from dialnb.examples.pairs import tokenise_once
from dialnb.tokens import Tokens

UNASKED = -100
"""The next-sentence label of inputs that have one segment only; the loss passes over it."""
FEW = 5  # utterances of a short first segment
SHORT_CONTEXT, ONE_REPLY, RANDOM_REPLY = 0.5, 0.7, 0.5  # how often


@dataclass
class Lessons:
    """The same texts in the word pieces of a teacher; those whose words the two count differently are not taught."""

    tokens: Tokens
    continues: tuple[np.ndarray, np.ndarray]  # which ids go on with a word: of the pupil, of the teacher
    taught: np.ndarray  # which texts

    def batch(self, read: Tokens, rows: np.ndarray) -> tuple[Tokens, dict[str, np.ndarray]]:
        """What the teacher reads, and for every token of both the number of its word."""
        told = self.tokens[rows]
        arrays = {"pupil_word": words_of(read.ids, self.continues[0]), "pupil_length": read.lengths}
        return told, arrays | {"teacher_word": words_of(told.ids, self.continues[1]), "teacher_length": told.lengths}


def words_of(ids: np.ndarray, continues: np.ndarray) -> np.ndarray:
    """The number of the word that each piece belongs to; special tokens are words of their own."""
    return np.cumsum(~continues[ids]) - 1


def lessons(encoder, teacher, texts: Sequence[str], tokens: Tokens, cache=None) -> Lessons:
    """Lessons in ``texts``, which the pupil reads as ``tokens``."""
    told = tokenise_once(teacher, texts, 128, cache)
    continues = tuple(
        np.array([p.startswith("##") for p in e.tokenizer.convert_ids_to_tokens(range(len(e.tokenizer)))])
        for e in (encoder, teacher)
    )
    mine, theirs = (np.add.reduceat(~c[t.ids], t.offsets[:-1]) for c, t in zip(continues, (tokens, told), strict=True))
    return Lessons(told, continues, mine == theirs)


@dataclass
class DialogueExamples:
    """Rows are distinct utterances, then visits to dialogues, one for every third utterance.

    At a visit everything is drawn anew: where the second segment begins, how far back the first one reaches (few
    utterances, or all), whether the second one is a reply or all that follows, and whether it is replaced by one
    from another dialogue of the same corpus. Both together fill at most ``max_length`` tokens; the first loses its
    beginning, the second its end.
    """

    masks: MaskedExamples  # of the utterances
    stream: np.ndarray  # [CLS] and [SEP], then the utterances of all dialogues, each closed by [SEP]
    starts: np.ndarray  # where an utterance begins in the stream, and where the last one ends
    ends: np.ndarray  # for every utterance, the one at which the next dialogue begins
    visits: np.ndarray  # a row each: first and next-to-last utterance of the dialogue, the same of its corpus
    max_length: int
    lessons: Lessons | None = None
    groups: None = None

    def __len__(self) -> int:
        return len(self.masks) + len(self.visits)

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        alone, visits = rows[rows < len(self.masks)], rows[rows >= len(self.masks)] - len(self.masks)
        if self.lessons is not None:
            alone = alone[np.argsort(~self.lessons.taught[alone], kind="stable")]
        segments, labels = self.segments(visits, rng)
        masked, arrays = self.masks.mask(Tokens.concatenate([self.masks.tokens[alone], segments]), rng)
        arrays["next_label"] = np.concatenate([np.full(len(alone), UNASKED), labels])
        batch = Batch(len(rows), {"masked": masked}, arrays, {"mlm": len(arrays["masked_label"]), "nsp": len(labels)})
        if self.lessons is not None:
            taught = alone[self.lessons.taught[alone]]
            batch.tokens["teacher"], words = self.lessons.batch(self.masks.tokens[taught], taught)
            batch.arrays.update(words)
            batch.counts["imitation"] = int(words["teacher_word"][-1]) + 1 if len(taught) else 0
        return batch

    def segments(self, visits: np.ndarray, rng: np.random.Generator) -> tuple[Tokens, np.ndarray]:
        """The inputs of these visits, and whether their second segments are random (1) or next (0)."""
        first, end, corpus, corpus_end = self.visits[visits].T
        draw = rng.random((6, len(visits)))
        middle = first + 1 + (draw[0] * (end - first - 1)).astype(np.int64)
        reach = np.where(draw[1] < SHORT_CONTEXT, 1 + (draw[2] * FEW).astype(np.int64), middle - first)
        start = middle - np.minimum(reach, middle - first)
        size = np.where(draw[3] < ONE_REPLY, 1, end - middle)
        others = (corpus_end - corpus) - (end - first)
        random = (draw[4] < RANDOM_REPLY) & (others > 0)
        other = corpus + (draw[5] * others).astype(np.int64)
        other += np.where(other >= first, end - first, 0)
        second = np.where(random, other, middle)
        last = np.minimum(second + size, self.ends[second])
        return self._lay(start, middle, second, last), random.astype(np.int64)

    def _lay(self, start: np.ndarray, middle: np.ndarray, second: np.ndarray, last: np.ndarray) -> Tokens:
        """[CLS], the first segment, the second segment, [SEP], gathered from the stream."""
        room = self.max_length - 2
        before, after = self.starts[middle] - self.starts[start], self.starts[last] - 1 - self.starts[second]
        after = np.minimum(after, np.maximum(room - before, room // 2))
        before = np.minimum(before, room - after)
        one = np.ones_like(before)
        begins = np.stack([one * 0, self.starts[middle] - before, self.starts[second], one], 1)
        sizes = np.stack([one, before, after, one], 1)
        flat, offsets = sizes.ravel(), np.concatenate([[0], np.cumsum(sizes.sum(1))])
        where = np.repeat(begins.ravel() - (np.cumsum(flat) - flat), flat) + np.arange(offsets[-1])
        types = np.repeat(np.tile(np.array([0, 0, 1, 1], np.int8), len(one)), flat)
        return Tokens(self.stream[where], offsets, types)


def dialogue_examples(
    encoder, dialogues: Sequence[Conversation], max_length: int = 512, mask: float = 0.15, cache=None, teacher=None
) -> DialogueExamples:
    """Every distinct utterance, and visits to the dialogues whose neighbours answer each other."""
    max_length = min(max_length, encoder.max_length)
    texts = list(dict.fromkeys(u for d in dialogues for u in d.utterances))
    tokens = tokenise_once(encoder, texts, max_length, cache)
    number = {text: place for place, text in enumerate(texts)}
    paired = sorted((d for d in dialogues if d.paired and len(d.utterances) > 1), key=lambda d: d.corpus)
    said = tokens[np.array([number[u] for d in paired for u in d.utterances], np.int64)]
    opening = np.repeat(said.offsets[:-1], said.lengths) == np.arange(len(said.ids))
    pieces = said.lengths - 1  # an utterance has lost its [CLS] and keeps its [SEP]
    sizes = np.array([len(d.utterances) for d in paired], np.int64)
    begins = np.cumsum(sizes) - sizes
    corpora = [len(list(group)) for _, group in groupby(paired, key=lambda d: d.corpus)]
    borders = np.append(begins, sizes.sum())[np.cumsum([0, *corpora])]
    of = np.repeat(np.arange(len(corpora)), corpora)
    visits = np.stack([begins, begins + sizes, borders[of], borders[of + 1]], 1) if len(paired) else np.zeros((0, 4))
    marks = [encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id]
    return DialogueExamples(
        MaskedExamples.from_tokens(encoder, tokens, mask),
        np.concatenate([marks, said.ids[~opening]], dtype=np.int32),
        np.concatenate([[2], 2 + np.cumsum(pieces)]),
        np.repeat(begins + sizes, sizes),
        np.repeat(visits.astype(np.int64), np.maximum(1, (sizes - 1) // 3), axis=0),
        max_length,
        lessons(encoder, teacher, texts, tokens, cache) if teacher else None,
    )
