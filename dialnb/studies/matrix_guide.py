"""What a practitioner should pick for which task: one page, written by rules from the rows of the matrix.

The rules, for every start of the run: a task's pick is the method with the best score. Methods whose paired difference
to it has an interval that reaches 0 are as good; where the raw encoder is among them, or a floor is above the pick, the
advice is to train nothing. Over all tasks the pick is the best mean rank, if its mean gain over the raw encoder is
above 0, and those within the critical difference cannot be told from it. Intervals are over trainings and test units.
With one training there is none to show, and test units alone decide.
"""

from math import isnan

import numpy as np
from pandas import DataFrame, Series

from dialnb.claims.intervals import Interval, Stratum, crossed_interval
from dialnb.claims.papers import FLOORS
from dialnb.claims.ranks import friedman, nemenyi_difference, ranks_of
from dialnb.claims.rendering import render
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
    return crossed_interval([Stratum([table], np.ones(table.shape[1]), 1 / len(tables)) for table in tables])


def picks(run, table: str) -> list[Values]:
    """For every task of a table: the best method, its gain over the raw encoder, which others are as good, and the
    floor that is above it, if any, with its score."""
    lines, rows = [], run.rows(table)
    floors = rows[rows["model"].isin(FLOORS)].groupby(["task", "model"])["value"].mean().sort_values()
    highest = {task: (name, value) for (task, name), value in floors.items()}
    for task, part in matrix.units(run, table).groupby(level="task", sort=False):
        part = part.dropna(axis=1)
        means = part.mean().sort_values(ascending=False, kind="stable")
        best = means.index[0]
        gaps = {name: difference(part[best] - part[name]) for name in means.index[1:]}
        equal = [name for name, gap in gaps.items() if gap.low <= 0]
        floor = highest.get(task)
        above = floor is not None and floor[1] > means[best]
        lines.append(
            {
                "task": task,
                "pick": best,
                "score": means[best],
                "gain": gaps.get(RAW),
                "equal": equal,
                "floor": floor if above else None,
                "idle": above or RAW in (best, *equal),
            }
        )
    return lines


def recommended(run, table: str) -> list[str]:
    """The methods that the page recommends from a start: for everything, then for single tasks."""
    overall = order(run, table)
    first = [overall["best"]] if overall.get("helps") else []
    return list(dict.fromkeys([*first, *(line["pick"] for line in picks(run, table) if not line["idle"])]))


def order(run, table: str) -> Values:
    """The best mean rank over all tasks, who cannot be told from it, and its mean gain over the raw encoder (none of
    that encoder itself); empty if too few ran."""
    scores, units = matrix.scores(run, table), matrix.units(run, table)
    methods, tasks = scores.shape
    p = friedman(scores)[1]
    if isnan(p):
        return {}
    means = ranks_of(scores).mean(axis=1).sort_values(kind="stable")
    best = means.index[0]
    groups = groups_within(means.to_dict(), nemenyi_difference(methods, tasks))
    found = {
        "best": best,
        "rank": means[best],
        "near": next((group[1:] for group in groups if group[0] == best), ()),
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
        gap, learned = (difference(part[UMS] - part[name]) for name in (best, RAW))
        lines.append(
            {
                "task": task,
                "best": best,
                "gap": gap,
                "untrained": learned.high < 0,
            }
        )
    return lines


def page(run) -> str:
    """The page as Markdown."""
    parts = [_part(run, table) for table in COSTS if len(run.rows(table))]
    trainings = run.rows("T1")["train_seed"].nunique()
    return render("guide.md.j2", "studies", parts=parts, settings=run.settings, trainings=trainings)


def _part(run, table: str) -> Values:
    """What the page says of one start."""
    rows, costs = run.rows(table), run.rows(COSTS[table])
    start = rows["start"].iloc[0]
    commands = run.facts.get("commands", {}).get(start, {})
    seconds = costs[costs["column"] == matrix.ALONE].groupby("model")["value"].mean().sort_values()
    return {
        "title": STARTS[start],
        "encoder": rows["encoder"].iloc[0],
        "order": order(run, table),
        "picks": picks(run, table),
        "compared": cross_encoder(matrix.units(run, table)),
        "seconds": list(seconds.items()),
        "commands": [(name, commands[name]) for name in recommended(run, table) if name in commands],
    }
