"""Files of parsed records: a line that says what is in the file, then the records of one kind as JSON lists.

A record is the list of its fields in order, records within records likewise. Nothing is pickled, and the records are
checksummed: a file that does not check out is made again, never trusted.
"""

import dataclasses
import functools
import gc
import json
import operator
import typing
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from dialnb.data.records import RECORDS, Record
from dialnb.errors import DataError
from dialnb.files import digest_of, make_folder, write_whole

FORMAT = 1
Skipped = dict[str, int]
"""How much a reader left out, by reason."""

fields: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)
"""The fields of a record with their types, in order."""
cells_of: Callable[[Any], Callable[[Any], Any]] = functools.cache(lambda record: operator.attrgetter(*fields(record)))
"""The function that takes the fields of such a record, in order."""


@functools.cache
def decoder(hint: Any) -> Callable[[Any], Any]:
    """The function that makes a value of this type of plain lists; fields at the end may be missing."""
    if typing.get_origin(hint) is tuple:
        item = decoder(typing.get_args(hint)[0])
        return tuple if item is _as_it_is else lambda cells: tuple([item(cell) for cell in cells])
    if not (isinstance(hint, type) and dataclasses.is_dataclass(hint)):
        return _as_it_is
    parts = [decoder(inner) for inner in fields(hint).values()]
    deep = [(place, part) for place, part in enumerate(parts) if part is not _as_it_is]

    def build(cells: list) -> Any:
        values = cells.copy()
        for place, part in deep:
            if place < len(cells):
                values[place] = part(cells[place])
        return hint(*values)

    return build


def _as_it_is(cell: Any) -> Any:
    return cell


def field_of(cells: Iterable[list], record: Any, name: str) -> list:
    """One field of each record; the default where it is missing at the end."""
    place, default = list(fields(record)).index(name), record.__dataclass_fields__[name].default
    return [cell[place] if place < len(cell) else default for cell in cells]


@dataclass(frozen=True)
class Table:
    """The records of one file, each as the list of its fields."""

    kind: str
    cells: list[list]
    skipped: Skipped

    @property
    def record(self) -> type:
        return RECORDS[self.kind]

    def __len__(self) -> int:
        return len(self.cells)


def build_table(items: Iterable[Record], path: Path, fingerprint: str, skipped: Skipped | None = None) -> Table:
    """Write records to ``path`` in one step (a reader never sees half a file) and give them as a table.

    ``skipped`` is looked at once all records are read. If another process builds the same file, wait for it and use it.
    Where nothing can be written, the table is kept in memory only.
    """
    try:
        make_folder(path.parent)
    except DataError as error:
        warnings.warn(f"records are not kept for next time: {error}", stacklevel=2)
        return _open(_text(items, fingerprint, skipped).encode(), fingerprint)
    with FileLock(f"{path}.lock"):
        table = open_table(path, fingerprint)
        if table is None:
            text = _text(items, fingerprint, skipped)
            write_whole(path, text)
            table = _open(text.encode(), fingerprint)
    return table


def open_table(path: Path, fingerprint: str) -> Table | None:
    """The table at ``path``, or None if there is none or it is damaged (which is said, and it is to be made again)."""
    try:
        return _open(path.read_bytes(), fingerprint)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        warnings.warn(f"the cached records in {path} are read anew: {error}", stacklevel=2)
        return None


def _text(items: Iterable[Record], fingerprint: str, skipped: Skipped | None) -> str:
    """The file of all records, which must be of one kind."""
    records = list(items)
    kinds = sorted({type(record).__name__ for record in records})
    if len(kinds) != 1:
        raise DataError(
            f"a dataset holds one kind of record, but the reader gave {' and '.join(kinds) or 'no records'}"
        )
    body = json.dumps(records, default=lambda record: cells_of(type(record))(record))
    head = {"kind": kinds[0], "skipped": skipped or {}, "fingerprint": fingerprint, "sha256": digest_of(body)}
    return f"{json.dumps(head)}\n{body}"


def _open(data: bytes, fingerprint: str) -> Table:
    """The table of a file's bytes; ValueError if it is damaged or was made from other inputs."""
    head, _, body = data.partition(b"\n")
    try:
        about = json.loads(head)
    except ValueError:
        about = {}
    if about.get("sha256") != digest_of(body):
        raise ValueError("they are damaged (wrong checksum)")
    if about["fingerprint"] != fingerprint:
        raise ValueError("they were made from other inputs")
    return Table(about["kind"], parse(body), about["skipped"])


def parse(body: bytes) -> list[list]:
    """The lists of a JSON text. The search for reference cycles pauses: there are millions of lists and no cycles."""
    gc.disable()
    try:
        return json.loads(body)
    finally:
        gc.enable()
