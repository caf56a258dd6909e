"""Dialogues annotated frame by frame: the Schema-Guided Dialogue corpus and the simulated dialogues of GSIM."""

from collections.abc import Iterator
from typing import Any

from dialnb.data.readers import TRAIN_DEV_TEST, Files, Records, reader, unique
from dialnb.data.readers.spans import token_slot
from dialnb.data.records import Dialogue, Slot, Utterance


@reader("SGD")
def read_sgd(files: Files) -> Records:
    """22,825 dialogues, 463,284 utterances; acts, slot spans and the user's active intent per utterance.

    A quarter of the files are an older version without user acts; their user turns are kept and counted.
    """
    for split in TRAIN_DEV_TEST:
        for key, data in files.matching(f"{split}/dialogues_*.json"):
            for item in files.items(key, data):
                utterances = tuple(_schema_guided(files, item["turns"]))
                yield Dialogue(item["dialogue_id"], utterances, tuple(item["services"]), split)


def _schema_guided(files: Files, turns: list[Any]) -> Iterator[Utterance]:
    """The turns of one dialogue. Where two intents are active, the one that was not so before is the turn's."""
    active: list[str] = []
    for turn in turns:
        text, frames, speaker = turn["utterance"], turn["frames"], turn["speaker"].lower()
        slots, acts = [], []
        for frame in frames:
            acts += [action["act"] for action in frame.get("actions", ())]
            for slot in frame["slots"]:
                start, end = slot["start"], slot["exclusive_end"]
                slots.append(Slot(slot["slot"], text[start:end], start, end))
        intent = ""
        if speaker == "user":
            before, active = active, [frame["state"]["active_intent"] for frame in frames]
            active = [name for name in active if name != "NONE"]
            intent = next((name for name in active if name not in before), active[0] if active else "")
            if not all("actions" in frame for frame in frames):
                files.skipped["user acts are not in this older file (utterance kept without acts)"] += 1
        yield Utterance(speaker, text, unique(acts), tuple(slots), intent)


@reader("GSIM", variants=("copies", "official"))
def read_gsim(files: Files, variant: str) -> Records:
    """sim-M and sim-R, 1,500 / 469 / 1,039 dialogues.

    The copies have sim-R train and test in a simplified form without act types; "official" reads all in original form.
    """
    for split in TRAIN_DEV_TEST:
        for corpus, domain in (("sim-M", "movie"), ("sim-R", "restaurant")):
            if variant == "copies" and corpus == "sim-R" and split != "dev":
                for item in files.items(f"Examples/bots/TaskBot/sim-R_dataset/{split}_dials.json"):
                    files.skipped["acts are not in the simplified sim-R files (dialogue kept without acts)"] += 1
                    yield Dialogue(item["dialogue_idx"], tuple(_simple(item["dialogue"])), (domain,), split)
            else:
                for item in files.items(f"{corpus}/{split}.json"):
                    yield Dialogue(item["dialogue_id"], tuple(_simulated(item["turns"])), (domain,), split)


def _simulated(turns: list[Any]) -> Iterator[Utterance]:
    """Original form: the user opens, so the first turn has no system part."""
    for turn in turns:
        for speaker in ("system", "user"):
            spoken = turn.get(f"{speaker}_utterance")
            if spoken is None:
                continue
            slots = []
            for slot in spoken["slots"]:
                slots.append(token_slot(slot["slot"], spoken["tokens"], slot["start"], slot["exclusive_end"]))
            acts = unique(act["type"] for act in turn[f"{speaker}_acts"])
            intent = " ".join(turn.get("user_intents", ())) if speaker == "user" else ""
            yield Utterance(speaker, spoken["text"], acts, tuple(slots), intent)


def _simple(turns: list[Any]) -> Iterator[Utterance]:
    """Simplified form: the missing system part of the first turn is an empty string."""
    for number, turn in enumerate(turns):
        if number or turn["system_utterance"]:
            yield Utterance("system", turn["system_utterance"])
        slots = tuple(Slot(name.split("-", 1)[-1], value) for name, value in turn["turn_slots"].items())
        yield Utterance("user", turn["user_utterance"], slots=slots)
