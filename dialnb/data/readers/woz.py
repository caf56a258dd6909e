"""Wizard-of-Oz task dialogues from Cambridge: WOZ 2.0, CamRest676 and MultiWOZ 2.1."""

from collections.abc import Iterable
from posixpath import basename
from typing import Any

from dialnb.data.readers import SPLITS, Files, Records, reader, unique
from dialnb.data.readers.spans import token_slot
from dialnb.data.records import Dialogue, Slot, Texts, Utterance
from dialnb.errors import DataError


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


def requests(system_acts: list[str | list[str]]) -> Texts:
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


@reader("MultiWOZ", variants=("copies", "convlab", "official"))
def read_multiwoz(files: Files, variant: str) -> Records:
    """MultiWOZ 2.1, 10,438 dialogues. The copies hold dev and test, with acts of both speakers.

    "convlab" adds the train split in the same form; "official" is the archive of the authors, with system acts only.
    """
    if variant == "official":
        yield from _official_multiwoz(files)
        return
    for part in ("val", "test") if variant == "copies" else ("train", "val", "test"):
        for member, data in files.matching("*.json", f"data/multiwoz/{part}.json.zip"):
            yield from _multiwoz(files.items(member, data), {}, SPLITS[part], {})


def _official_multiwoz(files: Files) -> Records:
    """MultiWOZ_2.1.zip: all dialogues in data.json, two lists of held-out names, system acts in a file of their own."""
    found = {basename(name): data for name, data in files.matching("*", "data/MultiWOZ_2.1.zip")}
    splits = {}
    for split, stem in (("dev", "valListFile"), ("test", "testListFile")):
        listed = found.get(f"{stem}.txt", found.get(f"{stem}.json"))
        if listed is None or "data.json" not in found:
            wanted = "MultiWOZ_2.1.zip should hold data.json, valListFile and testListFile"
            raise DataError(f"{wanted}; it has {', '.join(sorted(found))}")
        splits |= dict.fromkeys(listed.decode().split(), split)
    acts = files.json("system_acts.json", found.get("system_acts.json", b"{}"))
    yield from _multiwoz(files.items("data.json", found["data.json"]), splits, "train", acts)


def _multiwoz(
    rows: Iterable[tuple[str, Any]], splits: dict[str, str], otherwise: str, system_acts: dict[str, Any]
) -> Records:
    """``{name: {goal, log}}`` with user and system turns by turns; acts beside the turn or in ``system_acts``."""
    for file, item in rows:
        name = file.removesuffix(".json")
        utterances = []
        for index, turn in enumerate(item["log"]):
            acts = turn.get("dialog_act")
            if not acts and index % 2:
                acts = system_acts.get(name, {}).get(str((index + 1) // 2))
            if not isinstance(acts, dict):  # unlabelled turns carry the words "No Annotation"
                acts = {}
            slots = _multiwoz_slots(turn["text"], acts, turn.get("span_info", ()))
            utterances.append(Utterance(("user", "system")[index % 2], turn["text"], tuple(acts), slots))
        domains = tuple(key for key, goal in item["goal"].items() if goal and key not in ("message", "topic"))
        yield Dialogue(name, tuple(utterances), domains, splits.get(file, otherwise))


def _multiwoz_slots(text: str, acts: dict[str, list[list[str]]], spans: list[list[Any]]) -> tuple[Slot, ...]:
    """Slots with a value, and their place where the annotated words (first and last token) are those of the value."""
    tokens = text.split(" ")
    placed = {}
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
