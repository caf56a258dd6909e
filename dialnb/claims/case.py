"""What claims are judged on: results, scores of single items, and the floors that a trained model must be above."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from pandas import DataFrame

from dialnb.claims.definitions import Claim
from dialnb.claims.floors import Floor, floor_of, floor_rows
from dialnb.claims.papers import FLOORS, Fields, load_cells, matches, select
from dialnb.claims.rows import prepared


@dataclass
class Case:
    """What is known of a run: results, scores of single items, and how they were made.

    `training` holds the share of the printed training by the name of a training. Results that a paper `printed` are
    what they are, without intervals and floors. Of the claims in `silent` the paper's own cells say nothing.
    """

    results: DataFrame
    slug: str = ""
    items: DataFrame | None = None
    training: Mapping[str, float] = field(default_factory=dict)
    printed: bool = False
    silent: Collection[str] = ()

    def __post_init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.results = prepared(self.results)
        if self.items is not None:
            self.items = prepared(self.items)

    def kept(self, name: str, asked: object, make: Callable[[], Any]) -> Any:
        """What several comparisons need, made once."""
        key = json.dumps([name, asked], sort_keys=True, default=str)
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    @cached_property
    def cells(self) -> Fields:
        """The paper's cells.yaml."""
        return load_cells(self.slug) if self.slug else {}

    def trained(self, rows: DataFrame) -> bool:
        """Did any of these rows come from a model that was trained here?"""
        return not self.printed and not self._fit(rows, "untrained").all()

    def trained_rows(self, rows: DataFrame) -> DataFrame:
        """Those of models that were trained here."""
        return rows[~self._fit(rows, "untrained") & ~rows["model"].isin(FLOORS)]

    def _fit(self, rows: DataFrame, name: str) -> np.ndarray:
        """For every row whether it meets one of these conditions of cells.yaml."""
        fit = [matches(rows, where) for where in self.cells.get(name, ())]
        return np.any(fit, axis=0) if fit else np.zeros(len(rows), bool)

    def unit(self, rows: DataFrame, claim: Claim) -> str:
        """What the interval of a claim counts within one training."""
        if claim.paired_over == "datasets":
            return "datasets" if "dataset" in claim.by else "tasks"
        if claim.paired_over == "items" and self.items is not None:
            grouped = "group" in self.items and self.items["group"].notna().any()
            return "conversations" if grouped else "test items"
        units = self.cells.get("units", {})
        table = rows["table"].iloc[0] if "table" in rows else ""
        return units.get(table, units.get("default", "seeds"))

    def share(self, rows: DataFrame) -> float | None:
        """The least share of the printed training among the trained models of these rows: of those that are known, if
        one of these is small, else only if all are known."""
        rows = rows[~self._fit(rows, "untrained")]
        rules = self.cells.get("trained", [{"name": "{model}"}])
        used = {name for rule in rules for name in rule.get("rows", {})} | {"model", "table", "dataset", "augmentation"}
        known = rows[[name for name in rows if name in used]].drop_duplicates()
        names = np.full(len(known), "", object)
        for rule in reversed(rules):  # the first that fits
            names[matches(known, rule.get("rows", {}))] = rule.get("name", "")
        shares = [self.training.get(name.format(**row)) for name, row in zip(names, known.to_dict("records"))]
        least = min((share for share in shares if share is not None), default=None)
        return None if least is None or (None in shares and least >= 0.5) else least

    def floor(self, where: Fields, side: Fields, by: Sequence[str]) -> Floor:
        """Hold the rows that show whether a side learned against their floors: by single items where both were kept.

        Chance and the most frequent label are floors of every model, word overlap of those that were trained for the
        task (`trained_for_task` in cells.yaml says which).
        """
        return self.kept("floor", [where, by], lambda: self._floor(where, side, by))

    def _floor(self, where: Fields, side: Fields, by: Sequence[str]) -> Floor:
        model = side.get("model", where.get("model"))
        side = {"model": model} if model else {}
        for source in (self.items, self.results):
            if source is None or ("encoder" in where and "encoder" not in source):
                continue  # items do not say whose they are
            known = {name: value for name, value in where.items() if name in source}
            rows, floors = select(source, known), floor_rows(source, known)
            if len(rows) and len(floors):
                rows = select(rows, side)
                return floor_of(rows, floors, side, by, self._fit(rows, "trained_for_task"))
        return Floor()


def training_shares(times: DataFrame | None, slug: str, settings: Mapping[str, Any] = {}) -> dict[str, float]:
    """The share of the printed training that each training had, by its name in a run's table of training times.

    It is examples seen by examples printed where cells.yaml has the latter (`printed_examples`), else steps by those
    that all printed epochs would take; `sweeps` are other trainings of the same models, as long as a setting says.
    """
    if times is None or "printed steps" not in times:
        return {}
    cells = load_cells(slug)
    known = times.dropna(subset=["steps", "printed steps"]).set_index("model")
    shares = dict(known["steps"] / known["printed steps"])
    for name, setting in cells.get("sweeps", {}).items():
        if name in known.index and settings.get(setting):
            shares[f"{name}, {setting}"] = settings[setting] / known.loc[name, "printed steps"]
    for name, (examples, batch) in cells.get("printed_examples", {}).items():
        size = settings.get(batch, batch) if isinstance(batch, str) else batch
        if name in known.index and size and not isinstance(size, str):
            shares[name] = known.loc[name, "steps"] * size / examples
    return shares
