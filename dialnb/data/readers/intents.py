"""Labelled utterances: CLINC150, BANKING77, SNIPS, ATIS, MultiDoGO."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dialnb.data.readers import SPLITS, Files, Records, reader
from dialnb.data.readers.spans import chunked, plain_to_bio, tagged
from dialnb.data.records import IntentUtterance, Texts
from dialnb.errors import DataError

CLINC150_FILES = {"full": "full", "plus": "oos_plus", "small": "small", "imbalanced": "imbalanced"}


def parallel_lines(files: Files, folder: str, *names: str) -> Iterator[Texts]:
    """Yield one line of each file, of files that belong together line by line."""
    columns = [list(files.lines(f"{folder}/{name}")) for name in names]
    if len(set(map(len, columns))) > 1:
        sizes = ", ".join(f"{name} has {len(column)}" for name, column in zip(names, columns))
        raise DataError(f"{files.source}: the files of {folder} should have equally many lines, but {sizes}")
    for number, lines in enumerate(zip(*columns), start=1):
        files.place = f"{folder}/{names[0]} line {number}"
        yield lines


def head_and_tail(rows: Iterable[IntentUtterance], percent: int) -> Records:
    """DSE's re-split: per class, in file order, the first ``percent`` % (rounded up) are train, the rest is test."""
    classes = {}
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
    elif variant == "original":
        yield from read_snips_json(files)
    else:
        yield from head_and_tail(read_snips_json(files), 90)


def read_snips_json(files: Files) -> Records:
    """The original files, class by class, training rows first. They are UTF-8, but for a line of latin-1 in one."""
    found = files.matching("2017-06-custom-intent-engines/*.json")
    for key, data in sorted(found, key=lambda item: (item[0].split("/")[1], "validate_" in item[0])):
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
            if len(words) != len(tags):
                raise ValueError(f"{len(words)} words but {len(tags)} slot labels")
            kept = [(word, tag) for word, tag in zip(words, plain_to_bio(tags)) if word.strip()]
            text, slots = tagged(*zip(*kept))
            yield IntentUtterance(text, item["intent"], slots, domain, split)
