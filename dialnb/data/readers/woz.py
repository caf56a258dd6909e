"""Wizard-of-Oz task dialogues from Cambridge: WOZ 2.0, CamRest676 and MultiWOZ 2.1."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from dialnb.data.readers import SPLITS, Files, Records, reader, unique
from dialnb.data.readers.spans import token_slot
from dialnb.data.records import Dialogue, Slot, Utterance


@reader("WOZ2.0")
def read_woz(files: Files) -> Records:
    """1,200 dialogues with 5,012 exchanges. The user opens: the empty system line of the first exchange is dropped."""
    for part in ("train", "validate", "test"):
        split = SPLITS[part]
        for item in files.items(f"data/woz/woz_{part}_en.json"):
            utterances = []
            for turn in item["dialogue"]:
                text = turn["system_transcript"]
                if turn["turn_idx"] or text:
                    utterances.append(Utterance("system", text, requests(turn["system_acts"])))
                utterances.append(labelled_user(turn))
            yield Dialogue(f"{split}-{item['dialogue_idx']}", tuple(utterances), ("restaurant",), split)


def labelled_user(turn: Any) -> Utterance:
    """A user turn with ``turn_label`` pairs: (slot, value) if something is told, ("request", slot) if asked for."""
    told = tuple(Slot(name or "this", value) for name, value in turn["turn_label"] if name != "request")
    acts = ("inform",) if told else ()
    if len(told) < len(turn["turn_label"]):
        acts += ("request",)
    return Utterance("user", turn["transcript"], acts, told)


def requests(system_acts: list[str | list[str]]) -> tuple[str, ...]:
    """``system_acts`` lists the slots asked for as strings and the values to confirm as pairs."""
    return unique("request" if isinstance(act, str) else "confirm" for act in system_acts)


@reader("CamRest676")
def read_camrest(files: Files) -> Records:
    """676 dialogues with 2,744 exchanges, published without splits.

    The JSON follows some "#" lines. The user labels repeat all constraints so far; only those new in a turn are kept.
    """
    key = "data/CamRest676.json"
    lines = files.read(key).split(b"\n")
    body = b"\n".join(b"" if line.startswith(b"#") else line for line in lines)
    for item in files.items(key, body):
        utterances, told = [], set()
        for turn in item["dial"]:
            user, system = turn["usr"], turn["sys"]
            labels = [(act["act"], *pair) for act in user["slu"] for pair in act["slots"]]
            new = [label for label in labels if label not in told]
            told = {label for label in labels if label[0] == "inform"}
            slots = tuple(Slot(name, value) for act, name, value in new if act == "inform")
            utterances.append(Utterance("user", user["transcript"], unique(label[0] for label in new), slots))
            utterances.append(Utterance("system", system["sent"], requests(system["DA"])))
        yield Dialogue(str(item["dialogue_id"]), tuple(utterances), ("restaurant",))


@reader("MultiWOZ", variants=("copies",))
def read_multiwoz(files: Files) -> Records:
    """MultiWOZ 2.1: dev and test, 1,999 of 10,438 dialogues, with acts of both speakers, who take turns."""
    for part in ("val", "test"):
        for member, data in files.matching("*.json", f"data/multiwoz/{part}.json.zip"):
            for file, item in files.items(member, data):
                utterances = []
                for turn, speaker in zip(item["log"], cycle(("user", "system"))):
                    acts = turn.get("dialog_act")
                    if not isinstance(acts, dict):  # unlabelled turns carry the words "No Annotation"
                        acts = {}
                    slots = _multiwoz_slots(turn["text"], acts, turn.get("span_info", ()))
                    utterances.append(Utterance(speaker, turn["text"], tuple(acts), slots))
                domains = tuple(key for key, goal in item["goal"].items() if goal and key not in ("message", "topic"))
                yield Dialogue(file.removesuffix(".json"), tuple(utterances), domains, SPLITS[part])


def _multiwoz_slots(text: str, acts: dict[str, list[list[str]]], spans: list[list[Any]]) -> tuple[Slot, ...]:
    """Slots with a value, and their place where the annotated words (first and last token) are those of the value."""
    tokens = text.split(" ")
    placed: dict[tuple[str, str], Slot] = {}
    for act, name, words, first, last in spans:
        slot = token_slot(name, tokens, first, last + 1)
        if slot.value.lower() == words.lower():
            placed.setdefault((act, name), slot)
    slots = []
    for act, pairs in acts.items():
        for name, value in pairs:
            if value not in ("?", "none"):
                slots.append(placed.get((act, name), Slot(name, value)))
    return tuple(slots)
