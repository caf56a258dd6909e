"""Our results next to a printed table: which tidy rows answer which cell, what differs, and why a cell is empty.

`papers/<slug>/cells.yaml` says in data which rows belong to a cell. Absolute values are compared only where encoder
and data are the paper's; any other cell is a substitute and says what stands in. Read the other way round, the file
turns what a paper prints into tidy rows, which its claims are judged on first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import isfinite, nan, sqrt
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from dialnb.claims.evidence import REPEATED
from dialnb.claims.intervals import Stratum, crossed_interval
from dialnb.claims.papers import (
    Fields,
    Labels,
    Table,
    dataset_name,
    find_table,
    load_cells,
    load_paper,
    matches,
    select,
)
from dialnb.claims.rendering import CONSTANT, NOT_RUN, RAN, SUBSTITUTE, Comparison
from dialnb.claims.rows import check_unambiguous, prepared
from dialnb.evaluation.metrics import student_half
from dialnb.files import Values, as_list

DESCRIPTIVE = ("type", "source", "group", "backbone", "approach", "setting", "split")
"""Row labels that describe a printed row but select no tidy rows by themselves."""

OF_MODELS = ("model", "type", "source", "group", "backbone")
"""Row labels that tell models apart; the others name the setting in which they are compared."""


@dataclass(frozen=True)
class Estimate:
    """A mean over replicates, the half-width of its 95 % interval, and what stands in for the paper's own means.

    ``over_items`` is the half-width that test items alone would give.
    """

    value: float = nan
    half: float = nan
    seeds: int = 0
    n: int = 0
    by_replicate: Mapping[Any, float] = field(default_factory=dict)
    stand_ins: tuple[str, ...] = ()
    over_items: float = nan


Estimates = dict[str, Estimate]


def compare_table(slug: str, table: str, results: DataFrame, not_run: Iterable[Mapping[str, str]] = ()) -> Comparison:
    """One printed table with our results beside it; shows itself in a notebook, and writes CSV, Markdown and LaTeX.

    `results` are tidy rows with `model` and, where known, `table` and `encoder`; `not_run` holds what did not run as
    {table, model, reason} (and `column` where only some cells are missing).

    >>> not_run = [{"table": "T3", "model": "BERT", "reason": "needs the hub"}]
    >>> compare_table("tadse", "T3", pd.DataFrame(), not_run).rows.note.unique().tolist()
    ['needs the hub', 'not part of this run']
    """
    return Comparer(slug, find_table(slug, table), results, not_run).compare()


class Comparer:
    """The rules of one table: its selectors, its stand-ins, its averages and its reasons."""

    def __init__(self, slug: str, table: Table, results: DataFrame, not_run: Any) -> None:
        self.slug = slug
        self.table = table
        self.results = results = prepared(results)
        self.not_run = list(not_run)
        self.encoders = load_cells(slug).get("encoders", [])
        self.spec = load_cells(slug).get("tables", {}).get(table.id) or {}
        self.rows = select(results, {"table": [None, table.id]}) if "table" in results else results
        self.columns = {name: self.rows[name].to_numpy() for name in self.rows}  # quick to take cells from

    def compare(self) -> Comparison:
        """All cells, of the printed rows first and then of the models that the paper does not have."""
        rows = [
            (row.labels, dict(zip(self.table.columns, row.values)), self._estimates(row.labels))
            for row in self.table.rows
        ]
        added: list[tuple[Any, Values, Estimates]] = [(labels, {}, self._estimates(labels)) for labels in self._added()]
        rows += [row for row in added if any(cell.seeds for cell in row[-1].values())]
        summaries = self._summaries()
        cells = []
        for number, (labels, values, estimates) in enumerate(rows):
            for column, parts in summaries.items():
                known = [means[labels["model"]] for means in parts if labels["model"] in means]
                estimates[column] = _mean(known)
            same = self._fill_averages(estimates, values)
            for column, estimate in estimates.items():
                printed: Any = same.get(column, values.get(column))
                comparable = isinstance(printed, int | float) and estimate.seeds
                status, note = self._status(labels, column, estimate)
                cells.append(
                    {
                        "paper": self.slug,
                        "table": self.table.id,
                        "row": number,
                        **labels,
                        "column": column,
                        "published": values.get(column),
                        "same": same.get(column, nan),
                        "ours": estimate.value,
                        "half": estimate.half,
                        "seeds": estimate.seeds,
                        "n": estimate.n,
                        "difference": estimate.value - printed if comparable else nan,
                        "status": status,
                        "note": note,
                    }
                )
        return Comparison(self.slug, self.table, DataFrame(cells), self._absent({row[0]["model"] for row in rows}))

    def _estimates(self, labels: Labels) -> Estimates:
        """Ours for the cells of one row: rows that name their column themselves, else those that cells.yaml selects."""
        where = row_selectors(self.spec, labels)
        of_model, of_row = matches(self.rows, {"model": where["model"]}), matches(self.rows, where)
        estimates = dict.fromkeys(self.table.columns, Estimate())
        for column in self.table.columns if of_model.any() else ():
            found = of_model & matches(self.rows, {"column": column})
            datasets = []
            if column in self.spec.get("columns", {}) and not found.any():
                chosen = self.spec["columns"][column]
                datasets = as_list((where | chosen).get("dataset", []))
                found = of_row & matches(self.rows, chosen)
                of_each = (found & matches(self.rows, {"dataset": name}) for name in datasets)
                found = next(filter(np.any, of_each), found)  # the paper's own data come before what stands in
            if found.any():
                rows = {name: values[found] for name, values in self.columns.items()}
                estimates[column] = estimate(rows, tuple(self._stand_ins(rows, datasets)))
        return estimates

    def _stand_ins(self, rows: Fields, datasets: list[str]) -> Iterator[str]:
        """What replaces the paper's encoder and data; nothing where both are the paper's."""
        yield from filter(None, dict.fromkeys([*rows.get("substitute", ()), *rows["leak"]]))
        if self.table.kind not in ("results", "in-text"):
            return
        for name in list(filter(None, dict.fromkeys(rows.get("encoder", ())))) or ["not stated"]:
            if name not in self.encoders:
                yield f"encoder {name}"
        for name in dict.fromkeys(rows["dataset"]) if datasets else ():
            if dataset_name(name) != dataset_name(datasets[0]):
                yield f"{name} in place of {datasets[0]}"
            elif name.startswith("bundled/"):
                yield f"bundled part of {datasets[0]}"

    def _fill_averages(self, estimates: Estimates, values: Fields) -> dict[str, float]:
        """Averages over the cells that ran; returns the paper's own over the same cells where some did not run."""
        same = {}
        for check in self.table.average_checks:
            column = check["column"]
            ran = [name for name in check["over"] if estimates[name].seeds]
            if not ran or estimates[column].seeds:
                continue
            estimates[column] = _mean([estimates[name] for name in ran])
            printed: list[Any] = [values.get(name) for name in ran]
            if len(ran) < len(check["over"]) and None not in printed:
                same[column] = float(np.mean(printed))
        return same

    def _summaries(self) -> dict[str, list[Estimates]]:
        """For columns that summarise other tables: per named part of another, each model's mean over its cells."""
        found: dict[str, list[Estimates]] = {}
        for column, parts in self.spec.get("derived", {}).items():
            for part in parts:
                table = load_paper(self.slug).tables[part["table"]]
                cells = Comparer(self.slug, table, self.results, self.not_run).compare().rows
                cells = cells[cells.column.isin(part["columns"]) & (cells.seeds > 0)]
                means = {model: _mean(list(map(_summand, of.itertuples()))) for model, of in cells.groupby("model")}
                found.setdefault(column, []).append(means)
        return found

    def _added(self) -> list[dict[str, str]]:
        """Rows that the paper does not print and we may have: models beyond its own, under each of its settings."""
        if self.rows.empty or "table" not in self.rows:
            return []
        printed = set()
        settings = []
        for row in self.table.rows:
            printed.update(as_list(row_selectors(self.spec, row.labels)["model"]))
            setting = {name: text for name, text in row.labels.items() if name not in OF_MODELS}
            if setting not in settings and not self._constant(row.labels):
                settings.append(setting)
        models = select(self.rows, {"table": self.table.id})["model"].unique()
        return [setting | {"model": model} for setting in settings for model in models if model not in printed]

    def _absent(self, shown: set[str]) -> dict[str, list[str]]:
        """By the reason, the models that a table of results lacks though no row says so, for the paper has none."""
        rows = shown | _printed_models(self.slug) | {"", None}
        filled = "table" in self.results and self.results["table"].eq(self.table.id).any()
        absent: dict[str, list[str]] = {}
        for entry in self.not_run if filled else ():
            if entry.get("model") not in rows and entry.get("table") in (None, "", self.table.id):
                absent.setdefault(str(entry["reason"]), []).append(entry["model"])
        return absent

    def _constant(self, labels: Labels) -> str:
        """The sentence of a row that is not measured by anyone who reads the paper."""
        rules = [rule for rule in self.spec.get("rows", ()) if "constant" in rule and _meets(labels, rule)]
        return rules[0]["constant"] if rules else ""

    def _status(self, labels: Labels, column: str, found: Estimate) -> tuple[str, str]:
        """ran, substitute, constant or not run, and the sentence that goes with it."""
        if found.seeds:
            return (SUBSTITUTE, "; ".join(found.stand_ins)) if found.stand_ins else (RAN, "")
        if constant := self._constant(labels):
            return CONSTANT, constant
        if column in self.spec.get("lacking", {}):
            return NOT_RUN, self.spec["lacking"][column]
        where = row_selectors(self.spec, labels)
        wanted = (where | self.spec.get("columns", {}).get(column, {})).get("dataset")
        named = {
            "table": [self.table.id],
            "model": [labels["model"], where["model"]],
            "dataset": [labels["model"], *as_list(wanted)],
            "column": [column],
        }
        cell = {**labels, "column": column}
        rules = [rule for rule in self.spec.get("rows", ()) if _meets(cell, rule)]
        general = [rule["lacking"] for rule in rules if "lacking" in rule]
        for entry in self.not_run:
            if all(entry.get(name) in (None, "", *texts) for name, texts in named.items()):
                if entry.get("model") or entry.get("dataset") or entry.get("column"):
                    return NOT_RUN, str(entry["reason"])
                general.append(str(entry["reason"]))
        return NOT_RUN, general[0] if general else "not part of this run"


