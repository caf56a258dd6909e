"""Our results beside a printed table: which tidy rows answer which cell, what differs, and why a cell is empty.

`papers/<slug>/cells.yaml` says in data which rows belong to a cell. Absolute values are compared only where encoder
and data are the paper's; any other cell is a substitute and says what stands in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dialnb.claims.leaks import leak_notes
from dialnb.claims.papers import Table, dataset_name, load_cells, load_paper, plain, select
from dialnb.claims.rendering import CONSTANT, NOT_RUN, RAN, SUBSTITUTE, Comparison
from dialnb.errors import DataError

REPLICATES = ("train_seed", "seed")
"""Columns that tell repetitions of one measurement apart."""

DESCRIPTIVE = ("type", "source", "group", "backbone", "approach", "setting", "split")
"""Row labels that describe a printed row but select no tidy rows by themselves."""

PERCENT_SHARES = ("Accuracy", "Top-", "TOP@", "OOS-", "In-Accuracy")
FRACTION_SHARES = ("R10@", "P@1", "Original R", "Adversarial R", "Adversarial first")
"""Metrics that are shares of test items: where there is one seed, n gives their interval."""

NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    """A mean over replicates, the half-width of its 95 % interval, and what stands in for the paper's own means."""

    value: float = NAN
    half: float = NAN
    seeds: int = 0
    n: int = 0
    by_replicate: Mapping[Any, float] = field(default_factory=dict)
    stand_ins: tuple[str, ...] = ()


def compare(
    slug: str, table: Table, results: pd.DataFrame, not_run: Iterable[Mapping[str, str]] | pd.DataFrame = ()
) -> Comparison:
    """See `dialnb.claims.papers.compare_table`."""
    return _Comparer(slug, table, plain(results), not_run).compare()


