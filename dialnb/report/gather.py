"""What there is to report: run folders in, one group per paper and setting out, with the seeds of a group pooled."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from lzma import LZMAError
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pandas.api.types import is_numeric_dtype

from dialnb.claims import Judged, judge_claims, training_shares
from dialnb.claims.papers import STUDIES, project_root
from dialnb.errors import DataError
from dialnb.files import ITEMS, as_it_stands, read_rows, table_at

SIZES = ("paper", "gpu", "quick", "smoke")
"""Profiles from the most to the least telling."""

FAULTS = "faults.yaml"
"""Known faults of a recorded run: a list of {rows: selectors, fault: a word or two, reason: sentence, claims: ids}."""
NUMBER = int | float
RECORD = {
    "slug": str,
    "profile": str,
    "status": str,
    "reason": str,
    "parameters": {"seed?": int, "encoder?": str | None},
    "set_by_hand?": {},
    "seconds?": NUMBER,
    "stages": [{"name": str, "seconds": NUMBER | None, "cached": bool}],
    "not_run?": [{"table": str, "reason": str}],
    "data?": [{"name": str, "variant?": str | None}],
    "encoders?": [{"name": str}],
    "licences?": [str],
    "hardware?": {"cores?": int | None, "gpus?": [{"name": str}]},
    "code?": {},
    "packages?": {},
}
"""What the report reads of run.json, and of which kind it is; names with a question mark may be absent."""


class Damaged(DataError):
    """A run that cannot be reported, and why; the folder is told apart from the reason, which readers see."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"{folder}: {reason}")
        self.name, self.reason = "/".join(folder.parts[-3:]), reason


@dataclass(frozen=True)
class Group:
    """Runs of one paper that differ only in their seed; none at all for a paper that has not run."""

    slug: str
    runs: tuple[dict[str, Any], ...]
    folders: tuple[Path, ...]
    results: pd.DataFrame
    twins: int = 0  # groups before it of the same name

    @property
    def profile(self) -> str:
        return self.runs[-1]["profile"] if self.runs else ""

    @property
    def name(self) -> str:
        """Name of the group's page: the paper and profile, and what was set by hand."""
        if not self.runs:
            return self.slug
        by_hand = [f"{k}-{v}" for k, v in self.runs[-1].get("set_by_hand", {}).items() if k != "seed"]
        text = "-".join([self.slug, self.profile, *by_hand])
        plain = "".join(c if (c.isascii() and c.isalnum()) or c in "-." else "-" for c in text)[:100]
        return f"{plain}-{self.twins + 1}" if self.twins else plain

    @property
    def not_run(self) -> list[dict[str, str]]:
        """What did not run and why, from all runs of the group."""
        entries = [entry for run in self.runs for entry in run.get("not_run", ())]
        return list({json.dumps(entry, sort_keys=True): entry for entry in entries}.values())

    @cached_property
    def judged(self) -> Judged:
        """The claims of the paper before these results, over all trainings of the group."""
        times = self.folders[-1] / "tables" / "training-times.csv" if self.folders else Path()
        shares = training_shares(pd.read_csv(times)) if times.is_file() else {}
        return judge_claims(self.slug, self.results, self.not_run, self._items, shares, self.faults)

    @property
    def faults(self) -> list[dict[str, Any]]:
        """What is known to be wrong with rows of these runs: `faults.yaml` of their folders."""
        files = [folder / FAULTS for folder in self.folders if (folder / FAULTS).is_file()]
        return [fault for path in files for fault in yaml.safe_load(path.read_text(encoding="utf-8"))]

    @property
    def _items(self) -> pd.DataFrame | None:
        """Scores of single items, where every run kept them."""
        if not self.folders or not all(table_at(folder, ITEMS) for folder in self.folders):
            return None
        return pd.concat([_rows(run, folder, ITEMS) for run, folder in zip(self.runs, self.folders)], ignore_index=True)

    @property
    def encoders(self) -> list[str]:
        """Encoders behind the results, else those that the runs name."""
        if "encoder" in self.results and self.results.encoder.notna().any():
            return [str(name) for name in self.results.encoder.dropna().unique() if name != "none"]  # chance has none
        return [name for run in self.runs if (name := run.get("parameters", {}).get("encoder"))]


def recorded_runs() -> list[Path]:
    """Folders of the runs that the repository keeps: `papers/<slug>/results/<profile>/`."""
    return sorted(path.parent for path in (project_root() / "papers").glob("*/results/*/run.json"))


def find_runs(places: Iterable[Path]) -> list[Path]:
    """Run folders among the given ones: each is one itself, or holds some directly."""
    found: list[Path] = []
    for place in places:
        here = [place] if (place / "run.json").is_file() else sorted(path.parent for path in place.glob("*/run.json"))
        if not here:
            raise DataError(
                f"{place} is no run folder and holds none: expected a file run.json in it or one level below"
            )
        found += here
    return list(dict.fromkeys(path.resolve() for path in found))


