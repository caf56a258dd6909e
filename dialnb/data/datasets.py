"""Datasets by name: ``load("SGD")`` reads the records once, keeps them in a file, and serves them lazily.

Where evaluation data may come from stands in `papers/<slug>/data.yaml`; `named_data` takes the best within reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, overload
from weakref import WeakValueDictionary

import numpy as np
from numpy import ndarray

from dialnb.data.readers import Files, Reader, get_reader
from dialnb.data.records import TEXTS
from dialnb.data.store import Store, default_store
from dialnb.data.tables import FORMAT, Table, build_table, decoder, field_of, fields, open_table
from dialnb.errors import DataError, Offline, check_known, first_sentence
from dialnb.files import Values, as_list, digest_of, project_root, read_yaml


@dataclass(frozen=True, eq=False)
class Dataset(Sequence[Any]):
    """Records of one dataset in published order, made only when they are asked for.

    ``fingerprint`` is the sha256 of everything the records depend on: the hashes of the source files, the reader and
    its version, the rows chosen. Slices and filters share the table.

    >>> sgd = load("SGD")                                     # doctest: +SKIP
    >>> sgd.filter(split="test")[0].utterances[0].text        # doctest: +SKIP
    'Hi, could you get me a restaurant booking on the 8th please?'
    """

    name: str
    variant: str
    licence: str
    fingerprint: str
    table: Table
    rows: ndarray
    open_again: Callable[[], Dataset] | None = None

    @property
    def skipped(self) -> dict[str, int]:
        """How much the reader left out, by reason."""
        return self.table.skipped

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._select(self.rows[index])
        return decoder(self.table.record)(self.table.cells[self.rows[index]])

    def __iter__(self) -> Iterator[Any]:
        return map(decoder(self.table.record), self._cells())

    def _cells(self) -> list[list]:
        return [self.table.cells[row] for row in self.rows.tolist()]

    def __reduce__(self) -> tuple:
        """To another process goes what opens the same table there, and the rows."""
        open_again = self.open_again or partial(load, self.name, self.variant)
        return _restore, (open_again, self.rows, self.fingerprint)

    def __repr__(self) -> str:
        variant = f" ({self.variant})" if self.variant else ""
        remarks = "; see .skipped" if self.skipped else ""
        return f"<{self.name}{variant}: {len(self):,} {self.table.kind} records{remarks}>"

    def filter(self, **wanted: str | int | float | Sequence) -> Dataset:
        """The records whose fields equal the wanted value, or one of several: ``filter(split=("train", "dev"))``."""
        keep = np.ones(len(self), dtype=bool)
        for name, value in wanted.items():
            if fields(self.table.record).get(name) not in (str, int, float):
                raise DataError(f"{self.table.kind} records cannot be filtered by {name!r}: it is not a single value")
            values = (value,) if isinstance(value, str | int | float) else tuple(value)
            keep &= np.array([cell in values for cell in self.column(name)], dtype=bool)
        return self._select(self.rows[keep])

    def take(self, places: Sequence[int]) -> Dataset:
        """The records at these places, in published order."""
        return self._select(self.rows[np.unique(np.asarray(places, np.int64))])

    def column(self, path: str) -> list:
        """All values of one field, flat and in order, without making records: ``column("utterances.intent")``."""
        hint = self.table.record
        values = self._cells()
        for name in path.split("."):
            known = fields(hint) if is_dataclass(hint) else {}
            if name not in known:
                names = ", ".join(known) or "none"
                raise DataError(f"{self.table.kind} records have no field {path!r}; here one of: {names}")
            hint, values = known[name], field_of(values, hint, name)
            if get_origin(hint) is tuple:
                hint, values = get_args(hint)[0], list(chain.from_iterable(values))
        return list(map(decoder(hint), values))

    def sizes(self, name: str) -> list[int]:
        """How many items a field of tuples holds in each record: ``sizes("utterances")``."""
        return list(map(len, field_of(self._cells(), self.table.record, name)))

    def texts(self) -> list[str]:
        """Every text of the dataset, field by field: all utterances of a dialogue corpus, in order."""
        return [text for path in TEXTS[self.table.record] for text in self.column(path)]

    def _select(self, rows: ndarray) -> Dataset:
        """These rows of the table, with a fingerprint of their own."""
        if np.array_equal(rows, self.rows):
            return self
        chosen = digest_of(self.fingerprint.encode() + rows.astype("<i8").tobytes())
        return replace(self, rows=rows, fingerprint=chosen)


def load(name: str, variant: str | None = None, split: str | None = None, store: Store | None = None) -> Dataset:
    """The records of a dataset, from the cache or freshly read from its (verified) source files.

    ``variant`` chooses between readings of one dataset (None: the reader's first), ``split`` keeps one split. A name
    such as "bundled/SGD" is data that came with the package and needs no source files.
    """
    store = store or default_store()
    reader = find_reader(name)
    variant = reader.variant(variant)
    table, fingerprint = _table(reader, variant, store)
    dataset = Dataset(reader.dataset, variant, reader.terms(), fingerprint, table, np.arange(len(table)))
    if split is None:
        return dataset
    chosen = dataset.filter(split=split)
    if not len(chosen):
        splits = ", ".join(sorted(set(dataset.column("split"))))
        raise DataError(f"{reader.dataset} has no records in split {split!r}; it has: {splits}")
    return chosen


def measure(data: Dataset, entry: Values) -> int:
    """What an entry of `counts.yaml`, or of the `counts` in `studies/names.yaml`, counts."""
    data = data.filter(**entry.get("only", {}))
    match entry.get("count"):
        case None:
            return len(data) - (len(data.filter(**entry["leave_out"])) if "leave_out" in entry else 0)
        case "samples":
            return sum(max(0, size - 2) for size in data.sizes("utterances"))
        case "utterances":
            return sum(data.sizes("utterances"))
        case "exchanges":
            return data.column("utterances.speaker").count("user")
        case field:
            return len(set(data.column(field)))


def _restore(open_again: Callable[[], Dataset], rows: ndarray, fingerprint: str) -> Dataset:
    """The dataset that another process handed over."""
    return replace(open_again(), rows=rows, fingerprint=fingerprint)


def find_reader(name: str) -> Reader:
    """The reader of a dataset, of the registry or bundled."""
    from dialnb.data.bundle import PREFIX, get_bundled

    return get_bundled(name) if name.casefold().startswith(PREFIX) else get_reader(name)


def records_path(reader: Reader, variant: str | None, store: Store, fingerprint: str = "") -> Path:
    """Where the parsed records lie in the cache, or would; nothing is read."""
    variant = reader.variant(variant)
    fingerprint = fingerprint or _fingerprint(reader, variant, store)
    return store.cache / "records" / f"{reader.dataset}-{variant or 'all'}-{fingerprint[:16]}.json"


_in_use: WeakValueDictionary[Path, Table] = WeakValueDictionary()
"""Tables that something refers to, by the file that is named after what they hold: who opens one again shares it."""


def _table(reader: Reader, variant: str, store: Store) -> tuple[Table, str]:
    """The table of a reader's records and its fingerprint: one in use, stored or cached, else read from the sources.

    A file that the registry has no hash for gets one when it is first read, which changes the fingerprint: then the
    records are read once more, so that what is kept is always named after the bytes it came from.
    """
    fingerprint = _fingerprint(reader, variant, store)
    path = records_path(reader, variant, store, fingerprint)
    table = _in_use.get(path) or reader.stored(variant) or open_table(path, fingerprint)
    if table is None:
        files = Files(store, reader.sources[0])
        table = build_table(reader(files, variant), path, fingerprint, files.skipped)
        if _fingerprint(reader, variant, store) != fingerprint:
            path.unlink()
            return _table(reader, variant, store)
    _in_use[path] = table
    return table, fingerprint


def _fingerprint(reader: Reader, variant: str, store: Store) -> str:
    """sha256 of the input hashes, the reader, its version and the format of the file."""
    parts = [reader.dataset, variant, reader.version, FORMAT, reader.inputs(store)]
    return digest_of(json.dumps(parts))


LEVELS = ("bundled", "sources", "official")
"""Where evaluation data may come from: the package, public copies as well, the papers' own releases as well."""

Found = tuple[dict[str, Dataset], dict[str, str]]
"""Datasets by label, and why others cannot be had."""


class Choice(NamedTuple):
    """A dataset that may be taken from a level of data on: every ``step``-th record, under a label."""

    dataset: str
    variant: str | None
    step: int
    level: str
    label: str

    @classmethod
    def of(cls, entry: Values) -> Choice:
        """What `data.yaml` says, and what it need not say."""
        name = entry["dataset"]
        level = "bundled" if name.startswith("bundled/") else "sources"
        usual = {"variant": None, "step": 1, "level": level, "label": name.removeprefix("bundled/")}
        return cls(**usual | entry)


def named_data(slug: str, name: str, level: str, root: Path | None = None) -> Found:
    """What the `data.yaml` of a paper calls ``name``, at a level of data."""
    known = read_yaml(project_root(root) / "papers" / slug / "data.yaml")
    check_known(f"data in data.yaml of {slug}", name, known)
    return choose_datasets(known[name], level)


def choose_datasets(entries: Iterable[Values | list[Values]], level: str) -> Found:
    """Load what an entry of `data.yaml` names, and say of what cannot be had why not.

    Each entry is a `Choice`, or several of which the first is taken that the ``level`` admits and that is there: the
    paper's own data come first and what stands in for them last.
    """
    check_known("level of data", level, LEVELS)
    admitted = LEVELS[: LEVELS.index(level) + 1]
    found, lacking = {}, {}
    for entry in entries:
        choices = list(map(Choice.of, as_list(entry)))
        names = " or ".join(dict.fromkeys(choice.dataset for choice in choices))
        reason = f"needs {names}, which is not bundled: profile 'gpu', or data={choices[-1].level}"
        for choice in choices:
            if choice.level in admitted:
                try:
                    found[choice.label] = load(choice.dataset, choice.variant)[:: choice.step]
                    break
                except Offline as error:
                    reason = first_sentence(error)
        else:
            lacking[choices[0].label] = reason
    return found, lacking
