"""Voice-assistant utterances with bracketed slots: HWU64 and, grown out of it, MASSIVE (with SLURP's annotation)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dialnb.data.readers import Skipped, json_lines, reader, row
from dialnb.data.readers.files import SPLITS, find_files, table_rows
from dialnb.data.readers.intents import head_and_tail, parallel_lines
from dialnb.data.readers.spans import bracketed
from dialnb.data.records import IntentUtterance

if TYPE_CHECKING:
    from dialnb.data.store import Store

FOLD = "KFold_1"
WHOLE = "NLU-Data-Home-Domain-Annotated-All.csv"
HWU64_SPLIT = "Datasets/HWU64"

AnnotatedRow = tuple[IntentUtterance, str]


@reader("HWU64", variants=("standard", "annotated", "dse", "tadse", "dse-official", "tadse-official"))
def read_hwu64(store: Store, skipped: Skipped, variant: str = "standard") -> Iterator[IntentUtterance]:
    """64 intents, label = scenario_intent.

    "standard" is the 8,954/1,076/1,076 split; "annotated" the slot-annotated rows of the first cross-validation fold.
    "dse" (raw answers, 64 most frequent labels, 85:15 per class in file order) and "tadse" (annotated rows outside
    the standard dev and test lists are train) are the papers' readings on those rows; with "-official" they read
    the single 25,715-row file of the authors instead.
    """
    if variant == "standard":
        for part in ("train", "valid", "test"):
            for _, (text, intent) in parallel_lines(store, "HWU64", f"{HWU64_SPLIT}/{part}", "seq.in", "label"):
                yield IntentUtterance(text, intent, domain=intent.partition("_")[0], split=SPLITS[part])
        return
    rows = official_rows(store, skipped) if variant.endswith("-official") else fold_rows(store)
    if variant == "annotated":
        yield from (item for item, _ in rows)
    elif variant.startswith("dse"):
        yield from dse_rows(list(rows), skipped)
    else:
        standard = read_hwu64(store, skipped, "standard")
        yield from tadse_rows(list(rows), {split_key(item): item.split for item in standard}, skipped)


def fold_rows(store: Store) -> Iterator[AnnotatedRow]:
    """(annotated utterance, raw answer) of the first fold; ``answerid`` is not unique and therefore not used."""
    paths = store.paths("HWU64", f"*/{FOLD}/*.csv")
    for key, path in sorted(paths.items(), key=lambda item: "/testset/" in item[0]):
        fields = ("scenario", "intent", "answer_annotation", "answer_from_user")
        split = "train" if "/trainset/" in key else "test"
        for where, item in table_rows(path.read_bytes(), key, fields, ";"):
            yield annotated(item, where, split), item["answer_from_user"]


def official_rows(store: Store, skipped: Skipped) -> Iterator[AnnotatedRow]:
    """The same from the authors' single file; rows whose status begins with IRR (irrelevant) are left out."""
    for name, data in find_files(store, "HWU64", WHOLE, official=True):
        fields = ("scenario", "intent", "status", "answer_annotation", "answer")
        for where, item in table_rows(data, name, fields, ";"):
            if item["status"].startswith("IRR") or item["answer_annotation"] in ("", "null"):
                skipped.add("irrelevant or unannotated answer", where)
            else:
                yield annotated(item, where, "train"), item["answer"]


def annotated(item: dict[str, str], where: str, split: str) -> IntentUtterance:
    with row(where):
        text, slots = bracketed(item["answer_annotation"])
    return IntentUtterance(text, f"{item['scenario']}_{item['intent']}", slots, item["scenario"], split)


def dse_rows(rows: list[AnnotatedRow], skipped: Skipped) -> Iterator[IntentUtterance]:
    """The 64 most frequent labels with the raw answer as text; its label map was never released (DSE evaluation)."""
    counts = Counter(item.intent for item, _ in rows)
    frequent = {intent for intent, _ in counts.most_common(64)}
    kept = []
    for item, answer in rows:
        if item.intent not in frequent:
            skipped.add("label beyond the 64 most frequent", item.intent)
        elif answer.strip() in ("", "null"):
            skipped.add("no raw answer", item.text)
        else:
            kept.append(replace(item, text=answer, slots=()))
    yield from head_and_tail(kept, 85)


def tadse_rows(
    rows: list[AnnotatedRow], listed: dict[tuple[str, str], str], skipped: Skipped
) -> Iterator[IntentUtterance]:
    """Every utterance of the standard dev and test lists once, with slots; annotated rows outside them are train."""
    seen = set()
    for item, answer in rows:
        keys = (split_key(item), split_key(replace(item, text=answer)))
        key = next((key for key in keys if listed.get(key, "train") != "train"), None)
        if key is None:
            yield replace(item, split="train")
        elif key in seen:
            skipped.add("repeats an utterance of the dev or test list", item.text)
        else:
            seen.add(key)
            yield replace(item, split=listed[key])


def split_key(item: IntentUtterance) -> tuple[str, str]:
    """How an utterance is recognised across copies: label and words, without case and punctuation."""
    return item.intent, " ".join(re.sub(r"[^\w\s]", "", item.text.lower()).split())


@reader("MASSIVE", variants=("intents", "joined", "slurp", "slurp-official", "official"), sources=("MASSIVE", "HWU64"))
def read_massive(store: Store, skipped: Skipped, variant: str = "intents") -> Iterator[IntentUtterance]:
    """The en-US part. "intents": text and intent of train and test; "joined": the same with slots wherever SLURP or
    HWU64 annotate the very same text; "slurp": SLURP's dev and test with slots, "slurp-official" with train too;
    "official": the ``en-US.jsonl`` of the MASSIVE release, for those who can get it."""
    if variant.startswith("slurp"):
        yield from slurp_rows(store, ("devel", "test") if variant == "slurp" else ("train", "devel", "test"))
    elif variant == "official":
        for name, data in find_files(store, "MASSIVE", "en-US.jsonl", official=True):
            for where, item in json_lines(data, name):
                with row(where):
                    text, slots = bracketed(item["annot_utt"])
                    made = IntentUtterance(text, item["intent"], slots, item["scenario"], SPLITS[item["partition"]])
                yield made
    else:
        known = {}
        if variant == "joined":
            known = {item.text: item.slots for item, _ in fold_rows(store)}
            known |= {item.text: item.slots for item in slurp_rows(store)}
        for split, size in (("train", "large"), ("test", "small")):
            key = f"datasets/massive_intent/{size}.jsonl"
            for where, item in json_lines(store.path("MASSIVE", key), key):
                with row(where):
                    text, intent = item["input"], item["label"].replace(" ", "_")
                yield IntentUtterance(text, intent, known.get(text, ()), intent.partition("_")[0], split)


def slurp_rows(store: Store, parts: tuple[str, ...] = ("devel", "test")) -> Iterator[IntentUtterance]:
    """SLURP's text annotation. The intent is scenario_action, as MASSIVE has it: a few rows of SLURP say less."""
    for part in parts:
        key = f"dataset/slurp/{part}.jsonl"
        for where, item in json_lines(store.path("MASSIVE", key), key):
            with row(where):
                text, slots = bracketed(item["sentence_annotation"].lower())
                scenario, intent = item["scenario"], f"{item['scenario']}_{item['action']}"
            yield IntentUtterance(text, intent, slots, scenario, SPLITS[part])
