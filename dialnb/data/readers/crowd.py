"""Conversations collected from crowd workers: MetaLWOZ, MDC (MSR-E2E), Frames, STAR, Topical-Chat, Self-dialogue."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from dialnb.data.readers import Skipped, json_lines, load_json, reader, row, text_lines
from dialnb.data.records import Dialogue, Slot, Utterance
from dialnb.data.store import Store
from dialnb.errors import DataError

MDC_SPEAKERS = {"user": "user", "agent": "system"}
ACT = re.compile(r"\s*(\w+)\s*\((.*)\)?\s*", re.DOTALL)


@reader("MetaLWOZ", variants=("copies", "official"))
def read_metalwoz(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """37,884 dialogues, 432,036 utterances, 47 domains; the bot speaks first. One JSON line per dialogue."""
    if variant == "official":
        files = store.members("MetaLWOZ", "metalwoz-v1.zip", "*dialogues/*.txt")
    else:
        files = store.paths("MetaLWOZ", "data/dialogues/*.txt")
    for key, source in files.items():
        for where, item in json_lines(source, key):
            with row(where):
                turns = tuple(Utterance(("system", "user")[i % 2], text) for i, text in enumerate(item["turns"]))
                dialogue = Dialogue(item["id"], turns, (item["domain"],))
            yield dialogue


@reader("MDC", variants=("copies", "official"))
def read_mdc(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """Microsoft Dialogue Challenge: movie and taxi booking, and restaurants too in "official".

    One row per message: session, message, time, speaker, text, then one cell per act. The first act is the intent:
    the eleven acts are what DialogueCSE calls intents.
    """
    for domain in ("movie", "taxi", *(("restaurant",) if variant == "official" else ())):
        key = f"data/{domain}_all.tsv"
        rows = _mdc_rows(store, key)
        for session, messages in groupby(rows, key=lambda item: item[0]):
            utterances = tuple(utterance for _, utterance in messages)
            yield Dialogue(f"{domain}-{session}", utterances, (domain,))


def _mdc_rows(store: Store, key: str) -> Iterator[tuple[str, Utterance]]:
    lines = text_lines(store.path("MDC", key), key, encoding="utf-8-sig")
    next(lines, None)  # the names of the columns
    for where, line in lines:
        with row(where):
            session, _, _, speaker, text, *cells = (_unquoted(cell) for cell in line.split("\t"))
            acts = [_act(cell) for cell in cells if cell.strip()]
            names = tuple(dict.fromkeys(name for name, _ in acts))
            slots = tuple(slot for _, found in acts for slot in found)
            utterance = Utterance(MDC_SPEAKERS[speaker], text, names, slots, names[0] if names else "")
        yield session, utterance


def _unquoted(cell: str) -> str:
    """A cell with a comma or a quote in it may be quoted as in CSV."""
    quoted = len(cell) > 1 and cell.startswith('"') and cell.endswith('"')
    return cell[1:-1].replace('""', '"') if quoted else cell


def _act(cell: str) -> tuple[str, list[Slot]]:
    """``inform(city=New York;state=NY)`` -> ("inform", slots); a name without value is something asked for."""
    match = ACT.fullmatch(cell)
    if not match:
        raise DataError(f"expected an act such as inform(city=Seattle), found {cell!r}")
    pairs = (part.partition("=") for part in match[2].removesuffix(")").split(";"))
    return match[1].lower(), [Slot(name.strip(), value.strip()) for name, equals, value in pairs if equals]


@reader("Frames", variants=("copies", "official"))
def read_frames(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """1,369 travel bookings, 19,986 utterances, published without splits; the copy is the official file."""
    archive = "Frames-dataset.zip" if variant == "official" else "data/unified_datasets/frames/original_data.zip"
    for member, data in store.members("Frames", archive, "*frames.json").items():
        for number, item in enumerate(load_json(data, f"{archive} {member}")):
            with row(f"{archive} {member} dialogue {number}"):
                dialogue = Dialogue(item["id"], tuple(map(_frames_turn, item["turns"])), ("travel",))
            yield dialogue


def _frames_turn(turn: dict[str, Any]) -> Utterance:
    """Acts with arguments; references to earlier frames are laid flat in ``acts_without_refs`` where there are any."""
    labels = turn["labels"]
    acts = tuple(dict.fromkeys(act["name"] for act in labels["acts"]))
    given = [arg for act in labels.get("acts_without_refs", labels["acts"]) for arg in act["args"]]
    values = [(arg["key"], arg["val"]) for arg in given if isinstance(arg.get("val"), str)]
    intent = next((value for key, value in values if key == "intent"), "")
    slots = tuple(Slot(key, value) for key, value in values if key != "intent")
    return Utterance({"user": "user", "wizard": "system"}[turn["author"]], turn["text"], acts, slots, intent)


@reader("STAR")
def read_star(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """Wizard-of-Oz dialogues in 13 domains; the wizard's utterance carries the action label it was picked by.

    The conversation is what user and wizard uttered or picked; notes to the user and database queries are not said.
    """
    for name, data in store.members("STAR", "STAR.tar.gz", "dialogues/*.json").items():
        with row(name):
            item = load_json(data, name)
            utterances = tuple(
                Utterance(
                    "user" if event["Agent"] == "User" else "system",
                    event["Text"],
                    (event["ActionLabel"],) if event.get("ActionLabel") else (),
                )
                for event in item["Events"]
                if event["Agent"] in ("User", "Wizard") and event["Action"] in ("utter", "pick_suggestion")
            )
            domains = tuple(domain for domain in item["Scenario"]["Domains"] if domain)
        if utterances:
            yield Dialogue(str(item["DialogueID"]), utterances, domains)
        else:
            skipped.add("dialogue abandoned before anything was said", name)


@reader("TopicalChat", variants=("copies", "official"))
def read_topical_chat(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[Dialogue]:
    """Chats about news and facts; the speakers are agent_1 and agent_2. The copies lack the train split.

    "freq" and "rare" splits differ in whether their entities are frequent in the train split.
    """
    for split in (*(("train",) if variant == "official" else ()), "valid_freq", "valid_rare", "test_freq", "test_rare"):
        key = f"conversations/{split}.json"
        for name, item in load_json(store.path("TopicalChat", key), key).items():
            with row(f"{key} dialogue {name}"):
                utterances = tuple(Utterance(turn["agent"], turn["message"]) for turn in item["content"])
            yield Dialogue(name, utterances, (), split.replace("valid", "dev"))


@reader("Self-dialogue")
def read_self_dialogue(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """Twenty sentences in which one crowd worker plays both sides; the folder names the topic. 4,136 about movies."""
    for key, path in store.paths("Self-dialogue", "corpus/*.csv").items():
        with row(key):
            rows = csv.DictReader(io.StringIO(path.read_text("utf-8"), newline=""))
        for item in rows:
            with row(f"{key} line {rows.line_num}"):
                sentences = [item[f"Answer.sentence{number}"].strip() for number in range(1, 21)]
                name = item["AssignmentId"]
            said = [(("first", "second")[i % 2], text) for i, text in enumerate(sentences) if text]
            yield Dialogue(name, tuple(Utterance(*turn) for turn in said), (key.split("/")[-2],))
