"""Columnar files: any record dataclass as a handful of flat arrays in one safetensors file.

The layout follows the types of the dataclass, field by field. A string column keeps its distinct values once, in one
UTF-8 blob with character offsets, and a code per row; numbers are arrays; ``tuple[X, ...]`` is an array of offsets
into a column of X; a nested dataclass is a group of columns under its field's name. Nothing is pickled, and every
array is checksummed: a file that does not check out is rebuilt, never trusted.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import os
import typing
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from itertools import chain, islice, pairwise, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dialnb.data.records import RECORDS
from dialnb.errors import DataError

FORMAT = 1
CHUNK = 1024
Arrays = dict[str, np.ndarray]

fields = functools.cache(typing.get_type_hints)
"""The fields of a record with their types, in order."""


def _within(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


@functools.cache
def _item(hint: Any) -> Any:
    """X of ``tuple[X, ...]``; None for every other type."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


class Table:
    """The records of one file, opened from its arrays; a record is made when it is read."""

    def __init__(self, arrays: Arrays, metadata: dict[str, str]) -> None:
        self.arrays = arrays
        self.metadata = metadata
        self.kind = metadata["record"]
        self.record = RECORDS[self.kind]
        self._words: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return int(self.metadata["rows"])

    def records(self, rows: np.ndarray) -> list:
        """The records of these rows."""
        return self._read(self.record, "", rows)

    def column(self, path: str, rows: np.ndarray) -> list:
        """The values of one (nested) field in these rows, tuples laid flat."""
        hint, column = self.record, ""
        for name in path.split("."):
            hint = self._field(hint, name, path)
            column = _within(column, name)
            if item := _item(hint):
                hint = item
                rows, _ = self._items(column, rows)
        return self._read(hint, column, rows)

    def sizes(self, name: str, rows: np.ndarray) -> list[int]:
        """How many items a field of tuples holds in each of these rows."""
        return np.diff(self._items(name, rows)[1]).tolist()

    def equals(self, name: str, wanted: Sequence) -> np.ndarray:
        """One bool per row: is this field one of the wanted values?"""
        hint = self._field(self.record, name, name)
        if hint is str:
            codes = [code for code, word in enumerate(self.words(name)) if word in wanted]
            return np.isin(self.arrays[f"{name}.codes"], codes)
        if hint not in (int, float):
            raise DataError(f"{self.kind} records cannot be filtered by {name!r}: it holds several values per record")
        return np.isin(self.arrays[name], wanted)

    def words(self, name: str) -> list[str]:
        """The distinct values of a string column, decoded when first needed."""
        if name not in self._words:
            text = self.arrays[f"{name}.utf8"].tobytes().decode("utf-8", "surrogatepass")
            ends = self.arrays[f"{name}.ends"].tolist()
            self._words[name] = [text[start:stop] for start, stop in pairwise([0, *ends])]
        return self._words[name]

    def _read(self, hint: Any, name: str, rows: np.ndarray) -> list:
        """The values of these rows of one column.

        The slots of records are filled directly: the constructor of a frozen dataclass takes five times as long.
        """
        if hint is str:
            words = self.words(name)
            return [words[code] for code in self.arrays[f"{name}.codes"][rows].tolist()]
        if hint in (int, float):
            return self.arrays[name][rows].tolist()
        if item := _item(hint):
            places, bounds = self._items(name, rows)
            items = self._read(item, name, places)
            return [tuple(items[start:stop]) for start, stop in pairwise(bounds.tolist())]
        made = list(map(object.__new__, repeat(hint, len(rows))))
        for field, inner in fields(hint).items():
            values = self._read(inner, _within(name, field), rows)
            deque(map(getattr(hint, field).__set__, made, values), maxlen=0)
        return made

    def _items(self, name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the items of these rows lie in a column of tuples, and where each row's begin and end among them."""
        offsets = self.arrays[f"{name}.offsets"]
        starts, stops = offsets[rows].astype(np.int64), offsets[rows + 1].astype(np.int64)
        bounds = np.append(0, np.cumsum(stops - starts))
        return np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], stops - starts), bounds

    def _field(self, hint: Any, name: str, path: str) -> Any:
        known = fields(hint) if is_dataclass(hint) else {}
        if name not in known:
            raise DataError(f"{self.kind} records have no field {path!r}; here one of: {', '.join(known) or 'none'}")
        return known[name]


