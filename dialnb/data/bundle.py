"""Bundled data: records that may be redistributed, kept in the package, so that a fresh clone has data at once.

``load("bundled/SGD")`` works without cache, mirror or network. Each file ``assets/data/NAME.jsonl.xz`` holds one JSON
array per record (its fields in order, defaults at the end left out), variant after variant; ``bundle.json`` is the
index. `tools.bundling` makes both from the sources.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import lzma
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, Any

from dialnb.data.readers import Reader, Skipped
from dialnb.data.records import RECORDS, Dialogue, Record
from dialnb.errors import DataError, UnknownName

if TYPE_CHECKING:
    from dialnb.data.store import Store

PREFIX = "bundled/"
EVERY_DIALOGUE = "dialogues"


def encode(value: Any) -> Any:
    """A record as plain lists: fields in order, those at the end that have their default value left out.

    >>> from dialnb.data.records import Utterance
    >>> encode(Utterance("user", "hello"))
    ['user', 'hello']
    """
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields = dataclasses.fields(value)
    cells = [getattr(value, field.name) for field in fields]
    while cells and cells[-1] == fields[len(cells) - 1].default:
        cells.pop()
    return [encode(cell) for cell in cells]


@functools.cache
def decoder(hint: Any) -> Callable[[Any], Any]:
    """The function that undoes :func:`encode` for values of this type."""
    if typing.get_origin(hint) is tuple:
        item = decoder(typing.get_args(hint)[0])
        return lambda cells: tuple([item(cell) for cell in cells])
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        parts = [decoder(hints[field.name]) for field in dataclasses.fields(hint)]
        return lambda cells: hint(*[part(cell) for part, cell in zip(parts, cells)])
    return lambda cell: cell


def to_lines(records: Iterable[Record]) -> bytes:
    """Records as JSON lines."""
    return b"".join(
        json.dumps(encode(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for record in records
    )


def index() -> dict[str, dict[str, Any]]:
    """What is bundled, by name: sources, licence, recipe, file, sha256 and size, and rows per variant and split."""
    return json.loads(_asset("bundle.json").read_text("utf-8"))


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
    wanted = name.casefold().removeprefix(PREFIX)
    if wanted == EVERY_DIALOGUE:
        corpora = {key: entry for key, entry in known.items() if entry["corpus"]}
        licence = "; ".join(dict.fromkeys(entry["licence"] for entry in corpora.values()))
        hashes = tuple(entry["sha256"] for entry in corpora.values())
        return BundledReader(PREFIX + EVERY_DIALOGUE, (), 1, tuple(corpora), _read_dialogues, licence, hashes)
    found = next((key for key in known if key.casefold() == wanted), None)
    if found is None:
        raise UnknownName("bundled dataset", name, [PREFIX + key for key in (*known, EVERY_DIALOGUE)])
    entry = known[found]
    variants = tuple(variant for variant in (*entry["variants"], *entry["derived"]) if variant)

    def read(store: Store, skipped: Skipped, variant: str = "") -> Iterator[Record]:
        yield from derived_selection(found, variant) if variant in entry["derived"] else read_bundled(found, variant)

    return BundledReader(PREFIX + found, variants, 1, (found,), read, entry["licence"], (entry["sha256"],))


def read_bundled(name: str, variant: str = "") -> Iterator[Record]:
    """The records of one stored variant, after the hash of the whole file has been checked."""
    entry = index()[name]
    try:
        data = lzma.decompress(_asset(entry["file"]).read_bytes())
    except lzma.LZMAError:
        data = b""
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise DataError(
            f"the bundled file {entry['file']} is damaged (its sha256 is not that of bundle.json): reinstall"
        )
    before = 0
    for key, part in entry["variants"].items():
        if key == variant:
            decode = decoder(RECORDS[part["record"]])
            for line in islice(data.split(b"\n"), before, before + part["rows"]):
                yield decode(json.loads(line))
        before += part["rows"]


def _read_dialogues(store: Store, skipped: Skipped) -> Iterator[Dialogue]:
    """All corpora, all of their variants; an id begins with corpus and split."""
    for name, entry in index().items():
        for variant in entry["variants"] if entry["corpus"] else ():
            for dialogue in read_bundled(name, variant):
                yield replace(dialogue, id=f"{name}/{dialogue.split}/{dialogue.id}")


def derived_selection(name: str, variant: str) -> Iterator[Record]:
    """Variants that are computed from the stored one, by the rules of the dataset's own reader."""
    from dialnb.data.readers.irc import SPLITS, derive

    conversations = list(read_bundled(name, "conversations"))
    for split in SPLITS:
        yield from derive([dialogue for dialogue in conversations if dialogue.split == split], split, variant)


def _asset(name: str) -> Any:
    return files("dialnb") / "assets" / "data" / name
