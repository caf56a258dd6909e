"""Columnar files: any record dataclass as a handful of flat arrays in one safetensors file.

The layout follows the types of the dataclass, field by field. A string column keeps its distinct values once, in one
UTF-8 blob with character offsets, and a code per row; numbers are arrays; ``tuple[X, ...]`` is an array of offsets
into a column of X; a nested dataclass is a group of columns under its field's name. Nothing is pickled, and every
array is checksummed: a file that does not check out is rebuilt, never trusted.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import os
import typing
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice, pairwise, repeat
from operator import attrgetter
from pathlib import Path

import numpy as np
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dialnb.data.records import RECORDS
from dialnb.errors import DataError

FORMAT = 1
CHUNK = 1024
Arrays = dict[str, np.ndarray]


def _smallest(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """An integer array of the narrowest type that holds the values."""
    array = np.asarray(values, dtype=np.int64)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    sizes = (np.int8, np.int16, np.int32, np.int64) if low < 0 else (np.uint8, np.uint16, np.uint32, np.int64)
    return array.astype(next(size for size in sizes if np.iinfo(size).min <= low and high <= np.iinfo(size).max))


class Strings:
    """Distinct values once, a code per row."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.codes: list[int] | np.ndarray = []

    def extend(self, values: Sequence[str]) -> None:
        known = self.known
        self.codes.extend([known.setdefault(value, len(known)) for value in values])

    def save(self, arrays: Arrays, name: str) -> None:
        arrays[f"{name}.codes"] = _smallest(self.codes)
        arrays[f"{name}.ends"] = _smallest(np.cumsum([len(value) for value in self.known], dtype=np.int64))
        arrays[f"{name}.utf8"] = np.frombuffer("".join(self.known).encode("utf-8", "surrogatepass"), dtype=np.uint8)

    def open(self, arrays: Arrays, name: str) -> Strings:
        self.codes = arrays[f"{name}.codes"]
        self._ends, self._utf8 = arrays[f"{name}.ends"], arrays[f"{name}.utf8"]
        self._values: list[str] | None = None
        return self

    @property
    def values(self) -> list[str]:
        """The distinct values, decoded when first needed."""
        if self._values is None:
            text = self._utf8.tobytes().decode("utf-8", "surrogatepass")
            self._values = [text[start:stop] for start, stop in pairwise([0, *self._ends.tolist()])]
        return self._values

    def read(self, start: int, stop: int) -> list[str]:
        values = self.values
        return [values[code] for code in self.codes[start:stop].tolist()]

    def equals(self, wanted: Sequence[str]) -> np.ndarray:
        codes = [code for code, value in enumerate(self.values) if value in wanted]
        return np.isin(self.codes, codes)


class Numbers:
    """One number per row: int or float."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.numbers: list | np.ndarray = []

    def extend(self, values: Sequence) -> None:
        self.numbers.extend(values)

    def save(self, arrays: Arrays, name: str) -> None:
        arrays[name] = _smallest(self.numbers) if self.kind is int else np.asarray(self.numbers, dtype=np.float64)

    def open(self, arrays: Arrays, name: str) -> Numbers:
        self.numbers = arrays[name]
        return self

    def read(self, start: int, stop: int) -> list:
        return self.numbers[start:stop].tolist()

    def equals(self, wanted: Sequence) -> np.ndarray:
        return np.isin(self.numbers, wanted)


class Tuples:
    """``tuple[X, ...]``: where each row's items end in the column of all items."""

    def __init__(self, items: Column) -> None:
        self.items = items
        self.lengths: list[int] = []

    def extend(self, values: Sequence[tuple]) -> None:
        self.lengths.extend(map(len, values))
        self.items.extend(list(chain.from_iterable(values)))

    def save(self, arrays: Arrays, name: str) -> None:
        arrays[f"{name}.offsets"] = _smallest(np.cumsum([0, *self.lengths], dtype=np.int64))
        self.items.save(arrays, name)

    def open(self, arrays: Arrays, name: str) -> Tuples:
        self.offsets = arrays[f"{name}.offsets"]
        self.items.open(arrays, name)
        return self

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Where the items of rows start to stop lie in the column of items."""
        return int(self.offsets[start]), int(self.offsets[stop])

    def read(self, start: int, stop: int) -> list[tuple]:
        bounds = self.offsets[start : stop + 1].tolist()
        first = bounds[0]
        items = self.items.read(first, bounds[-1])
        return [tuple(items[low - first : high - first]) for low, high in pairwise(bounds)]


class Structs:
    """A dataclass: one column per field."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        hints = typing.get_type_hints(kind)
        self.fields: dict[str, Column] = {f.name: column(hints[f.name]) for f in dataclasses.fields(kind)}

    def extend(self, values: Sequence) -> None:
        for name, field in self.fields.items():
            field.extend(list(map(attrgetter(name), values)))

    def save(self, arrays: Arrays, name: str) -> None:
        for field_name, field in self.fields.items():
            field.save(arrays, f"{name}.{field_name}" if name else field_name)

    def open(self, arrays: Arrays, name: str) -> Structs:
        for field_name, field in self.fields.items():
            field.open(arrays, f"{name}.{field_name}" if name else field_name)
        return self

    def read(self, start: int, stop: int) -> list:
        """Make the records of rows start to stop, field by field.

        The slots are filled directly: the constructor of a frozen dataclass takes five times as long.
        """
        made = list(map(object.__new__, repeat(self.kind, stop - start)))
        for name, field in self.fields.items():
            deque(map(getattr(self.kind, name).__set__, made, field.read(start, stop)), maxlen=0)
        return made


