"""DSTC2: spoken restaurant search between people and machines, put together from what is public of it."""

import re
from collections import Counter, defaultdict
from posixpath import basename
from typing import Any

from dialnb.data.readers import SPLITS, Files, Records, reader, unique
from dialnb.data.readers.woz import labelled_user
from dialnb.data.records import Dialogue, Slot, Texts, Utterance
from dialnb.errors import DataError

RAW = "rasa/data/file/Mar13_S0A0"
DOMAIN = ("restaurant",)


@reader("DSTC2", variants=("copies", "official"))
def read_dstc2(files: Files, variant: str) -> Records:
    """1,612 / 506 / 1,117 dialogues with 11,677 / 3,934 / 9,890 exchanges, system first.

    The copies: system acts are looked up by text among published (acts, text) pairs, user acts are known for the 150
    sessions in original form; what is not found is kept without acts and counted. "official" reads the two archives.
    """
    if variant == "official":
        yield from _official(files)
        return
    texts = dict(files.matching("dstc2-clean/*.json", "storage/dstc2-clean.zip"))
    known, raw = _acts_by_text(files), dict(files.matching(f"{RAW}/*/l*.json"))
    for part in ("train", "validate", "test"):
        file = f"dstc2-clean/dstc2_{part}_en.json"
        items = files.json(file, texts[file])
        names = _session_names(files, SPLITS[part], items)
        for name, item in zip(names, items):
            labelled = read_session(files, raw, f"{RAW}/{name}") if f"{RAW}/{name}/log.json" in raw else []
            files.place = f"{file} dialogue {name}"
            utterances = []
            for turn in item["dialogue"]:
                place = len(utterances)
                system, user = labelled[place : place + 2] or (None, None)
                acts = system.acts if system else known.get(_folded(turn["system_transcript"]))
                if acts is None:
                    files.skipped["system acts not found by text (utterance kept without acts)"] += 1
                if user is None:
                    files.skipped["user acts are not published in the copies (utterance kept without acts)"] += 1
                utterances.append(Utterance("system", turn["system_transcript"], acts or ()))
                slots = labelled_user(turn).slots
                utterances.append(Utterance("user", turn["transcript"], user.acts if user else (), slots))
            yield Dialogue(name, tuple(utterances), DOMAIN, SPLITS[part])


def _acts_by_text(files: Files) -> dict[str, Texts]:
    """Lower-cased system text -> its most frequent acts; the records are acts, template, text and a blank line."""
    found = defaultdict(Counter)
    for part in ("train", "valid", "test"):
        key = f"src/data/{part}_data"
        lines = [*files.lines(key), ""]
        for start in range(0, len(lines) - 3, 4):
            labels, _, text, blank = lines[start : start + 4]
            acts = unique(re.findall(r"([\w-]+)\(", labels))
            if not acts or blank:
                raise DataError(f"{key} line {start + 1}: expected acts, template, text and a blank line")
            found[_folded(text)][acts] += 1
    return {text: counts.most_common(1)[0][0] for text, counts in found.items()}


def _folded(text: str) -> str:
    return text.lower().strip()


def _session_names(files: Files, split: str, items: list[Any]) -> list[str]:
    """Session names, from a second copy of the corpus that has the train and dev dialogues in the same order."""
    if split == "test":
        return [f"test-{number}" for number in range(len(items))]
    key = f"data/dstc2_original_split/data.dstc2.{split}.json"
    named = files.json(key)
    if [len(item["dialogue"]) for item in items] != [len(item["turns"]) for item in named]:
        raise DataError(f"{key} does not list the {split} dialogues in the order of dstc2-clean.zip")
    return [item["session-id"] for item in named]


def read_session(files: Files, found: dict[str, bytes], folder: str) -> list[Utterance]:
    """One session in original form: ``log.json`` has the system's side, ``label.json`` what the user said and meant."""
    log, label = f"{folder}/log.json", f"{folder}/label.json"
    files.place = log
    turns, labels = files.json(log, found[log])["turns"], files.json(label, found[label])["turns"]
    if len(turns) != len(labels):
        raise ValueError(f"log.json has {len(turns)} turns, label.json {len(labels)}")
    said = []
    for system, user in zip(turns, labels):
        output = system["output"]
        said.append(_spoken("system", output["transcript"], output["dialog-acts"]))
        said.append(_spoken("user", user["transcription"], user["semantics"]["json"]))
    return said


def _spoken(speaker: str, text: str, acts: list[Any]) -> Utterance:
    slots = [Slot(name, str(value)) for act in acts for name, value in act["slots"] if name != "slot"]
    return Utterance(speaker, text, unique(act["act"] for act in acts), tuple(slots))


def _official(files: Files) -> Records:
    """The archives of the challenge: data/FOLDER/SESSION/{log,label}.json and lists of sessions per split."""
    for archive, splits in (("dstc2_traindev.tar.gz", ("train", "dev")), ("dstc2_test.tar.gz", ("test",))):
        found = dict(files.matching("*", archive))
        for split in splits:
            listing = next((name for name in found if name.endswith(f"dstc2_{split}.flist")), None)
            if listing is None:
                raise DataError(f"{archive} should hold a list of sessions named dstc2_{split}.flist")
            for line in files.lines(listing, found[listing]):
                folder = f"data/{line.strip()}"
                yield Dialogue(basename(folder), tuple(read_session(files, found, folder)), DOMAIN, split)
