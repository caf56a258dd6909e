"""Readers: one function per dataset that turns verified files into typed records, and the register of all of them.

A reader is a generator decorated with :func:`reader`. It asks :class:`Files` for rows, yields records and counts what
it leaves out. It need not catch anything: what goes wrong while a row is taken apart becomes a sentence that names
file and place::

    @reader("CLINC150", variants=("full", "plus"), version=1)
    def read_clinc150(files, variant):
        for text, intent in files.items(f"data/data_{variant}.json"):
            if text:
                yield IntentUtterance(text, intent)
            else:
                files.skipped["empty utterance"] += 1

The register is not a list somebody keeps: every module of this package is searched for readers when first asked.
"""

import csv
import functools
import gzip
import importlib
import io
import json
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from posixpath import basename
from typing import Any, TypeVar

from dialnb.data.records import Record, Texts, Utterance
from dialnb.data.sources import get_source, known_name
from dialnb.data.store import Store
from dialnb.data.tables import Table
from dialnb.errors import DataError

Records = Iterator[Record]
Value = TypeVar("Value")
TRAIN_DEV_TEST = ("train", "dev", "test")
ARCHIVES = (".zip", ".tar.gz", ".tgz")
SPLITS = {name: name for name in TRAIN_DEV_TEST}
SPLITS |= dict.fromkeys(("valid", "devel", "val", "validate", "validation"), "dev")
SPEAKERS = dict.fromkeys(("user", "usr", "customer", "client", "human", "driver"), "user")
SPEAKERS |= dict.fromkeys(("system", "sys", "agent", "assistant", "bot", "operator", "wizard"), "system")
"""Who speaks, by what corpora call them."""


