"""Templates of annotated utterances and the utterances they give when filled again (TaDSE Section 3, Tables 1 and 2).

A template is an utterance with ``{SLOT}`` in place of every slot value; the Entity Book counts the values of every slot
type over the training set. Filling the templates of 64,000 utterances with frequent values gives 834,000.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, product
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.data.records import IntentUtterance, Slot
from dialnb.errors import DataError, check_known
from dialnb.examples.batches import Batch
from dialnb.tokens import Numbers, Tokens, offsets_of

SYMBOL = "{SLOT}"
FILLS = ("product", "one_at_a_time")
SAMPLINGS = ("utterances", "fillings")
MOST = 100_000  # fillings of one utterance: one that names dozens of things would have millions

EntityBook = dict[str, Counter[str]]


def slot_type(name: str) -> str:
    """The last part of a dotted name: ``fromloc.city_name`` and ``toloc.city_name`` share their values (41 of ATIS' 79
    names remain, as Table 1 has it). Names of the other datasets have no dots."""
    return name.rpartition(".")[2]


def cut_at_slots(utterance: IntentUtterance) -> tuple[list[str], list[Slot]]:
    """The text around the slots, one piece more than there are slots, and the slots from left to right."""
    slots = sorted(utterance.slots, key=lambda slot: slot.start)
    pieces, end = [], 0
    for slot in slots:
        if slot.start < end or utterance.text[slot.start : slot.end] != slot.value:
            raise DataError(
                f"no template can be made of {utterance.text!r}: slot {slot.name!r} with value {slot.value!r} should "
                f"lie at characters {slot.start} to {slot.end}, behind the slot before it"
            )
        pieces.append(utterance.text[end : slot.start])
        end = slot.end
    return [*pieces, utterance.text[end:]], slots


def make_template(utterance: IntentUtterance, typed: bool = False) -> str:
    """The utterance with ``{SLOT}`` in place of its slot values, or their type (``{city_name}``) if ``typed``.

    >>> make_template(IntentUtterance("fly to boston", "flight", (Slot("toloc.city_name", "boston", 7, 13),)))
    'fly to {SLOT}'
    """
    pieces, slots = cut_at_slots(utterance)
    return _around(pieces) % tuple(f"{{{slot_type(slot.name)}}}" if typed else SYMBOL for slot in slots)


def entity_book(utterances: Iterable[IntentUtterance]) -> EntityBook:
    """Slot type -> how often each value occurs; ``most_common`` has ties in first-seen order."""
    book: EntityBook = {}
    for utterance in utterances:
        for slot in utterance.slots:
            book.setdefault(slot_type(slot.name), Counter())[slot.value] += 1
    return book


def mistaken_slots(utterances: Sequence[IntentUtterance], share: float, seed: int = 0) -> list[IntentUtterance]:
    """The utterances with ``share`` of their slots carrying another slot's type, drawn at random: noise on purpose.

    Filled from the book of the utterances *without* mistakes, templates then get values that do not fit.
    """
    rng = np.random.default_rng(seed)
    types = sorted(entity_book(utterances))
    if len(types) < 2:
        raise DataError(f"a slot can be mistaken for one of another type only, but there is one type: {types}")

    def mistake(slot: Slot) -> Slot:
        if rng.random() >= share:
            return slot
        others = [name for name in types if name != slot_type(slot.name)]
        return replace(slot, name=others[rng.integers(len(others))])

    return [replace(utterance, slots=tuple(map(mistake, utterance.slots))) for utterance in utterances]


class Augmentation(Sequence[str]):
    """The utterances of a dataset, each followed by its template filled with the ``k`` most frequent values per type.

    ``fill`` is "product" (every combination of values over the slots) or "one_at_a_time" (one slot changes, the others
    keep their values). Every utterance comes with all its combinations, each once, also where others share its
    template. ``k=0`` gives the originals alone. ``book`` is another Entity Book than that of the utterances.

    >>> toy = [
    ...     IntentUtterance("fly to rome", "flight", (Slot("city", "rome", 7, 11),)),
    ...     IntentUtterance("go to oslo", "flight", (Slot("city", "oslo", 6, 10),)),
    ... ]
    >>> list(Augmentation(toy, k=2))
    ['fly to rome', 'fly to oslo', 'go to oslo', 'go to rome']
    """

    def __init__(
        self,
        utterances: Sequence[IntentUtterance],
        k: int,
        fill: str = "product",
        typed: bool = False,
        book: EntityBook | None = None,
    ) -> None:
        check_known("fill", fill, FILLS)
        self.k, self.fill = k, fill
        self.book = entity_book(utterances) if book is None else book
        self.top = {name: [value for value, _ in counts.most_common(k)] for name, counts in self.book.items()}
        self.templates = [make_template(utterance, typed) for utterance in utterances]
        filled = [self._filled(utterance) for utterance in utterances]
        self.texts = list(chain(*filled))
        self.counts = np.array([len(texts) for texts in filled], np.int64)
        self.offsets = offsets_of(self.counts)

    def _filled(self, utterance: IntentUtterance) -> list[str]:
        """The utterance itself, then the fillings of its template that differ from it."""
        pieces, slots = cut_at_slots(utterance)
        own = tuple(slot.value for slot in slots)
        options = [self.top.get(slot_type(slot.name)) or [slot.value] for slot in slots]
        fillings: Iterable[tuple[str, ...]] = islice(product(*options), MOST)
        if self.fill == "one_at_a_time":
            fillings = [(*own[:i], value, *own[i + 1 :]) for i, values in enumerate(options) for value in values]
        template = _around(pieces)
        return [template % values for values in dict.fromkeys([own, *fillings])]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: Any) -> Any:
        return self.texts[index]

    @cached_property
    def statistics(self) -> dict[str, int | float | str]:
        """A line of Table 1, in units instead of thousands; ``values`` are distinct strings."""
        templates = len(set(self.templates))
        return {
            "strategy": f"top-{self.k}",
            "entities": len(self.book),
            "values": len({value for counts in self.book.values() for value in counts}),
            "templates": templates,
            "orig_utterances": len(self.templates),
            "utterances": len(self),
            "ut_ratio": len(self) / max(1, templates),
        }


def _around(pieces: Sequence[str]) -> str:
    """A format string that puts as many values between the pieces as fit there."""
    return "%s".join(piece.replace("%", "%%") for piece in pieces)


RULES = {
    "SNIPS": (5, "one_at_a_time"),
    "ATIS": (2, "product"),
    "MASSIVE": (3, "product"),
    "HWU64": (3, "product"),
    "CLINC150": (5, "product"),
}
"""How Table 1 augments each dataset: the k printed there, and the way of filling that comes near its totals."""


def augment(dataset: str, utterances: Sequence[IntentUtterance], k: int | None = None, **options) -> Augmentation:
    """The dataset's utterances augmented by its rule, with another ``k`` if given; options as for the class."""
    check_known("dataset with a rule of augmentation", dataset, RULES)
    printed, fill = RULES[dataset]
    return Augmentation(utterances, printed if k is None else k, **({"fill": fill} | options))