def row_selectors(spec: Fields, labels: Labels) -> Values:
    """Selectors of a printed row: its labels, the table's, then every rule of cells.yaml whose condition it meets."""
    where = {name: text for name, text in labels.items() if name not in DESCRIPTIVE} | spec.get("where", {})
    for rule in spec.get("rows", ()):
        if _meets(labels, rule):
            for name, wanted in rule.get("where", {}).items():
                where[name] = wanted.format(**labels) if isinstance(wanted, str) else wanted
    return where


def _meets(labels: Labels, rule: Fields) -> bool:
    return rule["if"].items() <= labels.items()


def estimate(rows: Fields, stand_ins: tuple[str, ...] = ()) -> Estimate:
    """Mean and 95 % interval of rows that repeat one measurement: over replicates, else over test items."""
    means = dict(zip(zip(*(rows[name] for name in REPEATED)), rows["value"]))
    if len(means) < len(rows["value"]):  # several models, or rows that cannot be told apart
        frame = DataFrame(rows)
        check_unambiguous(frame)
        replicates = frame.groupby(REPEATED)
        of_all = replicates["model"].nunique() == frame["model"].nunique()
        shared = of_all if of_all.any() else slice(None)  # a training of some of the models is no average of them
        means = replicates["value"].mean()[shared].to_dict()
    n = int(pd.Series(rows.get("n", 0)).fillna(0).max())
    variance = pd.Series(rows["variance"]).mean()
    half = 1.96 * sqrt(variance)
    found = Estimate(sum(means.values()), half, 1, n, means, stand_ins, half)
    return found if len(means) == 1 else _of_replicates(found)


