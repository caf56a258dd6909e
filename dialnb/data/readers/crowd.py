"""Conversations collected from crowd workers: MetaLWOZ, MDC (MSR-E2E), Frames, STAR, Topical-Chat, Self-dialogue, and
in the unified format of the ConvLab toolkit, KVRET (also known as SMD) and DailyDialog."""

import csv
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from dialnb.data.readers import SPEAKERS, SPLITS, Files, Records, in_turn, reader, unique
from dialnb.data.records import Dialogue, Slot, Utterance

ACT = re.compile(r"\s*(\w+)\s*\((.*)\)?\s*", re.DOTALL)


@reader("MetaLWOZ", variants=("copies",))
def read_metalwoz(files: Files) -> Records:
    """37,884 dialogues, 432,036 utterances, 47 domains; the bot speaks first. One JSON line per dialogue."""
    for name, data in files.matching("*dialogues/*.txt"):
        for item in files.json_lines(name, data):
            yield Dialogue(item["id"], in_turn(item["turns"], ("system", "user")), (item["domain"],))


@reader("MDC", variants=("copies",))
def read_mdc(files: Files) -> Records:
    """Microsoft Dialogue Challenge: movie and taxi booking; of restaurants there is no copy.

    One row per message: session, message, time, speaker, text, then one cell per act. The first act is the intent:
    the eleven acts are what DialogueCSE calls intents.
    """
    for domain in ("movie", "taxi"):
        messages = _mdc_messages(files, f"data/{domain}_all.tsv")
        for session, rows in groupby(messages, key=lambda message: message[0]):
            utterances = tuple(utterance for _, utterance in rows)
            yield Dialogue(f"{domain}-{session}", utterances, (domain,))


def _mdc_messages(files: Files, key: str) -> Iterator[tuple[str, Utterance]]:
    """Yield (session, utterance)."""
    rows = csv.reader(files.lines(key, encoding="utf-8-sig"), delimiter="\t", strict=True)
    next(rows, None)  # the names of the columns
    for session, _, _, speaker, text, *cells in rows:
        names = []
        slots: list[Slot] = []
        for cell in cells:
            if cell.strip():
                match: Any = ACT.fullmatch(cell)
                names.append(match[1].lower())
                slots += _told(match[2])
        acts = unique(names)
        yield session, Utterance(SPEAKERS[speaker], text, acts, tuple(slots), acts[0] if acts else "")


def _told(arguments: str) -> Iterator[Slot]:
    """The slots of ``city=New York;state=NY)``; a name without value is something asked for."""
    for part in arguments.removesuffix(")").split(";"):
        name, equals, value = part.partition("=")
        if equals:
            yield Slot(name.strip(), value.strip())


@reader("Frames", variants=("copies",))
def read_frames(files: Files) -> Records:
    """1,369 travel bookings, 19,986 utterances, published without splits; the copy is the official file."""
    archive = "data/unified_datasets/frames/original_data.zip"
    for member, data in files.matching("*frames.json", archive):
        for item in files.items(f"{archive} {member}", data):
            yield Dialogue(item["id"], tuple(map(_frames_turn, item["turns"])), ("travel",))


def _frames_turn(turn: Any) -> Utterance:
    """Acts with arguments; references to earlier frames are laid flat in ``acts_without_refs`` where there are any."""
    labels = turn["labels"]
    slots, intents = [], [""]
    for act in labels.get("acts_without_refs", labels["acts"]):
        for argument in act["args"]:
            value = argument.get("val")
            if isinstance(value, str) and argument["key"] == "intent":
                intents.append(value)
            elif isinstance(value, str):
                slots.append(Slot(argument["key"], value))
    acts = unique(act["name"] for act in labels["acts"])
    return Utterance(SPEAKERS[turn["author"]], turn["text"], acts, tuple(slots), intents[:2][-1])


@reader("STAR")
def read_star(files: Files) -> Records:
    """Wizard-of-Oz dialogues in 13 domains; the wizard's utterance carries the action label it was picked by.

    The conversation is what user and wizard uttered or picked; notes to the user and database queries are not said.
    """
    for name, data in files.matching("dialogues/*.json", "STAR.tar.gz"):
        files.place = name
        item = files.json(name, data)
        utterances = []
        for event in item["Events"]:
            speaker, label = SPEAKERS.get(event["Agent"].lower()), event.get("ActionLabel")
            if speaker and event["Action"] in ("utter", "pick_suggestion"):
                utterances.append(Utterance(speaker, event["Text"], (label,) if label else ()))
        if utterances:
            domains = tuple(filter(None, item["Scenario"]["Domains"]))
            yield Dialogue(str(item["DialogueID"]), tuple(utterances), domains)
        else:
            files.skipped["dialogue abandoned before anything was said"] += 1


@reader("TopicalChat", variants=("copies",))
def read_topical_chat(files: Files) -> Records:
    """Chats about news and facts; the speakers are agent_1 and agent_2. The copies lack the train split.

    "freq" and "rare" splits differ in whether their entities are frequent in the train split.
    """
    for part in ("valid_freq", "valid_rare", "test_freq", "test_rare"):
        for name, item in files.items(f"conversations/{part}.json"):
            utterances = tuple(Utterance(turn["agent"], turn["message"]) for turn in item["content"])
            yield Dialogue(name, utterances, (), part.replace("valid", "dev"))


@reader("Self-dialogue")
def read_self_dialogue(files: Files) -> Records:
    """Twenty sentences in which one crowd worker plays both sides; the folder names the topic. 4,136 about movies."""
    for key, data in files.matching("corpus/*.csv"):
        for item in files.table(key, data, ["AssignmentId"]):
            sentences = [item[f"Answer.sentence{number}"].strip() for number in range(1, 21)]
            utterances = [turn for turn in in_turn(sentences, ("first", "second")) if turn.text]
            yield Dialogue(item["AssignmentId"], tuple(utterances), (key.split("/")[-2],))


@reader("DailyDialog")
def read_dailydialog(files: Files) -> Records:
    """13,118 everyday conversations, 102,979 utterances, one of four acts each; the topic is the domain."""
    yield from _unified(files, "data/unified_datasets/dailydialog/data.zip")


@reader("KVRET", variants=("copies",))
def read_kvret(files: Files) -> Records:
    """In-car assistant, three domains. The copy lacks one of 3,031 dialogues."""
    yield from _unified(files, "data/unified_datasets/kvret/data.zip")


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
