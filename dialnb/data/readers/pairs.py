"""Sentence pairs: similarity (STS-B), natural language inference, questions with answers (AmazonQA)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from posixpath import basename
from typing import Any

from dialnb.data.readers import TRAIN_DEV_TEST, Files, Records, reader
from dialnb.data.records import InferenceItem, QuestionAnswer, ScoredPair

CAPTIONS = ("images", "track5.en-en")
INFERENCE = {name: name for name in ("entailment", "neutral", "contradiction")}
INFERENCE |= {name[0]: name for name in INFERENCE} | {"positive": "entailment", "negative": "contradiction"}


@reader("STS-B", variants=("all", "captions"))
def read_stsb(files: Files, variant: str) -> Records:
    """``genre, file, year, id, score (0 to 5), sentence, sentence`` and sometimes the sentences' sources, unquoted.

    "captions" are the two files of image captions that its LICENSE.txt puts under CC-BY-SA and that carry no terms of
    their own beyond that: images, and the part of SNLI ("track5.en-en")."""
    for split in TRAIN_DEV_TEST:
        for line in files.lines(f"data/stsbenchmark/sts-{split}.csv"):
            _, file, _, _, score, first, second, *_ = line.split("\t")
            if variant == "all" or file in CAPTIONS:
                yield ScoredPair(first, second, scored(score, 0), split)


def scored(text: str, least: int) -> float:
    """A score from ``least`` to 5."""
    if not least <= float(text) <= 5:
        raise ValueError(f"score {text}, expected {least} to 5")
    return float(text)


def inference_items(
    files: Files, rows: Iterable[Mapping[str, Any]], split: str, fields: Sequence[str], prefix: str = ""
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


@reader("ANLI", variants=("copies",))
def read_anli(files: Files) -> Records:
    """Adversarial NLI, the dev sets of rounds 1 to 3; the round opens the id."""
    for name, data in files.find("dev.jsonl"):
        rows = files.json_lines(name, data)
        yield from inference_items(
            files, rows, "dev", ("uid", "context", "hypothesis", "label"), f"{name.split('/')[-2]}/"
        )


@reader("SNLI", variants=("official",))
def read_snli(files: Files) -> Records:
    """Captions and what follows from them, from the official archive; pairs without a gold label are left out."""
    for split in TRAIN_DEV_TEST:
        for name, data in files.matching(f"*snli_1.0_{split}.jsonl", "snli_1.0.zip"):
            rows = files.json_lines(name, data)
            yield from inference_items(files, rows, split, ("pairID", "sentence1", "sentence2", "gold_label"))


@reader("Dialogue-NLI")
def read_dialogue_nli(files: Files) -> Records:
    """Persona sentences and utterances. The files are called .jsonl, but each is one JSON list."""
    for split in TRAIN_DEV_TEST:
        for name, data in files.find(f"dialogue_nli_{split}.jsonl", official=True):
            rows = files.items(name, data, "item")
            yield from inference_items(files, rows, split, ("id", "sentence1", "sentence2", "label"))


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
