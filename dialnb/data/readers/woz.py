"""Wizard-of-Oz task dialogues from Cambridge: WOZ 2.0, CamRest676 and MultiWOZ 2.1."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from dialnb.data.readers import Skipped, load_json, reader, row
from dialnb.data.records import Dialogue, Slot, Utterance
from dialnb.data.store import Store
from dialnb.errors import DataError


@reader("WOZ2.0")
def read_woz(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """1,200 dialogues with 5,012 exchanges. The user opens: the empty system line of the first exchange is dropped."""
    for split, name in (("train", "train"), ("dev", "validate"), ("test", "test")):
        key = f"data/woz/woz_{name}_en.json"
        for number, item in enumerate(load_json(store.path("WOZ2.0", key), key)):
            with row(f"{key} dialogue {number}"):
                utterances = []
                for turn in item["dialogue"]:
                    if turn["turn_idx"] or turn["system_transcript"]:
                        utterances.append(Utterance("system", turn["system_transcript"], requests(turn["system_acts"])))
                    utterances.append(labelled_user(turn))
                dialogue = Dialogue(f"{split}-{item['dialogue_idx']}", tuple(utterances), ("restaurant",), split)
            yield dialogue


def labelled_user(turn: dict[str, Any]) -> Utterance:
    """A user turn with ``turn_label`` pairs: (slot, value) if something is told, ("request", slot) if asked for."""
    told = tuple(Slot(name or "this", value) for name, value in turn["turn_label"] if name != "request")
    acts = ("inform",) * bool(told) + ("request",) * any(name == "request" for name, _ in turn["turn_label"])
    return Utterance("user", turn["transcript"], acts, told)


def requests(system_acts: list[str | list[str]]) -> tuple[str, ...]:
    """``system_acts`` lists the slots asked for as strings and the values to confirm as pairs."""
    return tuple(dict.fromkeys("request" if isinstance(act, str) else "confirm" for act in system_acts))


@reader("CamRest676")
def read_camrest(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """676 dialogues with 2,744 exchanges, published without splits.

    The JSON follows some "#" lines. The user labels repeat all constraints so far; only those new in a turn are kept.
    """
    key = "data/CamRest676.json"
    lines = store.path("CamRest676", key).read_bytes().split(b"\n")
    body = b"\n".join(b"" if line.startswith(b"#") else line for line in lines)
    for number, item in enumerate(load_json(body, key)):
        with row(f"{key} dialogue {number}"):
            utterances, told = [], set()
            for turn in item["dial"]:
                labels = [(act["act"], *pair) for act in turn["usr"]["slu"] for pair in act["slots"]]
                new = [label for label in labels if label[0] != "inform" or label not in told]
                told = {label for label in labels if label[0] == "inform"}
                slots = tuple(Slot(name, value) for act, name, value in new if act == "inform")
                acts = tuple(dict.fromkeys(label[0] for label in new))
                utterances.append(Utterance("user", turn["usr"]["transcript"], acts, slots))
                utterances.append(Utterance("system", turn["sys"]["sent"], requests(turn["sys"]["DA"])))
            dialogue = Dialogue(str(item["dialogue_id"]), tuple(utterances), ("restaurant",))
        yield dialogue


@reader("MultiWOZ", variants=("copies", "convlab", "official"))
def read_multiwoz(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """MultiWOZ 2.1, 10,438 dialogues. The copies hold dev and test, with acts of both speakers.

    "convlab" adds the train split in the same form; "official" is the archive of the authors, with system acts only.
    """
    if variant == "official":
        yield from _official_multiwoz(store)
        return
    splits = (
        {"train": "train", "dev": "val", "test": "test"} if variant == "convlab" else {"dev": "val", "test": "test"}
    )
    for split, name in splits.items():
        for member, data in store.members("MultiWOZ", f"data/multiwoz/{name}.json.zip", "*.json").items():
            yield from _multiwoz(load_json(data, member), member, lambda _, split=split: split, {})


def _official_multiwoz(store: Store) -> Iterator[Dialogue]:
    """MultiWOZ_2.1.zip: all dialogues in data.json, two lists of held-out names, system acts in a file of their own."""
    members = store.members("MultiWOZ", "data/MultiWOZ_2.1.zip")
    files = {name.rsplit("/", 1)[-1]: data for name, data in members.items()}
    splits: dict[str, str] = {}
    for split, stem in (("dev", "valListFile"), ("test", "testListFile")):
        listed = files.get(f"{stem}.txt", files.get(f"{stem}.json"))
        if listed is None or "data.json" not in files:
            raise DataError(
                "MultiWOZ_2.1.zip should hold data.json, valListFile and testListFile; it has "
                + ", ".join(sorted(files))
            )
        splits |= dict.fromkeys(listed.decode().split(), split)
    acts = load_json(files["system_acts.json"], "system_acts.json") if "system_acts.json" in files else {}
    data = load_json(files["data.json"], "data.json")
    yield from _multiwoz(data, "data.json", lambda name: splits.get(name, "train"), acts)


def _multiwoz(data: dict[str, Any], file: str, split_of: Any, system_acts: dict[str, Any]) -> Iterator[Dialogue]:
    """``{name: {goal, log}}`` with user and system turns by turns; acts beside the turn or in ``system_acts``."""
    for name, item in data.items():
        with row(f"{file} dialogue {name}"):
            apart = system_acts.get(name.removesuffix(".json"), {})
            utterances = []
            for index, turn in enumerate(item["log"]):
                acts = turn.get("dialog_act") or (apart.get(str((index + 1) // 2), {}) if index % 2 else {})
                acts = acts if isinstance(acts, dict) else {}  # unlabelled turns carry the words "No Annotation"
                slots = _multiwoz_slots(turn["text"], acts, turn.get("span_info", ()))
                utterances.append(Utterance(("user", "system")[index % 2], turn["text"], tuple(acts), slots))
            goal = {key: value for key, value in item["goal"].items() if key not in ("message", "topic")}
            domains = tuple(key for key, value in goal.items() if value)
            dialogue = Dialogue(name.removesuffix(".json"), tuple(utterances), domains, split_of(name))
        yield dialogue


def _multiwoz_slots(text: str, acts: dict[str, list[list[str]]], spans: list[list[Any]]) -> tuple[Slot, ...]:
    """Slots with a value, and their place where the annotated words (first and last token) are those of the value."""
    tokens = text.split(" ")
    starts = [0, *accumulate(len(token) + 1 for token in tokens)]
    slots = []
    for act, pairs in acts.items():
        for name, value in pairs:
            if value not in ("?", "none"):
                place = (-1, -1)
                for span_act, span_name, words, first, last in spans:
                    if (span_act, span_name) == (act, name) and " ".join(
                        tokens[first : last + 1]
                    ).lower() == words.lower():
                        place = starts[first], starts[last + 1] - 1
                        value = text[slice(*place)]
                        break
                slots.append(Slot(name, value, *place))
    return tuple(slots)
