"""Templates of annotated utterances and the utterances they give when filled again (TaDSE Section 3, Tables 1 and 2).

A template is an utterance with ``{SLOT}`` in place of every slot value; the Entity Book counts the values of every slot
type over the training set. Filling the templates of 64,000 utterances with frequent values gives 834,000, so filled
utterances are numbered, not stored: their texts are made when asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from math import prod
from typing import NamedTuple

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from dialnb.data.records import IntentUtterance, Slot
from dialnb.errors import DataError, check_known
from dialnb.examples.batches import Batch
from dialnb.examples.pairs import PairExamples, tokenise_once, twice
from dialnb.tokens import Numbers, Tokens, offsets_of

SYMBOL = "{SLOT}"
FILLS = ("product", "one_at_a_time")

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
    return _interleave(pieces, [f"{{{slot_type(slot.name)}}}" if typed else SYMBOL for slot in slots])


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


class _Row(NamedTuple):
    """One original utterance: the text around its slots, its own values, the values that may take their place, how
    many utterances it gives, and the number of its own among the fillings (-1: it is none of them)."""

    pieces: list[str]
    values: list[str]
    options: list[list[str]]
    count: int
    own: int


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
        self.rows = [self._row(utterance) for utterance in utterances]
        self.counts = np.array([row.count for row in self.rows], np.int64)
        self.offsets = offsets_of(self.counts)

    def _row(self, utterance: IntentUtterance) -> _Row:
        pieces, slots = cut_at_slots(utterance)
        values = [slot.value for slot in slots]
        options = [self.top.get(slot_type(slot.name)) or [slot.value] for slot in slots]
        if self.fill == "one_at_a_time":
            options = [[other for other in choices if other != value] for choices, value in zip(options, values)]
            return _Row(pieces, values, options, 1 + sum(map(len, options)), -1)
        own = 0
        for choices, value in zip(options, values):
            own = own * len(choices) + choices.index(value) if own >= 0 and value in choices else -1
        return _Row(pieces, values, options, prod(map(len, options)) + (own < 0), own)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        row = int(np.searchsorted(self.offsets, place, "right")) - 1
        return self._text(self.rows[row], place - int(self.offsets[row]))

    def _text(self, row: _Row, number: int) -> str:
        """The ``number``-th utterance of a row: the original first, then the fillings that differ from it."""
        values, filling = list(row.values), number - 1
        if number and self.fill == "product":
            filling += 0 <= row.own <= filling
            choices = np.unravel_index(filling, [len(options) for options in row.options])
            values = [options[choice] for options, choice in zip(row.options, choices)]
        elif number:
            changes = [(slot, value) for slot, options in enumerate(row.options) for value in options]
            slot, value = changes[filling]
            values[slot] = value
        return _interleave(row.pieces, values)

    @cached_property
    def statistics(self) -> dict[str, int | float | str]:
        """A line of Table 1, in units instead of thousands; ``values`` are distinct strings."""
        templates = len(set(self.templates))
        return {
            "strategy": f"top-{self.k}",
            "entities": len(self.book),
            "values": len({value for counts in self.book.values() for value in counts}),
            "templates": templates,
            "orig_utterances": len(self.rows),
            "utterances": len(self),
            "ut_ratio": len(self) / max(1, templates),
        }


def _interleave(pieces: Sequence[str], between: Sequence[str]) -> str:
    return "".join(chain.from_iterable(zip_longest(pieces, between, fillvalue="")))


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
class TemplateExamples:
    """Utterances with their templates. A batch's tokens ``views`` are the utterances twice and the templates twice
    (dropout tells the two apart); its array ``template_ids`` says which rows share a template."""

    utterances: Tokens
    templates: Tokens
    template_ids: ndarray

    def __len__(self) -> int:
        return len(self.template_ids)

    def batch(self, rows: ndarray, rng: Generator) -> Batch:
        ids = self.template_ids[rows]
        utterances, templates = self.utterances[rows], self.templates[ids]
        views = Tokens.concatenate([utterances, utterances, templates, templates])
        return Batch(len(rows), {"views": views}, {"template_ids": ids})


def template_examples(
    encoder, augmentations: Sequence[Augmentation], max_length: int = 32, cache=None
) -> TemplateExamples:
    """Examples of one dataset (single-source) or of several together (multi-source); templates are tokenised once."""
    utterances = _tokenise(encoder, augmentations, max_length, cache)
    templates = Numbers()
    template_ids = [np.repeat(templates.of(part.templates), part.counts) for part in augmentations]
    template_tokens = tokenise_once(encoder, list(templates), max_length, cache)
    return TemplateExamples(utterances, template_tokens, np.concatenate(template_ids))


def augmented_dropout_examples(
    encoder, augmentations: Sequence[Augmentation], max_length: int = 32, cache=None
) -> PairExamples:
    """The utterances alone, each its own positive: L_u, which is SimCSE on augmented data ("-aug" rows)."""
    return twice(_tokenise(encoder, augmentations, max_length, cache))


def _tokenise(encoder, augmentations: Sequence[Augmentation], max_length: int, cache) -> Tokens:
    if not augmentations or not all(isinstance(a, Augmentation) for a in augmentations):
        kinds = sorted({type(a).__name__ for a in augmentations}) or ["nothing"]
        raise DataError(
            f"TaDSE trains on augmented datasets, but was given {', '.join(kinds)}: "
            "make them with dialnb.examples.templates.augment(dataset, utterances)"
        )
    return Tokens.concatenate([tokenise_once(encoder, a, max_length, cache) for a in augmentations])
