"""Sentence pairs: similarity (STS-B), natural language inference, questions with answers (AmazonQA)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dialnb.data.readers import Skipped, json_lines, load_json, reader, row, text_lines
from dialnb.data.readers.files import SPLITS, find_files, table_rows
from dialnb.data.records import InferenceItem, QuestionAnswer, ScoredPair

if TYPE_CHECKING:
    from dialnb.data.store import Store

CAPTIONS = ("images", "track5.en-en")
INFERENCE = {
    "e": "entailment",
    "n": "neutral",
    "c": "contradiction",
    "positive": "entailment",
    "negative": "contradiction",
    "entailment": "entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
}


@reader("STS-B", variants=("all", "captions"))
def read_stsb(store: Store, skipped: Skipped, variant: str = "all") -> Iterator[ScoredPair]:
    """``genre, file, year, id, score (0 to 5), sentence, sentence`` and sometimes the sentences' sources, unquoted.

    "captions" are the two files of image captions that its LICENSE.txt puts under CC-BY-SA and that carry no terms of
    their own beyond that: images, and the part of SNLI ("track5.en-en")."""
    for split in ("train", "dev", "test"):
        key = f"data/stsbenchmark/sts-{split}.csv"
        for where, line in text_lines(store.path("STS-B", key), key):
            with row(where):
                _, file, _, _, score, first, second, *_ = line.split("\t")
                value = _score(score, 0)
            if variant == "all" or file in CAPTIONS:
                yield ScoredPair(first, second, value, split)


def inference_items(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    skipped: Skipped,
    split: str,
    fields: tuple[str, str, str, str] = ("pairID", "sentence1", "sentence2", "gold_label"),
    prefix: str = "",
) -> Iterator[InferenceItem]:
    """(premise, hypothesis) with one of three labels from rows whose ``fields`` are id, premise, hypothesis, label."""
    identifier, premise, hypothesis, label = fields
    for where, item in rows:
        with row(where):
            if item[label] == "-":
                skipped.add("annotators did not agree on a label", where)
                continue
            if item[label] not in INFERENCE:
                raise ValueError(f"label {item[label]!r}, expected one of {', '.join(INFERENCE)}")
            made = InferenceItem(
                f"{prefix}{item[identifier]}", (item[premise], item[hypothesis]), INFERENCE[item[label]], split
            )
        yield made


@reader("ANLI", variants=("copies", "official"))
def read_anli(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[InferenceItem]:
    """Adversarial NLI, rounds 1 to 3; the round opens the id. The copies are the dev sets only."""
    names = ("train.jsonl", "dev.jsonl", "test.jsonl")
    for name, data in find_files(store, "ANLI", *names, official=variant == "official"):
        round_, file = name.split("/")[-2:]
        split, fields = SPLITS[file.removesuffix(".jsonl")], ("uid", "context", "hypothesis", "label")
        yield from inference_items(json_lines(data, name), skipped, split, fields, f"{round_}/")


@reader("SNLI", variants=("copies", "official"))
def read_snli(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[InferenceItem]:
    """Captions and what follows from them; pairs without a gold label are left out. The copies are parts of the dev and
    test files; the official archive has all three."""
    for split in ("train", "dev", "test"):
        file = f"snli_1.0_{split}.jsonl"
        if variant == "official":
            found = store.members("SNLI", "snli_1.0.zip", f"*{file}").items()
        else:
            found = find_files(store, "SNLI", file) if split != "train" else ()
        for name, data in found:
            yield from inference_items(json_lines(data, name), skipped, split)


SICK_FILES = {"SICK_train.txt": "train", "SICK_trial.txt": "dev", "SICK_test_annotated.txt": "test"}


@reader("SICK", variants=("inference", "relatedness"))
def read_sick(store: Store, skipped: Skipped, variant: str = "inference") -> Iterator[InferenceItem | ScoredPair]:
    """Sentence pairs with an entailment label, or with their relatedness, 1 to 5. The trial split is "dev"."""
    columns = ("pair_ID", "sentence_A", "sentence_B", "entailment_judgment", "relatedness_score")
    for file, split in SICK_FILES.items():
        for name, data in find_files(store, "SICK", file):
            rows = table_rows(data, name, columns, "\t")
            if variant == "inference":
                rows = ((where, item | {"label": item["entailment_judgment"].lower()}) for where, item in rows)
                yield from inference_items(rows, skipped, split, (*columns[:3], "label"))
                continue
            for where, item in rows:
                with row(where):
                    score = _score(item["relatedness_score"], 1)
                yield ScoredPair(item["sentence_A"], item["sentence_B"], score, split)


@reader("STS12-16", variants=("all", "2012", "2013", "2014", "2015", "2016"))
def read_sts(store: Store, skipped: Skipped, variant: str = "all") -> Iterator[ScoredPair]:
    """``score (0 to 5), sentence, sentence`` per line, one file per year and source; a variant is a year. Pairs
    without a score are left out."""
    for name, data in find_files(store, "STS12-16", "*.train.tsv", "*.test.tsv"):
        year, file = name.split("/")[-2:]
        for where, line in text_lines(data, name) if variant in ("all", year) else ():
            with row(where):
                score, first, second = line.split("\t")
                if not score:
                    skipped.add("no score", where)
                    continue
                made = ScoredPair(first.strip(), second.strip(), _score(score, 0), file.split(".")[-2])
            yield made


def _score(text: str, least: int) -> float:
    if not least <= float(text) <= 5:
        raise ValueError(f"score {text}, expected {least} to 5")
    return float(text)


@reader("MNLI")
def read_mnli(store: Store, skipped: Skipped) -> Iterator[InferenceItem]:
    """Ten genres; the splits are "train", "dev" (matched genres) and "dev-mismatched"."""
    for split, file in (("train", "train"), ("dev", "dev_matched"), ("dev-mismatched", "dev_mismatched")):
        for name, data in find_files(store, "MNLI", f"multinli_1.0_{file}.jsonl", official=True):
            yield from inference_items(json_lines(data, name), skipped, split)


@reader("Dialogue-NLI")
def read_dialogue_nli(store: Store, skipped: Skipped) -> Iterator[InferenceItem]:
    """Persona sentences and utterances. The files are called .jsonl, but each is one JSON list."""
    for split in ("train", "dev", "test"):
        for name, data in find_files(store, "Dialogue-NLI", f"dialogue_nli_{split}.jsonl", official=True):
            rows = ((f"{name} item {number}", item) for number, item in enumerate(load_json(data, name)))
            yield from inference_items(rows, skipped, split, ("id", "sentence1", "sentence2", "label"))


@reader("AmazonQA", variants=("copies", "official"))
def read_amazonqa(store: Store, skipped: Skipped, variant: str = "copies") -> Iterator[QuestionAnswer]:
    """Questions about products: two categories (copies), or all of them (official)."""
    for name, data in find_files(store, "AmazonQA", "qa_*.json.gz", official=variant == "official"):
        yield from question_answers(data, name, skipped)


def question_answers(data: bytes, name: str, skipped: Skipped) -> Iterator[QuestionAnswer]:
    """The rows of ``qa_CATEGORY.json.gz``: not JSON, but a Python literal per line."""
    category = name.rpartition("/")[2].removeprefix("qa_").partition(".")[0].replace("_", " ")
    for where, line in text_lines(data, name):
        with row(where):
            try:
                item = ast.literal_eval(line)
            except SyntaxError as error:
                raise ValueError(f"not a Python literal: {error.msg}") from None
            question, answer = item["question"].strip(), item["answer"].strip()
        if question and answer:
            yield QuestionAnswer(question, answer, category)
        else:
            skipped.add("empty question or answer", where)
