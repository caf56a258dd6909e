"""Labelled utterances: CLINC150, BANKING77, SNIPS, ATIS, MultiDoGO, and those of voice assistants with bracketed slots:
HWU64 and, grown out of it, MASSIVE (with SLURP's annotation)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dialnb.data.readers import SPLITS, Files, Records, reader
from dialnb.data.readers.spans import bracketed, chunked, plain_to_bio, tagged
from dialnb.data.records import IntentUtterance, Texts

AnnotatedRow = tuple[IntentUtterance, str]
CLINC150_FILES = {"full": "full", "plus": "oos_plus", "small": "small", "imbalanced": "imbalanced"}


def parallel_lines(files: Files, folder: str, *names: str) -> Iterator[Texts]:
    """Yield one line of each file, of files that belong together line by line."""
    columns = [list(files.lines(f"{folder}/{name}")) for name in names]
    for number, lines in enumerate(zip(*columns, strict=True), start=1):
        files.place = f"{folder}/{names[0]} line {number}"
        yield lines


def head_and_tail(rows: Iterable[IntentUtterance], percent: int) -> Iterator[IntentUtterance]:
    """DSE's re-split: per class, in file order, the first ``percent`` % (rounded up) are train, the rest is test."""
    classes: dict[str, list[IntentUtterance]] = {}
    for item in rows:
        classes.setdefault(item.intent, []).append(item)
    for items in classes.values():
        head = -(-len(items) * percent // 100)
        for number, item in enumerate(items):
            yield replace(item, split="train" if number < head else "test")


@reader("CLINC150", variants=tuple(CLINC150_FILES))
def read_clinc150(files: Files, variant: str) -> Records:
    """150 intents in 10 domains; out-of-scope rows have intent "oos" and no domain ("plus": 250 of them in train)."""
    domain_of = {"oos": ""}
    for domain, intents in files.json("data/domains.json").items():
        domain_of |= dict.fromkeys(intents, domain)
    key = f"data/data_{CLINC150_FILES[variant]}.json"
    content = files.json(key)
    for part in ("train", "oos_train", "val", "oos_val", "test", "oos_test"):
        files.place = key
        for number, (text, intent) in enumerate(content[part]):
            files.place = f"{key} {part} row {number}"
            yield IntentUtterance(text, intent, (), domain_of[intent], SPLITS[part.removeprefix("oos_")])


@reader("BANKING77")
def read_banking77(files: Files) -> Records:
    """77 fine-grained intents of one domain."""
    for split in ("train", "test"):
        key = f"banking_data/{split}.csv"
        for item in files.table(key, files.read(key), ("text", "category")):
            yield IntentUtterance(item["text"], item["category"], domain="banking", split=split)


def read_slot_filling(files: Files, folder: str) -> Records:
    """The processed releases of SNIPS and ATIS: words, BIO tags and intents in three parallel files per split."""
    for part in ("train", "valid", "test"):
        for words, tags, intent in parallel_lines(files, f"{folder}/{part}", "seq.in", "seq.out", "label"):
            text, slots = tagged(words.split(), tags.split())
            yield IntentUtterance(text, intent.strip(), slots, split=SPLITS[part])


@reader("SNIPS", variants=("slots", "original", "dse"))
def read_snips(files: Files, variant: str) -> Records:
    """7 intents: "slots" is the processed release, "original" the JSON files (their validation set is the test set
    of the papers), "dse" those files re-split 90:10 per class (1,446 test rows by the rule, where DSE prints 1,447)."""
    if variant == "slots":
        yield from read_slot_filling(files, "data/snips")
        return
    rows = read_snips_json(files)
    yield from rows if variant == "original" else head_and_tail(rows, 90)


def read_snips_json(files: Files) -> Iterator[IntentUtterance]:
    """The original files, class by class, training rows first. They are UTF-8, but for a line of latin-1 in one."""
    intent_files = files.matching("2017-06-custom-intent-engines/*.json")
    for key, data in sorted(intent_files, key=lambda item: (item[0].split("/")[1], "validate_" in item[0])):
        lines = map(_as_utf8, data.splitlines(keepends=True))
        for intent, queries in files.items(key, b"".join(lines), "intent"):
            for query in queries:
                text, slots = chunked(query["data"])
                yield IntentUtterance(text, intent, slots, split="test" if "validate_" in key else "train")


def _as_utf8(line: bytes) -> bytes:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1").encode("utf-8")
    return line


@reader("ATIS")
def read_atis(files: Files) -> Records:
    """Flight queries; a compound label such as ``atis_airline#atis_flight_no`` is a class of its own (26 in all)."""
    yield from read_slot_filling(files, "data/atis")


@reader("MultiDoGO")
def read_multidogo(files: Files) -> Records:
    """Customer turns of six domains. A tag belongs to each word between single spaces, a line break being a word."""
    for key, data in files.matching("*.tsv"):
        *_, domain, file = key.split("/")
        split = SPLITS[file.removesuffix(".tsv")]
        for item in files.table(key, data, ("utterance", "slot-labels", "intent"), "\t"):
            words, tags = item["utterance"].split(" "), item["slot-labels"].split()
            if not item["utterance"].strip():
                files.skipped["empty utterance"] += 1
                continue
            kept = [(word, tag) for word, tag in zip(words, plain_to_bio(tags), strict=True) if word.strip()]
            text, slots = tagged(*zip(*kept))
            yield IntentUtterance(text, item["intent"], slots, domain, split)


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


@reader("MASSIVE", variants=("intents", "joined", "slurp", "official"), sources=("MASSIVE", "HWU64"))
def read_massive(files: Files, variant: str) -> Records:
    """The en-US part. "intents": text and intent of train and test; "joined": the same with slots wherever SLURP or
    HWU64 annotate the very same text; "slurp": SLURP's dev and test with slots; "official": the ``en-US.jsonl`` of the
    MASSIVE release, for those who can get it."""
    if variant == "slurp":
        yield from slurp_rows(files)
    elif variant == "official":
        for name, data in files.find("en-US.jsonl", official=True):
            for item in files.json_lines(name, data):
                text, slots = bracketed(item["annot_utt"])
                yield IntentUtterance(text, item["intent"], slots, item["scenario"], SPLITS[item["partition"]])
    else:
        known = {}
        if variant == "joined":
            known = {item.text: item.slots for item, _ in fold_rows(files)}
            known |= {item.text: item.slots for item in slurp_rows(files)}
        for split, size in (("train", "large"), ("test", "small")):
            for item in files.json_lines(f"datasets/massive_intent/{size}.jsonl"):
                text, intent = item["input"], item["label"].replace(" ", "_")
                yield IntentUtterance(text, intent, known.get(text, ()), intent.partition("_")[0], split)


def slurp_rows(files: Files) -> Iterator[IntentUtterance]:
    """SLURP's text annotation. The intent is scenario_action, as MASSIVE has it: a few rows of SLURP say less."""
    for part in ("devel", "test"):
        for item in files.json_lines(f"dataset/slurp/{part}.jsonl"):
            text, slots = bracketed(item["sentence_annotation"].lower())
            scenario = item["scenario"]
            yield IntentUtterance(text, f"{scenario}_{item['action']}", slots, scenario, SPLITS[part])
