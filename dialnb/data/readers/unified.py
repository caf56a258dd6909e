"""Corpora kept in the unified format of the ConvLab toolkit: KVRET (also known as SMD) and DailyDialog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dialnb.data.readers import Skipped, load_json, reader, row
from dialnb.data.records import Dialogue, Slot, Utterance
from dialnb.data.store import Store
from dialnb.errors import DataError

SPLITS = {"train": "train", "validation": "dev", "test": "test"}
KVRET_SPEAKERS = {"driver": "user", "assistant": "system"}


@reader("DailyDialog")
def read_dailydialog(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """13,118 everyday conversations, 102,979 utterances, one of four acts each; the topic is the domain."""
    yield from _unified(store, "DailyDialog", "data/unified_datasets/dailydialog/data.zip")


@reader("KVRET", variants=("copies", "official"))
def read_kvret(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """In-car assistant, three domains. The copy lacks one of 3,031 dialogues; "official" reads the original archive."""
    if variant == "copies":
        yield from _unified(store, "KVRET", "data/unified_datasets/kvret/data.zip")
        return
    archive = "kvret_dataset_public.zip"
    members = store.members("KVRET", archive, "*_public.json")
    for split in ("train", "dev", "test"):
        file = next((name for name in members if name.endswith(f"kvret_{split}_public.json")), None)
        if file is None:
            raise DataError(f"{archive} should hold kvret_{split}_public.json; it has: {', '.join(members)}")
        yield from original_kvret(members[file], file, split)


def original_kvret(data: bytes, file: str, split: str) -> Iterator[Dialogue]:
    """The original form: the assistant's turn carries the slots that the driver has given so far."""
    for number, item in enumerate(load_json(data, file)):
        with row(f"{file} dialogue {number}"):
            scenario = item["scenario"]
            utterances = tuple(
                Utterance(KVRET_SPEAKERS[turn["turn"]], turn["data"]["utterance"]) for turn in item["dialogue"]
            )
            dialogue = Dialogue(scenario["uuid"], utterances, (scenario["task"]["intent"],), split)
        yield dialogue


def _unified(store: Store, source: str, archive: str) -> Iterator[Dialogue]:
    """``data/dialogues.json``: speaker, utterance and acts (binary, categorical, and non-categorical with places)."""
    file = "data/dialogues.json"
    for number, item in enumerate(load_json(store.members(source, archive, file)[file], f"{archive} {file}")):
        with row(f"{archive} {file} dialogue {number}"):
            utterances = tuple(map(_unified_turn, item["turns"]))
            dialogue = Dialogue(item["dialogue_id"], utterances, tuple(item["domains"]), SPLITS[item["data_split"]])
        yield dialogue


def _unified_turn(turn: dict[str, Any]) -> Utterance:
    acts = [act for kind in ("binary", "categorical", "non-categorical") for act in turn["dialogue_acts"][kind]]
    slots = tuple(
        Slot(act["slot"], act["value"], act.get("start", -1), act.get("end", -1)) for act in acts if "value" in act
    )
    return Utterance(turn["speaker"], turn["utterance"], tuple(dict.fromkeys(act["intent"] for act in acts)), slots)
