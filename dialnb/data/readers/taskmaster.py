"""Taskmaster, in the parts of it that are public copies and in its original files.

``tm1-delexicalised``  2,000 of the 13,215 TM-1 dialogues, values replaced by their slot's name between underscores
``tm3-shard``          one of the 55 training shards of TM-3: 1,462 dialogues, each up to some system turn
``tm4``                3,710 coffee orders; later than the papers, complete, and so a useful stand-in
``tm1``                the original JSON files of TM-1; those of TM-2 are the dataset Taskmaster-2
"""

import csv
import re
from itertools import chain
from typing import Any

from dialnb.data.readers import SPEAKERS, TRAIN_DEV_TEST, Files, Records, reader
from dialnb.data.records import Dialogue, Slot, Utterance

MARKS = {"*": "user", "-": "system", "U": "user", "A": "system"}
TM2_DOMAINS = ("flights", "food-ordering", "hotels", "movies", "music", "restaurant-search", "sports")
DELEXICALISED = re.compile(r"(?<!\w)_([a-z]+(?:[._][a-z]+)*)_")
MARKER = re.compile(r"[<\[]([A-Z]+)[>\]]")


@reader("Taskmaster", variants=("tm1-delexicalised", "tm3-shard", "tm4", "tm1"))
def read_taskmaster(files: Files, variant: str) -> Records:
    """One release, or the public part of one; see the head of this module."""
    if variant == "tm1-delexicalised":
        for collection in ("self-dialogs", "woz-dialogs"):
            for split in ("train", "test"):
                yield from _delexicalised(files, f"taskmaster-1/{collection}-{split}.md", split)
    elif variant == "tm3-shard":
        yield from _shard(files, "TM-3-2020/splits/train/train-bc.tsv")
    elif variant == "tm4":
        for key, data in files.matching("TM-4-2024/data/data_*.json"):
            yield from _original(files, key, data, {})
    else:
        splits = {}  # only the self-dialogues were split, the rest counts as training data
        for split in TRAIN_DEV_TEST:
            for line in files.lines(f"TM-1-2019/train-dev-test/{split}.csv"):
                splits[line.strip().rstrip(",")] = split
        for key in ("TM-1-2019/self-dialogs.json", "TM-1-2019/woz-dialogs.json"):
            yield from _original(files, key, None, splits)


@reader("Taskmaster-2")
def read_taskmaster2(files: Files) -> Records:
    """17,289 spoken dialogues in seven domains, published without splits."""
    for domain in TM2_DOMAINS:
        yield from _original(files, f"TM-2-2020/data/{domain}.json", None, {}, domain)


def _original(files: Files, key: str, data: bytes | None, splits: dict[str, str], domain: str = "") -> Records:
    """The JSON form shared by all releases: utterances with annotated segments.

    The domain is the file's, the ``vertical``, or the first part of TM-1's instruction ("restaurant-table-2").
    """
    for item in files.items(key, data):
        name = item["conversation_id"]
        topic = domain or item.get("vertical") or re.sub(r"-\d+$", "", item["instruction_id"])
        utterances = tuple(map(_utterance, item["utterances"]))
        if utterances:
            yield Dialogue(name, utterances, (topic.lower(),), splits.get(name, "train"))
        else:
            files.skipped["dialogue without utterances"] += 1


def _utterance(turn: Any) -> Utterance:
    slots = []
    for segment in turn.get("segments") or ():
        start, end = int(segment["start_index"]), int(segment["end_index"])
        for name in dict.fromkeys(annotation["name"] for annotation in segment["annotations"]):
            slots.append(Slot(name, turn["text"][start:end], start, end))
    return Utterance(SPEAKERS[turn["speaker"].lower()], turn["text"], slots=tuple(slots))


def _delexicalised(files: Files, key: str, split: str) -> Records:
    """``## id``, then ``* user`` and ``- assistant`` lines; a placeholder such as _time.start_ is kept as a slot."""
    name = ""
    utterances: list[Utterance] = []
    for line in chain(files.lines(key), [""]):
        head, _, text = line.strip().partition(" ")
        text = text.strip()
        if head == "##":
            name, utterances = text, []
        elif head in ("*", "-") and name:
            slots = tuple(Slot(found[1], found[0], *found.span()) for found in DELEXICALISED.finditer(text))
            utterances.append(Utterance(MARKS[head], text, slots=slots))
        elif head:
            raise ValueError("expected '## id', '* user text' or '- assistant text'")
        elif name:
            yield Dialogue(name, tuple(utterances), (), split)
            name = ""


def _shard(files: Files, key: str) -> Records:
    """Rows of (input, target, conversation): the input is the latest events, "<C>", then the dialogue before them.

    Of several rows of one conversation the longest is kept; calls of the ticket service between the turns are not text.
    """
    longest: dict[str, list[Utterance]] = {}
    for recent, target, name in csv.reader(files.lines(key), delimiter="\t"):
        recent, _, before = recent.partition("<C>")
        parts = MARKER.split(before + recent + target)[1:]
        turns = zip(parts[::2], parts[1::2], strict=True)
        spoken = [Utterance(MARKS[mark], text.strip()) for mark, text in turns if mark in "UA"]
        if name in longest:
            files.skipped["shorter part of a dialogue that another row continues"] += 1
        if len(spoken) > len(longest.get(name, ())):
            longest[name] = spoken
    for name, utterances in longest.items():
        yield Dialogue(name, tuple(utterances), ("movies",))
