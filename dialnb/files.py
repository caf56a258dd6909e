"""How a run writes: records that are there whole or not at all, tables in three formats, lines of progress."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from dialnb.errors import DataError, DialnbError, in_words, shown
from dialnb.limits import COLUMNS, ENTRIES, HEADER, content, regular, shortened

if TYPE_CHECKING:
    import pandas as pd


Fields = Mapping[str, Any]
"""What a YAML file says under its names, or the columns and values that select tidy rows."""

Values = dict[str, Any]
"""Values by name: the facts of a record, the inputs of a stage, what a training gave."""


PACKAGED = Path(__file__).resolve().parent / "project"
"""The copy of the project that a wheel carries. It is only read: runs are written to the working folder."""


def project_root(given: Path | None = None) -> Path:
    """The folder that holds `papers/` and `notebooks/`: the one that is given or that DIALNB_PROJECT names, else the
    working folder or one above it, the checkout that the package stands in, or the copy that a wheel carries."""
    here, named = Path.cwd(), given or os.environ.get("DIALNB_PROJECT")
    places = [Path(named).expanduser().absolute()] if named else [here, *here.parents, PACKAGED.parents[1], PACKAGED]
    for folder in places:
        if any((folder / "papers").glob("*/paper.yaml")):
            return folder
    where = f"in {places[0]} (from DIALNB_PROJECT or --project)" if named else f"in the package or {here}"
    raise DataError(f"expected a folder papers/ {where}, found none")


def say(line: str) -> None:
    """A line, seen at once in a log, a terminal or a notebook; it may hold text of others."""
    print(shown(line), flush=True)


def write_table(shown: Any, stem: Path) -> None:
    """A table as CSV, Markdown and LaTeX; a plain data frame as CSV alone."""
    make_folder(stem.parent)
    if hasattr(shown, "to_csv"):
        shown.to_csv(stem.with_suffix(".csv"), index=False)
        return
    for suffix, text in {"csv": shown.csv(), "md": shown.markdown(), "tex": shown.latex()}.items():
        stem.with_suffix(f".{suffix}").write_text(text, "utf-8")


ITEMS = "items.csv.xz"
"""What each test item scored, where a run keeps it; in a record, lists for each model and question."""


MEASURED = ("value", "n")
"""The columns of tidy rows that were measured; the others say what."""


def time_of(stamp: float) -> str:
    """A time as records have it."""
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="seconds")


def table_at(folder: Path, name: str = "results.csv") -> Path | None:
    """Where a table of a run is, as it is or compressed as in a record; None if there is none."""
    return next((path for path in (folder / name, folder / f"{name}.xz") if os.path.lexists(path)), None)


def read_rows(folder: Path, name: str = "results.csv") -> pd.DataFrame:
    """The tidy rows of a run, or another table: only an empty field is a missing one, "none" and "nan" may be names.

    ``attrs["weights"]`` are the hashes of the run's encoders by name, where it wrote them down.
    """
    path = table_at(folder, name) or folder / name
    rows = read_table(path, keep_default_na=False, na_values=[""], low_memory=False)
    if lists := [column for column in rows if name == ITEMS and str(*rows[column][:1]).startswith("[")]:
        rows = rows.assign(**rows[lists].map(json.loads)).explode(lists, ignore_index=True).infer_objects()
    rows.attrs["weights"] = {}
    for encoder in (read_json(folder / "run.json") or {}).get("encoders") or ():
        if weights := (encoder.get("sha256") or {}).get("model.safetensors"):
            rows.attrs["weights"][encoder["name"]] = weights
    return rows


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """A table of a run, if it is no larger than those that runs write."""
    import pandas as pd

    data = content(path)
    names = next(csv.reader(io.StringIO(data[:HEADER].decode("utf-8", "replace"))), ())
    if len(names) > COLUMNS or sum(map(len, names)) > HEADER // 4:
        raise DataError(f"{path.name} has more than {COLUMNS} columns, or names longer than {HEADER // 4:,} letters")
    return pd.read_csv(io.BytesIO(data), **options)


def make_folder(folder: Path) -> Path:
    """The folder, made if need be; DataError, before any work is done, if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        why = in_words(OSError(error.errno, error.strerror))
        raise DataError(f"nothing can be written to {folder} ({why}); name another place") from error
    return folder


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn what goes wrong while something is written into one sentence: libraries report a full disk as they like."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and "os error" not in str(error):
            raise
        raise DialnbError(f"{place} cannot be written ({in_words(error)}): make room there, and try again") from error


