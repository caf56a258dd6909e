"""Taskmaster, in the parts of it that are public copies.

``tm1-delexicalised``  2,000 of the 13,215 TM-1 dialogues, values replaced by their slot's name between underscores
``tm3-shard``          one of the 55 training shards of TM-3: 1,462 dialogues, each up to some system turn
``tm4``                3,710 coffee orders; later than the papers, complete, and so a useful stand-in
"""

import csv
import re
from itertools import chain
from typing import Any

from dialnb.data.readers import SPEAKERS, Files, Records, reader
from dialnb.data.records import Dialogue, Slot, Utterance

MARKS = {"*": "user", "-": "system", "U": "user", "A": "system"}
DELEXICALISED = re.compile(r"(?<!\w)_([a-z]+(?:[._][a-z]+)*)_")
MARKER = re.compile(r"[<\[]([A-Z]+)[>\]]")


@reader("Taskmaster", variants=("tm1-delexicalised", "tm3-shard", "tm4"))
def read_taskmaster(files: Files, variant: str) -> Records:
    """One release, or the public part of one; see the head of this module."""
    if variant == "tm1-delexicalised":
        for collection in ("self-dialogs", "woz-dialogs"):
            for split in ("train", "test"):
                yield from _delexicalised(files, f"taskmaster-1/{collection}-{split}.md", split)
    elif variant == "tm3-shard":
        yield from _shard(files, "TM-3-2020/splits/train/train-bc.tsv")
    else:
        for key, data in files.matching("TM-4-2024/data/data_*.json"):
            for item in files.items(key, data):
                utterances = tuple(map(_utterance, item["utterances"]))
                yield Dialogue(item["conversation_id"], utterances, (item["vertical"].lower(),))


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
            slots = tuple(Slot(match[1], match[0], *match.span()) for match in DELEXICALISED.finditer(text))
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
