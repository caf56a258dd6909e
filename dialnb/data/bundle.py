"""Bundled data: records that may be redistributed, kept in the package, so that a fresh clone has data at once.

``load("bundled/SGD")`` works without cache, mirror or network. Each file ``assets/data/NAME.jsonl.xz`` holds one JSON
array per record (its fields in order, defaults at the end left out), variant after variant; ``bundle.json`` is the
index. `tools.bundling` makes both from the sources.
"""

import functools
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from dialnb.data.readers import TRAIN_DEV_TEST, Files, Reader
from dialnb.data.readers.irc import derive
from dialnb.data.records import Dialogue, Record
from dialnb.data.sources import known_name
from dialnb.data.store import Store
from dialnb.data.tables import Table, decoder, field_of, parse
from dialnb.errors import DataError
from dialnb.files import Values, digest_of, read_json

PREFIX = "bundled/"
EVERY_DIALOGUE = "dialogues"


@functools.cache
def index() -> dict[str, Values]:
    """What is bundled, by name: sources, licence, recipe, file, sha256 and size, and rows per variant and split."""
    return read_json(_asset("bundle.json"))


def _asset(name: str) -> Any:
    return files("dialnb") / "assets" / "data" / name


@dataclass(frozen=True)
class BundledReader(Reader):
    """A reader of the package's own files; the store is not asked."""

    def stored(self, variant: str) -> Table | None:
        if len(self.sources) > 1:
            return every_dialogue(self.sources)
        return None if variant in index()[self.sources[0]]["derived"] else stored(self.sources[0], variant)

    def inputs(self, store: Store) -> list[str]:
        return [index()[name]["sha256"] for name in self.sources]

    def terms(self) -> str:
        return "; ".join(dict.fromkeys(index()[name]["licence"] for name in self.sources))


def get_bundled(name: str) -> BundledReader:
    """The reader of "bundled/NAME", in any casing; "bundled/dialogues" is all bundled corpora of dialogues in a row."""
    known = index()
    name = known_name("bundled dataset", name, [PREFIX + key for key in (*known, EVERY_DIALOGUE)])
    key = name.removeprefix(PREFIX)
    if key == EVERY_DIALOGUE:
        corpora = tuple(key for key, entry in known.items() if entry["corpus"])
        return BundledReader(name, (), 1, corpora, iter)
    variants = tuple(filter(None, (*known[key]["variants"], *known[key]["derived"])))
    return BundledReader(name, variants, 1, (key,), functools.partial(_derive, key))


def _derive(name: str, files: Files, variant: str) -> Iterator[Record]:
    """A variant that is derived from the conversations by the rules of the dataset's own reader."""
    table = stored(name, "conversations")
    conversations = list(map(decoder(table.record), table.cells))
    for split in TRAIN_DEV_TEST:
        yield from derive([dialogue for dialogue in conversations if dialogue.split == split], split, variant)


def every_dialogue(corpora: Iterable[str]) -> Table:
    """These corpora, all of their variants; an id begins with corpus and split."""
    cells = []
    for name in corpora:
        for variant in index()[name]["variants"]:
            rows = stored(name, variant).cells
            for cell, split in zip(rows, field_of(rows, Dialogue, "split")):
                cell[0] = f"{name}/{split}/{cell[0]}"
            cells += rows
    return Table(Dialogue.__name__, cells, {})


def stored(name: str, variant: str) -> Table:
    """One stored variant, after the hash of the whole file has been checked."""
    entry = index()[name]
    try:
        data = lzma.decompress(_asset(entry["file"]).read_bytes())
    except lzma.LZMAError:
        data = b""
    if digest_of(data) != entry["sha256"]:
        raise DataError(
            f"the bundled file {entry['file']} is damaged (its sha256 is not that of bundle.json): reinstall"
        )
    before = 0
    for key, part in entry["variants"].items():
        if key == variant:
            break
        before += part["rows"]
    lines = data.split(b"\n")[before : before + part["rows"]]
    return Table(part["record"], parse(b"[%b]" % b",".join(lines)), {})
