"""Taskmaster, in the parts of it that are public copies and in its original files.

``tm1-delexicalised``  2,000 of the 13,215 TM-1 dialogues, values replaced by their slot's name between underscores
``tm3-shard``          one of the 55 training shards of TM-3: 1,462 dialogues, each up to some system turn
``tm4``                3,710 coffee orders; later than the papers, complete, and so a useful stand-in
``tm1``                the original JSON files of TM-1; those of TM-2 are the dataset Taskmaster-2
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

from dialnb.data.readers import Skipped, load_json, reader, row, text_lines
from dialnb.data.records import Dialogue, Slot, Utterance
from dialnb.data.store import Store
from dialnb.errors import DataError

SPEAKERS = {"user": "user", "assistant": "system"}
TM2_DOMAINS = ("flights", "food-ordering", "hotels", "movies", "music", "restaurant-search", "sports")
DELEXICALISED = re.compile(r"(?<!\w)_([a-z]+(?:[._][a-z]+)*)_")
MARKER = re.compile(r"[<\[]([A-Z]+)[>\]]")
VARIANTS = ("tm1-delexicalised", "tm3-shard", "tm4", "tm1")


@reader("Taskmaster", variants=VARIANTS)
def read_taskmaster(store: Store, skipped: Skipped, variant: str = "tm1-delexicalised") -> Iterator[Dialogue]:
    """One release, or the public part of one; see the head of this module."""
    if variant == "tm1-delexicalised":
        for collection in ("self-dialogs", "woz-dialogs"):
            for split in ("train", "test"):
                yield from _delexicalised(store, f"taskmaster-1/{collection}-{split}.md", split)
    elif variant == "tm3-shard":
        yield from _shard(store, "TM-3-2020/splits/train/train-bc.tsv", skipped)
    elif variant == "tm4":
        for key in sorted(store.paths("Taskmaster", "TM-4-2024/data/data_*.json")):
            yield from _original(store, "Taskmaster", key, skipped)
    else:
        splits = _tm1_splits(store)
        for key in ("TM-1-2019/self-dialogs.json", "TM-1-2019/woz-dialogs.json"):
            yield from _original(store, "Taskmaster", key, skipped, splits)


@reader("Taskmaster-2")
def read_taskmaster2(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """17,289 spoken dialogues in seven domains, published without splits."""
    for domain in TM2_DOMAINS:
        yield from _original(store, "Taskmaster-2", f"TM-2-2020/data/{domain}.json", skipped, domain=domain)


def _original(
    store: Store, source: str, key: str, skipped: Skipped, splits: dict[str, str] | None = None, domain: str = ""
) -> Iterator[Dialogue]:
    """The JSON form shared by all releases: utterances with annotated segments.

    The domain is the file's, the ``vertical``, or the first part of TM-1's instruction ("restaurant-table-2").
    """
    for number, item in enumerate(load_json(store.path(source, key), key)):
        where = f"{key} dialogue {number}"
        with row(where):
            name = item["conversation_id"]
            own = domain or item.get("vertical") or re.sub(r"-\d+$", "", item["instruction_id"])
            utterances = tuple(_utterance(turn) for turn in item["utterances"])
        if utterances:
            yield Dialogue(name, utterances, (own.lower(),), (splits or {}).get(name, "train"))
        else:
            skipped.add("dialogue without utterances", where)


def _utterance(turn: dict[str, Any]) -> Utterance:
    slots = []
    for segment in turn.get("segments") or ():
        start, end = int(segment["start_index"]), int(segment["end_index"])
        names = dict.fromkeys(annotation["name"] for annotation in segment["annotations"])
        slots += [Slot(name, turn["text"][start:end], start, end) for name in names]
    return Utterance(SPEAKERS[turn["speaker"].lower()], turn["text"], slots=tuple(slots))


def _tm1_splits(store: Store) -> dict[str, str]:
    """Conversation id -> split; only the self-dialogues were split, the rest counts as training data."""
    splits: dict[str, str] = {}
    for split in ("train", "dev", "test"):
        key = f"TM-1-2019/train-dev-test/{split}.csv"
        lines = text_lines(store.path("Taskmaster", key), key)
        splits |= {line.strip().rstrip(","): split for _, line in lines if line.strip()}
    return splits


def _delexicalised(store: Store, key: str, split: str) -> Iterator[Dialogue]:
    """``## id``, then ``* user`` and ``- assistant`` lines; a placeholder such as _time.start_ is kept as a slot."""
    name, utterances = "", []
    for where, line in text_lines(store.path("Taskmaster", key), key):
        head, _, text = line.strip().partition(" ")
        if head == "##":
            name, utterances = text.strip(), []
        elif head in ("*", "-") and name:
            text = text.strip()
            slots = tuple(Slot(m[1], m[0], m.start(), m.end()) for m in DELEXICALISED.finditer(text))
            utterances.append(Utterance("user" if head == "*" else "system", text, slots=slots))
        elif head:
            raise DataError(f"malformed row at {where}: expected '## id', '* user text' or '- assistant text'")
        elif name:
            yield Dialogue(name, tuple(utterances), (), split)
            name = ""
    if name:
        yield Dialogue(name, tuple(utterances), (), split)


def _shard(store: Store, key: str, skipped: Skipped) -> Iterator[Dialogue]:
    """Rows of (input, target, conversation): the input is the latest events, "<C>", then the dialogue before them.

    Of several rows of one conversation the longest is kept; calls of the ticket service between the turns are not text.
    """
    longest: dict[str, tuple[Utterance, ...]] = {}
    lines = [line for _, line in text_lines(store.path("Taskmaster", key), key)]
    for number, cells in enumerate(csv.reader(lines, delimiter="\t"), start=1):
        where = f"{key} row {number}"
        with row(where):
            recent, target, name = cells
            recent, _, before = recent.partition("<C>")
            parts = MARKER.split(before + recent + target)[1:]
            turns = [(mark, text.strip()) for mark, text in zip(parts[::2], parts[1::2], strict=True)]
            spoken = tuple(Utterance({"U": "user", "A": "system"}[m], text) for m, text in turns if m in "UA")
        if name in longest:
            skipped.add("shorter part of a dialogue that another row continues", where)
        if len(spoken) > len(longest.get(name, ())):
            longest[name] = spoken
    for name, utterances in longest.items():
        yield Dialogue(name, utterances, ("movies",))
