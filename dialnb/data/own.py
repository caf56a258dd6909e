"""One's own data: a CSV or JSON-lines file becomes the same records as those of the papers' datasets.

What a file holds is told by its columns (keys, in JSON lines); others are left alone::

    text                     utterances; intent, slots, domain and split may be there
    dialogue, text           dialogues, one row an utterance; speaker, acts, slots, intent, domain, split
    utterances               dialogues, one row each; id, domain, split
    utterances, label        judged dialogues, or premise and hypothesis; id, split
    context, candidates      response selection; labels (else the first candidate is right), id, split
    question, answer         pairs for response selection; category
    first, second, score     similarity; split

In a CSV a cell with several values separates them by ``|``, and slots are written ``city=Boston|day=Monday``.
"""

import csv
import difflib
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dialnb.data.datasets import Dataset
from dialnb.data.own_rows import FIELDS, KINDS, Kind, Row, Turn, joined
from dialnb.data.records import Record
from dialnb.data.store import default_store
from dialnb.data.tables import FORMAT, build_table
from dialnb.errors import DataError, check_known
from dialnb.files import digest_of

VERSION = 2
SUFFIXES = (".csv", ".tsv", ".jsonl")
Columns = Mapping[str, str]
"""What a file calls our columns."""
SHOWN = 5  # bad rows that an error names
Sheet = tuple[list[str], list[tuple[int, Row]]]
"""The names of the columns, and (line, row) of every row."""


def from_file(path: str | Path, *, columns: Columns | None = None, held_out: float = 0.0) -> Dataset:
    """The records of a comma-, semicolon- or tab-separated file with a header, or of one JSON object a line (.jsonl).

    See the module for its columns; ``columns`` says what the file calls them: ``{"text": "Utterance"}``. In JSON, slots
    are an object, ``{"city": "Boston"}``, and utterances are texts, or objects with ``text``, ``speaker``, ``acts``,
    ``slots`` and ``intent``. ``held_out`` is the share of the records, of every intent alike, that becomes the split
    "test" in a file that has no splits.

    >>> mine = from_csv("shop.csv", columns={"intent": "label"}, held_out=0.2)           # doctest: +SKIP
    >>> evaluate_knn(encoder, mine.filter(split="train"), mine.filter(split="test"), dataset="shop")  # doctest: +SKIP
    """
    path, columns = Path(path).absolute(), dict(columns or {})
    data = _bytes(path)
    if not 0 <= held_out < 1:
        raise DataError(f"what is held out is a share of the records, from 0 to below 1, but is {held_out}")
    form = "jsonl" if path.suffix.lower() == ".jsonl" else "csv"
    parts = [VERSION, FORMAT, form, sorted(columns.items()), held_out, digest_of(data)]
    key = digest_of(json.dumps(parts))
    records = _records(path.name, form, data, columns)
    if held_out:
        records = _hold_out(path.name, records, held_out)
    table = build_table(records, default_store().cache / "records" / f"own-{key[:16]}.json", key)
    again = partial(from_file, path, columns=columns, held_out=held_out)
    return Dataset(path.name, "", "one's own", key, table, np.arange(len(table)), again)


from_csv = from_jsonl = from_file


def is_own(path: str | Path) -> bool:
    """Whether the name of a file says that it is one of one's own."""
    return Path(path).suffix.lower() in SUFFIXES


def _bytes(path: Path) -> bytes:
    """What is in the file; DataError if there is no such file, or nothing in it."""
    if not is_own(path):
        raise DataError(f"{path}: own data are read from files whose name ends in {', '.join(SUFFIXES)}")
    if not path.is_file():
        there = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, there, 1)
        raise DataError(f"there is no file {path}" + (f"; did you mean {near[0]}?" if near else ""))
    data = path.read_bytes()
    if not data.strip():
        raise DataError(f"{path.name} is empty: it should have a row of column names, or one JSON object a line")
    return data


