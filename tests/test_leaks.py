"""No test text in training: what encoders and recipes have read, against every evaluation set."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd
import pytest

from dialnb.claims.papers import FLOORS
from dialnb.claims.rows import leak_notes, leaks, read_by, registry
from dialnb.data import load
from dialnb.data.corpora import COLLECTIONS, Part, collection
from dialnb.files import project_root, read_rows

TESTS = {
    **{name: [(f"bundled/{name}", None)] for name in ("CLINC150", "BANKING77", "SNIPS", "HWU64", "CI-ToD", "SGD")},
    **{name: [(name, None)] for name in ("ATIS", "MASSIVE", "DSTC2", "GSIM", "MDC")},
    "STAR": [("bundled/STAR", None)],
    "AmazonQA": [("AmazonQA", "copies")],
    "UbuntuIRC": [("bundled/UbuntuIRC", "selection-10"), ("bundled/UbuntuIRC", "selection-100")],
    "DECODE": [("DECODE", "human-bot")],
    "ECD": [("DialogueCSE", "ecd-select"), ("DialogueCSE", "ecd-sts")],
    "JDDC": [("bundled/DialogueCSE", "jddc-select"), ("bundled/DialogueCSE", "jddc-sts")],
    "STS-B": [("STS-B", "all")],
    "ANLI": [("ANLI", "copies")],
    "E-commerce": [("E-commerce", "copies")],
}
"""The evaluation sets of all studies by the name that results give them."""

EVERYTHING = [Part("bundled/dialogues"), *dict.fromkeys(part for name in COLLECTIONS for part in collection(name))]
"""All that an encoder or a recipe is trained on; TaDSE and the selectors train on the training split of their test."""


STOCK = 0.05
"""A smaller share of a test set is stock phrases, which every corpus holds."""

SPACES = {place: " " for place in range(128) if re.match(r"[^\w\n]", chr(place))}
"""What `str.translate` turns into spaces."""

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def plain(texts: Iterable[str]) -> set[str]:
    """The distinct texts, without case and punctuation."""
    distinct = {text.replace("\n", " ") for text in texts}
    ascii_only = {text for text in distinct if text.isascii()}
    return {
        line.strip() for part in (ascii_only, distinct - ascii_only) for line in plainly("\n".join(part)).split("\n")
    }


def telling(texts: Iterable[str]) -> set[str]:
    """Those that are too long to be said twice by chance."""
    return {text for text in plain(texts) if (len(text) >= 12 if is_chinese(text) else text.count(" ") >= 5)}


def plainly(lines: str) -> str:
    """Lines without case, with one space for whatever is no letter and no digit: all at once, which is quick."""
    if not lines.isascii():
        return re.sub(r"[^\w\n]+", " ", lines.casefold())
    lines = lines.lower().translate(SPACES)
    while "  " in lines:
        lines = lines.replace("  ", " ")
    return lines


def is_chinese(text: str) -> bool:
    return not text.isascii() and CHINESE.search(text) is not None


def overlap(test: set[str], read: set[str]) -> float:
    """The share of a test's telling texts that were read."""
    return len(test & read) / max(1, len(test))


def parts_of(label: str) -> Part:
    """The part of a corpus that a label names."""
    name, _, split = label.partition(":")
    bundled = "bundled/" if name.startswith("bundled/") else ""
    dataset, _, variant = name.removeprefix(bundled).partition("/")
    return Part(bundled + dataset, variant or None, split=split or None)


def all_that_mini_read() -> list[str]:
    """What the bundled encoder has read, and what those before it had."""
    return [label for weights in ("", *registry("earlier")) for label in read_by("mini", weights)]


def texts_of(name: str, store) -> set[str]:
    """The telling texts of a test set; one that has no test split is tested as a whole."""
    found: set[str] = set()
    for dataset, variant in TESTS[name]:
        records = load(dataset, variant, store=store)
        splits = set() if records.table.kind == "QuestionAnswer" else set(records.column("split"))
        found |= telling((records.filter(split="test") if "test" in splits else records).texts())
    return found


@pytest.mark.mirror
def test_no_corpus_holds_test_text_but_what_is_listed_with_its_reason(mirror_store):
    sets = {name: texts_of(name, mirror_store) for name in TESTS}
    read = [*EVERYTHING, *(parts_of(label) for label in all_that_mini_read())]
    found = set()
    for _, part in sorted({part.label: part for part in read}.items()):  # splits in a row share a corpus's table
        records = load(part.dataset, part.variant, part.split, store=mirror_store)
        texts = plain(records.texts())
        found |= {(name, part.label) for name, test in sets.items() if overlap(test, texts) >= STOCK}
    listed = {(entry["test"], label) for entry in registry("leaks") for label in entry["corpora"]}
    assert found == listed


def test_short_and_common_phrases_are_no_leak():
    assert telling(["Yes, please!", "no problem", "你好"]) == set()
    assert overlap(telling(["Where is my old kernel gone to?"]), telling(["where is my OLD kernel gone to"])) == 1
    assert overlap(set(), {"a"}) == 0


def test_every_overlap_has_a_sentence_for_its_rows_or_the_reason_why_it_is_allowed():
    for entry in registry("leaks"):
        assert ("allowed" in entry) != ("said" in entry), entry["test"]
        assert bool(entry.get("rows")) == ("said" in entry), entry["test"]


def test_the_mini_of_recorded_rows_has_read_ubuntus_test_lines_and_the_bundled_one_has_not():
    (before,) = registry("earlier")
    assert "UbuntuIRC/lines" in read_by("mini", before)
    assert leaks("English ELECTRA (from mini)", "UbuntuIRC", {"mini": before}).startswith("mini has read")
    assert {label.partition(":")[2] for label in read_by("mini")} == {"train"}
    for test in ("UbuntuIRC", "SGD", "STAR", "CLINC150"):
        assert leaks("mini", test) == leaks("mini", test, {"mini": "another"}) == ""
    assert leaks("sentence-transformers/all-MiniLM-L6-v2", "UbuntuIRC", {"mini": before}) == ""
    sweeps = pd.DataFrame({"table": ["F3", "F4", "F5"], "dataset": "DiaEval", "encoder": "mini"})
    sweeps.attrs["weights"] = {"mini": before}
    assert leak_notes(sweeps.assign(task="response retrieval")).ne("").all()
    assert leak_notes(sweeps.assign(task="action prediction")).eq("").all()


@pytest.mark.parametrize(
    ("paper", "where", "touched"),
    [
        ("ums", "table in ('T2', 'T4', 'T5') and dataset == 'UbuntuIRC'", False),
        ("ums", "dataset == 'E-commerce'", False),
        ("dse", "table == 'T4' and dataset == 'UbuntuIRC'", False),
        ("dse", "table == 'T2'", False),
        ("wmdc", "table == 'T4' or table in ('F3', 'F4') and task == 'response retrieval'", False),  # nor today's mini
        ("matrix", "table == 'T1' and task in ('Adversarial', 'Dialogue replies', 'Retrieval')", False),
    ],
)
def test_recorded_rows_say_which_of_them_a_leak_touches(paper, where, touched):
    rows = read_rows(project_root() / "papers" / paper / "results" / "gpu", "results.csv").query(where)
    rows = rows[~rows["model"].isin(FLOORS)]  # which read nothing
    notes = leak_notes(rows)
    assert len(rows) and notes.ne("").all() == notes.ne("").any() == touched
    assert leak_notes(pd.DataFrame({"dataset": ["UbuntuIRC"], "encoder": ["bert-base-uncased"]})).tolist() == [""]