class _Comparer:
    """The rules of one table: its selectors, its stand-ins, its averages and its reasons."""

    def __init__(self, slug: str, table: Table, results: pd.DataFrame, not_run: Any) -> None:
        self.slug, self.table, self.results = slug, table, results.reset_index(drop=True)
        self.encoders = load_cells(slug).get("encoders", [])
        self.spec = load_cells(slug).get("tables", {}).get(table.id) or {}
        self.not_run = not_run.to_dict("records") if isinstance(not_run, pd.DataFrame) else list(not_run)
        rows = self.results
        self.rows = rows[rows.table.isna() | rows.table.isin(["", table.id])] if "table" in rows else rows
        self.leaks = leak_notes(self.rows) if "dataset" in self.rows else pd.Series(dtype=object)

    def compare(self) -> Comparison:
        printed = [
            (dict(row.labels), dict(zip(self.table.columns, row.values, strict=True))) for row in self.table.rows
        ]
        derived = self._derived_sources()
        found = []
        for number, (labels, values) in enumerate([*printed, *((labels, {}) for labels in self._added())]):
            estimates = self._estimates(labels)
            for column, parts in derived.items():
                estimates[column] = _mean([cells for cells in (part.get(labels["model"]) for part in parts) if cells])
            same = self._fill_averages(estimates, values)
            for column in self.table.columns:
                estimate, reference = estimates[column], same.get(column, values.get(column))
                status, note = self._status(labels, column, estimate)
                comparable = isinstance(reference, int | float) and estimate.seeds
                found.append(
                    {"paper": self.slug, "table": self.table.id, "row": number, **labels, "column": column}
                    | {"published": values.get(column), "same": same.get(column, NAN)}
                    | {"ours": estimate.value, "half": estimate.half, "seeds": estimate.seeds, "n": estimate.n}
                    | {"difference": estimate.value - reference if comparable else NAN, "status": status, "note": note}
                )
        return Comparison(self.slug, self.table, pd.DataFrame(found))

    def _where(self, labels: Mapping[str, str]) -> dict[str, Any]:
        return row_selectors(self.spec, labels)

    def _estimates(self, labels: Mapping[str, str]) -> dict[str, Estimate]:
        """Ours for the cells of one row: rows that name their column themselves, else those that cells.yaml selects."""
        where = self._where(labels)
        of_model = select(self.rows, {"model": where["model"]})
        if of_model.empty:
            return dict.fromkeys(self.table.columns, Estimate())
        named, selectors = select(of_model, {"column": list(self.table.columns)}), self.spec.get("columns", {})
        rest = select(of_model, where) if selectors else named
        return {
            column: self._estimate(select(named, {"column": column}), rest, where, selectors.get(column))
            for column in self.table.columns
        }

    def _estimate(
        self, found: pd.DataFrame, rest: pd.DataFrame, where: Mapping[str, Any], wanted: Mapping[str, Any] | None
    ) -> Estimate:
        names: list[str] = []
        if found.empty and not rest.empty and wanted is not None:
            found = select(rest, wanted)
            names = (where | wanted).get("dataset", [])
            names = names if isinstance(names, list) else [names]
            if len(names) > 1:  # the paper's own data come first; else the first stand-in that ran
                have = found.dataset.map(dataset_name)
                found = found[have == next((name for name in map(dataset_name, names) if (have == name).any()), "")]
        return Estimate() if found.empty else estimate(found, tuple(self._stand_ins(found, names)))

    def _stand_ins(self, rows: pd.DataFrame, datasets: list[str]) -> Iterable[str]:
        """What replaces the paper's encoder and data; nothing where both are the paper's."""
        yield from (str(text) for text in rows.get("substitute", pd.Series(dtype=object)).dropna().unique() if text)
        yield from (text for text in self.leaks.reindex(rows.index).dropna().unique() if text)
        if self.table.kind not in ("results", "in-text"):
            return
        encoders = rows.encoder.dropna().unique() if "encoder" in rows else []
        yield from (f"encoder {name}" for name in encoders if name not in self.encoders)
        if not len(encoders):
            yield "encoder not stated"
        for name in rows.dataset.unique() if datasets and datasets[0] and "dataset" in rows else ():
            if dataset_name(name) != dataset_name(datasets[0]):
                yield f"{name} in place of {datasets[0]}"
            elif str(name).startswith("bundled/"):
                yield f"bundled part of {datasets[0]}"

    def _fill_averages(self, estimates: dict[str, Estimate], values: Mapping[str, Any]) -> dict[str, float]:
        """Averages over the cells that ran; returns the paper's own over the same cells where some did not run."""
        same = {}
        for check in self.table.average_checks:
            over = [name for name in check["over"] if estimates[name].seeds]
            if over and not estimates[check["column"]].seeds:
                estimates[check["column"]] = _mean([estimates[name] for name in over])
                if len(over) < len(check["over"]) and all(values.get(name) is not None for name in over):
                    same[check["column"]] = float(np.mean([values[name] for name in over]))
        return same

    def _derived_sources(self) -> dict[str, list[dict[str, Estimate]]]:
        """For columns that summarise other tables: per named part of another, each model's mean over its cells."""
        found: dict[str, list[dict[str, Estimate]]] = {}
        for column, parts in self.spec.get("derived", {}).items():
            for part in parts:
                other = compare(self.slug, load_paper(self.slug).tables[part["table"]], self.results, self.not_run).rows
                other = other[other.column.isin(part["columns"]) & (other.seeds > 0)]
                models = other.groupby("model")
                means = {model: _mean([_summand(cell) for cell in cells.itertuples()]) for model, cells in models}
                found.setdefault(column, []).append(means)
        return found

    def _added(self) -> list[dict[str, str]]:
        """Rows of ours that the paper does not print: models beyond its own, under each of its settings."""
        if self.rows.empty or "table" not in self.rows:
            return []
        known: set[str] = set()
        settings: dict[tuple, dict[str, str]] = {}
        for row in self.table.rows:
            model = self._where(row.labels)["model"]
            known |= set(model) if isinstance(model, list) else {model}
            if not any("constant" in rule and _meets(row.labels, rule["if"]) for rule in self.spec.get("rows", ())):
                kept = {
                    k: v for k, v in row.labels.items() if k not in ("model", "type", "source", "group", "backbone")
                }
                settings.setdefault(tuple(kept.items()), kept)
        ours = self.rows[self.rows.table == self.table.id]
        extra = [name for name in ours.model.dropna().unique() if name not in known]
        rows = [{**setting, "model": name} for setting in settings.values() for name in extra]
        return [row for row in rows if any(cell.seeds for cell in self._estimates(row).values())]

    def _status(self, labels: Mapping[str, str], column: str, found: Estimate) -> tuple[str, str]:
        """ran, substitute, constant or not run, and the sentence that goes with it."""
        if found.seeds:
            return (SUBSTITUTE, "; ".join(found.stand_ins)) if found.stand_ins else (RAN, "")
        cell = {**labels, "column": column}
        rules = [rule for rule in self.spec.get("rows", ()) if _meets(cell, rule["if"])]
        for rule in rules:
            if "constant" in rule:
                return CONSTANT, rule["constant"]
        if column in self.spec.get("lacking", {}):
            return NOT_RUN, self.spec["lacking"][column]
        where = self._where(labels)
        wanted = (where | self.spec.get("columns", {}).get(column, {})).get("dataset")
        datasets = [None, "", labels.get("model"), *(wanted if isinstance(wanted, list) else [wanted])]
        general = []
        for entry in self.not_run:
            same_table = entry.get("table") in (None, "", self.table.id)
            same_model = entry.get("model") in (None, "", labels["model"], where["model"])
            same_cell = entry.get("dataset") in datasets and entry.get("column") in (None, "", column)
            if same_table and same_model and same_cell:
                if entry.get("model") or entry.get("dataset") or entry.get("column"):
                    return NOT_RUN, str(entry["reason"])
                general.append(str(entry["reason"]))
        general = [rule["lacking"] for rule in rules if "lacking" in rule] + general
        return NOT_RUN, general[0] if general else "not part of this run"


