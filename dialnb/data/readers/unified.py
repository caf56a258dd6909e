"""Corpora kept in the unified format of the ConvLab toolkit: KVRET (also known as SMD) and DailyDialog."""

from typing import Any

from dialnb.data.readers import SPEAKERS, SPLITS, TRAIN_DEV_TEST, Files, Records, reader, unique
from dialnb.data.records import Dialogue, Slot, Utterance
from dialnb.errors import DataError


@reader("DailyDialog")
def read_dailydialog(files: Files) -> Records:
    """13,118 everyday conversations, 102,979 utterances, one of four acts each; the topic is the domain."""
    yield from _unified(files, "data/unified_datasets/dailydialog/data.zip")


@reader("KVRET", variants=("copies", "official"))
def read_kvret(files: Files, variant: str) -> Records:
    """In-car assistant, three domains. The copy lacks one of 3,031 dialogues; "official" reads the original archive."""
    if variant == "copies":
        yield from _unified(files, "data/unified_datasets/kvret/data.zip")
        return
    archive = "kvret_dataset_public.zip"
    members = dict(files.matching("*_public.json", archive))
    for split in TRAIN_DEV_TEST:
        file = next((name for name in members if name.endswith(f"kvret_{split}_public.json")), None)
        if file is None:
            raise DataError(f"{archive} should hold kvret_{split}_public.json; it has: {', '.join(members)}")
        for item in files.items(file, members[file]):
            scenario = item["scenario"]
            turns = [(turn["turn"], turn["data"]["utterance"]) for turn in item["dialogue"]]
            utterances = tuple(Utterance(SPEAKERS[speaker], text) for speaker, text in turns)
            yield Dialogue(scenario["uuid"], utterances, (scenario["task"]["intent"],), split)


def _unified(files: Files, archive: str) -> Records:
    """``data/dialogues.json``: speaker, utterance and acts (binary, categorical, and non-categorical with places)."""
    for member, data in files.matching("data/dialogues.json", archive):
        for item in files.items(f"{archive} {member}", data):
            utterances = tuple(map(_unified_turn, item["turns"]))
            yield Dialogue(item["dialogue_id"], utterances, tuple(item["domains"]), SPLITS[item["data_split"]])


def _unified_turn(turn: Any) -> Utterance:
    acts, slots = [], []
    for kind in ("binary", "categorical", "non-categorical"):
        for act in turn["dialogue_acts"][kind]:
            acts.append(act["intent"])
            if "value" in act:
                slots.append(Slot(act["slot"], act["value"], act.get("start", -1), act.get("end", -1)))
    return Utterance(turn["speaker"], turn["utterance"], unique(acts), tuple(slots))
