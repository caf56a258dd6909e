"""What there is to report: run folders in, one group per paper and setting out, with the seeds of a group pooled."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pandas import DataFrame

from dialnb.claims import Judged, judge_claims, load_claims, training_shares
from dialnb.claims.papers import SLUGS, STUDIES, load_paper
from dialnb.errors import DataError, in_words
from dialnb.files import (
    ITEMS,
    Values,
    as_it_stands,
    project_root,
    read_json,
    read_record,
    read_rows,
    read_table,
    read_yaml,
    runs_in,
    table_at,
)
from dialnb.limits import FIGURES, FILE_SECONDS, regular, shortened, within
from dialnb.runs.profiles import PROFILES


class Damaged(DataError):
    """A run that cannot be reported, and why; the folder is told apart from the reason, which readers see."""

    def __init__(self, folder: Path, error: Exception) -> None:
        self.name, self.reason = "/".join(folder.parts[-3:]), shortened(in_words(error))
        super().__init__(f"{folder}: {self.reason}")


class Run(NamedTuple):
    """A run folder as it was read: what its run.json says, and its tidy rows."""

    folder: Path
    record: Values
    rows: DataFrame

    @property
    def seeds(self) -> list[int]:
        """Its seed, and those of the runs that joined its record."""
        return seeds_of(self.record)


@dataclass(frozen=True)
class Group:
    """Runs of one paper that differ only in their seed; none at all for a paper that has not run."""

    slug: str
    name: str
    runs: Sequence[Run] = ()

    @cached_property
    def results(self) -> DataFrame:
        """The tidy rows of all runs."""
        return pd.concat([run.rows for run in self.runs if len(run.rows)] or [DataFrame()], ignore_index=True)

    @property
    def latest(self) -> Values:
        """What the latest run says of itself."""
        return self.runs[-1].record if self.runs else {}

    @property
    def profile(self) -> str:
        return self.latest.get("profile", "")

    @property
    def seeds(self) -> list[int]:
        """Those of the trainings: of the models of a run, and of the runs that joined its record."""
        return sorted({seed for run in self.runs for seed in run.record["parameters"].get("train_seeds") or run.seeds})

    @property
    def facts(self) -> Values:
        """What the first run says of itself, for the page of advice; so are its settings."""
        return self.runs[0].record

    @property
    def settings(self) -> Values:
        return self.facts["parameters"]

    def rows(self, table: str) -> DataFrame:
        """The rows of a table, of all trainings."""
        return self.results.query("table == @table")

    @property
    def record(self) -> Path | None:
        """The folder of the only run, if it is one that the repository keeps."""
        is_kept = len(self.runs) == 1 and self.runs[0].folder.resolve() in recorded_runs()
        return self.runs[0].folder if is_kept else None

    @property
    def not_run(self) -> list[dict[str, str]]:
        """What did not run and why, from all runs of the group, each once."""
        entries = (entry for run in self.runs for entry in run.record.get("not_run", ()))
        return [*{json.dumps(entry, sort_keys=True): entry for entry in entries}.values()]

    @cached_property
    def judged(self) -> Judged:
        """The claims of the paper with their verdicts: those kept with a record, if it has all of them."""
        kept = read_json(self.record / "claims.json") if self.record else None
        if kept and [claim["id"] for claim in kept] == [claim.id for claim in load_claims(self.slug)]:
            return Judged(DataFrame(kept, dtype=object))
        return self.judge()

    def judge(self) -> Judged:
        """Judge the claims of the paper now, over all trainings of the group."""
        times = self.runs[-1].folder / "tables" / "training-times.csv" if self.runs else Path()
        shares = training_shares(read_table(times), self.slug, self.settings) if times.is_file() else {}
        items = [rows_of(run.record, run.folder, ITEMS) for run in self.runs if table_at(run.folder, ITEMS)]
        scores = pd.concat(items, ignore_index=True) if items and len(items) == len(self.runs) else None
        return judge_claims(self.slug, self.results, self.not_run, scores, shares)

    @property
    def encoders(self) -> list[str]:
        """Encoders behind the results, else those that the runs name."""
        measured = self.results.get("encoder", pd.Series()).dropna().unique().tolist()
        named = [run.record["parameters"].get("encoder") for run in self.runs]
        return [str(name) for name in measured or named if name and name != "none"]


def recorded_runs() -> list[Path]:
    """Folders of the runs that the repository keeps: `papers/<slug>/results/<profile>/`."""
    return runs_in(*sorted((project_root() / "papers").glob("*/results")))


def records() -> list[Values]:
    """For each paper what was found: the sentence of `papers/<slug>/finding.yaml`, and the kept claims of its largest
    record."""
    folders = sorted(recorded_runs(), key=lambda folder: (*PROFILES, folder.name).index(folder.name))
    largest = {folder.parent.parent.name: folder for folder in folders if (folder / "claims.json").is_file()}
    findings = []
    for slug in SLUGS:
        sentence = project_root() / "papers" / slug / "finding.yaml"
        if slug in largest and sentence.is_file():
            kept = {"profile": largest[slug].name, "claims": read_json(largest[slug] / "claims.json")}
            findings.append({"paper": load_paper(slug), "says": read_yaml(sentence)["says"], **kept})
    return findings


def seeds_of(run: Values) -> list[int]:
    """The seed of a run, and those of the runs that joined its record."""
    return [run["parameters"].get("seed", 1), *(other["seed"] for other in run.get("pooled", ()))]


def gather(folders: Sequence[Path], damaged: list[Damaged] | None = None) -> list[Group]:
    """One group per paper, profile and settings, in the order of the papers, the most telling first.

    A run that cannot be read is added to the list `damaged`; without such a list it is an error.
    """
    alike: dict[tuple[Any, ...], list[Run]] = {}
    for folder in folders:
        try:
            with within(FILE_SECONDS, "reading its files"):
                run = run_of(folder)
        except Exception as error:  # what foreign files can hold has no end, and is not to be the end of the report
            if damaged is None:
                raise Damaged(folder, error) from error
            damaged.append(Damaged(folder, error))
            continue
        profile, settings = run.record["profile"], json.dumps(run.record.get("set_by_hand", {}), sort_keys=True)
        size = PROFILES.index(profile) if profile in PROFILES else -1  # the larger, the more it tells
        alike.setdefault((STUDIES.index(run.record["slug"]), -size, profile, settings), []).append(run)
    groups: list[Group] = []
    for _, runs in sorted(alike.items(), key=lambda entry: entry[0]):
        runs.sort(key=lambda run: (len(run.seeds), str(run.record.get("updated"))))
        of_seed = {seed: run for run in runs for seed in run.seeds}  # a pooled record is not counted twice
        counted = [*{run.folder: run for run in of_seed.values()}.values()]
        record = counted[-1].record
        changes = [f"{name}-{value}" for name, value in record.get("set_by_hand", {}).items()]
        plain = "-".join([record["slug"], record["profile"], *changes])
        name = re.sub(r"[^A-Za-z0-9.-]", "-", plain)[:100]  # safe in paths and links
        while name in [group.name for group in groups]:
            name += "-2"
        groups.append(Group(record["slug"], name, counted))
    return groups


def run_of(folder: Path) -> Run:
    """A run, if run.json is the record of one of a known paper, and nothing here leads out of the folder."""
    for path in (*folder.iterdir(), *folder.glob("figures/*"), *folder.glob("tables/*")):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(folder.resolve()):
            raise DataError(f"{path.relative_to(folder)} is a link that leads out of the folder of the run")
    if len([*folder.glob("figures/*.json")]) > FIGURES:
        raise DataError(f"it has more than {FIGURES} figures")
    run = read_record(folder / "run.json", "run")
    if run["slug"] not in STUDIES:
        raise DataError(f"run.json is of the paper {run['slug']!r}; known are {', '.join(STUDIES)}")
    return Run(folder, as_it_stands(run, folder), _results(run, folder))


def _results(run: Values, folder: Path) -> DataFrame:
    """Tidy rows of a run; empty where it has none."""
    path = table_at(folder)
    if path is None or (regular(path).stat().st_size < 2**10 and path.read_bytes().strip() == b""):
        return DataFrame()
    try:
        rows = rows_of(run, folder)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path.name} cannot be read as a table: {in_words(error)}") from error
    if len(rows) and not ({"model", "value"} <= set(rows) and rows["value"].dtype.kind in "iuf"):
        raise DataError(f"{path.name} needs a column `model` and a column `value` of numbers")
    return rows


def rows_of(run: Values, folder: Path, *name: str) -> DataFrame:
    """A table of a run, with the run's seed as that of the training where it names none."""
    rows = read_rows(folder, *name)
    seed = run["parameters"].get("seed", 0)
    return rows.assign(train_seed=rows["train_seed"].fillna(seed) if "train_seed" in rows else seed)