def row_selectors(spec: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Selectors of a printed row: its labels, the table's, then every rule of cells.yaml whose condition it meets."""
    where = {name: text for name, text in labels.items() if name not in DESCRIPTIVE} | spec.get("where", {})
    for rule in spec.get("rows", ()):
        if _meets(labels, rule["if"]):
            for name, wanted in rule.get("where", {}).items():
                where[name] = wanted.format(**labels) if isinstance(wanted, str) else wanted
    return where


def estimate(rows: pd.DataFrame, stand_ins: tuple[str, ...] = ()) -> Estimate:
    """Mean and 95 % interval of rows that repeat one measurement: Student's t over replicates, else over test items."""
    check_unambiguous(rows)
    keys = [name for name in REPLICATES if name in rows]
    values = rows.groupby(keys, dropna=False).value.mean() if keys else rows.value
    n = int(rows.n.max()) if "n" in rows and rows.n.notna().any() else 0
    count, half = len(values), NAN
    if count > 1:
        half = float(stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count))
    else:
        half = 1.96 * float(np.sqrt(item_variances(rows).mean()))
    return Estimate(float(values.mean()), half, count, n, dict(zip(values.index, values)), stand_ins)


def check_unambiguous(rows: pd.DataFrame, within: Iterable[str] = ()) -> None:
    """Refuse rows that repeat a model and seed: they are two measurements, and averaging them would hide it."""
    keys = [name for name in ("model", *REPLICATES, *within) if name in rows]
    doubled = rows[rows.duplicated(keys, keep=False)] if keys else rows.iloc[1:]
    if len(doubled):
        others = [name for name in doubled if name not in ("value", "n", *keys)]
        differ = [name for name in others if doubled[name].nunique(dropna=False) > 1]
        raise DataError(
            f"expected one row per seed of {doubled.iloc[0].get('model', 'a model')!r}, found {len(doubled)} rows "
            f"that differ in {', '.join(differ) or 'nothing but their value'}; say which is meant in the paper's "
            "cells.yaml or claims.yaml"
        )


def item_variances(rows: pd.DataFrame) -> pd.Series:
    """Sampling variance of shares of n test items, in the unit of their values; NaN where the metric is no share."""
    metric = rows["metric"].astype(str) if "metric" in rows else pd.Series("", index=rows.index)
    n = pd.to_numeric(rows["n"], errors="coerce") if "n" in rows else pd.Series(np.nan, index=rows.index)
    top = pd.Series(np.where(metric.str.startswith(FRACTION_SHARES), 1.0, 100.0), index=rows.index)
    share = (rows["value"] / top).clip(0, 1)
    variance = top**2 * np.maximum(share * (1 - share), 0.25 / n) / n
    return variance.where(metric.str.startswith(PERCENT_SHARES + FRACTION_SHARES) & (n > 0))


def _mean(parts: list[Estimate]) -> Estimate:
    """The mean of several cells: per replicate where all share the same ones, else as of independent cells."""
    if not parts:
        return Estimate()
    stand_ins = tuple(dict.fromkeys(text for part in parts for text in part.stand_ins))
    keys = set(parts[0].by_replicate)
    n = sum(part.n for part in parts)
    if len(keys) > 1 and all(set(part.by_replicate) == keys for part in parts):
        values = pd.Series({key: float(np.mean([part.by_replicate[key] for part in parts])) for key in keys})
        half = float(stats.t.ppf(0.975, len(keys) - 1) * values.std(ddof=1) / np.sqrt(len(keys)))
        return Estimate(float(values.mean()), half, len(keys), n, values.to_dict(), stand_ins)
    value = float(np.mean([part.value for part in parts]))
    half = float(np.sqrt(np.sum([part.half**2 for part in parts])) / len(parts))
    return Estimate(value, half, min(part.seeds for part in parts), n, {}, stand_ins)


def _summand(cell: Any) -> Estimate:
    """A cell of another table as part of a summary; where its average lacks columns, the summary is a substitute."""
    partial = ["averages over the columns that ran"] if pd.notna(cell.same) else []
    return Estimate(cell.ours, cell.half, cell.seeds, cell.n, {}, tuple(filter(None, [cell.note, *partial])))


def _meets(labels: Mapping[str, str], condition: Mapping[str, str]) -> bool:
    return all(labels.get(name) == wanted for name, wanted in condition.items())