def gather(folders: Sequence[Path], damaged: list[Damaged] | None = None) -> list[Group]:
    """One group per paper, profile and settings, the most telling first; papers without runs have an empty one.

    A run that cannot be read is added to the list `damaged`; without such a list it is an error.
    """
    groups: dict[tuple, list[tuple[dict[str, Any], Path, pd.DataFrame]]] = {}
    for folder in folders:
        try:
            run = read_run(folder)
            rows = _results(run, folder)
        except Damaged as damage:
            if damaged is None:
                raise
            damaged.append(damage)
            continue
        by_hand = {k: v for k, v in run.get("set_by_hand", {}).items() if k != "seed"}
        settings = json.dumps(by_hand, sort_keys=True, default=str)
        key = (STUDIES.index(run["slug"]), _size(run["profile"]), run["profile"], settings)
        groups.setdefault(key, []).append((run, folder, rows))
    found: list[Group] = []
    for _, runs in sorted(groups.items()):
        group = _group(sorted(runs, key=lambda entry: str(entry[0].get("updated"))))
        while group.name in {other.name for other in found}:
            group = replace(group, twins=group.twins + 1)
        found.append(group)
    return sorted([*found, *without_runs(found)], key=lambda group: STUDIES.index(group.slug))


def without_runs(groups: Iterable[Group]) -> list[Group]:
    """Empty groups of the papers that have none among these."""
    have = {group.slug for group in groups}
    return [Group(slug, (), (), pd.DataFrame()) for slug in STUDIES if slug not in have]


def read_run(folder: Path) -> dict[str, Any]:
    """What run.json says, if it is the record of a run of a known paper, and nothing here leads out of the folder."""
    for path in (*folder.iterdir(), *folder.glob("figures/*")):
        read = path.is_symlink() and (path.is_file() or path.name == "figures")
        if read and not path.resolve().is_relative_to(folder.resolve()):
            raise Damaged(folder, f"{path.relative_to(folder)} is a link that leads out of the folder of the run")
    try:
        run = read_record(folder / "run.json", RECORD)
    except DataError as error:
        raise Damaged(folder, str(error)) from error
    if run["slug"] not in STUDIES:
        raise Damaged(folder, f"run.json is of the paper {run['slug']!r}; known are {', '.join(STUDIES)}")
    return as_it_stands(run, folder)


def read_record(path: Path, shape: dict[str, Any]) -> dict[str, Any]:
    """What a JSON file holds, if it has the shape."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path.name} cannot be read as JSON: {error}") from error
    if wrong := list(misfits(record, shape)):
        raise DataError(f"{path.name} lacks, or has in another form than dialnb writes: {', '.join(wrong)}")
    return record


def misfits(value: Any, shape: Any, place: str = "") -> Iterator[str]:
    """Where a value has not the shape: a kind, a list of one shape, or names with the shape of each.

    >>> list(misfits({"runs": [{"seed": 1}, {"seed": "../"}]}, {"runs": [{"seed": int}], "slug": str, "note?": str}))
    ['runs.1.seed', 'slug']
    """
    if isinstance(shape, dict) and isinstance(value, dict):
        for name, inner in shape.items():
            if (key := name.removesuffix("?")) in value or key == name:
                yield from misfits(value.get(key, ...), inner, f"{place}.{key}".lstrip("."))
    elif isinstance(shape, list) and isinstance(value, list):
        for number, entry in enumerate(value):
            yield from misfits(entry, shape[0], f"{place}.{number}")
    elif isinstance(shape, dict | list) or not isinstance(value, shape):
        yield place or "everything"


def _group(runs: list[tuple[dict[str, Any], Path, pd.DataFrame]]) -> Group:
    """The runs of one setting, oldest first; of several with one seed, the latest counts."""
    latest = {entry[0]["parameters"].get("seed"): entry for entry in runs}
    records, folders, parts = zip(*latest.values())
    frame = pd.concat([part for part in parts if len(part)] or [pd.DataFrame()], ignore_index=True)
    return Group(records[0]["slug"], records, folders, frame)


def _results(run: dict[str, Any], folder: Path) -> pd.DataFrame:
    """Tidy rows of a run; empty where it has none."""
    path = table_at(folder)
    if path is None or path.read_bytes().strip() == b"":
        return pd.DataFrame()
    try:
        rows = _rows(run, folder)
    except (OSError, ValueError, EOFError, LZMAError) as error:
        raise Damaged(folder, f"{path.name} cannot be read as a table: {error}") from error
    if len(rows) and not ({"model", "value"} <= set(rows) and is_numeric_dtype(rows["value"])):
        raise Damaged(folder, f"{path.name} needs a column `model` and a column `value` of numbers")
    return rows


def _rows(run: dict[str, Any], folder: Path, *name: str) -> pd.DataFrame:
    """A table of a run, with the run's seed as that of the training where it names none."""
    rows = read_rows(folder, *name)
    seed = run["parameters"].get("seed", 0)
    return rows.assign(train_seed=rows["train_seed"].fillna(seed) if "train_seed" in rows else seed)


def _size(profile: str) -> int:
    return SIZES.index(profile) if profile in SIZES else len(SIZES)
