"""What claims are judged on: results, scores of single items, and the floors that a trained model must be above."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np
import pandas as pd
from numpy import ndarray
from pandas import DataFrame

from dialnb.claims.definitions import Claim
from dialnb.claims.evidence import MEASURED, REPEATED, Lacking, describe, mean_within, means_at, numbers_of, strata
from dialnb.claims.papers import FLOORS, Fields, load_cells, matches, select
from dialnb.claims.rows import prepared
from dialnb.evaluation.intervals import crossed_interval
from dialnb.files import Values, as_list


class Unjudged(Lacking):
    """Rows are there, but they cannot carry a verdict; `qualifier` says why in a word or two."""

    def __init__(self, qualifier: str, numbers: str) -> None:
        super().__init__(f"{qualifier} ({numbers})")
        self.qualifier = qualifier
        self.numbers = numbers


@dataclass(frozen=True)
class Floor:
    """The strongest floor of a side's test sets with its score, whether the side is above every one of them, the two
    numbers where it is least so, and how far it is above them on average; passed where no floor was scored."""

    strongest: str = ""
    passed: bool = True
    numbers: str = ""
    room: float = inf


@dataclass
class Case:
    """What is known of a run: results, scores of single items, and how they were made.

    `training` holds the share of the printed epochs by model. Results that a paper `printed` are what they are,
    without intervals and floors.
    """

    results: DataFrame
    slug: str = ""
    items: DataFrame | None = None
    training: Mapping[str, float] = field(default_factory=dict)
    printed: bool = False

    def __post_init__(self) -> None:
        self.floors: dict[str, Floor] = {}  # claims ask for the same again and again
        self.results = prepared(self.results)
        if self.items is not None:
            self.items = prepared(self.items)

    @cached_property
    def cells(self) -> Fields:
        """The paper's cells.yaml."""
        return load_cells(self.slug) if self.slug else {}

    def trained(self, rows: DataFrame) -> bool:
        """Did any of these rows come from a model that was trained here?"""
        trained = np.full(len(rows), not self.printed)
        for where in self.cells.get("untrained", ()):
            trained &= ~matches(rows, where)
        return bool(trained.any())

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

    def share(self, models: Iterable[str]) -> float | None:
        """The least share of the printed epochs among models, as far as it is known."""
        shares = []
        for model in models:
            shares += [
                share
                for name, share in self.training.items()
                if name == model or name.startswith((f"{model} on ", f"{model}, "))
            ]
        return min(shares, default=None)

    def floor(self, where: Fields, side: Fields, by: Sequence[str]) -> Floor:
        """Hold the rows that show whether a side learned against their floors: by single items where both were kept."""
        key = json.dumps([where, by], sort_keys=True)
        if key in self.floors:
            return self.floors[key]
        model = side.get("model", where.get("model"))
        side = {"model": model} if model else {}
        for source in (self.items, self.results):
            if source is None or ("encoder" in where and "encoder" not in source):
                continue  # items do not say whose they are
            known = {name: value for name, value in where.items() if name in source}
            rows = select(source, known)
            floors = floor_rows(source, known)
            if len(rows) and len(floors):
                self.floors[key] = above_floor(select(rows, side), floors, side, by)
                break
        return self.floors.setdefault(key, Floor())


def training_shares(times: DataFrame | None) -> dict[str, float]:
    """The share of the printed epochs that each model had, from a run's table of training times."""
    if times is None or "printed steps" not in times:
        return {}
    known = times.dropna(subset=["steps", "printed steps"])
    return dict(zip(known["model"], known["steps"] / known["printed steps"]))


def floor_rows(results: DataFrame, where: Fields) -> DataFrame:
    """Rows of floors that stand for the same measurement; what a floor does not name, it does not depend on, and it has
    neither the encoder nor the method of a model."""
    asked: Values = {"model": FLOORS}
    for name, wanted in where.items():
        if name not in ("model", "table", "encoder", "method"):
            asked[name] = [*as_list(wanted), None]
    found = select(results, asked)
    here = select(found, {"table": where["table"]}) if "table" in where else found
    return here if len(here) else found.drop_duplicates([name for name in found if name not in ("table", "value")])


def above_floor(rows: DataFrame, floors: DataFrame, side: Fields, by: Sequence[str]) -> Floor:
    """Hold the rows of a side against every floor, test set by test set."""
    named = [key for key in by if key in rows]
    rows, floors = (part[["model", *named, *REPEATED, *MEASURED]].assign(everything=0) for part in (rows, floors))
    strongest = (-inf, "")
    worst = (inf, "")
    rooms = []
    for name in floors["model"].unique():
        floor = floors[floors["model"] == name]
        keys = ["everything", *(key for key in named if (floor[key] != "").any())]
        places = [*keys, *REPEATED]
        known = rows[[*places, *MEASURED]]
        known = mean_within(known, places) if known.duplicated(places).any() else known.sort_values(places)
        both = pd.concat([known, floor[[*known]]])
        known = known.assign(
            floor=_beside(both, len(known), keys), paired=_beside(both, len(known), [*keys, "unit"])
        ).dropna(subset=["floor"])
        known["gap"] = known["value"] - known["paired" if known["paired"].notna().all() else "floor"]
        test_sets: list[str] = [key for key in ("dataset", "metric") if key in keys] or ["everything"]
        for _, part in known.groupby(test_sets):
            score, line = part[["value", "floor"]].mean()
            gaps = part[[*places, *MEASURED]].assign(value=part["gap"])
            found = crossed_interval(strata(gaps))
            low = found.low if found.low > -inf else found.estimate  # one training, one unit: nothing to weigh it by
            strongest = max(strongest, (line, f"{name} {_number(line)}"))
            beside = f"{'not surely above ' * (score > line)}{name} {_number(line)}"
            worst = min(worst, (low, f"{describe(side)} {_number(score)}, {beside}"))
            rooms.append(score - line)
    return Floor(strongest[1], worst[0] > 0, worst[1], np.array(rooms or inf).mean())


def _beside(both: DataFrame, count: int, keys: list[str]) -> ndarray:
    """For each of the first rows what a floor, the others, has on average where it was measured, else NaN."""
    place = numbers_of(both, keys)
    return means_at(place[count:], both["value"].iloc[count:], len(place))[place[:count]]


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1.5 else f"{value:.1f}"
