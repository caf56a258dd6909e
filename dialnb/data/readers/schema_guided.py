"""Dialogues annotated frame by frame: the Schema-Guided Dialogue corpus and the simulated dialogues of GSIM."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from dialnb.data.readers import Skipped, load_json, reader, row
from dialnb.data.records import Dialogue, Slot, Utterance
from dialnb.data.store import Store

SPEAKERS = {"USER": "user", "SYSTEM": "system"}


@reader("SGD")
def read_sgd(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """22,825 dialogues, 463,284 utterances; acts, slot spans and the user's active intent per utterance.

    A quarter of the files are an older version without user acts; their user turns are kept and counted.
    """
    for split in ("train", "dev", "test"):
        for key, path in store.paths("SGD", f"{split}/dialogues_*.json").items():
            for number, item in enumerate(load_json(path, key)):
                where = f"{key} dialogue {number}"
                with row(where):
                    utterances = _schema_guided(item["turns"], skipped, where)
                    dialogue = Dialogue(item["dialogue_id"], utterances, tuple(item["services"]), split)
                yield dialogue


def _schema_guided(turns: list[dict[str, Any]], skipped: Skipped, where: str) -> tuple[Utterance, ...]:
    """The turns of one dialogue. Where two intents are active, the one that was not so before is the turn's."""
    utterances, active = [], []
    for turn in turns:
        text, frames, speaker = turn["utterance"], turn["frames"], SPEAKERS[turn["speaker"]]
        slots = tuple(
            Slot(slot["slot"], text[slot["start"] : slot["exclusive_end"]], slot["start"], slot["exclusive_end"])
            for frame in frames
            for slot in frame["slots"]
        )
        acts = tuple(dict.fromkeys(action["act"] for frame in frames for action in frame.get("actions", ())))
        intent = ""
        if speaker == "user":
            before, active = active, [frame["state"]["active_intent"] for frame in frames]
            active = [name for name in active if name != "NONE"]
            intent = next((name for name in active if name not in before), active[0] if active else "")
            if not all("actions" in frame for frame in frames):
                skipped.add("user acts are not in this older file (utterance kept without acts)", where)
        utterances.append(Utterance(speaker, text, acts, slots, intent))
    return tuple(utterances)


@reader("GSIM", variants=("copies", "official"))
def read_gsim(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """sim-M and sim-R, 1,500 / 469 / 1,039 dialogues.

    The copies have sim-R train and test in a simplified form without act types; "official" reads all in original form.
    """
    for split in ("train", "dev", "test"):
        for corpus, domain in (("sim-M", "movie"), ("sim-R", "restaurant")):
            simple = variant == "copies" and corpus == "sim-R" and split != "dev"
            key = f"Examples/bots/TaskBot/sim-R_dataset/{split}_dials.json" if simple else f"{corpus}/{split}.json"
            parse = _simulated_simple if simple else _simulated
            for number, item in enumerate(load_json(store.path("GSIM", key), key)):
                with row(f"{key} dialogue {number}"):
                    name, utterances = parse(item)
                if simple:
                    skipped.add("acts are not in the simplified sim-R files (dialogue kept without acts)", key)
                yield Dialogue(name, utterances, (domain,), split)


def _simulated(item: dict[str, Any]) -> tuple[str, tuple[Utterance, ...]]:
    """Original form: the user opens, so the first turn has no system part."""
    utterances = []
    for turn in item["turns"]:
        for speaker in ("system", "user"):
            if f"{speaker}_utterance" in turn:
                spoken = turn[f"{speaker}_utterance"]
                acts = tuple(dict.fromkeys(act["type"] for act in turn[f"{speaker}_acts"]))
                slots = tuple(_token_slot(slot, spoken["tokens"]) for slot in spoken["slots"])
                intent = " ".join(turn.get("user_intents", ())) if speaker == "user" else ""
                utterances.append(Utterance(speaker, spoken["text"], acts, slots, intent))
    return item["dialogue_id"], tuple(utterances)


def _token_slot(slot: dict[str, Any], tokens: list[str]) -> Slot:
    """Token positions become character positions: the text is the tokens joined by single spaces."""
    starts = [0, *accumulate(len(token) + 1 for token in tokens)]
    start, end = starts[slot["start"]], starts[slot["exclusive_end"]] - 1
    return Slot(slot["slot"], " ".join(tokens)[start:end], start, end)


def _simulated_simple(item: dict[str, Any]) -> tuple[str, tuple[Utterance, ...]]:
    """Simplified form: the missing system part of the first turn is an empty string."""
    utterances = []
    for number, turn in enumerate(item["dialogue"]):
        if number or turn["system_utterance"]:
            utterances.append(Utterance("system", turn["system_utterance"]))
        slots = tuple(Slot(name.split("-", 1)[-1], value) for name, value in turn["turn_slots"].items())
        utterances.append(Utterance("user", turn["user_utterance"], slots=slots))
    return item["dialogue_idx"], tuple(utterances)
