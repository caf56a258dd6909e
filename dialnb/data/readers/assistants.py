"""Voice-assistant utterances with bracketed slots: HWU64 and, grown out of it, MASSIVE (with SLURP's annotation)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dialnb.data.readers import SPLITS, Files, Records, reader
from dialnb.data.readers.intents import head_and_tail, parallel_lines
from dialnb.data.readers.spans import bracketed
from dialnb.data.records import IntentUtterance

AnnotatedRow = tuple[IntentUtterance, str]


@reader("HWU64", variants=("standard", "annotated", "dse", "tadse", "dse-official", "tadse-official"))
def read_hwu64(files: Files, variant: str) -> Records:
    """64 intents, label = scenario_intent.

    "standard" is the 8,954/1,076/1,076 split; "annotated" the slot-annotated rows of the first cross-validation fold.
    "dse" (raw answers, 64 most frequent labels, 85:15 per class in file order) and "tadse" (annotated rows outside
    the standard dev and test lists are train) are the papers' readings on those rows; with "-official" they read
    the single 25,715-row file of the authors instead.
    """
    rows = official_rows(files) if variant.endswith("-official") else fold_rows(files)
    if variant == "standard":
        for part in ("train", "valid", "test"):
            for text, intent in parallel_lines(files, f"Datasets/HWU64/{part}", "seq.in", "label"):
                yield IntentUtterance(text, intent, (), intent.partition("_")[0], SPLITS[part])
    elif variant == "annotated":
        for item, _ in rows:
            yield item
    elif variant.startswith("dse"):
        yield from dse_rows(files, list(rows))
    else:
        listed = {split_key(item): item.split for item in read_hwu64(files, "standard")}
        yield from tadse_rows(files, rows, listed)


def fold_rows(files: Files) -> Iterator[AnnotatedRow]:
    """(annotated utterance, raw answer) of the first fold; ``answerid`` is not unique and therefore not used."""
    paths = files.store.paths("HWU64", "*/KFold_1/*.csv")
    for key, path in sorted(paths.items(), key=lambda item: "/testset/" in item[0]):
        fields = ("scenario", "intent", "answer_annotation", "answer_from_user")
        split = "train" if "/trainset/" in key else "test"
        for item in files.table(key, path.read_bytes(), fields, ";"):
            yield annotated(item, split), item["answer_from_user"]


def official_rows(files: Files) -> Iterator[AnnotatedRow]:
    """The same from the authors' single file; rows whose status begins with IRR (irrelevant) are left out."""
    for name, data in files.find("NLU-Data-Home-Domain-Annotated-All.csv", official=True):
        for item in files.table(name, data, ("scenario", "intent", "status", "answer_annotation", "answer"), ";"):
            if item["status"].startswith("IRR") or item["answer_annotation"] in ("", "null"):
                files.skipped["irrelevant or unannotated answer"] += 1
            else:
                yield annotated(item, "train"), item["answer"]


def annotated(item: dict[str, str], split: str) -> IntentUtterance:
    text, slots = bracketed(item["answer_annotation"])
    return IntentUtterance(text, f"{item['scenario']}_{item['intent']}", slots, item["scenario"], split)


def dse_rows(files: Files, rows: list[AnnotatedRow]) -> Records:
    """The 64 most frequent labels with the raw answer as text; its label map was never released (DSE evaluation)."""
    frequent = dict(Counter(item.intent for item, _ in rows).most_common(64))
    kept = []
    for item, answer in rows:
        if item.intent not in frequent:
            files.skipped["label beyond the 64 most frequent"] += 1
        elif answer.strip() in ("", "null"):
            files.skipped["no raw answer"] += 1
        else:
            kept.append(replace(item, text=answer, slots=()))
    yield from head_and_tail(kept, 85)


def tadse_rows(files: Files, rows: Iterable[AnnotatedRow], listed: dict[tuple[str, str], str]) -> Records:
    """Every utterance of the standard dev and test lists once, with slots; annotated rows outside them are train."""
    seen = set()
    for item, answer in rows:
        keys = [split_key(item), split_key(replace(item, text=answer))]
        key = next((key for key in keys if listed.get(key, "train") != "train"), None)
        if key is None:
            yield replace(item, split="train")
        elif key in seen:
            files.skipped["repeats an utterance of the dev or test list"] += 1
        else:
            seen.add(key)
            yield replace(item, split=listed[key])


def split_key(item: IntentUtterance) -> tuple[str, str]:
    """How an utterance is recognised across copies: label and words, without case and punctuation."""
    return item.intent, " ".join(re.sub(r"[^\w\s]", "", item.text.lower()).split())


@reader("MASSIVE", variants=("intents", "joined", "slurp", "slurp-official", "official"), sources=("MASSIVE", "HWU64"))
def read_massive(files: Files, variant: str) -> Records:
    """The en-US part. "intents": text and intent of train and test; "joined": the same with slots wherever SLURP or
    HWU64 annotate the very same text; "slurp": SLURP's dev and test with slots, "slurp-official" with train too;
    "official": the ``en-US.jsonl`` of the MASSIVE release, for those who can get it."""
    if variant == "slurp":
        yield from slurp_rows(files, "devel", "test")
    elif variant == "slurp-official":
        yield from slurp_rows(files, "train", "devel", "test")
    elif variant == "official":
        for name, data in files.find("en-US.jsonl", official=True):
            for item in files.json_lines(name, data):
                text, slots = bracketed(item["annot_utt"])
                yield IntentUtterance(text, item["intent"], slots, item["scenario"], SPLITS[item["partition"]])
    else:
        known = {}
        if variant == "joined":
            known = {item.text: item.slots for item, _ in fold_rows(files)}
            known |= {item.text: item.slots for item in slurp_rows(files, "devel", "test")}
        for split, size in (("train", "large"), ("test", "small")):
            for item in files.json_lines(f"datasets/massive_intent/{size}.jsonl"):
                text, intent = item["input"], item["label"].replace(" ", "_")
                yield IntentUtterance(text, intent, known.get(text, ()), intent.partition("_")[0], split)


def slurp_rows(files: Files, *parts: str) -> Records:
    """SLURP's text annotation. The intent is scenario_action, as MASSIVE has it: a few rows of SLURP say less."""
    for part in parts:
        for item in files.json_lines(f"dataset/slurp/{part}.jsonl"):
            text, slots = bracketed(item["sentence_annotation"].lower())
            scenario = item["scenario"]
            yield IntentUtterance(text, f"{scenario}_{item['action']}", slots, scenario, SPLITS[part])