Column = Strings | Numbers | Tuples | Structs


def column(hint: type) -> Column:
    """An empty column for values of this type."""
    if hint is str:
        return Strings()
    if hint in (int, float):
        return Numbers(hint)
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[1:] == (Ellipsis,):
        return Tuples(column(typing.get_args(hint)[0]))
    if dataclasses.is_dataclass(hint):
        return Structs(hint)
    raise TypeError(f"no column for {hint}: records hold str, int, float, dataclasses and tuples of these")


class Table:
    """The records of one file, opened from its arrays; a record is made when it is read."""

    def __init__(self, arrays: Arrays, metadata: dict[str, str]) -> None:
        self.metadata = metadata
        self.kind = metadata["record"]
        self.columns = Structs(RECORDS[self.kind]).open(arrays, "")

    def __len__(self) -> int:
        return int(self.metadata["rows"])

    def records(self, start: int, stop: int) -> list:
        """The records of rows start to stop."""
        return self.columns.read(start, stop)

    def column(self, path: str, start: int, stop: int) -> list:
        """The values of one (nested) field in rows start to stop, tuples laid flat."""
        found: Column = self.columns
        for name in path.split("."):
            if isinstance(found, Tuples):
                start, stop, found = *found.span(start, stop), found.items
            found = self._field(found, name, path)
        while isinstance(found, Tuples):
            start, stop, found = *found.span(start, stop), found.items
        return found.read(start, stop)

    def sizes(self, name: str, start: int, stop: int) -> list[int]:
        """How many items a field of tuples holds in each of the rows start to stop."""
        return np.diff(self.columns.fields[name].offsets[start : stop + 1].astype(np.int64)).tolist()

    def equals(self, name: str, wanted: Sequence) -> np.ndarray:
        """One bool per row: is this field one of the wanted values?"""
        found = self._field(self.columns, name, name)
        if not isinstance(found, Strings | Numbers):
            raise DataError(f"{self.kind} records cannot be filtered by {name!r}: it holds several values per record")
        return found.equals(wanted)

    def _field(self, found: Column, name: str, path: str) -> Column:
        fields = found.fields if isinstance(found, Structs) else {}
        if name not in fields:
            raise DataError(f"{self.kind} records have no field {path!r}; here one of: {', '.join(fields) or 'none'}")
        return fields[name]


def build_table(items: Iterable, path: Path, fingerprint: str, metadata: Callable[[], dict[str, str]] = dict) -> Table:
    """Write records to ``path`` in one step (a reader never sees half a file) and open the result.

    ``metadata`` is called once all records are read. If another process builds the same file, wait for it and use it.
    Where nothing can be written, the table is kept in memory only.
    """
    if not _is_writable(path.parent):
        warnings.warn(f"records are not kept for next time: {path.parent} cannot be written to", stacklevel=2)
        arrays, about = _arrays(iter(items))
        return Table(arrays, about | {"fingerprint": fingerprint} | metadata())
    with FileLock(f"{path}.lock"):
        table = open_table(path, fingerprint)
        if table is None:
            with _no_cycle_search():
                arrays, about = _arrays(iter(items))
            about |= {"fingerprint": fingerprint, "checksum": _checksum(arrays)} | metadata()
            part = path.with_suffix(f".{os.getpid()}.part")
            try:
                save_file(arrays, part, about)
                part.chmod(0o644)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            table = Table(arrays, about)
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


def _arrays(items: Iterator) -> tuple[Arrays, dict[str, str]]:
    """Take records in chunks into columns, so that only the columns are ever held whole."""
    first = next(items, None)
    if first is None:
        raise DataError("the reader gave no records, so there is nothing to keep")
    kind = type(first)
    columns, rows = Structs(kind), 0
    items = chain((first,), items)
    while chunk := list(islice(items, CHUNK)):
        if stray := next((item for item in chunk if type(item) is not kind), None):
            raise TypeError(f"one dataset holds one kind of record: {kind.__name__}, not {type(stray).__name__}")
        columns.extend(chunk)
        rows += len(chunk)
    arrays: Arrays = {}
    columns.save(arrays, "")
    return arrays, {"record": kind.__name__, "rows": str(rows), "format": str(FORMAT)}


@contextmanager
def _no_cycle_search() -> Iterator[None]:
    """Pause the search for reference cycles: reading makes millions of objects and no cycles, and is a third faster."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _checksum(arrays: Arrays) -> str:
    """sha256 over names, types and bytes of all arrays."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(json.dumps([name, str(arrays[name].dtype), arrays[name].shape]).encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
