"""Sentence pairs and what is to be told of them: similarity (STS-B), natural language inference, questions with answers
(AmazonQA); and the judged dialogues of DiaEval, CI-ToD (consistency) and DECODE (contradiction), whose last utterance
is judged."""

import ast
from collections.abc import Iterable, Mapping
from posixpath import basename
from typing import Any

from dialnb.data.readers import SPLITS, TRAIN_DEV_TEST, Files, Records, reader
from dialnb.data.records import InferenceItem, QuestionAnswer, ScoredPair, Texts

CAPTIONS = ("images", "track5.en-en")
INFERENCE = {name: name for name in ("entailment", "neutral", "contradiction")}
INFERENCE |= {name[0]: name for name in INFERENCE} | {"positive": "entailment", "negative": "contradiction"}
SICK = {"train": "train", "trial": "dev", "test_annotated": "test"}


@reader("STS-B", variants=("all", "captions"))
def read_stsb(files: Files, variant: str) -> Records:
    """``genre, file, year, id, score (0 to 5), sentence, sentence`` and sometimes the sentences' sources, unquoted.

    "captions" are the two files of image captions that its LICENSE.txt puts under CC-BY-SA and that carry no terms of
    their own beyond that: images, and the part of SNLI ("track5.en-en")."""
    for split in TRAIN_DEV_TEST:
        for line in files.lines(f"data/stsbenchmark/sts-{split}.csv"):
            _, file, _, _, score, first, second, *_ = line.split("\t")
            if variant == "all" or file in CAPTIONS:
                yield ScoredPair(first, second, float(score), split)


def inference_items(
    files: Files,
    rows: Iterable[Mapping[str, Any]],
    split: str,
    fields: Texts = ("pairID", "sentence1", "sentence2", "gold_label"),
    prefix: str = "",
) -> Records:
    """(premise, hypothesis) with one of three labels from rows whose ``fields`` are id, premise, hypothesis, label."""
    for row in rows:
        identifier, premise, hypothesis, label = (row[field] for field in fields)
        if label == "-":
            files.skipped["annotators did not agree on a label"] += 1
            continue
        if label.lower() not in INFERENCE:
            raise ValueError(f"label {label!r}, expected one of {', '.join(INFERENCE)}")
        yield InferenceItem(f"{prefix}{identifier}", (premise, hypothesis), INFERENCE[label.lower()], split)


@reader("ANLI", variants=("copies", "official"))
def read_anli(files: Files, variant: str) -> Records:
    """Adversarial NLI, rounds 1 to 3; the round opens the id. The copies are the dev sets only."""
    fields = ("uid", "context", "hypothesis", "label")
    for name, data in files.find("train.jsonl", "dev.jsonl", "test.jsonl", official=variant == "official"):
        round_, file = name.split("/")[-2:]
        split = SPLITS[file.removesuffix(".jsonl")]
        yield from inference_items(files, files.json_lines(name, data), split, fields, f"{round_}/")


@reader("SNLI", variants=("copies", "official"))
def read_snli(files: Files, variant: str) -> Records:
    """Captions and what follows from them; pairs without a gold label are left out. The copies are parts of the dev and
    test files; the official archive has all three."""
    for split in TRAIN_DEV_TEST:
        file = f"snli_1.0_{split}.jsonl"
        if variant == "official":
            split_files = files.matching(f"*{file}", "snli_1.0.zip")
        else:
            split_files = files.find(file) if split != "train" else iter(())
        for name, data in split_files:
            yield from inference_items(files, files.json_lines(name, data), split)


@reader("SICK")
def read_sick(files: Files) -> Records:
    """Sentence pairs with an entailment label. The trial split is "dev"."""
    columns = ("pair_ID", "sentence_A", "sentence_B", "entailment_judgment")
    for part, split in SICK.items():
        for name, data in files.find(f"SICK_{part}.txt"):
            yield from inference_items(files, files.table(name, data, columns, "\t"), split, columns)


@reader("Dialogue-NLI")
def read_dialogue_nli(files: Files) -> Records:
    """Persona sentences and utterances. The files are called .jsonl, but each is one JSON list."""
    fields = ("id", "sentence1", "sentence2", "label")
    for split in TRAIN_DEV_TEST:
        for name, data in files.find(f"dialogue_nli_{split}.jsonl", official=True):
            yield from inference_items(files, files.items(name, data, "item"), split, fields)


@reader("AmazonQA", variants=("copies", "official"))
def read_amazonqa(files: Files, variant: str) -> Records:
    """Questions about products: two categories (copies), or all of them (official)."""
    for name, data in files.find("qa_*.json.gz", official=variant == "official"):
        yield from question_answers(files, name, data)


def question_answers(files: Files, name: str, data: bytes) -> Records:
    """The rows of ``qa_CATEGORY.json.gz``: not JSON, but a Python literal per line."""
    category = basename(name).removeprefix("qa_").partition(".")[0].replace("_", " ")
    for line in files.lines(name, data):
        try:
            item = ast.literal_eval(line)
        except SyntaxError as error:
            raise ValueError(f"not a Python literal: {error.msg}") from None
        question, answer = item["question"].strip(), item["answer"].strip()
        if question and answer:
            yield QuestionAnswer(question, answer, category)
        else:
            files.skipped["empty question or answer"] += 1


@reader("CI-ToD", variants=("copies", "official"))
def read_citod(files: Files, variant: str) -> Records:
    """Is the last reply consistent with the dialogue? The weather part of train is in "official" only."""
    patterns = ("*_train.json", "*_dev.json", "*_test.json")
    for name, data in files.find(*patterns, official=variant == "official"):
        yield from judged_replies(files, name, data)


def judged_replies(files: Files, name: str, data: bytes) -> Records:
    """Label "1" (inconsistent) if the reply contradicts the query (qi) or the history (hi); the knowledge base and
    its label kbi are not used. The ids of the files repeat, so the place in the file is the id."""
    domain, _, part = basename(name).removesuffix(".json").rpartition("_")
    for number, item in enumerate(files.items(name, data)):
        labels = {item["scenario"][flag] for flag in ("qi", "hi")}
        if not labels <= {"0", "1"}:
            raise ValueError(f"labels {', '.join(sorted(labels))}, expected 0 or 1")
        texts = tuple(turn["utterance"] for turn in item["dialogue"])
        yield InferenceItem(f"{domain}-{part}-{number}", texts, max(labels), SPLITS[part])


@reader("DECODE", variants=("human-bot", "main"))
def read_decode(files: Files, variant: str) -> Records:
    """Label "1" if the last utterance contradicts its speaker. "main" are the official train, dev and test files,
    "human-bot" an extra test set."""
    for part in ("train", "dev", "test") if variant == "main" else (variant,):
        for name, data in files.find(f"{part}.jsonl", official=variant == "main"):
            for item in files.json_lines(name, data):
                turns = sorted(item["turns"], key=lambda turn: turn["turn_id"])
                label = {True: "1", False: "0"}[item["is_contradiction"]]
                texts = tuple(turn["text"] for turn in turns)
                yield InferenceItem(item["record_id"], texts, label, SPLITS.get(part, "test"))
