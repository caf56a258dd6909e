"""Judged dialogues of DiaEval, CI-ToD (consistency) and DECODE (contradiction): the last utterance is judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dialnb.data.readers import Skipped, json_lines, load_json, reader, row
from dialnb.data.readers.files import SPLITS, find_files, table_rows
from dialnb.data.records import InferenceItem

if TYPE_CHECKING:
    from dialnb.data.store import Store


@reader("CI-ToD", variants=("copies", "official"))
def read_citod(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[InferenceItem]:
    """Is the last reply consistent with the dialogue? The weather part of train is in "official" only."""
    patterns = ("*_train.json", "*_dev.json", "*_test.json")
    for name, data in find_files(store, "CI-ToD", *patterns, official=variant == "official"):
        yield from judged_replies(data, name)


def judged_replies(data: bytes, name: str) -> Iterator[InferenceItem]:
    """Label "1" (inconsistent) if the reply contradicts the query (qi) or the history (hi); the knowledge base and
    its label kbi are not used. The ids of the files repeat, so the place in the file is the id."""
    domain, _, part = name.rpartition("/")[2].removesuffix(".json").rpartition("_")
    for number, item in enumerate(load_json(data, name)):
        with row(f"{name} dialogue {number}"):
            flags = {flag: item["scenario"][flag] for flag in ("qi", "hi")}
            if not set(flags.values()) <= {"0", "1"}:
                raise ValueError(f"labels {flags}, expected 0 or 1")
            said = tuple(turn["utterance"] for turn in item["dialogue"])
            label = "1" if "1" in flags.values() else "0"
        yield InferenceItem(f"{domain}-{part}-{number}", said, label, SPLITS[part])


@reader("DECODE", variants=("human-bot", "rct", "pairs", "main"))
def read_decode(store: Store, skipped: Skipped, variant: str = "human-bot") -> Iterator[InferenceItem]:
    """Label "1" if the last utterance contradicts its speaker. "main" are the official train, dev and test files,
    "human-bot" and "rct" the extra test sets; "pairs" are contradictory utterance pairs of the main collection."""
    if variant == "pairs":
        for name, data in find_files(store, "DECODE", "contradiction_df.tsv"):
            for number, (_, item) in enumerate(table_rows(data, name, ("seg1", "seg2", "label"), "\t")):
                yield InferenceItem(f"pairs-{number}", (item["seg1"], item["seg2"]), "1", "train")
        return
    for part in ("train", "dev", "test") if variant == "main" else (variant,):
        for name, data in find_files(store, "DECODE", f"{part}.jsonl", official=variant == "main"):
            for where, item in json_lines(data, name):
                with row(where):
                    said = tuple(turn["text"] for turn in sorted(item["turns"], key=lambda turn: turn["turn_id"]))
                    label = {True: "1", False: "0"}[item["is_contradiction"]]
                yield InferenceItem(item["record_id"], said, label, SPLITS.get(part, "test"))
