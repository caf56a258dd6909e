"""Dialogue corpora as plain lists of utterances: the TOD-BERT collection, what may be shared (and the training splits
of it), all that is reachable, and what there is of Chinese.

A corpus file (``write_corpus``, ``read_corpus``) holds such dialogues as compressed JSON lines, for machines that have
no access to the sources.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dialnb.data.datasets import load
from dialnb.data.records import MatchingGroup, Record, ScoredPair, SelectionGroup
from dialnb.errors import DataError, UnknownName

if TYPE_CHECKING:
    from dialnb.data.store import Store


@dataclass(frozen=True, slots=True)
class Conversation:
    """The utterances of one dialogue; ``paired`` is False where neighbours do not answer each other (loose lines)."""

    corpus: str
    utterances: tuple[str, ...]
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
        return "".join(
            [self.dataset, f"/{self.variant}" if self.variant else "", f":{self.split}" if self.split else ""]
        )


TODBERT = (
    Part("MetaLWOZ"), Part("SGD"), Part("Taskmaster", "tm1-delexicalised"), Part("MultiWOZ"), Part("MDC"),
    Part("KVRET"), Part("Frames"), Part("WOZ2.0"), Part("CamRest676"),
)  # fmt: skip
REDISTRIBUTABLE = (
    Part("SGD"), Part("Taskmaster", "tm4"), Part("Taskmaster", "tm3-shard"), Part("MultiWOZ"), Part("WOZ2.0"),
    Part("CamRest676"), Part("STAR"), Part("TopicalChat"), Part("Self-dialogue"),
    Part("UbuntuIRC", "lines", paired=False, split="train"), Part("MultiDoGO", paired=False),
)  # fmt: skip
"""The dev and test lines of Ubuntu IRC stay out: lists of replies are made of them."""
TRAIN_SPLITS = (
    *(Part(name, variant, split="train") for name, variant in (
        ("SGD", None), ("Taskmaster", "tm4"), ("Taskmaster", "tm3-shard"), ("WOZ2.0", None), ("CamRest676", None),
        ("bundled/STAR", None), ("Self-dialogue", None), ("UbuntuIRC", "turns"),
    )),
    Part("UbuntuIRC", "lines", paired=False, split="train"), Part("MultiDoGO", paired=False, split="train"),
)  # fmt: skip
"""What ``mini`` reads: the training split of all that may be redistributed, that of STAR being ours. MultiWOZ and
TopicalChat stay out, since only their dev and test splits are within reach."""
CHINESE = (
    Part("DialogueCSE", "ecd-sessions"), Part("E-commerce", "sessions"), Part("Douban", "copies", paired=False),
    Part("DialogueCSE", "ecd-train", paired=False), Part("DialogueCSE", "ecd-select", paired=False, split="dev"),
    Part("DialogueCSE", "ecd-sts", paired=False, split="dev"),
    Part("DialogueCSE", "jddc-select", paired=False, split="dev"),
    Part("DialogueCSE", "jddc-sts", paired=False, split="dev"),
)  # fmt: skip
"""Test sentences of DialogueCSE stay out."""
COLLECTIONS = {
    "todbert": TODBERT,
    "redistributable": REDISTRIBUTABLE,
    "train-splits": TRAIN_SPLITS,
    "reachable": tuple(dict.fromkeys((*TODBERT, *REDISTRIBUTABLE, Part("DailyDialog")))),
    "chinese": CHINESE,
}


def collection(name: str) -> tuple[Part, ...]:
    """The parts of a named collection."""
    if name not in COLLECTIONS:
        raise UnknownName("collection", name, COLLECTIONS)
    return COLLECTIONS[name]


def conversations(parts: Iterable[Part], store: Store | None = None) -> Iterator[Conversation]:
    """Every dialogue of ``parts``: newlines and tabs become spaces, empty utterances go, order stays."""
    for part in parts:
        for record in load(part.dataset, part.variant, part.split, store=store):
            if said := sentences_of(record):
                yield Conversation(part.label, said, part.paired)


def utterances_of(record: Record) -> tuple[str, ...]:
    """What a record says, utterance by utterance: white space folded, empty ones left out."""
    said = [u.text for u in record.utterances] if hasattr(record, "utterances") else [record.text]
    return tuple(text for raw in said if (text := " ".join(raw.split())))


def sentences_of(record: Record) -> tuple[str, ...]:
    """As `utterances_of`, and every sentence of records that are no dialogues: pairs, contexts and candidates."""
    match record:
        case ScoredPair():
            said = (record.first, record.second)
        case MatchingGroup():
            said = (*record.before, *record.after, *record.candidates)
        case SelectionGroup():
            said = (*record.context, *record.candidates)
        case _:
            return utterances_of(record)
    return tuple(text for raw in said if (text := " ".join(raw.split())))


def write_corpus(path: str | Path, dialogues: Iterable[Conversation]) -> int:
    """Write dialogues as ``.jsonl.xz``; returns how many."""
    count = 0
    with lzma.open(path, "wt", encoding="utf-8", preset=6) as file:
        for d in dialogues:
            count += 1
            row = [d.corpus, int(d.paired), *d.utterances]
            file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    return count


def read_corpus(path: str | Path) -> list[Conversation]:
    """Dialogues of a file made by ``write_corpus``."""
    found = []
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                corpus, paired, *utterances = json.loads(line)
                found.append(Conversation(corpus, tuple(utterances), bool(paired)))
    except (lzma.LZMAError, EOFError, ValueError) as error:
        told = "this is not a dialogue corpus made by 'dialnb corpus'"
        raise DataError(f"{path}, line {len(found) + 1}: {told}: {error}") from error
    if not found:
        raise DataError(f"{path} holds no dialogues")
    return found


def paired_dialogues(dialogues: Iterable[Conversation]) -> list[Sequence[str]]:
    """The utterance lists whose neighbours answer each other."""
    return [d.utterances for d in dialogues if d.paired]


def capped(dialogues: Sequence[Conversation], utterances: int, seed: int = 0) -> list[Conversation]:
    """At most about ``utterances`` of every corpus, whole dialogues drawn at random: diversity instead of size."""
    left: dict[str, int] = {}
    kept = []
    for place in np.random.default_rng(seed).permutation(len(dialogues)):
        dialogue = dialogues[place]
        if left.setdefault(dialogue.corpus, utterances) > 0:
            left[dialogue.corpus] -= len(dialogue.utterances)
            kept.append(dialogue)
    return kept
