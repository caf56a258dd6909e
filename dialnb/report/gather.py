"""What there is to report: run folders in, one group per paper and setting out, with the seeds of a group pooled."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from dialnb.claims import Judged, judge_claims, training_shares
from dialnb.errors import DataError
from dialnb.papers import STUDIES, project_root
from dialnb.runs.files import ITEMS, read_rows, table_at

SIZES = ("paper", "gpu", "quick", "smoke")
"""Profiles from the most to the least telling."""

FAULTS = "faults.yaml"
"""Known faults of a recorded run: a list of {rows: selectors, fault: a word or two, reason: sentence, claims: ids}."""


@dataclass(frozen=True)
class Group:
    """Runs of one paper that differ only in their seed; none at all for a paper that has not run."""

    slug: str
    runs: tuple[dict[str, Any], ...]
    folders: tuple[Path, ...]
    results: pd.DataFrame

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
        return "".join(c if c.isalnum() or c in "-." else "-" for c in text)

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


def gather(folders: Sequence[Path]) -> list[Group]:
    """One group per paper, profile and settings, the most telling first; papers without runs have an empty one."""
    groups: dict[tuple, list[tuple[dict[str, Any], Path]]] = {}
    for folder in folders:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if run.get("slug") not in STUDIES:
            known = ", ".join(STUDIES)
            raise DataError(f"{folder / 'run.json'} is of the paper {run.get('slug')!r}; known are {known}")
        by_hand = {k: v for k, v in run.get("set_by_hand", {}).items() if k != "seed"}
        key = (STUDIES.index(run["slug"]), _size(run["profile"]), json.dumps(by_hand, sort_keys=True, default=str))
        groups.setdefault(key, []).append((run, folder))
    found = [_group(sorted(runs, key=lambda pair: str(pair[0].get("updated")))) for _, runs in sorted(groups.items())]
    absent = [Group(slug, (), (), pd.DataFrame()) for slug in STUDIES if slug not in {group.slug for group in found}]
    return sorted([*found, *absent], key=lambda group: STUDIES.index(group.slug))


def _group(runs: list[tuple[dict[str, Any], Path]]) -> Group:
    """The runs of one setting, oldest first; of several with one seed, the latest counts."""
    runs = list({run.get("parameters", {}).get("seed"): (run, folder) for run, folder in runs}.values())
    parts = [_results(run, folder) for run, folder in runs]
    frame = pd.concat([part for part in parts if len(part)] or [pd.DataFrame()], ignore_index=True)
    return Group(runs[0][0]["slug"], tuple(run for run, _ in runs), tuple(folder for _, folder in runs), frame)


def _results(run: dict[str, Any], folder: Path) -> pd.DataFrame:
    """Tidy rows of a run; empty where it has none."""
    path = table_at(folder)
    if path is None or path.read_bytes().strip() == b"":
        return pd.DataFrame()
    return _rows(run, folder)


def _rows(run: dict[str, Any], folder: Path, *name: str) -> pd.DataFrame:
    """A table of a run, with the run's seed as that of the training where it names none."""
    rows = read_rows(folder, *name)
    seed = run.get("parameters", {}).get("seed", 0)
    return rows.assign(train_seed=rows["train_seed"].fillna(seed) if "train_seed" in rows else seed)


def _size(profile: str) -> int:
    return SIZES.index(profile) if profile in SIZES else len(SIZES)
