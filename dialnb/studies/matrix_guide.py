"""What a practitioner should pick for which task: one page, written by rules from the rows of the matrix.

The rules, for every start of the run: a task's pick is the method with the best score. Methods whose paired difference
to it has an interval that reaches 0 are as good; where the raw encoder is among them, the advice is to do nothing. Over
all tasks the pick is the best mean rank, if its mean gain over the raw encoder is above 0, and those within the
critical difference cannot be told from it. Intervals are over trainings and test units. With one training there is
none to show, and test units alone decide.
"""

from math import isnan

import numpy as np
from pandas import DataFrame, Series

from dialnb.claims.ranks import friedman, nemenyi_difference, ranks_of
from dialnb.claims.rendering import render
from dialnb.evaluation.intervals import Interval, Stratum, crossed_interval
from dialnb.files import Values
from dialnb.plots.ranks import groups_within
from dialnb.studies import matrix
from dialnb.studies.matrix import RAW, UMS

FILE = "guide.md"
"""Where a run keeps the page, and where the report looks for it."""

COSTS = {"T1": "T4", "T6": "T9"}
"""By the table of scores, from the first start of a run and from the second, that of costs."""

STARTS = {"masked words": "A raw language model", "as it comes": "The encoder as it comes"}


def difference(gaps: Series) -> Interval:
    """Interval of the mean over tasks of paired differences [(task, training, unit)]."""
    tables = [part.unstack("seed").to_numpy() for _, part in gaps.groupby(level="task", sort=False)]
    return crossed_interval([Stratum(table, np.ones(table.shape[1]), 1 / len(tables)) for table in tables])


def picks(units: DataFrame) -> DataFrame:
    """For every task of units [(task, training, unit), method]: the best method, its gain over the raw encoder, and
    which others are as good."""
    lines = []
    for task, part in units.groupby(level="task", sort=False):
        part = part.dropna(axis=1)
        means = part.mean().sort_values(ascending=False, kind="stable")
        best = means.index[0]
        gaps = {name: difference(part[best] - part[name]) for name in means.index[1:]}
        equal = [name for name, gap in gaps.items() if gap.low <= 0]
        lines.append(
            {
                "task": task,
                "pick": best,
                "score": means[best],
                "gain": gaps.get(RAW),
                "equal": equal,
                "idle": RAW in (best, *equal),
            }
        )
    return DataFrame(lines).set_index("task")


def recommended(run, table: str) -> list[str]:
    """The methods that the page recommends from a start: for everything, then for single tasks."""
    found, overall = picks(matrix.units(run, table)), order(run, table)
    first = [overall["best"]] if overall.get("helps") else []
    return list(dict.fromkeys([*first, *found["pick"][~found["idle"]]]))


def order(run, table: str) -> Values:
    """The best mean rank over all tasks, who cannot be told from it, and its mean gain over the raw encoder (none of
    that encoder itself); empty if too few ran."""
    scores, units = matrix.scores(run, table), matrix.units(run, table)
    methods, tasks = scores.shape
    p = friedman(scores)[1]
    if isnan(p):
        return {}
    means = ranks_of(scores).mean(axis=1).sort_values(kind="stable")
    best, groups = means.index[0], groups_within(means.to_dict(), nemenyi_difference(methods, tasks))
    near = next((group[1:] for group in groups if group[0] == best), ())
    found = {
        "best": best,
        "rank": means[best],
        "near": near,
        "p": p,
        "methods": methods,
        "tasks": tasks,
    }
    if best != RAW:
        found["gain"] = difference((units[best] - units[RAW])[scores.columns.tolist()])
        found["helps"] = found["gain"].low > 0
    return found


def cross_encoder(units: DataFrame) -> list[Values]:
    """For every task that UMS answers: the best sentence encoder, the gap to it, and whether UMS is below the raw."""
    lines = []
    for task, part in units.dropna(subset=[UMS]).groupby(level="task", sort=False) if UMS in units else ():
        best = part.drop(columns=UMS).mean().idxmax()
        gaps = [difference(part[UMS] - part[name]) for name in (best, RAW)]
        lines.append(
            {
                "name": UMS,
                "task": task,
                "best": best,
                "gap": gaps[0],
                "untrained": gaps[1].high < 0,
            }
        )
    return lines


def page(run) -> str:
    """The page as Markdown."""
    parts = [_part(run, table) for table in COSTS if len(run.rows(table))]
    trainings = run.rows("T1")["train_seed"].nunique()
    return render("guide.md.j2", "studies", parts=parts, settings=run.settings, trainings=trainings)


def _part(run, table: str) -> Values:
    """What the page says of one start; rows without one are of an encoder as it comes."""
    rows, units, costs = run.rows(table), matrix.units(run, table), run.rows(COSTS[table])
    start = rows["start"].iloc[0] if "start" in rows else "as it comes"
    commands = run.facts.get("commands", {}).get(start, {})
    seconds = costs[costs["column"] == matrix.ALONE].groupby("model")["value"].mean().sort_values()
    return {
        "title": STARTS[start],
        "encoder": rows["encoder"].iloc[0],
        "order": order(run, table),
        "picks": picks(units).reset_index().to_dict("records"),
        "compared": cross_encoder(units),
        "seconds": list(seconds.items()),
        "commands": [(name, commands[name]) for name in recommended(run, table) if name in commands],
    }