class Columns:
    """Columns that records are added to, chunk by chunk, so that only the columns are ever held whole."""

    def __init__(self) -> None:
        self.values: defaultdict[str, list] = defaultdict(list)
        self.words: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def add(self, hint: Any, values: list, name: str = "") -> None:
        """Values of one type at the end of a column."""
        if hint is str:
            known = self.words[name]
            self.values[f"{name}.codes"] += [known.setdefault(value, len(known)) for value in values]
        elif hint in (int, float):
            self.values[name] += values
        elif item := _item(hint):
            self.values[f"{name}.offsets"] += map(len, values)
            self.add(item, list(chain.from_iterable(values)), name)
        elif is_dataclass(hint):
            for field, inner in fields(hint).items():
                self.add(inner, list(map(attrgetter(field), values)), _within(name, field))
        else:
            raise TypeError(f"no column for {hint}: records hold str, int, float, dataclasses and tuples of these")

    def arrays(self) -> Arrays:
        """All columns as arrays, integers of the narrowest type."""
        arrays = {}
        for name, values in self.values.items():
            arrays[name] = _narrow(np.cumsum([0, *values]) if name.endswith(".offsets") else np.asarray(values))
        for name, words in self.words.items():
            arrays[f"{name}.ends"] = _narrow(np.cumsum([len(word) for word in words], dtype=np.int64))
            arrays[f"{name}.utf8"] = np.frombuffer("".join(words).encode("utf-8", "surrogatepass"), np.uint8)
        return arrays


def _narrow(array: np.ndarray) -> np.ndarray:
    """Integers in the narrowest type that holds them; other numbers as they are."""
    if array.dtype.kind == "f" or not array.size:
        return array
    low, high = int(array.min()), int(array.max())
    return array.astype(np.min_scalar_type(min(low, -high - 1) if low < 0 else high))


def build_table(items: Iterable, path: Path, fingerprint: str, metadata: Callable[[], dict[str, str]] = dict) -> Table:
    """Write records to ``path`` in one step (a reader never sees half a file) and open the result.

    ``metadata`` is called once all records are read. If another process builds the same file, wait for it and use it.
    Where nothing can be written, the table is kept in memory only.
    """
    if not _is_writable(path.parent):
        warnings.warn(f"records are not kept for next time: {path.parent} cannot be written to", stacklevel=2)
        return _collect(items, fingerprint, metadata)
    with FileLock(f"{path}.lock"):
        table = open_table(path, fingerprint)
        if table is None:
            table = _collect(items, fingerprint, metadata)
            part = path.with_suffix(f".{os.getpid()}.part")
            try:
                save_file(table.arrays, part, table.metadata)
                part.chmod(0o644)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
    return table


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def open_table(path: Path, fingerprint: str) -> Table | None:
    """The table at ``path``, or None if there is none or it is damaged (which is said, and it is to be rebuilt)."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if metadata.get("fingerprint") != fingerprint:
            raise ValueError("they were made from other inputs")
        if metadata.get("checksum") != _checksum(arrays):
            raise ValueError("they are damaged (wrong checksum)")
        return Table(arrays, metadata)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (SafetensorError, OSError, KeyError) as error:
        problem = f"they are damaged ({error})"
    except ValueError as error:
        problem = str(error)
    warnings.warn(f"the cached records in {path} are read anew: {problem}", stacklevel=2)
    return None


def _collect(items: Iterable, fingerprint: str, metadata: Callable[[], dict[str, str]]) -> Table:
    """The table of all records, which must be of one kind.

    The search for reference cycles pauses: reading makes millions of objects and no cycles, and is a third faster.
    """
    columns, kinds, rows = Columns(), set(), 0
    items = iter(items)
    searching = gc.isenabled()
    gc.disable()
    try:
        while chunk := list(islice(items, CHUNK)):
            kinds |= set(map(type, chunk))
            if len(kinds) > 1:
                names = sorted(kind.__name__ for kind in kinds)
                raise TypeError(f"one dataset holds one kind of record, not {' and '.join(names)}")
            columns.add(type(chunk[0]), chunk)
            rows += len(chunk)
    finally:
        if searching:
            gc.enable()
    if not kinds:
        raise DataError("the reader gave no records, so there is nothing to keep")
    arrays = columns.arrays()
    about = {"record": kinds.pop().__name__, "rows": str(rows), "format": str(FORMAT)}
    about |= {"fingerprint": fingerprint, "checksum": _checksum(arrays)}
    return Table(arrays, about | metadata())


def _checksum(arrays: Arrays) -> str:
    """sha256 over names, types and bytes of all arrays."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
