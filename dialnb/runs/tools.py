"""After runs: take a model out, hold one against another, join their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialnb.errors import DataError, UnknownName
from dialnb.files import MEASURED, Values, read_json, read_rows, read_run, table_at

if TYPE_CHECKING:
    import pandas as pd


def open_run(folder: Path) -> Values:
    """The record of a run folder, or an error that says what the folder is not.

    Its paper and profile are plain names: folders are found, written and replaced by them.
    """
    record = read_run(folder)
    if record is None:
        raise DataError(f"{folder} is not the folder of a run: it has no run.json; `dialnb list` names the runs")
    for part in ("slug", "profile"):
        name = record.get(part)
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
            place = folder / "run.json"
            raise DataError(f"{place} is not the record of a run: its {part} is no plain name; run it again")
    return record


def export(folder: Path, model: str, destination: Path) -> Path:
    """Save a model that a run trained to a folder that sentence-transformers, transformers and dialnb load."""
    from dialnb.runs.results import read_record, read_result
    from dialnb.runs.stages import default_stages

    stages = {}
    for stage in open_run(folder)["stages"]:
        kept = default_stages() / Path(stage["key"]).name
        if stage["name"].startswith("train ") and kept.is_dir():
            stages[stage["name"].removeprefix("train ")] = kept
    if not stages:
        raise DataError(f"no stage of {folder} has a model in {default_stages()}; run it again to make them")
    if model not in stages:
        raise UnknownName(f"model of {folder.name}", model, stages)
    if destination.exists() and any(destination.iterdir()):
        raise DataError(f"{destination} exists and is not empty; choose another place or remove it")
    result = read_result(stages[model], read_record(stages[model]))
    if "failed" in result:
        raise DataError(f"{model} is no model: {result['failed']}")
    return (result.get("selector") or result["encoder"]).save(destination)


def differences(first: Values, second: Values, path: str = "") -> list[tuple[str, Any, Any]]:
    """Where two records differ, as (name, first, second); names of inner values are joined by dots."""
    found = []
    for name in dict.fromkeys([*first, *second]):
        a, b, here = first.get(name), second.get(name), f"{path}{name}"
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{here}.")
        elif a != b:
            found.append((here, a, b))
    return found


def compare_results(first: Path, second: Path) -> pd.DataFrame:
    """The results of two runs side by side: what identifies a row, both values, and the difference (second - first)."""
    frames = []
    for folder in (first, second):
        if table_at(folder) is None:
            raise DataError(f"{folder} has no results.csv; did the run finish?")
        frames.append(read_rows(folder))
    keys = [name for name in frames[0] if name in frames[1] and name not in MEASURED]
    texts = [frame.astype(dict.fromkeys(keys, str)) for frame in frames]
    both = texts[0][[*keys, "value"]].merge(texts[1][[*keys, "value"]], on=keys, how="outer", suffixes=("_1", "_2"))
    return both.assign(difference=both.value_2 - both.value_1)


def compare(first: Path, second: Path) -> str:
    """Two runs in words: settings, code and machine that differ, then results, then verdicts."""
    parts = ("profile", "parameters", "code", "packages", "hardware", "data", "encoders", "seconds")
    records = [{part: record.get(part) for part in parts} for record in map(open_run, (first, second))]
    lines = [f"1: {first}", f"2: {second}", "", "what differs"]
    lines += [f"  {name}: {a} | {b}" for name, a, b in differences(*records)]
    rows = compare_results(first, second)
    paired = rows.dropna(subset=["value_1", "value_2"])
    moved = paired[paired.difference != 0]
    only = f"{rows.value_2.isna().sum()} only in 1, {rows.value_1.isna().sum()} only in 2"
    equal = len(paired) - len(moved)
    lines += ["", f"results: {len(paired)} in both, {equal} equal, {len(moved)} different; {only}"]
    if len(moved):
        shown = moved.sort_values("difference", key=abs, ascending=False).head(30)
        varying = [name for name in shown if shown[name].nunique() > 1 or name == "difference"]
        lines.append(f"  mean difference {moved.difference.mean():+.4f}, largest first:")
        lines.append(shown[varying].to_string(index=False))
    verdicts = [{c["id"]: c["verdict"] for c in read_json(f / "claims.json") or []} for f in (first, second)]
    changed = differences(*verdicts)
    lines += ["", f"claims: {len(changed)} verdicts differ"]
    return "\n".join(lines + [f"  {name}: {a} | {b}" for name, a, b in changed])


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
