"""What several readers need to get at their rows: files by name, wherever they sit, and tables with a header."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dialnb.errors import DataError

if TYPE_CHECKING:
    from dialnb.data.store import Store

ARCHIVES = (".zip", ".tar.gz", ".tgz")
SPLITS = {"train": "train", "valid": "dev", "dev": "dev", "devel": "dev", "val": "dev", "test": "test"}


def find_files(store: Store, source: str, *patterns: str, official: bool = False) -> Iterator[tuple[str, bytes]]:
    """Yield (name, bytes) of the files of a source whose last path part matches a pattern, gunzipped.

    By default these are the checked copies. ``official`` adds the files that nobody could check yet, and looks for
    what no file matches in the archives of the source: whoever can get them has the whole dataset.
    """
    from dialnb.data.sources import get_source

    files = [file for file in get_source(source).files if official or file.verified]
    archives = sorted(file.key for file in files if file.key.endswith(ARCHIVES))
    keys = {pattern: {file.key for file in files if _matches(file.key, pattern)} for pattern in patterns}
    found = False
    for key in sorted(set().union(*keys.values())):
        found = True
        yield key, _gunzipped(store.path(source, key).read_bytes())
    for pattern in (pattern for pattern in patterns if not keys[pattern]):
        for key in archives:
            for name, data in store.members(source, key, f"*{pattern}").items():
                if _matches(name, pattern):
                    found = True
                    yield name, _gunzipped(data)
    if not found:
        raise DataError(f"{source} has no file named like {' or '.join(patterns)}. {get_source(source).coverage}")


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name.rpartition("/")[2], pattern)


def _gunzipped(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def table_rows(
    data: bytes, name: str, fields: Iterable[str], delimiter: str = ","
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, row by column name) of a quoted table whose header must have at least these fields."""
    rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter)
    header = next(rows, [])
    if missing := set(fields) - set(header):
        raise DataError(f"{name} line 1: no column {', '.join(sorted(missing))}; found {', '.join(header)}")
    for row in rows:
        where = f"{name} line {rows.line_num}"
        if len(row) != len(header):
            raise DataError(f"malformed row at {where}: {len(row)} columns, expected {len(header)}")
        yield where, dict(zip(header, row))
