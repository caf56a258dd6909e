"""Bundled data: records that may be redistributed, kept in the package, so that a fresh clone has data at once.

``load("bundled/SGD")`` works without cache, mirror or network. Each file ``assets/data/NAME.jsonl.xz`` holds one JSON
array per record (its fields in order, defaults at the end left out), variant after variant; ``bundle.json`` is the
index. `tools.bundling` makes both from the sources.
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any

from dialnb.data.readers import TRAIN_DEV_TEST, Files, Reader
from dialnb.data.readers.irc import derive
from dialnb.data.records import RECORDS, Record
from dialnb.data.sources import known_name
from dialnb.data.tables import decoder
from dialnb.errors import DataError

if TYPE_CHECKING:
    from dialnb.data.store import Store

PREFIX = "bundled/"
EVERY_DIALOGUE = "dialogues"


def index() -> dict[str, dict[str, Any]]:
    """What is bundled, by name: sources, licence, recipe, file, sha256 and size, and rows per variant and split."""
    return json.loads(_asset("bundle.json").read_text("utf-8"))


def _asset(name: str) -> Any:
    return files("dialnb") / "assets" / "data" / name


@dataclass(frozen=True)
class BundledReader(Reader):
    """A reader of the package's own files; the store is not asked."""

    licence: str = ""
    hashes: tuple[str, ...] = ()

    def inputs(self, store: Store) -> list[str]:
        return list(self.hashes)

    def terms(self) -> str:
        return self.licence


def get_bundled(name: str) -> BundledReader:
    """The reader of "bundled/NAME", in any casing; "bundled/dialogues" is all bundled corpora of dialogues in a row."""
    known = index()
    name = known_name("bundled dataset", name, [PREFIX + key for key in (*known, EVERY_DIALOGUE)])
    key = name.removeprefix(PREFIX)
    if key == EVERY_DIALOGUE:
        corpora = {key: entry for key, entry in known.items() if entry["corpus"]}
        licence = "; ".join(dict.fromkeys(entry["licence"] for entry in corpora.values()))
        hashes = tuple(entry["sha256"] for entry in corpora.values())
        return BundledReader(name, (), 1, tuple(corpora), _read_dialogues, licence, hashes)
    entry = known[key]
    variants = tuple(filter(None, (*entry["variants"], *entry["derived"])))
    read = functools.partial(_read, key)
    return BundledReader(name, variants, 1, (key,), read, entry["licence"], (entry["sha256"],))


def _read(name: str, files: Files, variant: str = "") -> Iterator[Record]:
    """A variant that is stored, or one that is derived from it by the rules of the dataset's own reader."""
    entry = index()[name]
    if variant not in entry["derived"]:
        yield from read_bundled(name, variant or next(iter(entry["variants"])))
        return
    conversations = list(read_bundled(name, "conversations"))
    for split in TRAIN_DEV_TEST:
        yield from derive([dialogue for dialogue in conversations if dialogue.split == split], split, variant)


def _read_dialogues(files: Files) -> Iterator[Record]:
    """All corpora, all of their variants; an id begins with corpus and split."""
    for name, entry in index().items():
        for variant in entry["variants"] if entry["corpus"] else ():
            for dialogue in read_bundled(name, variant):
                yield replace(dialogue, id=f"{name}/{dialogue.split}/{dialogue.id}")


def read_bundled(name: str, variant: str = "") -> Iterator[Record]:
    """The records of one stored variant, after the hash of the whole file has been checked."""
    entry = index()[name]
    try:
        data = lzma.decompress(_asset(entry["file"]).read_bytes())
    except lzma.LZMAError:
        data = b""
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        problem = "is damaged (its sha256 is not that of bundle.json): reinstall"
        raise DataError(f"the bundled file {entry['file']} {problem}")
    before = 0
    for key, part in entry["variants"].items():
        if key == variant:
            decode = decoder(RECORDS[part["record"]])
            for line in islice(data.split(b"\n"), before, before + part["rows"]):
                yield decode(json.loads(line))
        before += part["rows"]
