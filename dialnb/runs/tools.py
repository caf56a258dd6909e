"""After runs: take a model out, hold one against another, join their results."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dialnb.errors import DataError, DialnbError, check_known, in_words
from dialnb.files import MEASURED, Values, read_json, read_rows, read_run, table_at
from dialnb.limits import regular, shortened

if TYPE_CHECKING:
    import pandas as pd

COMPARED = ("profile", "parameters", "code", "packages", "hardware", "data", "encoders", "seconds")
"""What is compared of the records of two runs."""


@contextmanager
def reading(*folders: Path) -> Iterator[None]:
    """Say in a sentence that files of these runs are damaged, whatever they make of the work on them."""
    try:
        yield
    except (DialnbError, OSError):
        raise
    except Exception as error:  # what damaged files can hold has no end
        names, why = " or ".join(map(str, folders)), shortened(in_words(error))
        raise DataError(f"{names} holds files that are not as dialnb writes them ({why}); run it again") from error


def open_run(folder: Path) -> Values:
    """The record of a run folder, or an error that says what the folder is not.

    Its paper and profile are plain names: folders are found, written and replaced by them.
    """
    record = read_run(folder)
    if record is None:
        raise DataError(f"{folder} is not the folder of a run: it has no run.json; `dialnb list` names the runs")
    for part in ("slug", "profile"):
        if not re.fullmatch(r"\w[\w.-]*", record[part]):
            place = folder / "run.json"
            raise DataError(f"{place} is not the record of a run: its {part} is no plain name; run it again")
    return record


def export(folder: Path, model: str, destination: Path) -> Path:
    """Save a model that a run trained to a folder that sentence-transformers, transformers and dialnb load."""
    from dialnb.runs.results import read_record, read_result
    from dialnb.runs.stages import default_cache

    stages, cache = {}, default_cache().root
    for stage in open_run(folder)["stages"]:
        kept = cache / Path(stage["key"]).name
        if stage["name"].startswith("train ") and kept.is_dir():
            name = stage["name"].removeprefix("train ")
            stages[name] = kept
            stages.setdefault(name.partition(", seed ")[0], kept)  # that of the first seed
    if not stages:
        raise DataError(f"no stage of {folder} has a model in {cache}; run it again to make them")
    check_known(f"model of {folder.name}", model, stages)
    if destination.exists() and any(destination.iterdir()):
        raise DataError(f"{destination} exists and is not empty; choose another place or remove it")
    result = read_result(stages[model], read_record(stages[model]))
    if result.failed:
        raise DataError(f"{model} is no model: {result.failed}")
    return result.model.save(destination)


def compare(first: Path, second: Path) -> str:
    """Two runs in words: settings, code and machine that differ, then results, then verdicts."""
    records, tables, verdicts = [], [], []
    for folder in (first, second):
        run = open_run(folder)
        records.append({part: run.get(part) for part in COMPARED})
        if table_at(folder) is None:
            raise DataError(f"{folder} has no results.csv; did the run finish?")
        tables.append(read_rows(folder))
        judged = folder / "claims.json"
        claims = (read_json(regular(judged)) if os.path.lexists(judged) else None) or []
        verdicts.append({claim["id"]: claim["verdict"] for claim in claims})
    keys = [name for name in tables[0] if name in tables[1] and name not in MEASURED]
    one, two = (table.astype(dict.fromkeys(keys, str))[[*keys, "value"]] for table in tables)
    rows = one.merge(two, on=keys, how="outer", suffixes=("_1", "_2"), indicator="where")
    paired = rows.query("where == 'both'").drop(columns="where").eval("difference = value_2 - value_1")
    moved = paired.dropna(subset=["value_1", "value_2"], how="all").query("value_1 != value_2")
    only = f"{(rows['where'] == 'left_only').sum()} only in 1, {(rows['where'] == 'right_only').sum()} only in 2"
    counts = f"{len(paired)} in both, {len(paired) - len(moved)} equal, {len(moved)} different; {only}"
    lines = [f"1: {first}", f"2: {second}", "", "what differs", *_differences(*records), "", f"results: {counts}"]
    if len(moved):
        shown = moved.sort_values("difference", key=abs, ascending=False).head(30)
        varying = [name for name in shown if shown[name].nunique() > 1 or name == "difference"]
        mean = f"  mean difference {moved.difference.mean():+.4f}, largest first:"
        lines += [mean, shown[varying].to_string(index=False)]
    changed = _differences(*verdicts)
    return "\n".join([*lines, "", f"claims: {len(changed)} verdicts differ", *changed])


def _differences(first: Values, second: Values, *, path: str = "") -> list[str]:
    """Where two records differ, in lines; names of inner values are joined by dots."""
    lines = []
    for name in dict.fromkeys([*first, *second]):
        a, b = first.get(name), second.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += _differences(a, b, path=f"{path}{name}.")
        elif a != b:
            lines.append(f"  {path}{name}: {a} | {b}")
    return lines


def merge(folders: Sequence[Path]) -> pd.DataFrame:
    """The results of finished runs as one tidy table: which run a row is from, then the row."""
    import pandas as pd

    frames = []
    for folder in folders:
        run = open_run(folder)
        if run["status"] != "done":
            why = f"{run['status']}{': ' if run['reason'] else ''}{run['reason']}"
            raise DataError(f"{folder} is not finished ({why}), so the table would not be complete; run it again first")
        rows = read_rows(folder)
        about = {"run": folder.name, "paper": run["slug"], "profile": run["profile"]}
        about["train_seed"] = rows.pop("train_seed") if "train_seed" in rows else run["parameters"]["seed"]
        frames.append(pd.concat([pd.DataFrame(about, index=rows.index), rows], axis=1))
    return pd.concat(frames, ignore_index=True)
