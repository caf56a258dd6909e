"""Readers: one function per dataset that turns verified files into typed records, and the register of all of them.

A reader is a generator decorated with :func:`reader`. It asks the store for its files, yields records, counts what
it leaves out in :class:`Skipped`, and lets :func:`row` turn a malformed row into a sentence naming file and place::

    @reader("CLINC150", variants=("full", "plus"), version=1)
    def read_clinc150(store, skipped, variant="full"):
        path = store.path("CLINC150", f"data/data_{variant}.json")
        for number, (text, intent) in enumerate(load_json(path)["train"]):
            yield IntentUtterance(text, intent)

The register is not a list somebody keeps: every module of this package is searched for readers when first asked.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialnb.data.records import Record
from dialnb.errors import DataError, UnknownName

if TYPE_CHECKING:
    from dialnb.data.store import Store


@dataclass
class Skipped:
    """Rows that a reader leaves out, counted by reason; ``examples`` keeps the first place of each.

    >>> skipped = Skipped()
    >>> skipped.add("empty utterance", "train.tsv line 12")
    >>> skipped.add("empty utterance", "train.tsv line 40")
    >>> dict(skipped.counts), skipped.examples
    ({'empty utterance': 2}, {'empty utterance': 'train.tsv line 12'})
    """

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, where: str = "", count: int = 1) -> None:
        self.counts[reason] += count
        self.examples.setdefault(reason, where)


@dataclass(frozen=True)
class Reader:
    """A reading function with what the cache must know about it. Calling it calls the function."""

    dataset: str
    variants: tuple[str, ...]
    version: int
    sources: tuple[str, ...]
    function: Callable[..., Iterator[Record]]

    def __call__(self, store: Store, skipped: Skipped, variant: str | None = None) -> Iterator[Record]:
        variant = self.variant(variant)
        return self.function(store, skipped, variant=variant) if self.variants else self.function(store, skipped)

    def inputs(self, store: Store) -> list:
        """The source files and their hashes: whatever the records depend on besides the reader."""
        from dialnb.data.sources import get_source

        sources = [get_source(name) for name in self.sources]
        return [[source.name, file.key, store.digest(source, file)] for source in sources for file in source.files]

    def terms(self) -> str:
        """The licence of the data."""
        from dialnb.data.sources import get_source

        return get_source(self.sources[0]).licence

    def variant(self, name: str | None) -> str:
        """The variant's own spelling; None is the first one, "" for a dataset without variants."""
        if name is None:
            return self.variants[0] if self.variants else ""
        known = {variant.casefold(): variant for variant in self.variants}
        if name.casefold() not in known:
            raise UnknownName(f"variant of {self.dataset}", name, self.variants or ("(it has none)",))
        return known[name.casefold()]


def reader(
    dataset: str, *, variants: tuple[str, ...] = (), version: int = 1, sources: tuple[str, ...] = ()
) -> Callable[[Callable[..., Iterator[Record]]], Reader]:
    """Make a generator function the reader of ``dataset``.

    The first of ``variants`` is the default. ``sources`` are the registry entries whose files it reads (by default
    the one of the same name). Raise ``version`` whenever its records change, so that cached ones are made anew.
    """

    def decorate(function: Callable[..., Iterator[Record]]) -> Reader:
        return Reader(dataset, tuple(variants), version, tuple(sources) or (dataset,), function)

    return decorate


@functools.cache
def all_readers() -> dict[str, Reader]:
    """Every reader of this package by dataset name."""
    found: dict[str, Reader] = {}
    for info in pkgutil.iter_modules(__path__, __name__ + "."):
        for item in vars(importlib.import_module(info.name)).values():
            if isinstance(item, Reader) and found.setdefault(item.dataset, item) is not item:
                raise ValueError(f"two readers claim the dataset {item.dataset}")
    return found


def get_reader(dataset: str) -> Reader:
    """The reader of a dataset; upper and lower case do not matter."""
    known = {name.casefold(): made for name, made in all_readers().items()}
    if dataset.casefold() not in known:
        raise UnknownName("dataset", dataset, all_readers())
    return known[dataset.casefold()]


@contextmanager
def row(where: str) -> Iterator[None]:
    """Turn what goes wrong while a row is taken apart into a DataError that names the place.

    >>> with row("woz_train_en.json dialogue 7"):
    ...     {}["turns"]
    Traceback (most recent call last):
    dialnb.errors.DataError: malformed row at woz_train_en.json dialogue 7: no field 'turns'
    """
    try:
        yield
    except DataError as error:
        raise DataError(f"malformed row at {where}: {error}") from None
    except KeyError as error:
        raise DataError(f"malformed row at {where}: no field {error}") from error
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"malformed row at {where}: {error}") from error


def load_json(source: Path | bytes, name: str = "") -> Any:
    """Parse one JSON document; a syntax error names the file, line and column."""
    data, name = (source, name) if isinstance(source, bytes) else (source.read_bytes(), name or source.name)
    try:
        return json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{name} is not the JSON document it should be: {error}") from error


def text_lines(source: Path | bytes, name: str = "", encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yield (place, line) for every line, without its end; the place reads "train.tsv line 3".

    Lines end at a line feed only: other separators that Unicode knows do occur inside utterances.
    """
    data, name = (source, name) if isinstance(source, bytes) else (source.read_bytes(), name or source.name)
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1):
        try:
            yield f"{name} line {number}", line.rstrip(b"\r").decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(f"{name} line {number} is not {encoding} text: {error}") from error


def json_lines(source: Path | bytes, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (place, value) for every non-blank line of a JSON-lines file."""
    for where, line in text_lines(source, name):
        if line.strip():
            yield where, load_json(line.encode(), where)