def write_whole(path: Path, text: str) -> None:
    """Write whole or not at all: a run that is killed, or a disk that is full, leaves the previous text."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, record: Any) -> None:
    """Write a record, whole or not at all."""
    write_whole(path, json.dumps(_plain(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """A record that was written with `write_json`, or None if there is none."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def as_list(value: Any) -> list[Any]:
    """What a file or a setting says, where it may be one value or several of them."""
    return list(value) if isinstance(value, list | tuple) else [value]


def read_yaml(path: Any, beside: str = "") -> Any:
    """What a YAML file says, or the one ``beside`` it, with the reader in C where there is one: it is ten times as
    fast."""
    import yaml

    path = Path(path).with_name(beside) if beside else path
    return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


LOCK = ".lock"
"""Held in a run's folder by whoever is running it."""


def read_run(folder: Path) -> Any:
    """The `run.json` of a run, or None; one that was killed says so, whatever it wrote when it was running."""
    path = folder / "run.json"
    try:
        return as_it_stands(read_record(path, "run"), folder) if os.path.lexists(path) else None
    except DataError as error:
        raise DataError(f"{path} is damaged, so that nothing is known of the run: {error}") from error


def runs_in(*places: Path) -> list[Path]:
    """Run folders among the given ones: each is one itself, or holds some directly."""
    found = (path for place in places for path in [*place.glob("run.json")] or sorted(place.glob("*/run.json")))
    return [*{path.parent.resolve(): None for path in found}]


def find_runs(places: Sequence[Path]) -> list[Path]:
    """Run folders among the given ones, each of which must be one or hold some."""
    if empty := [place for place in places if not runs_in(place)]:
        raise DataError(
            f"{empty[0]} is no run folder and holds none: expected a file run.json in it or one level below"
        )
    return runs_in(*places)


def read_record(path: Path, kind: str) -> Any:
    """What a JSON file of a run holds, if it has the shape that `shapes.yaml` gives for its kind."""
    from jsonschema import Draft202012Validator

    try:
        record = json.loads(regular(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path.name} cannot be read as JSON: {error}") from error
    lists = record.values() if isinstance(record, dict) else ()
    if any(len(part) > ENTRIES for part in lists if isinstance(part, list | dict)):
        raise DataError(f"{path.name} has a list of more than {ENTRIES:,} entries")
    shapes = read_yaml(__file__, "shapes.yaml")
    misfit = next(Draft202012Validator(shapes[kind]).iter_errors(record), None)
    if misfit:
        wrong = shortened(f"{misfit.message} (at {misfit.json_path})")
        raise DataError(f"{path.name} is not as dialnb writes it: {wrong}")
    return record


def as_it_stands(record: Values, folder: Path) -> Values:
    """The record of a run; one that says "running" though no process holds the run was interrupted."""
    if record["status"] != "running":
        return record
    try:
        if (folder / LOCK).is_file() and not (folder / LOCK).is_symlink():
            with FileLock(folder / LOCK, timeout=0):
                pass
    except (Timeout, OSError):  # it runs, or that cannot be found out
        return record
    reason = "its process has ended; run it again and it goes on where it stopped"
    return record | {"status": "interrupted", "reason": reason}


def _plain(value: Any) -> Any:
    """The value as JSON knows it: arrays and tuples as lists, what is not a finite number as null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


_hashes: dict[tuple[int, ...], str] = {}


def digest_of(content: str | bytes) -> str:
    """The sha256 of a text or of bytes."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def sha256(path: Path) -> str:
    """Hash of a file's bytes. Large ones are read again only if anything has happened to the file since."""
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        state = about.st_dev, about.st_ino, about.st_size, about.st_ctime_ns
        if state not in _hashes or about.st_size < 2**20:
            _hashes[state] = hashlib.file_digest(file, "sha256").hexdigest()
        return _hashes[state]
