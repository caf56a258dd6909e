"""What a language model reads from the start: utterances with masked words, and stretches of dialogues in two segments
of which it also has to tell whether the second one follows the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.data.corpora import Conversation
from dialnb.examples.batches import Batch
from dialnb.examples.masking import MaskedExamples, continuing_pieces
from dialnb.examples.pairs import tokenise_once
from dialnb.tokens import Numbers, Tokens, joined, offsets_of, stretches

UNASKED = -100
"""The next-sentence label of inputs that have one segment only; the loss passes over it."""
FEW = 5  # utterances of a short first segment
SHORT_CONTEXT, ONE_REPLY, RANDOM_REPLY = 0.5, 0.7, 0.5  # how often


@dataclass
class Lessons:
    """The same texts in the word pieces of a teacher; those whose words the two count differently are not taught."""

    tokens: Tokens
    continues: tuple[ndarray, ndarray]  # which ids go on with a word: of the pupil, of the teacher
    taught: ndarray  # which texts

    def batch(self, read: Tokens, rows: ndarray) -> tuple[Tokens, dict[str, ndarray]]:
        """What the teacher reads, and for every token of both the number of its word."""
        told = self.tokens[rows]
        arrays = {}
        for who, tokens, continues in zip(("pupil", "teacher"), (read, told), self.continues):
            arrays[f"{who}_word"] = words_of(tokens.ids, continues)
            arrays[f"{who}_length"] = tokens.lengths
        return told, arrays


def words_of(ids: ndarray, continues: ndarray) -> ndarray:
    """The number of the word that each piece belongs to; special tokens are words of their own."""
    return np.cumsum(~continues[ids]) - 1


def lessons(encoder, teacher, texts: Sequence[str], tokens: Tokens, cache=None) -> Lessons:
    """Lessons in ``texts``, which the pupil reads as ``tokens``."""
    told = tokenise_once(teacher, texts, 128, cache)
    mine, theirs = continuing_pieces(encoder.tokenizer), continuing_pieces(teacher.tokenizer)
    my_words = np.add.reduceat(~mine[tokens.ids], tokens.offsets[:-1])
    their_words = np.add.reduceat(~theirs[told.ids], told.offsets[:-1])
    return Lessons(told, (mine, theirs), my_words == their_words)


@dataclass
class DialogueExamples:
    """Rows are distinct utterances, then visits to dialogues, one for every third utterance.

    At a visit everything is drawn anew: where the second segment begins, how far back the first one reaches (few
    utterances, or all), whether the second one is a reply or all that follows, and whether it is replaced by one
    from another dialogue of the same corpus. Both together fill at most ``max_length`` tokens; the first loses its
    beginning, the second its end.
    """

    masks: MaskedExamples  # of the utterances
    stream: ndarray  # [CLS] and [SEP], then the utterances of all dialogues, each closed by [SEP]
    starts: ndarray  # where an utterance begins in the stream, and where the last one ends
    ends: ndarray  # for every utterance, the one at which the next dialogue begins
    visits: ndarray  # a row each: first and next-to-last utterance of the dialogue, the same of its corpus
    max_length: int
    lessons: Lessons | None = None

    def __len__(self) -> int:
        return len(self.masks) + len(self.visits)

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
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

    def segments(self, visits: ndarray, rng: Generator) -> tuple[Tokens, ndarray]:
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

    def _lay(self, start: ndarray, middle: ndarray, second: ndarray, last: ndarray) -> Tokens:
        """[CLS], the first segment, the second segment, [SEP], gathered from the stream."""
        room = self.max_length - 2
        before, after = self.starts[middle] - self.starts[start], self.starts[last] - 1 - self.starts[second]
        after = np.minimum(after, np.maximum(room - before, room // 2))
        before = np.minimum(before, room - after)
        one = np.ones_like(before)
        begins = np.stack([one * 0, self.starts[middle] - before, self.starts[second], one], 1)
        sizes = np.stack([one, before, after, one], 1)
        types = np.repeat(np.tile(np.array([0, 0, 1, 1], np.int8), len(one)), sizes.ravel())
        return Tokens(self.stream[stretches(begins, sizes)], offsets_of(sizes.sum(1)), types)


def dialogue_examples(
    encoder, dialogues: Sequence[Conversation], max_length: int = 512, mask: float = 0.15, cache=None, teacher=None
) -> DialogueExamples:
    """Every distinct utterance, and visits to the dialogues whose neighbours answer each other."""
    max_length = min(max_length, encoder.max_length)
    number = Numbers()
    for dialogue in dialogues:
        number.of(dialogue.utterances)
    texts = list(number)
    tokens = tokenise_once(encoder, texts, max_length, cache)
    paired = sorted((d for d in dialogues if d.paired and len(d.utterances) > 1), key=lambda d: d.corpus)
    said = tokens[joined((number.of(d.utterances) for d in paired), np.int64)]
    sizes = np.array([len(d.utterances) for d in paired], np.int64)
    borders = offsets_of(sizes)
    corpora = np.array([d.corpus for d in paired])
    visits = np.zeros((len(paired), 4), np.int64)
    visits[:, 0], visits[:, 1] = borders[:-1], borders[1:]
    visits[:, 2] = borders[np.searchsorted(corpora, corpora, "left")]
    visits[:, 3] = borders[np.searchsorted(corpora, corpora, "right")]
    marks = [encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id]
    pieces = said.lengths - 1  # an utterance loses its [CLS] and keeps its [SEP]
    return DialogueExamples(
        masks=MaskedExamples.from_tokens(encoder, tokens, mask),
        stream=joined([marks, said.ids[stretches(said.offsets[:-1] + 1, pieces)]]),
        starts=len(marks) + offsets_of(pieces),
        ends=np.repeat(borders[1:], sizes),
        visits=np.repeat(visits, np.maximum(1, (sizes - 1) // 3), axis=0),
        max_length=max_length,
        lessons=lessons(encoder, teacher, texts, tokens, cache) if teacher else None,
    )
