"""Response selection: rows ``label TAB utterance TAB ... TAB response`` (Ubuntu V1, Douban, E-commerce) and DSTC7; and
DialogueCSE's released files: semantic retrieval ("select"), sentence similarity ("sts") and a training sample."""

import re
from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import NamedTuple

from dialnb.data.readers import SPLITS, Files, Records, in_turn, reader, unique
from dialnb.data.records import Dialogue, MatchingGroup, RetrievalQuery, ScoredPair, SelectionGroup, Texts
from dialnb.errors import DataError

CANDIDATES = 10
OFFICIAL = ("train.txt", "valid.txt", "dev.txt", "test.txt")
FOLDERS = {"ecd": "datasets/edc", "jddc": "datasets/jddc"}
NEXT_TO_CHINESE = re.compile(r"(?<=[^\x00-\x7f]) +| +(?=[^\x00-\x7f])")


class Row(NamedTuple):
    label: int
    context: Texts
    response: str
    place: str


def selection_rows(files: Files, name: str, data: bytes) -> Iterator[Row]:
    """The rows of one file; empty utterances of a context are left out, an empty response is kept."""
    for line in files.lines(name, data):
        if not line.strip():
            files.skipped["blank line"] += 1
            continue
        label, *context, response = line.split("\t")
        if label not in ("0", "1"):
            raise ValueError(f"label {label!r}, expected 0 or 1")
        kept = tuple(text.strip() for text in context if text.strip())
        if not kept:
            raise ValueError("no utterance between label and response")
        if empty := len(context) - len(kept):
            files.skipped["empty utterance in a context"] += empty
        yield Row(int(label), kept, response.strip(), files.place)


