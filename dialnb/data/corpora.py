"""Dialogue corpora as plain lists of utterances: the TOD-BERT collection, what may be shared (and the training splits
of it), all that is reachable, and what there is of Chinese.

A corpus file (``write_corpus``, ``read_corpus``) holds such dialogues as compressed JSON lines, for machines that have
no access to the sources.
"""

import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from dialnb.data.datasets import Dataset, load
from dialnb.data.records import TEXTS, Record, Texts
from dialnb.data.sources import known_name, read_registry
from dialnb.data.store import Store
from dialnb.errors import DataError
from dialnb.files import as_list


@dataclass(frozen=True, slots=True)
class Conversation:
    """The utterances of one dialogue; ``paired`` is False where neighbours do not answer each other (loose lines)."""

    corpus: str
    utterances: Texts
    paired: bool = True

    def __len__(self) -> int:
        return len(self.utterances)


@dataclass(frozen=True)
class Part:
    """One dataset of a collection: which reading of it, whether its neighbouring utterances form pairs, and which split
    (None: all of them)."""

    dataset: str
    variant: str | None = None
    paired: bool = True
    split: str | None = None

    @property
    def label(self) -> str:
        variant = f"/{self.variant}" if self.variant else ""
        split = f":{self.split}" if self.split else ""
        return self.dataset + variant + split


COLLECTIONS = {name: tuple(Part(**part) for part in parts) for name, parts in read_registry("collections").items()}


def collection(name: str) -> tuple[Part, ...]:
    """The parts of a named collection."""
    return COLLECTIONS[known_name("collection", name, COLLECTIONS)]


def conversations(parts: Iterable[Part], store: Store | None = None) -> Iterator[Conversation]:
    """Every dialogue of ``parts``: newlines and tabs become spaces, empty utterances go, order stays."""
    for part in parts:
        for texts in filter(None, all_said(load(part.dataset, part.variant, part.split, store=store))):
            yield Conversation(part.label, texts, part.paired)


def all_said(records: Dataset) -> Iterator[Texts]:
    """`sentences_of` each record; dialogues are read column by column, without a record of each utterance."""
    if records.table.kind != "Dialogue":
        return map(sentences_of, records)
    texts = map(cache(lambda text: " ".join(text.split())), records.column("utterances.text"))
    return (tuple(filter(None, islice(texts, size))) for size in records.sizes("utterances"))


def sentences_of(record: Record) -> Texts:
    """What a record says, utterance by utterance: white space folded, empty ones left out.

    Of records that are no dialogues it is every sentence: pairs, contexts and candidates.
    """
    raw_texts = []
    for path in TEXTS[type(record)]:
        name, _, within = path.partition(".")
        for part in as_list(getattr(record, name)):
            raw_texts.append(getattr(part, within) if within else part)
    return tuple(text for raw in raw_texts if (text := " ".join(raw.split())))


def write_corpus(path: str | Path, dialogues: Iterable[Conversation]) -> int:
    """Write dialogues as ``.jsonl.xz``; returns how many."""
    count = 0
    with lzma.open(path, "wt", encoding="utf-8", preset=6) as file:
        for dialogue in dialogues:
            count += 1
            row = [dialogue.corpus, int(dialogue.paired), *dialogue.utterances]
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    return count


def read_corpus(path: str | Path) -> list[Conversation]:
    """Dialogues of a file made by ``write_corpus``."""
    dialogues = []
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                corpus, paired, *utterances = json.loads(line)
                dialogues.append(Conversation(corpus, tuple(utterances), bool(paired)))
    except (lzma.LZMAError, EOFError, ValueError) as error:
        raise DataError(
            f"{path}, line {len(dialogues) + 1}: this is not a dialogue corpus made by 'dialnb corpus': {error}"
        ) from error
    if not dialogues:
        raise DataError(f"{path} holds no dialogues")
    return dialogues


def paired_dialogues(dialogues: Iterable[Conversation]) -> list[Sequence[str]]:
    """The utterance lists whose neighbours answer each other."""
    return [dialogue.utterances for dialogue in dialogues if dialogue.paired]


def capped(dialogues: Sequence[Conversation], utterances: int) -> list[Conversation]:
    """At most about ``utterances`` of every corpus, whole dialogues drawn at random: diversity instead of size."""
    left: dict[str, int] = {}
    kept = []
    for place in np.random.default_rng(0).permutation(len(dialogues)):
        dialogue = dialogues[place]
        if left.setdefault(dialogue.corpus, utterances) > 0:
            left[dialogue.corpus] -= len(dialogue.utterances)
            kept.append(dialogue)
    return kept
