"""Task dialogues from Cambridge: those with a Wizard of Oz (WOZ 2.0, CamRest676, MultiWOZ 2.1), and DSTC2, spoken
restaurant search between people and machines, put together from what is public of it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Any

from dialnb.data.readers import SPLITS, Files, Records, reader, unique
from dialnb.data.readers.spans import token_slot
from dialnb.data.records import Dialogue, Slot, Slots, Texts, Utterance

RAW = "rasa/data/file/Mar13_S0A0"


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
    acts: Texts = ("inform",) if told else ()
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


@reader("MultiWOZ", variants=("copies",))
def read_multiwoz(files: Files) -> Records:
    """MultiWOZ 2.1: 1,999 of 10,438 dialogues, as the copies hold dev and test, with acts of both speakers."""
    for part in ("val", "test"):
        for member, data in files.matching("*.json", f"data/multiwoz/{part}.json.zip"):
            for name, item in files.items(member, data):
                utterances = [_multiwoz_turn(place, turn) for place, turn in enumerate(item["log"])]
                domains = [key for key, goal in item["goal"].items() if goal and key not in ("message", "topic")]
                yield Dialogue(name.removesuffix(".json"), tuple(utterances), tuple(domains), SPLITS[part])


def _multiwoz_turn(place: int, turn: Any) -> Utterance:
    """User and system in turn; unlabelled turns carry the words "No Annotation" in place of acts."""
    acts = turn.get("dialog_act")
    acts = acts if isinstance(acts, dict) else {}
    slots = _multiwoz_slots(turn["text"], acts, turn.get("span_info", ()))
    return Utterance(("user", "system")[place % 2], turn["text"], tuple(acts), slots)


def _multiwoz_slots(text: str, acts: dict[str, list[list[str]]], spans: list[list[Any]]) -> Slots:
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


@reader("DSTC2", variants=("copies", "official"), version=2)
def read_dstc2(files: Files, variant: str) -> Records:
    """1,612 / 506 / 1,117 dialogues with 11,677 / 3,934 / 9,890 exchanges, system first.

    The copies: system acts are looked up by text among published (acts, text) pairs, user acts among the 150 sessions
    that are published in original form; what is not found is kept without acts and counted. "official" reads the two
    archives.
    """
    if variant == "official":
        yield from _official_dstc2(files)
        return
    texts = dict(files.matching("dstc2-clean/*.json", "storage/dstc2-clean.zip"))
    raw = dict(files.matching(f"{RAW}/*/l*.json"))
    folders = [path.removesuffix("/log.json") for path in raw if path.endswith("/log.json")]
    sessions = {folder: read_session(files, raw, folder) for folder in folders}
    spoken = [one for session in sessions.values() for one in session if one.speaker == "user" and one.acts]
    known, meant = _most_frequent(_acts_by_text(files)), _most_frequent((one.text, one.acts) for one in spoken)
    for part in ("train", "validate", "test"):
        file = f"dstc2-clean/dstc2_{part}_en.json"
        items = files.json(file, texts[file])
        names = _session_names(files, SPLITS[part], len(items))
        for name, item in zip(names, items, strict=True):
            labelled = sessions.get(f"{RAW}/{name}", [])
            files.place = f"{file} dialogue {name}"
            utterances: list[Utterance] = []
            for turn in item["dialogue"]:
                exchange = ("system", turn["system_transcript"], known), ("user", turn["transcript"], meant)
                for place, (speaker, text, usual) in enumerate(exchange, start=len(utterances)):
                    acts = labelled[place].acts if place < len(labelled) else usual.get(_folded(text))
                    if acts is None:
                        files.skipped[f"{speaker} acts not found by text (utterance kept without acts)"] += 1
                    slots = labelled_user(turn).slots if speaker == "user" else ()
                    utterances.append(Utterance(speaker, text, acts or (), slots))
            yield Dialogue(name, tuple(utterances), ("restaurant",), SPLITS[part])


def _acts_by_text(files: Files) -> Iterator[tuple[str, Texts]]:
    """Published texts of the system with their acts; the records are acts, template, text and a blank line."""
    for part in ("train", "valid", "test"):
        lines = [*files.lines(f"src/data/{part}_data"), ""]
        for labels, text in zip(lines[:-3:4], lines[2:-1:4]):
            yield text, unique(re.findall(r"([\w-]+)\(", labels))


def _most_frequent(examples: Iterable[tuple[str, Texts]]) -> dict[str, Texts]:
    """Lower-cased text -> its most frequent acts."""
    acts_of_text: dict[str, Counter[Texts]] = defaultdict(Counter)
    for text, acts in examples:
        acts_of_text[_folded(text)][acts] += 1
    return {text: counts.most_common(1)[0][0] for text, counts in acts_of_text.items()}


def _folded(text: str) -> str:
    return text.lower().strip()


def _session_names(files: Files, split: str, count: int) -> list[str]:
    """Session names, from a second copy of the corpus that has the train and dev dialogues in the same order."""
    if split == "test":
        return [f"test-{number}" for number in range(count)]
    named = files.json(f"data/dstc2_original_split/data.dstc2.{split}.json")
    return [item["session-id"] for item in named]


def read_session(files: Files, members: dict[str, bytes], folder: str) -> list[Utterance]:
    """One session in original form: ``log.json`` has the system's side, ``label.json`` what the user said and meant."""
    log, label = f"{folder}/log.json", f"{folder}/label.json"
    files.place = log
    turns, labels = files.json(log, members[log])["turns"], files.json(label, members[label])["turns"]
    utterances = []
    for system, user in zip(turns, labels, strict=True):
        output = system["output"]
        utterances.append(_spoken("system", output["transcript"], output["dialog-acts"]))
        utterances.append(_spoken("user", user["transcription"], user["semantics"]["json"]))
    return utterances


def _spoken(speaker: str, text: str, acts: list[Any]) -> Utterance:
    slots = [Slot(name, str(value)) for act in acts for name, value in act["slots"] if name != "slot"]
    return Utterance(speaker, text, unique(act["act"] for act in acts), tuple(slots))


def _official_dstc2(files: Files) -> Records:
    """The archives of the challenge: data/FOLDER/SESSION/{log,label}.json and lists of sessions per split."""
    for archive, splits in (("dstc2_traindev.tar.gz", ("train", "dev")), ("dstc2_test.tar.gz", ("test",))):
        members = dict(files.matching("*", archive))
        for split in splits:
            files.place = f"{archive}, which should hold one list of {split},"
            (listed,) = (name for name in members if name.endswith(f"dstc2_{split}.flist"))
            for line in files.lines(listed, members[listed]):
                folder = f"data/{line.strip()}"
                yield Dialogue(basename(folder), tuple(read_session(files, members, folder)), ("restaurant",), split)