def _records(name: str, form: str, data: bytes, columns: Columns) -> list[Any]:
    """All records, or one error that names the first bad rows."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DataError(f"{name} line {line} is not UTF-8 text: save the file as UTF-8 ({error.reason})") from error
    header, rows = (_json_rows if form == "jsonl" else _csv_rows)(text, name)
    if not any(header):
        raise DataError(f"{name} names no columns: its first line should hold their names, or each object its keys")
    called = _called(name, header, columns)
    kind = _kind(name, header, called)
    bad = []
    records: list[Any] = []
    for line, row in rows:
        try:
            if form == "csv" and (None in row or None in row.values()):
                raise ValueError(f"not {len(header)} cells; is a text with a separator not quoted?")
            records.append(kind.make({ours: row[theirs] for ours, theirs in called.items() if theirs in row}))
        except ValueError as error:
            bad.append(f"line {line}: {error}")
    if bad:
        more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
        raise DataError(f"{name} has {len(bad)} bad row(s). {'; '.join(bad[:SHOWN])}{more}")
    if not records:
        raise DataError(f"{name} has column names but no rows")
    return joined(records) if kind.record is Turn else records


def _csv_rows(text: str, name: str) -> Sheet:
    """The names of the columns, and (line, row) of every row."""
    separator = max(",;\t", key=text.partition("\n")[0].count)
    lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        lines.fieldnames = header = [cell.strip() for cell in lines.fieldnames or ()]
        rows = [(lines.line_num, row) for row in lines]
    except csv.Error as error:
        raise DataError(f"{name} line {lines.line_num}: {error}") from error
    return header, [(line, row) for line, row in rows if any(str(cell or "").strip() for cell in row.values())]


def _json_rows(text: str, name: str) -> Sheet:
    """All keys, and (line, object) of every line that is not blank."""
    rows: list[tuple[int, Row]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
                json.dumps(row, ensure_ascii=False).encode()  # half a character can be read, but not be written
                if not isinstance(row, dict):
                    raise ValueError(line[:60])
            except (ValueError, RecursionError) as error:
                plain = {UnicodeEncodeError: "it holds half a character", RecursionError: "it is nested too deeply"}
                should = 'should be a JSON object such as {"text": "..."}'
                raise DataError(f"{name} line {number} {should}: {plain.get(type(error), error)}") from error
            rows.append((number, row))
    return list(dict.fromkeys(key for _, row in rows for key in row)), rows


def _called(name: str, header: Sequence[str], columns: Columns) -> dict[str, str]:
    """Our name of a column -> its name in the file; letters' case does not matter."""
    for ours, theirs in columns.items():
        check_known("column of own data", ours, FIELDS)
        check_known(f"column of {name}", theirs, header)
    called: dict[str, str] = {}
    for column in header:
        if header.count(column) > 1:
            raise DataError(f"{name} has two columns named '{column}'")
        ours = column.casefold()
        if column in columns.values():
            continue
        if ours in called and ours in FIELDS and ours not in columns:
            raise DataError(
                f"{name} has the columns '{called[ours]}' and '{column}', which may both be the {ours}: rename one, or "
                f"say which is meant (--column {ours}={column})"
            )
        called[ours] = column
    return called | dict(columns)


def _kind(name: str, header: Sequence[str], called: Columns) -> Kind:
    """What the file holds; columns that are not read, though some of ours are missing, are pointed out."""
    for kind in KINDS:
        if set(kind.required) <= set(called):
            unread = [theirs for ours, theirs in called.items() if ours not in (*kind.required, *kind.optional)]
            missing = [field for field in (*kind.optional, "dialogue") if field not in called]
            if unread and missing:
                hint = f"if one is the {' or the '.join(missing)}, say so (--column OURS=THEIRS)"
                warnings.warn(f"{name}: not read are {', '.join(unread)}; {hint}", stacklevel=5)
            return kind
    listed = "; ".join(f"{kind.what}: {', '.join(kind.required)}" for kind in KINDS)
    raise DataError(
        f"{name} has not the columns that say what it holds; found: {', '.join(header)}. What is read: {listed}. "
        f"If other names are used here, say which (--column 'text={header[0]}')"
    )


def _hold_out(name: str, records: list[Any], share: float) -> list[Record]:
    """A share of every intent (of everything, where there are none) as the split "test", drawn once."""
    if not hasattr(records[0], "split"):
        raise DataError(f"{name} holds rows that have no split, so that none of them can be held out")
    if len({record.split for record in records}) > 1:
        raise DataError(f"{name} has splits of its own: hold nothing out, or leave its column 'split' away")
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault(getattr(record, "intent", ""), []).append(place)
    rng = np.random.default_rng(24)
    split = np.full(len(records), "train")
    for same in places.values():
        split[rng.permutation(same)[: round(share * len(same))]] = "test"
    return [replace(record, split=name) for record, name in zip(records, split.tolist())]
