"""DSTC2: spoken restaurant search between people and machines, put together from what is public of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from dialnb.data.readers import Skipped, load_json, reader, row, text_lines
from dialnb.data.readers.woz import labelled_user
from dialnb.data.records import Dialogue, Slot, Utterance
from dialnb.data.store import Store
from dialnb.errors import DataError

RAW = "rasa/data/file/Mar13_S0A0"
DOMAIN = ("restaurant",)


@reader("DSTC2", variants=("copies", "official"))
def read_dstc2(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """1,612 / 506 / 1,117 dialogues with 11,677 / 3,934 / 9,890 exchanges, system first.

    The copies: system acts are looked up by text among published (acts, text) pairs, user acts are known for the 150
    sessions in original form; what is not found is kept without acts and counted. "official" reads the two archives.
    """
    if variant == "official":
        yield from _official(store)
        return
    texts = store.members("DSTC2", "storage/dstc2-clean.zip", "dstc2-clean/*.json")
    known, sessions = _acts_by_text(store), _raw_sessions(store)
    for split, name in (("train", "train"), ("dev", "validate"), ("test", "test")):
        file = f"dstc2-clean/dstc2_{name}_en.json"
        items = load_json(texts[file], file)
        names = _session_names(store, split, items)
        for number, item in enumerate(items):
            with row(f"{file} dialogue {number}"):
                raw = sessions.get(names[number])
                utterances = []
                for index, turn in enumerate(item["dialogue"]):
                    system, user = raw[index] if raw else (None, None)
                    acts = system.acts if system else known.get(_folded(turn["system_transcript"]))
                    if acts is None:
                        skipped.add("system acts not found by text (utterance kept without acts)", f"{file} {number}")
                    if user is None:
                        skipped.add("user acts are not published in the copies (utterance kept without acts)", file)
                    utterances.append(Utterance("system", turn["system_transcript"], acts or ()))
                    slots = labelled_user(turn).slots
                    utterances.append(Utterance("user", turn["transcript"], user.acts if user else (), slots))
            yield Dialogue(names[number], tuple(utterances), DOMAIN, split)


def _acts_by_text(store: Store) -> dict[str, tuple[str, ...]]:
    """Lower-cased system text -> its most frequent acts; the records are acts, template, text and a blank line."""
    found: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for split in ("train", "valid", "test"):
        key = f"src/data/{split}_data"
        lines = [line for _, line in text_lines(store.path("DSTC2", key), key)]
        for start in range(0, len(lines) - 2, 4):
            acts = tuple(dict.fromkeys(re.findall(r"([\w-]+)\(", lines[start])))
            if not acts or (lines[start + 3 : start + 4] or [""])[0]:
                raise DataError(f"{key} line {start + 1}: expected acts, template, text and a blank line")
            found[_folded(lines[start + 2])][acts] += 1
    return {text: counts.most_common(1)[0][0] for text, counts in found.items()}


def _folded(text: str) -> str:
    return text.lower().strip()


def _session_names(store: Store, split: str, items: list[dict[str, Any]]) -> list[str]:
    """Session names, from a second copy of the corpus that has the train and dev dialogues in the same order."""
    if split == "test":
        return [f"test-{number}" for number in range(len(items))]
    key = f"data/dstc2_original_split/data.dstc2.{split}.json"
    named = load_json(store.path("DSTC2", key), key)
    if [len(item["dialogue"]) for item in items] != [len(item["turns"]) for item in named]:
        raise DataError(f"{key} does not list the {split} dialogues in the order of dstc2-clean.zip")
    return [item["session-id"] for item in named]


def _raw_sessions(store: Store) -> dict[str, list[tuple[Utterance, Utterance]]]:
    """The sessions in original form, as (system, user) exchanges by session name."""
    logs = store.paths("DSTC2", f"{RAW}/*/log.json")
    labels = store.paths("DSTC2", f"{RAW}/*/label.json")
    sessions = {}
    for key, path in logs.items():
        label = key.replace("log.json", "label.json")
        with row(key):
            sessions[key.split("/")[-2]] = exchanges(load_json(path, key), load_json(labels[label], label))
    return sessions


def exchanges(log: dict[str, Any], label: dict[str, Any]) -> list[tuple[Utterance, Utterance]]:
    """One session in original form: ``log.json`` has the system's side, ``label.json`` what the user said and meant."""
    if len(log["turns"]) != len(label["turns"]):
        raise DataError(f"log.json has {len(log['turns'])} turns, label.json {len(label['turns'])}")
    return [
        (
            _spoken("system", system["output"]["transcript"], system["output"]["dialog-acts"]),
            _spoken("user", user["transcription"], user["semantics"]["json"]),
        )
        for system, user in zip(log["turns"], label["turns"], strict=True)
    ]


def _spoken(speaker: str, text: str, acts: list[dict[str, Any]]) -> Utterance:
    slots = tuple(Slot(name, str(value)) for act in acts for name, value in act["slots"] if name != "slot")
    return Utterance(speaker, text, tuple(dict.fromkeys(act["act"] for act in acts)), slots)


def _official(store: Store) -> Iterator[Dialogue]:
    """The archives of the challenge: data/FOLDER/SESSION/{log,label}.json and lists of sessions per split."""
    for archive, splits in (("dstc2_traindev.tar.gz", ("train", "dev")), ("dstc2_test.tar.gz", ("test",))):
        files = store.members("DSTC2", archive)
        for split in splits:
            listing = next((name for name in files if name.endswith(f"dstc2_{split}.flist")), None)
            if listing is None:
                raise DataError(f"{archive} should hold a list of sessions named dstc2_{split}.flist")
            for place, line in text_lines(files[listing], listing):
                with row(f"{archive}: {place}"):
                    log, label = (f"data/{line.strip()}/{part}.json" for part in ("log", "label"))
                    pairs = exchanges(load_json(files[log], log), load_json(files[label], label))
                yield Dialogue(line.strip().split("/")[-1], tuple(u for pair in pairs for u in pair), DOMAIN, split)
