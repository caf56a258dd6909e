"""Labelled utterances: CLINC150, BANKING77, SNIPS, ATIS, MultiDoGO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dialnb.data.readers import Skipped, load_json, reader, row, text_lines
from dialnb.data.readers.files import SPLITS, table_rows
from dialnb.data.readers.spans import chunked, plain_to_bio, tagged
from dialnb.data.records import IntentUtterance
from dialnb.errors import DataError

if TYPE_CHECKING:
    from dialnb.data.store import Store

CLINC150_FILES = {"full": "full", "plus": "oos_plus", "small": "small", "imbalanced": "imbalanced"}
SNIPS_FOLDER = "2017-06-custom-intent-engines"


def parallel_lines(store: Store, source: str, folder: str, *names: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (place, one line of each file) of files that belong together line by line."""
    columns = [list(text_lines(store.path(source, f"{folder}/{name}"), f"{folder}/{name}")) for name in names]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{name} has {len(column)}" for name, column in zip(names, columns))
        raise DataError(f"{source}: the files of {folder} should have equally many lines, but {sizes}")
    for lines in zip(*columns):
        yield lines[0][0], tuple(line for _, line in lines)


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
def read_clinc150(store: Store, skipped: Skipped, variant: str = "full") -> Iterator[IntentUtterance]:
    """150 intents in 10 domains; out-of-scope rows have intent "oos" and no domain ("plus": 250 of them in train)."""
    domains = load_json(store.path("CLINC150", "data/domains.json"))
    domain_of = {intent: domain for domain, intents in domains.items() for intent in intents}
    key = f"data/data_{CLINC150_FILES[variant]}.json"
    content = load_json(store.path("CLINC150", key))
    for part in ("train", "oos_train", "val", "oos_val", "test", "oos_test"):
        with row(key):
            rows = content[part]
        for number, item in enumerate(rows):
            with row(f"{key} {part} row {number}"):
                text, intent = item
                domain = "" if intent == "oos" else domain_of[intent]
            yield IntentUtterance(text, intent, domain=domain, split=SPLITS[part.removeprefix("oos_")])


@reader("BANKING77")
def read_banking77(store: Store, skipped: Skipped) -> Iterator[IntentUtterance]:
    """77 fine-grained intents of one domain."""
    for split in ("train", "test"):
        key = f"banking_data/{split}.csv"
        for _, item in table_rows(store.path("BANKING77", key).read_bytes(), key, ("text", "category")):
            yield IntentUtterance(item["text"], item["category"], domain="banking", split=split)


def read_slot_filling(store: Store, source: str, folder: str) -> Iterator[IntentUtterance]:
    """The processed releases of SNIPS and ATIS: words, BIO tags and intents in three parallel files per split."""
    for part in ("train", "valid", "test"):
        for where, (words, tags, intent) in parallel_lines(
            store, source, f"{folder}/{part}", "seq.in", "seq.out", "label"
        ):
            with row(where):
                text, slots = tagged(words.split(), tags.split())
            yield IntentUtterance(text, intent.strip(), slots, split=SPLITS[part])


@reader("SNIPS", variants=("slots", "original", "dse"))
def read_snips(store: Store, skipped: Skipped, variant: str = "slots") -> Iterator[IntentUtterance]:
    """7 intents: "slots" is the processed release, "original" the JSON files (their validation set is the test set
    of the papers), "dse" those files re-split 90:10 per class (1,446 test rows by the rule, where DSE prints 1,447)."""
    if variant == "slots":
        yield from read_slot_filling(store, "SNIPS", "data/snips")
    elif variant == "original":
        yield from read_snips_json(store)
    else:
        yield from head_and_tail(read_snips_json(store), 90)


def read_snips_json(store: Store) -> Iterator[IntentUtterance]:
    """The original files, class by class, training rows first. They are UTF-8, but for a line of latin-1 in one."""
    keys = sorted(
        store.paths("SNIPS", f"{SNIPS_FOLDER}/*.json"), key=lambda key: (key.split("/")[1], "validate_" in key)
    )
    for key in keys:
        text = b"".join(map(_as_utf8, store.path("SNIPS", key).read_bytes().splitlines(keepends=True)))
        for intent, queries in load_json(text, key).items():
            for number, query in enumerate(queries):
                with row(f"{key} {intent} query {number}"):
                    text, slots = chunked(query["data"])
                yield IntentUtterance(text, intent, slots, split="test" if "validate_" in key else "train")


def _as_utf8(line: bytes) -> bytes:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1").encode("utf-8")
    return line


@reader("ATIS")
def read_atis(store: Store, skipped: Skipped) -> Iterator[IntentUtterance]:
    """Flight queries; a compound label such as ``atis_airline#atis_flight_no`` is a class of its own (26 in all)."""
    yield from read_slot_filling(store, "ATIS", "data/atis")


@reader("MultiDoGO")
def read_multidogo(store: Store, skipped: Skipped) -> Iterator[IntentUtterance]:
    """Customer turns of six domains. A tag belongs to each word between single spaces, a line break being a word."""
    for key, path in store.paths("MultiDoGO", "*.tsv").items():
        *_, domain, file = key.split("/")
        for where, item in table_rows(path.read_bytes(), key, ("utterance", "slot-labels", "intent"), "\t"):
            words, tags = item["utterance"].split(" "), item["slot-labels"].split()
            if not item["utterance"].strip():
                skipped.add("empty utterance", where)
                continue
            with row(where):
                if len(words) != len(tags):
                    raise ValueError(f"{len(words)} words but {len(tags)} slot labels")
                kept = [(word, tag) for word, tag in zip(words, plain_to_bio(tags)) if word.strip()]
                text, slots = tagged(*zip(*kept))
            yield IntentUtterance(text, item["intent"], slots, domain, SPLITS[file.removesuffix(".tsv")])
