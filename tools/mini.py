"""How the bundled encoder `mini` is made: masked words, next sentences and a teacher, on dialogues.

    python -m tools.mini --corpus train.jsonl.xz --teacher FOLDER --max-length 512 --set epochs=10 -o mini

A language model reads utterances with masked words, and stretches of dialogues in two segments of which it also has to
tell whether the second one follows the first. From a teacher it learns the hidden states of the unmasked words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator
from torch import Tensor, nn

from dialnb.commands.engine import change, checkpoints, conversations, save, training
from dialnb.data.corpora import Conversation
from dialnb.examples.batches import Batch, Examples
from dialnb.examples.masking import MaskedExamples, continuing_pieces
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.saving import check_place
from dialnb.tokens import Numbers, Packed, Tokens, joined, offsets_of, stretches
from dialnb.training.objective import Objective, Tensors
from dialnb.training.objectives import NextSentencePrediction
from dialnb.training.pretrain import PretrainingRecipe, pretrain
from tools.pretrain import description, listed, pretraining_settings

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

    def add_to(self, batch: Batch, read: Tokens, rows: ndarray) -> None:
        """Add what the teacher reads, and for every token of both the number of its word."""
        batch.tokens["teacher"] = self.tokens[rows]
        for who, tokens, continues in zip(("pupil", "teacher"), (read, self.tokens[rows]), self.continues):
            batch.arrays[f"{who}_word"] = words_of(tokens.ids, continues)
            batch.arrays[f"{who}_length"] = tokens.lengths
        batch.counts["imitation"] = int(batch.arrays["teacher_word"][-1]) + 1 if len(rows) else 0


def words_of(ids: ndarray, continues: ndarray) -> ndarray:
    """The number of the word that each piece belongs to; special tokens are words of their own."""
    return np.cumsum(~continues[ids]) - 1


def lessons(encoder, teacher, texts: Sequence[str], tokens: Tokens, cache=None) -> Lessons:
    """Lessons in ``texts``, which the pupil reads as ``tokens``."""
    told = teacher.tokenize(texts, 128, cache=cache)
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
            self.lessons.add_to(batch, self.masks.tokens[taught], taught)
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
    number.of(text for dialogue in dialogues for text in dialogue.utterances)
    texts = list(number)
    tokens = encoder.tokenize(texts, max_length, cache=cache)
    paired = sorted((d for d in dialogues if d.paired and len(d.utterances) > 1), key=lambda d: d.corpus)
    said = tokens[joined((number.of(d.utterances) for d in paired), np.int64)]
    sizes = np.array([len(d.utterances) for d in paired], np.int64)
    borders = offsets_of(sizes)
    corpora = np.array([d.corpus for d in paired])
    of_corpus = [borders[np.searchsorted(corpora, corpora, side)] for side in ("left", "right")]
    visits = np.stack([borders[:-1], borders[1:], *of_corpus], 1)
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


class Imitation(NextSentencePrediction):
    """BERT's pre-training with a teacher: from masked words the encoder also learns, through a linear bridge, the last
    hidden states that the teacher has of the unmasked ones, word by word (their word pieces may differ).

    Arrays ``pupil_word``, ``pupil_length`` and the same of the teacher describe the first sequences of the batch.
    """

    def __init__(self, encoder, teacher, weight: float = 10.0) -> None:
        super().__init__(encoder)
        self.bridge = nn.Linear(encoder.dim, teacher.dim)
        self.teacher, self.weight = (teacher,), weight  # in a tuple, so that it is not trained along
        self.names = {"teacher": teacher.name, "weight": weight}

    def read(self, encoder, batch: Batch, states: Tensor, packed: Packed) -> Tensors:
        terms = super().read(encoder, batch, states, packed)
        if not batch.counts["imitation"]:
            return terms | {"imitation": states.sum() * 0.0}
        teacher = self.teacher[0]
        teacher.dtype = encoder.dtype
        with torch.no_grad():
            told = self._words(batch, "teacher", *teacher.hidden(batch.tokens["teacher"]))
            told = nn.functional.layer_norm(told, told.shape[-1:])
        mine = self.bridge(self._words(batch, "pupil", states, packed))
        return terms | {"imitation": self.weight * nn.functional.mse_loss(mine, told)}

    @staticmethod
    def _words(batch: Batch, who: str, states: Tensor, packed: Packed) -> Tensor:
        """The mean state of every word."""
        word, lengths = (batch.tensor(f"{who}_{what}", states.device) for what in ("word", "length"))
        sequence = torch.repeat_interleave(torch.arange(len(lengths), device=states.device), lengths)
        position = torch.arange(len(word), device=states.device) - (lengths.cumsum(0) - lengths)[sequence]
        own = states[packed.places(sequence, position)].float()
        zeros = own.new_zeros(int(batch.counts["imitation"]), own.shape[1])
        return zeros.index_add(0, word, own) / torch.bincount(word, minlength=len(zeros))[:, None]


@dataclass(frozen=True)
class TaughtRecipe(PretrainingRecipe):
    """Pretraining with next sentences and, where one is named, a teacher."""

    teacher: str = ""

    def lessons(self, encoder: Encoder, dialogues: Sequence[Conversation], cache) -> tuple[Objective, Examples]:
        """What the encoder learns, and from which examples."""
        teacher = load_encoder(self.teacher, device=encoder.device) if self.teacher else None
        objective = Imitation(encoder, teacher) if teacher else NextSentencePrediction(encoder)
        return objective, dialogue_examples(encoder, dialogues, self.max_length, self.mask, cache, teacher)


def what_it_is(encoder: Encoder, recipe: TaughtRecipe) -> str:
    """What the card says of an encoder made from scratch, with what is special about this one."""
    taught = f", and learning on the same text the hidden states of `{recipe.teacher}`" if recipe.teacher else ""
    return description(encoder, recipe.kind).replace(" on dialogues.", f" and next sentences on dialogues{taught}.", 1)


@click.command()
@training
@click.option("--max-length", type=int, default=128, show_default=True, help="longest input")
@click.option("--teacher", default="", metavar="ENCODER", help="learn the hidden states of this encoder as well")
def main(
    corpus: str,
    only: str | None,
    columns: Sequence[str],
    out: Path,
    changes: Sequence[str],
    max_length: int,
    teacher: str,
) -> None:
    """Make an encoder of the shape of `mini`."""
    check_place(out)
    settings = change(pretraining_settings("mini"), changes)
    recipe = TaughtRecipe(max_length=max_length, settings=settings, teacher=teacher)
    dialogues = conversations(corpus, only, columns)
    encoder, result = pretrain(dialogues, recipe, checkpoints(out), name=out.name)
    save(encoder, out, result, dialogues, what_it_is(encoder, recipe), listed(recipe))


if __name__ == "__main__":
    main()
