"""Floors of runs that were recorded without them: the same questions, from the data and the recorded settings.

Rows and items are those that the studies add by themselves now. What cannot be had here is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dialnb.claims.papers import select
from dialnb.errors import Offline
from dialnb.evaluation import diaeval
from dialnb.evaluation.floors import chance_rows
from dialnb.files import read_json, read_rows
from dialnb.models.encoder import load_encoder
from dialnb.studies import common, dse, matching_data, matrix, matrix_tasks, selectors, tadse, ums
from dialnb.studies.common import Task
from dialnb.studies.matching import WORDS, score
from dialnb.studies.wmdc_sweeps import TASKS

Found = tuple[pd.DataFrame, pd.DataFrame]


class Settings(dict):
    """The parameters of a recorded run, by key or by attribute."""

    __getattr__ = dict.__getitem__


class Recorded(NamedTuple):
    """What the data of a study ask of a run: its settings, and stages, which are made on the spot."""

    settings: Settings

    def stage(self, name: str, function: Callable[..., Any], **inputs: Any) -> Any:
        return function(**inputs)


def recorded_floors(slug: str, folder: Path) -> Found:
    """Rows and items of the floors of a recorded run; a paper's notebook that has none gives empty frames."""
    run = Recorded(Settings(read_json(folder / "run.json")["parameters"]))
    rows, items = FLOORS_OF[slug](run, read_rows(folder)) if slug in FLOORS_OF else (pd.DataFrame(), pd.DataFrame())
    return rows.assign(encoder="none") if len(rows) else rows, items


def _asked(run: Recorded, tasks: Iterable[Task]) -> dict[tuple[str, str], pd.DataFrame]:
    """Rows by (table, floor) of the tasks of a study."""
    jobs, places = common.floor_jobs(run.settings, tasks, load_encoder(run.settings.encoder))
    made = {name: function(**inputs) for name, (function, inputs) in jobs.items()}
    return {place: pd.concat([made[name] for name in names]) for place, names in places.items()}


def _dse(run: Recorded, known: pd.DataFrame) -> Found:
    found = _asked(run, [task for task in dse.TASKS if task.table in run.settings.tables])
    rows = pd.concat([part.assign(table=table, model=floor) for (table, floor), part in found.items()])
    rows.loc[(rows["table"] == "T3") & (rows["shots"] != 1), "table"] = "T8"
    rows = pd.concat([rows, chance_rows(select(known, {"model": "BERT", "table": ["T4", "T9", "X1"]}))])
    others = [rows[rows["table"] == origin].assign(table=table) for origin, table in (("T2", "T10"), ("T4", "T11"))]
    return pd.concat([rows, *others], ignore_index=True), pd.DataFrame()


def _wmdc(run: Recorded, known: pd.DataFrame) -> Found:
    found = _asked(run, TASKS)
    rows = pd.concat(
        [diaeval.printed_rows(part.assign(table=t)).assign(model=floor) for (t, floor), part in found.items()]
    )
    guessed = chance_rows(select(known, {"model": "BERT", "table": "T4"}))
    return pd.concat([rows, guessed], ignore_index=True), pd.DataFrame()


def _matrix(run: Recorded, known: pd.DataFrame) -> Found:
    """The rows of every dataset, and their means in T1, by the units of the notebook."""
    columns = [column for column in matrix_tasks.COLUMNS if column.name in run.settings.tasks]
    kept = _Kept(run.settings)
    for (name, floor), part in _asked(run, [matrix._task(run, column) for column in columns]).items():
        matrix._add_scores(kept, next(column for column in columns if column.name == name), floor, part)
    return pd.concat(kept.rows, ignore_index=True), pd.DataFrame()


class _Kept:
    """Takes rows as a run does."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.rows = settings, []

    def add(self, rows: pd.DataFrame, **labels: Any) -> None:
        self.rows.append(rows.assign(**labels))


def _dialoguecse(run: Recorded, known: pd.DataFrame) -> Found:
    """BM25 on the pools in English (the Chinese word pieces of a run were its own), and the recorded chance."""
    s, rows = run.settings, [select(known, {"model": "chance (random order)"}).assign(model="Chance")]
    for name in (name for name in s.corpora if name in matching_data.REBUILT):
        try:
            test = matching_data.evaluation_of(run, name)
        except Offline:
            continue
        found = score(load_encoder(s.encoder), WORDS, dataset=name, seed=s.train_seeds[0], **test)
        found = found[found["protocol"] == "paper"].assign(table="T2", model=WORDS)
        rows += [found.assign(train_seed=seed) for seed in s.train_seeds]
    return pd.concat(rows, ignore_index=True), pd.DataFrame()


def _tadse(run: Recorded, known: pd.DataFrame) -> Found:
    s, rows, items = run.settings, [], []
    tables = known[known["table"].isin(tadse.FLOORED)][["table", "dataset"]].drop_duplicates()
    for dataset, own in tables.groupby("dataset")["table"]:
        try:
            records = matrix_tasks.intent_data(dataset, s.data)
        except Offline:
            continue
        jobs = tadse.majority_jobs({dataset: records}, {"limit": s.limit, "references": s.references})
        for function, inputs in jobs.values():
            found = function(**inputs)
            rows += [found["rows"].assign(table=table, model="Majority") for table in own]
            items += [found["items"].assign(table=table, model="Majority") for table in own]
    return pd.concat(rows, ignore_index=True), pd.concat(items, ignore_index=True)


def _ums(run: Recorded, known: pd.DataFrame) -> Found:
    """Ubuntu only: the Chinese word pieces of a run were its own."""
    s = run.settings
    parts = [common.find(s.data, *ums.CORPORA["Ubuntu"])]
    inputs = s.max_length, parts, ums.label(parts), s.groups, tuple(s.adversarial_seeds), ("random", *s.adversaries)
    return ums.floor_rows(selectors.answer_by_words(load_encoder(s.encoder), *inputs))


FLOORS_OF = {"dse": _dse, "wmdc": _wmdc, "matrix": _matrix, "dialoguecse": _dialoguecse, "tadse": _tadse, "ums": _ums}
