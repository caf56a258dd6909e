"""What a training reads, named by a few values, so that a stage can be keyed by it: ``read()`` gives the records.

A recipe takes what its reading gives: conversations (most of them), sessions (DialogueCSE), lists of candidate replies
(UMS), utterances with templates (TaDSE).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dialnb.data import (
    Conversation,
    Dataset,
    InferenceItem,
    IntentUtterance,
    MatchingGroup,
    Record,
    SelectionGroup,
    Texts,
    all_said,
    sentences_of,
)
from dialnb.errors import Offline
from dialnb.examples.matching import sessions
from dialnb.examples.pairs import tail_quirk
from dialnb.examples.recogniser import rules, spacy_entities, with_entities
from dialnb.examples.templates import Augmentation, augment, entity_book, mistaken_slots

RECOGNISERS = {recogniser.__name__: recogniser for recogniser in (rules, spacy_entities)}
Corpora = Sequence[Dataset]
Limit = int | None
"""How many are taken at most; None: all."""
FILLS = 3
"""Values that a slot of an utterance in a dialogue is filled with, one slot at a time: it may name dozens."""


class Reading(Protocol):
    """Anything a recipe can be trained on."""

    def read(self) -> Sequence[Any]:
        """Load the records; the same ones every time."""


def thin(items: Sequence, limit: Limit, seed: int = 24) -> list:
    """Keep ``limit`` of the items in their order, drawn once by ``seed``; all of them for None.

    >>> thin("abcdef", 3) == thin("abcdef", 3), thin("abc", None)
    (True, ['a', 'b', 'c'])
    """
    if limit is None or limit >= len(items):
        return list(items)
    chosen = np.random.default_rng(seed).choice(len(items), limit, replace=False)
    return [items[i] for i in np.sort(chosen)]


@dataclass(frozen=True)
class Lacking:
    """Data that cannot be had: a model that would read them is left out for this reason."""

    reason: str

    def read(self) -> Sequence[Any]:
        raise Offline(self.reason)


# --- dialogues --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialogues:
    """Dialogues with their non-empty utterances, ``limit`` of them drawn at random.

    ``tail`` loses the same opening and closing lines as DSE's code. Of inference pairs the entailed ones are
    conversations of two utterances (DSE-dianli).
    """

    corpora: Corpora
    limit: Limit = None
    tail: bool = False

    def read(self) -> list[Conversation]:
        parts = []
        for part in self.corpora:
            parts.append(part.filter(label="entailment") if part.table.kind == "InferenceItem" else part)
        if self.limit is None:
            return [
                Conversation(part.name, said)
                for part in parts
                for said in (map(self._said, part) if self.tail or part.table.kind != "Dialogue" else all_said(part))
            ]
        places = thin([(part, row) for part in parts for row in range(len(part))], self.limit)
        return [Conversation(part.name, self._said(part[row])) for part, row in places]

    def _said(self, record: Record) -> Texts:
        if isinstance(record, InferenceItem):
            return record.utterances
        said = sentences_of(record)
        if self.tail and said:
            return tuple(tail_quirk(said, record.utterances[0].speaker == "system"))
        return said


@dataclass(frozen=True)
class Sentences:
    """All sentences of every record, whatever its kind, but those that ``without`` says too; those of dialogues answer
    each other."""

    corpora: Corpora
    without: Corpora = ()

    def read(self) -> list[Conversation]:
        known = {text for part in self.without for said in all_said(part) for text in said}
        talks = []
        for part in self.corpora:
            for said in all_said(part):
                if new := tuple(text for text in said if text not in known):
                    talks.append(Conversation(part.name, new, part.table.kind == "Dialogue"))
        return talks


@dataclass(frozen=True)
class Sessions:
    """Dialogues as turns of alternating speakers, those with fewer than ``min_turns`` left out."""

    corpora: Corpora
    min_turns: int = 0
    limit: Limit = None

    def read(self) -> list[Texts]:
        return thin(sessions((record for part in self.corpora for record in part), self.min_turns), self.limit)


# --- candidate replies ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lists:
    """Contexts with candidate replies, ``limit`` of those of a split.

    A sample without a test set keeps every third of its dialogues for looking at, and trains on the others. Rows of
    DialogueCSE (a true response and several others) join the training data as lists of one right and one wrong reply.
    """

    parts: Corpora
    limit: Limit = None
    split: str = "train"

    def read(self) -> list[SelectionGroup]:
        found = []
        for number, part in enumerate(self.parts):
            if part.table.kind == "MatchingGroup":
                if self.split == "train":
                    found += [_as_selection(f"{part.name}-{i}", row) for i, row in enumerate(part)]
            elif len(part.filter(split="test")):
                found += part.filter(split=self.split)
            elif number == 0 and self.split in ("train", "test"):
                rows = part.filter(split="train")
                found += [row for i, row in enumerate(rows) if (i % 3 == 0) == (self.split == "test")]
        return thin(found, self.limit)


def _as_selection(name: str, row: MatchingGroup) -> SelectionGroup:
    true, wrong = row.labels.index(1), row.labels.index(0)
    return SelectionGroup(name, row.before, (row.candidates[true], row.candidates[wrong]), (1, 0), row.split)


def reply_lists(dialogues: Sequence[Sequence[str]]) -> list[SelectionGroup]:
    """Cut each dialogue of three utterances or more at a random place: what was said before, the true reply, and one
    of another dialogue that is not the same."""
    long = [said for said in dialogues if len(said) > 2]
    rng, lists = np.random.default_rng(24), []
    for number, said in enumerate(long):
        at, other = int(rng.integers(2, len(said))), long[(number + int(rng.integers(1, len(long)))) % len(long)]
        wrong = other[int(rng.integers(len(other)))]
        if wrong != said[at]:
            lists.append(SelectionGroup(str(number), tuple(said[:at]), (said[at], wrong), (1, 0), "train"))
    return lists


# --- utterances with templates ----------------------------------------------------------------------------------------


def annotated(dataset: str, utterances: Sequence[IntentUtterance], entities: str) -> list[IntentUtterance]:
    """The utterances with their slots; CLINC150 has none, so named entities are recognised in their place."""
    return with_entities(utterances, RECOGNISERS[entities]) if dataset == "CLINC150" else list(utterances)


@dataclass(frozen=True)
class Filled:
    """A dataset to train on: ``limit`` of its training utterances, filled with the ``k`` most frequent values.

    ``k`` None is the dataset's own of Table 1, 0 leaves the originals. ``typed`` placeholders tell slots apart, and
    ``mistaken`` is the share of slots that are filled with values of another type, on purpose.
    """

    dataset: str
    records: Dataset
    k: int | None = None
    limit: Limit = None
    entities: str = "rules"
    typed: bool = False
    mistaken: float = 0.0

    def augmentation(self) -> Augmentation:
        rows = annotated(self.dataset, thin(self.records.filter(split="train"), self.limit), self.entities)
        book = entity_book(rows)
        rows = mistaken_slots(rows, self.mistaken) if self.mistaken else rows
        return augment(self.dataset, rows, self.k, typed=self.typed, book=book)


@dataclass(frozen=True)
class Templates:
    """Several datasets with their templates."""

    sources: Sequence[Filled]

    def read(self) -> list[Augmentation]:
        return [source.augmentation() for source in self.sources]


@dataclass(frozen=True)
class SpokenTemplates:
    """``most`` distinct utterances of dialogues with the entities that rules find in them, as templates."""

    dialogues: Dialogues
    most: Limit = None

    def read(self) -> list[Augmentation]:
        said = dict.fromkeys(text for talk in self.dialogues.read() for text in talk.utterances)
        rows = [IntentUtterance(text, "") for text in thin(list(said), self.most)]
        return [Augmentation(with_entities(rows, rules), FILLS, fill="one_at_a_time")]