class Files:
    """The files of one source as rows; ``place`` is that of the row at hand, ``skipped`` counts what is left out.

    The methods that read take the key of a file or, with ``data``, the name and bytes of one that was found otherwise.
    """

    def __init__(self, store: Store, source: str) -> None:
        self.store = store
        self.source = source
        self.place = source
        self.skipped: Counter[str] = Counter()

    def read(self, key: str) -> bytes:
        """The bytes of one file."""
        return self.store.path(self.source, key).read_bytes()

    def matching(self, pattern: str, archive: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield (key, bytes) of the checked files that match, or of the members of an archive."""
        if archive:
            yield from self.store.members(self.source, archive, pattern).items()
            return
        for key, path in self.store.paths(self.source, pattern).items():
            yield key, path.read_bytes()

    def find(self, *patterns: str, official: bool = False) -> Iterator[tuple[str, bytes]]:
        """Yield (name, bytes) of the files whose last path part matches a pattern, gunzipped.

        By default these are the checked copies. ``official`` adds the files that nobody could check yet, and looks for
        what no file matches in the archives of the source: whoever can get them has the whole dataset.
        """
        source = get_source(self.source)
        keys = sorted(file.key for file in source.files if official or file.verified)
        chosen = [key for key in keys if any(_matches(key, pattern) for pattern in patterns)]
        for key in chosen:
            yield key, _gunzipped(self.read(key))
        has_any = bool(chosen)
        for pattern in patterns:
            if any(_matches(key, pattern) for key in chosen):
                continue
            for archive in keys:
                if archive.endswith(ARCHIVES):
                    for name, data in self.matching(f"*{pattern}", archive):
                        if _matches(name, pattern):
                            has_any = True
                            yield name, _gunzipped(data)
        if not has_any:
            raise DataError(f"{source.name} has no file named like {' or '.join(patterns)}. {source.coverage}")

    def json(self, name: str, data: bytes | None = None) -> Any:
        """Parse one JSON document; a syntax error names the file, line and column."""
        try:
            return json.loads(self.read(name) if data is None else data)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{name} is not the JSON document it should be: {error}") from error

    def items(self, name: str, data: bytes | None = None, what: str = "dialogue") -> Iterator[Any]:
        """Yield the items of a JSON list, or the (key, value) pairs of a JSON object."""
        rows = self.json(name, data)
        for key, item in rows.items() if isinstance(rows, dict) else enumerate(rows):
            self.place = f"{name} {what} {key}"
            yield (key, item) if isinstance(rows, dict) else item

    def lines(self, name: str, data: bytes | None = None, encoding: str = "utf-8") -> Iterator[str]:
        """Yield every line without its end.

        Lines end at a line feed only: other separators that Unicode knows do occur inside utterances.
        """
        lines = (self.read(name) if data is None else data).split(b"\n")
        for number, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1):
            self.place = f"{name} line {number}"
            try:
                yield line.rstrip(b"\r").decode(encoding)
            except UnicodeDecodeError as error:
                raise DataError(f"{self.place} is not {encoding} text: {error}") from error

    def json_lines(self, name: str, data: bytes | None = None) -> Iterator[Any]:
        """Yield the value of every line of a JSON-lines file that is not blank."""
        for line in self.lines(name, data):
            if line.strip():
                yield self.json(self.place, line.encode())

    def table(self, name: str, data: bytes, fields: Iterable[str], delimiter: str = ",") -> Iterator[dict[str, str]]:
        """Yield the rows of a quoted table, by column name; its header must have at least these fields."""
        rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter)
        header = next(rows, [])
        if missing := set(fields) - set(header):
            raise DataError(f"{name} line 1: no column {', '.join(sorted(missing))}; found {', '.join(header)}")
        for row in rows:
            self.place = f"{name} line {rows.line_num}"
            if len(row) != len(header):
                raise ValueError(f"{len(row)} columns, expected {len(header)}")
            yield dict(zip(header, row))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(basename(name), pattern)


def _gunzipped(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


@dataclass(frozen=True)
class Reader:
    """A reading function with what the cache must know about it."""

    dataset: str
    variants: Texts
    version: int
    sources: Texts
    function: Callable[..., Records]

    def __call__(self, files: Files, variant: str | None = None) -> Iterator[Any]:
        """Yield the records; an error in a row names its place."""
        variant = self.variant(variant)
        try:
            yield from self.function(files, variant) if len(self.variants) > 1 else self.function(files)
        except KeyError as error:
            raise DataError(f"malformed row at {files.place}: no field {error}") from error
        except (AttributeError, IndexError, TypeError, ValueError, csv.Error) as error:
            raise DataError(f"malformed row at {files.place}: {error}") from error

    def stored(self, variant: str) -> Table | None:
        """The records as the package itself holds them; None if they are to be read."""
        return None

    def inputs(self, store: Store) -> list:
        """The source files and their hashes: whatever the records depend on besides the reader."""
        inputs = []
        for source in map(get_source, self.sources):
            inputs += [[source.name, file.key, store.digest(source, file)] for file in source.files]
        return inputs

    def terms(self) -> str:
        """The licence of the data."""
        return get_source(self.sources[0]).licence

    def variant(self, name: str | None) -> str:
        """The variant's own spelling; by default the first one, "" for a dataset without variants."""
        if not name:
            return self.variants[0] if self.variants else ""
        return known_name(f"variant of {self.dataset}", name, self.variants or ("(it has none)",))


def reader(
    dataset: str, *, variants: Texts = (), version: int = 1, sources: Texts = ()
) -> Callable[[Callable[..., Records]], Reader]:
    """Make a generator function the reader of ``dataset``.

    The first of ``variants`` is the default; of several, the function is told which. ``sources`` are the registry
    entries whose files it reads (by default the one of the same name). Raise ``version`` whenever its records change,
    so that cached ones are made anew.
    """
    return functools.partial(Reader, dataset, variants, version, sources or (dataset,))


@functools.cache
def all_readers() -> dict[str, Reader]:
    """Every reader of this package by dataset name."""
    readers: dict[str, Reader] = {}
    for info in pkgutil.iter_modules(__path__, __name__ + "."):
        for item in vars(importlib.import_module(info.name)).values():
            if isinstance(item, Reader) and readers.setdefault(item.dataset, item) is not item:
                raise ValueError(f"two readers claim the dataset {item.dataset}")
    return readers


def get_reader(dataset: str) -> Reader:
    """The reader of a dataset; upper and lower case do not matter."""
    known = all_readers()
    return known[known_name("dataset", dataset, known)]


def unique(values: Iterable[Value]) -> tuple[Value, ...]:
    """Each value once, in order of first appearance."""
    return tuple(dict.fromkeys(values))


def in_turn(texts: Iterable[str], speakers: tuple[str, str] = ("user", "system")) -> tuple[Utterance, ...]:
    """Utterances of two speakers who take turns."""
    return tuple(Utterance(speakers[place % 2], text) for place, text in enumerate(texts))
