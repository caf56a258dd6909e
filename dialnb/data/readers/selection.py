"""Response selection: rows ``label TAB utterance TAB ... TAB response`` (Ubuntu V1, Douban, E-commerce) and DSTC7."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dialnb.data.readers import Skipped, load_json, reader, row, text_lines
from dialnb.data.readers.files import SPLITS, find_files
from dialnb.data.records import Dialogue, SelectionGroup, Utterance
from dialnb.errors import DataError

if TYPE_CHECKING:
    from dialnb.data.store import Store

CANDIDATES = 10
OFFICIAL = ("train.txt", "valid.txt", "dev.txt", "test.txt")
NEXT_TO_CHINESE = re.compile(r"(?<=[^\x00-\x7f]) +| +(?=[^\x00-\x7f])")


class Row(NamedTuple):
    label: int
    context: tuple[str, ...]
    response: str
    where: str


def selection_rows(data: bytes, name: str, skipped: Skipped) -> Iterator[Row]:
    """The rows of one file; empty utterances of a context are left out, an empty response is kept."""
    for where, line in text_lines(data, name):
        if not line.strip():
            skipped.add("blank line", where)
            continue
        with row(where):
            label, *context, response = line.split("\t")
            if label not in ("0", "1"):
                raise ValueError(f"label {label!r}, expected 0 or 1")
            kept = tuple(text.strip() for text in context if text.strip())
            if not kept:
                raise ValueError("no utterance between label and response")
        if len(kept) < len(context):
            skipped.add("empty utterance in a context", where, len(context) - len(kept))
        yield Row(int(label), kept, response.strip(), where)


def selection_groups(
    rows: Iterator[Row], split: str, candidates: int | None, positive_first: bool
) -> Iterator[SelectionGroup]:
    """Consecutive rows become a group: ``candidates`` of them each time, or (None) a positive and what follows it.

    Ties in a ranking are kept in file order by some scorers, which favours a positive that is listed first: where a
    corpus is known to list it first (``positive_first``), a group that does not is an error, so that nobody is misled.
    """
    if candidates is None:
        groups = _runs(rows)
    else:
        every = list(rows)
        groups = (every[start : start + candidates] for start in range(0, len(every), candidates))
    for number, group in enumerate(groups):
        first, labels = group[0], tuple(item.label for item in group)
        if candidates is not None and len(group) != candidates:
            raise DataError(f"{first.where}: the last group has {len(group)} candidates, expected {candidates}")
        for item in group:
            if item.context != first.context:
                raise DataError(
                    f"{item.where}: another context than {first.where}, expected groups of {candidates} rows"
                )
        if positive_first and (labels[0] != 1 or any(labels[1:])):
            raise DataError(f"{first.where}: expected one positive, listed first, found labels {labels}")
        yield SelectionGroup(f"{split}-{number}", first.context, tuple(item.response for item in group), labels, split)


def _runs(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows of one context, cut before a positive that follows a negative: two samples may share a context."""
    group: list[Row] = []
    for item in rows:
        if group and (item.context != group[-1].context or item.label > group[-1].label):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def read_corpus(
    store: Store, skipped: Skipped, source: str, names: tuple[str, ...], grouped: tuple[str, ...], positive_first: bool
) -> Iterator[SelectionGroup]:
    """A corpus in files named after their split; the rows of the splits in ``grouped`` come in tens."""
    for name, data in find_files(store, source, *names, official=names == OFFICIAL):
        split = SPLITS[name.rpartition("/")[2].partition(".")[0]]
        rows = selection_rows(data, name, skipped)
        tens = split in grouped
        yield from selection_groups(rows, split, CANDIDATES if tens else None, positive_first and tens)


@reader("Ubuntu-V1")
def read_ubuntu_v1(store: Store, skipped: Skipped) -> Iterator[SelectionGroup]:
    """Ubuntu Corpus V1 with placeholders: train 1:1, validation and test 1:9 with the positive listed first."""
    yield from read_corpus(store, skipped, "Ubuntu-V1", OFFICIAL, grouped=("dev", "test"), positive_first=True)


@reader("Douban", variants=("copies", "official"))
def read_douban(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[SelectionGroup]:
    """Train and validation 1:1; ten judged candidates per test context, any number of them positive, in any order.
    "copies" is the sample that can be had without asking, "official" the whole corpus."""
    names = OFFICIAL if variant == "official" else ("train.sample",)
    yield from read_corpus(store, skipped, "Douban", names, grouped=("test",), positive_first=False)


@reader("E-commerce", variants=("copies", "official", "sessions", "official-sessions"))
def read_ecommerce(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[SelectionGroup | Dialogue]:
    """Train and validation 1:1, test 1:9, positive first; a sample ("copies") or the whole corpus ("official").
    The two variants of "sessions" are the dialogues that DialogueCSE rebuilds from the rows, see `sessions`."""
    names = OFFICIAL if variant.startswith("official") else ("train", "valid", "test")
    groups = read_corpus(store, skipped, "E-commerce", names, grouped=("test",), positive_first=True)
    yield from sessions(groups, skipped) if variant.endswith("sessions") else groups


def sessions(groups: Iterator[SelectionGroup], skipped: Skipped, at_least: int = 4) -> Iterator[Dialogue]:
    """DialogueCSE's preprocessing of ECD: a context with its true response is a session of at least four turns.

    The rows name no speakers; turns alternate, and the response is taken to be the shop's ("system"). Spaces that the
    word segmentation put beside Chinese characters are removed.
    """
    for group in groups:
        for response in (text for text, label in zip(group.candidates, group.labels) if label):
            turns = [NEXT_TO_CHINESE.sub("", text) for text in (*group.context, response)]
            if len(turns) < at_least:
                skipped.add(f"session of fewer than {at_least} turns", group.id)
                continue
            speakers = ("system", "user") if len(turns) % 2 else ("user", "system")
            utterances = tuple(Utterance(speakers[number % 2], text) for number, text in enumerate(turns))
            yield Dialogue(group.id, utterances, split=group.split)


@reader("DSTC7-Ubuntu")
def read_dstc7(store: Store, skipped: Skipped) -> Iterator[SelectionGroup]:
    """Subtask 1: the 100 listed candidates, the right one among them; the test answers are in a file of their own."""
    answers: dict[str, str] = {}
    for name, data in find_files(store, "DSTC7-Ubuntu", "ubuntu_responses_subtask_1.tsv", official=True):
        for where, line in text_lines(data, name):
            with row(where):
                example, answers[example] = line.split("\t")[:2]
    for name, data in find_files(store, "DSTC7-Ubuntu", "ubuntu_*_subtask_1.json", official=True):
        split = SPLITS[name.rpartition("/")[2].split("_")[1]]
        for number, item in enumerate(load_json(data, name)):
            with row(f"{name} example {number}"):
                example = str(item["example-id"])
                right = {answers[example]} if split == "test" else _ids(item["options-for-correct-answers"])
                labels = tuple(int(option["candidate-id"] in right) for option in item["options-for-next"])
                if not any(labels):
                    raise ValueError(f"the right answer of example {example} is not among the candidates")
                context = tuple(message["utterance"] for message in item["messages-so-far"])
                candidates = tuple(option["utterance"] for option in item["options-for-next"])
            yield SelectionGroup(f"{split}-{example}", context, candidates, labels, split)


def _ids(options: list[dict[str, str]]) -> set[str]:
    return {option["candidate-id"] for option in options}