def in_tens(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Ten rows of one context each time."""
    every = list(rows)
    for start in range(0, len(every), CANDIDATES):
        group = every[start : start + CANDIDATES]
        first = group[0]
        if len(group) != CANDIDATES:
            raise DataError(f"{first.place}: the last group has {len(group)} candidates, expected {CANDIDATES}")
        for row in group:
            if row.context != first.context:
                raise DataError(
                    f"{row.place}: another context than {first.place}, expected groups of {CANDIDATES} rows"
                )
        yield group


def in_runs(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows of one context, cut before a positive that follows a negative: two samples may share a context."""
    group: list[Row] = []
    for row in rows:
        if group and (row.context != group[-1].context or row.label > group[-1].label):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def selection_groups(groups: Iterable[list[Row]], split: str, positive_first: bool) -> Iterator[SelectionGroup]:
    """Groups of rows as records.

    Ties in a ranking are kept in file order by some scorers, which favours a positive that is listed first: where a
    corpus is known to list it first (``positive_first``), a group that does not is an error, so that nobody is misled.
    """
    for number, group in enumerate(groups):
        labels = tuple(row.label for row in group)
        if positive_first and (labels[0] != 1 or any(labels[1:])):
            raise DataError(f"{group[0].place}: expected one positive, listed first, found labels {labels}")
        responses = tuple(row.response for row in group)
        yield SelectionGroup(f"{split}-{number}", group[0].context, responses, labels, split)


def read_corpus(files: Files, names: Texts, tens: Texts, positive_first: bool) -> Iterator[SelectionGroup]:
    """A corpus in files named after their split; the rows of the splits in ``tens`` come in tens."""
    for name, data in files.find(*names, official=names == OFFICIAL):
        split = SPLITS[basename(name).partition(".")[0]]
        rows = selection_rows(files, name, data)
        groups = in_tens(rows) if split in tens else in_runs(rows)
        yield from selection_groups(groups, split, positive_first and split in tens)


@reader("Ubuntu-V1")
def read_ubuntu_v1(files: Files) -> Records:
    """Ubuntu Corpus V1 with placeholders: train 1:1, validation and test 1:9 with the positive listed first."""
    yield from read_corpus(files, OFFICIAL, ("dev", "test"), positive_first=True)


@reader("Douban", variants=("copies", "official"))
def read_douban(files: Files, variant: str) -> Records:
    """Train and validation 1:1; ten judged candidates per test context, any number of them positive, in any order.
    "copies" is the sample that can be had without asking, "official" the whole corpus."""
    names = OFFICIAL if variant == "official" else ("train.sample",)
    yield from read_corpus(files, names, ("test",), positive_first=False)


@reader("E-commerce", variants=("copies", "official", "sessions", "official-sessions"))
def read_ecommerce(files: Files, variant: str) -> Records:
    """Train and validation 1:1, test 1:9, positive first; a sample ("copies") or the whole corpus ("official").
    The two variants of "sessions" are the dialogues that DialogueCSE rebuilds from the rows, see `sessions`."""
    names = OFFICIAL if variant.startswith("official") else ("train", "valid", "test")
    groups = read_corpus(files, names, ("test",), positive_first=True)
    yield from sessions(files, groups) if variant.endswith("sessions") else groups


def sessions(files: Files, groups: Iterable[SelectionGroup]) -> Records:
    """DialogueCSE's preprocessing of ECD: a context with its true response is a session of at least four turns.

    The rows name no speakers; turns alternate, and the response is taken to be the shop's ("system"). Spaces that the
    word segmentation put beside Chinese characters are removed.
    """
    for group in groups:
        for response, label in zip(group.candidates, group.labels):
            if not label:
                continue
            turns = [NEXT_TO_CHINESE.sub("", text) for text in (*group.context, response)]
            if len(turns) < 4:
                files.skipped["session of fewer than 4 turns"] += 1
                continue
            speakers = ("system", "user") if len(turns) % 2 else ("user", "system")
            yield Dialogue(group.id, in_turn(turns, speakers), split=group.split)


@reader("DSTC7-Ubuntu")
def read_dstc7(files: Files) -> Records:
    """Subtask 1: the 100 listed candidates, the right one among them; the test answers are in a file of their own."""
    answers = {}
    for name, data in files.find("ubuntu_responses_subtask_1.tsv", official=True):
        for line in files.lines(name, data):
            example, answers[example] = line.split("\t")[:2]
    for name, data in files.find("ubuntu_*_subtask_1.json", official=True):
        split = SPLITS[basename(name).split("_")[1]]
        for item in files.items(name, data, "example"):
            example = str(item["example-id"])
            if split == "test":
                right = {answers[example]}
            else:
                right = {option["candidate-id"] for option in item["options-for-correct-answers"]}
            labels = tuple(int(option["candidate-id"] in right) for option in item["options-for-next"])
            if not any(labels):
                raise ValueError(f"the right answer of example {example} is not among the candidates")
            context = tuple(message["utterance"] for message in item["messages-so-far"])
            candidates = tuple(option["utterance"] for option in item["options-for-next"])
            yield SelectionGroup(f"{split}-{example}", context, candidates, labels, split)


@reader("DialogueCSE", variants=("ecd-select", "jddc-select", "ecd-sts", "jddc-sts", "ecd-train", "ecd-sessions"))
def read_dialoguecse(files: Files, variant: str) -> Records:
    """E-commerce (ECD) and JDDC, dev and test; of the training data only a sample of ECD was released.
    "ecd-sessions" are the dialogues that the rows of this sample were cut from."""
    corpus, kind = variant.split("-")
    if kind in ("train", "sessions"):
        groups = matching_groups(files.lines(f"{FOLDERS[corpus]}/train/train_data.txt.sample"))
        yield from sessions_of_groups(files, groups) if kind == "sessions" else groups
        return
    for split in ("dev", "test"):
        key = f"{FOLDERS[corpus]}/{split}/{kind}.txt"
        if kind == "select":
            yield from retrieval_queries(files, key, files.read(key), split)
            continue
        for line in files.lines(key):
            score, first, second = line.split("\t")
            yield ScoredPair(first, second, float(score), split)


def retrieval_queries(files: Files, name: str, data: bytes, split: str) -> Records:
    """``id TAB sentence TAB intent TAB positive ids TAB negative ids``; an id is the row number in the same file."""
    for line in files.lines(name, data):
        identifier, text, intent, *lists = line.split("\t")
        listed = [list(map(int, ids.split(","))) for ids in lists]
        positives, negatives = map(unique, listed)
        if repeated := sum(map(len, listed)) - len(positives) - len(negatives):
            files.skipped["candidate listed twice"] += repeated
        yield RetrievalQuery(int(identifier), text, positives, negatives, intent, split)


def matching_groups(lines: Iterable[str]) -> Iterator[MatchingGroup]:
    """Six fields: utterances before, after, speaker roles, a constant, candidates (the true one first), labels."""
    for line in lines:
        before, after, _, _, candidates, labels = (tuple(cell.split("|")) for cell in line.split("\t"))
        yield MatchingGroup(before, after, candidates, tuple(map(int, labels)))


def sessions_of_groups(files: Files, groups: Iterable[MatchingGroup]) -> Records:
    """Each group's utterances in order, the true response among them; speakers alternate in all of these rows.

    A dialogue that another row was cut from too is left out.
    """
    seen = set()
    for number, group in enumerate(groups):
        texts = tuple(text for text in (*group.before, group.candidates[0], *group.after) if text.strip())
        if texts in seen:
            files.skipped["dialogue of another row"] += 1
            continue
        seen.add(texts)
        yield Dialogue(f"ecd-{number}", in_turn(texts))
