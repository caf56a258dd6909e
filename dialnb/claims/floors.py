"""Has a model learned? Its scores next to those of what learned nothing: chance, most frequent label, word overlap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from pandas import DataFrame

from dialnb.claims.evidence import MEASURED, REPEATED, describe, mean_within, strata
from dialnb.claims.intervals import crossed_interval
from dialnb.claims.papers import FLOORS, WORDS, Fields, select
from dialnb.files import as_list


@dataclass(frozen=True)
class Floor:
    """The strongest floor of a side's test sets with its score, whether the side is above every one of them, the two
    numbers where it is least so, and how far it is above them on average; passed where no floor was scored.

    `words` has the two scores where word overlap is better than the side and is no floor of it.
    """

    strongest: str = ""
    passed: bool = True
    numbers: str = ""
    room: float = inf
    words: str = ""


def floor_rows(results: DataFrame, where: Fields) -> DataFrame:
    """Rows of floors that stand for the same measurement; what a floor does not name, it does not depend on, and it has
    neither the encoder nor the method of a model."""
    named = {name: wanted for name, wanted in where.items() if name not in ("model", "table", "encoder", "method")}
    found = select(results, {"model": FLOORS} | {name: [*as_list(wanted), None] for name, wanted in named.items()})
    here = select(found, {"table": where["table"]}) if "table" in where else found
    return here if len(here) else found.drop_duplicates([name for name in found if name not in ("table", "value")])


def floor_of(rows: DataFrame, floors: DataFrame, side: Fields, by: Sequence[str], for_task: np.ndarray) -> Floor:
    """Hold the rows of a side against every floor, test set by test set; against word overlap only those of what was
    trained `for_task`."""
    who = describe(side)
    lines, doubts, rooms, better = [], [], [], [""]
    for name, floor in floors.groupby("model"):
        keys = [key for key in by if key in rows and (floor[key] != "").any()]
        for score, line, low in against(rows[for_task] if name in WORDS else rows, floor, keys):
            words = f"{name} {_number(line)}"
            lines.append((line, words))
            doubts.append((low, f"{who} {_number(score)}, {'not surely above ' * (score > line)}{words}"))
            rooms.append(score - line)
        if name in WORDS and len(others := beside(scored(rows[~for_task], keys), floor, keys)):
            score, line = others[["value", "floor"]].mean()
            better += [f"{name} {_number(line)}, {who} {_number(score)}"] if line > score else []
    if not lines:
        return Floor(words=max(better))
    low, numbers = min(doubts)
    return Floor(max(lines)[1], low > 0, numbers, float(np.mean(rooms)), max(better))


def against(rows: DataFrame, floor: DataFrame, keys: list[str]) -> Iterator[tuple[float, float, float]]:
    """For each test set the score of a side, that of a floor, and the lower end of the interval of what is between."""
    known = beside(scored(rows, keys), floor, keys)
    paired = beside(known.drop(columns="floor"), floor, [*keys, "unit"])
    known["gap"] = known["value"] - (paired if len(paired) == len(known) else known)["floor"]
    places = [key for key in ("dataset", "metric") if key in keys]
    for _, part in known.groupby(places or (lambda _: 0)):
        score, line = part[["value", "floor"]].mean()
        found = crossed_interval(strata(part[[*keys, *REPEATED, *MEASURED]].assign(value=part["gap"])))
        yield score, line, found.low if found.low > -inf else found.estimate  # of one value there is no interval


def scored(rows: DataFrame, keys: list[str]) -> DataFrame:
    """What a side scored at each of its units in the places that a floor tells apart."""
    return mean_within(rows, [*keys, *REPEATED])


def beside(known: DataFrame, floor: DataFrame, keys: list[str]) -> DataFrame:
    """Scores with what a floor has there on average in the column `floor`, as far as it was measured there."""
    if not keys:
        return known.assign(floor=floor["value"].mean())
    means = floor.groupby(keys, as_index=False)["value"].mean().rename(columns={"value": "floor"})
    return known.merge(means, on=keys)


def _number(value: Any) -> str:
    return f"{value:.3f}" if abs(value) < 1.5 else f"{value:.1f}"