def _of_replicates(known: Estimate) -> Estimate:
    """The estimate with mean and interval over its replicates: what several trainings were scored on alike is no
    further evidence with each of them, so there the interval is over trainings and units."""
    values = np.array([*known.by_replicate.values()])
    half = student_half(values)
    (rows, trainings), (columns, units) = (pd.Index(names).factorize(sort=True) for names in zip(*known.by_replicate))
    if len(trainings) > 1:
        crossed = np.full((len(trainings), len(units)), nan)
        crossed[rows, columns] = values
        items = np.nan_to_num(known.over_items / 1.96) ** 2
        found = crossed_interval([Stratum([crossed], np.ones(crossed.shape[1]), variance=items)])
        if isfinite(found.high):  # not where some are missing, or nothing varies
            half = found.high - found.estimate
    return replace(known, value=values.mean(), half=half, seeds=len(values))


def _mean(parts: list[Estimate]) -> Estimate:
    """The mean of several cells: per replicate where all share the same ones, else as of independent cells."""
    if not parts:
        return Estimate()
    n = sum(part.n for part in parts)
    replicates = parts[0].by_replicate
    stand_ins = tuple(dict.fromkeys(text for part in parts for text in part.stand_ins))
    if len(replicates) > 1 and all(part.by_replicate.keys() == replicates.keys() for part in parts):
        means = {key: np.array([part.by_replicate[key] for part in parts]).mean() for key in replicates}
        over_items = _root([part.over_items for part in parts])
        return _of_replicates(Estimate(n=n, by_replicate=means, stand_ins=stand_ins, over_items=over_items))
    value = np.array([part.value for part in parts]).mean()
    half = _root([part.half for part in parts])
    return Estimate(value, half, min(part.seeds for part in parts), n, {}, stand_ins)


def _root(halves: list[float]) -> float:
    """Half-width of the mean of independent cells."""
    return float(np.linalg.norm(halves)) / len(halves)


def _summand(cell: Any) -> Estimate:
    """A cell of another table as part of a summary; where its average lacks columns, the summary is a substitute."""
    partial = "" if pd.isna(cell.same) else "averages over the columns that ran"
    stand_ins = tuple(filter(None, (cell.note, partial)))
    return Estimate(cell.ours, cell.half, cell.seeds, cell.n, stand_ins=stand_ins)


@cache
def _printed_models(slug: str) -> frozenset[str]:
    """The models that any table of a paper has a row for, by all their names."""
    names = set()
    for table in load_paper(slug).tables.values():
        spec = load_cells(slug).get("tables", {}).get(table.id) or {}
        for row in table.rows:
            names.update([row.labels["model"], *as_list(row_selectors(spec, row.labels)["model"])])
    return frozenset(names)