@dataclass
class FilledExamples:
    """Utterances, each with its fillings: a batch takes one of them, drawn anew every time. Its tokens ``pair`` are
    what was drawn, twice."""

    fillings: Tokens
    first: ndarray  # where the fillings of each utterance begin
    counts: ndarray

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def of_epoch(self) -> float:
        """The share of an epoch over all fillings, as the paper counts, that one pass over the utterances is."""
        return len(self) / len(self.fillings)

    def draw(self, rows: ndarray, rng: Generator) -> Tokens:
        return self.fillings[self.first[rows] + rng.integers(self.counts[rows])]

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        drawn = self.draw(rows, rng)
        return Batch(len(rows), {"pair": Tokens.concatenate([drawn, drawn])})


@dataclass
class TemplateExamples(FilledExamples):
    """Utterances with their templates. A batch's tokens ``views`` are the utterances twice and the templates twice
    (dropout tells the two apart); its array ``template_ids`` says which rows share a template."""

    templates: Tokens
    template_ids: ndarray

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        ids = self.template_ids[rows]
        utterances, templates = self.draw(rows, rng), self.templates[ids]
        views = Tokens.concatenate([utterances, utterances, templates, templates])
        return Batch(len(rows), {"views": views}, {"template_ids": ids})


def template_examples(
    encoder, augmentations: Sequence[Augmentation], max_length: int = 32, cache=None, sampling: str = "utterances"
) -> TemplateExamples:
    """Examples of one dataset (single-source) or of several together (multi-source); templates are tokenised once."""
    alone = augmented_dropout_examples(encoder, augmentations, max_length, cache, sampling)
    templates = Numbers()
    ids = np.concatenate([templates.of(part.templates) for part in augmentations])
    if sampling == "fillings":
        ids = np.repeat(ids, np.concatenate([part.counts for part in augmentations]))
    tokens = encoder.tokenize(list(templates), max_length, cache=cache)
    return TemplateExamples(alone.fillings, alone.first, alone.counts, tokens, ids)


def augmented_dropout_examples(
    encoder, augmentations: Sequence[Augmentation], max_length: int = 32, cache=None, sampling: str = "utterances"
) -> FilledExamples:
    """The utterances alone, each its own positive: L_u, which is SimCSE on augmented data ("-aug" rows).

    ``sampling`` "utterances" draws utterances alike and one filling of each; "fillings" draws fillings alike, as the
    authors' files do: then utterances with many slots crowd out all others (1 % of them give 80 % of CLINC150's).
    """
    check_known("sampling", sampling, SAMPLINGS)
    if not augmentations or not all(isinstance(a, Augmentation) for a in augmentations):
        kinds = sorted({type(a).__name__ for a in augmentations}) or ["nothing"]
        raise DataError(
            f"TaDSE trains on augmented datasets, but was given {', '.join(kinds)}: "
            "make them with dialnb.examples.templates.augment(dataset, utterances)"
        )
    tokens = Tokens.concatenate([encoder.tokenize(a, max_length, cache=cache) for a in augmentations])
    counts = np.concatenate([part.counts for part in augmentations])
    if sampling == "fillings":
        counts = np.ones(len(tokens), np.int64)
    return FilledExamples(tokens, offsets_of(counts)[:-1], counts)
