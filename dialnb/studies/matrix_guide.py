"""What a practitioner should pick for which task: one page, written by rules from the rows of the matrix.

The rules: a task's pick is the method with the best score. Methods whose paired difference to it has an interval that
reaches 0 are as good; where the raw encoder is among them, no training has shown its worth. Over all tasks the pick is
the best mean rank, and those within the critical difference cannot be told from it.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from dialnb.claims.ranks import friedman, nemenyi_difference, ranks_of
from dialnb.claims.rendering import render
from dialnb.evaluation.intervals import mean_interval
from dialnb.models.places import encoder_name
from dialnb.plots.ranks import groups_within
from dialnb.studies import matrix
from dialnb.studies.matrix import RAW, UMS

FILE = "guide.md"
"""Where a run keeps the page, and where the report looks for it."""


def picks(units: pd.DataFrame) -> pd.DataFrame:
    """For every task of units [(task, unit), method]: the best method, its gain over the raw encoder, and which others
    are as good."""
    lines = []
    for task, part in units.groupby(level="task", sort=False):
        part = part.dropna(axis=1)
        means = part.mean().sort_values(ascending=False, kind="stable")
        best = means.index[0]
        gaps = {name: mean_interval((part[best] - part[name]).to_numpy()) for name in means.index[1:]}
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
    return pd.DataFrame(lines).set_index("task")


def cross_encoder(units: pd.DataFrame) -> list[dict[str, Any]]:
    """For every task that UMS answers: the best sentence encoder, the gap to it, and whether UMS is below the raw."""
    lines = []
    for task, part in units.dropna(subset=[UMS]).groupby(level="task", sort=False) if UMS in units else ():
        best = part.drop(columns=UMS).mean().idxmax()
        gaps = [mean_interval((part[UMS] - part[name]).to_numpy()) for name in (best, RAW)]
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


def order(scores: pd.DataFrame) -> dict[str, Any]:
    """The best mean rank over all tasks of scores [method, task], and who cannot be told from it; empty if too few."""
    methods, tasks = scores.shape
    if methods < 3 or tasks < 2:
        return {}
    means = ranks_of(scores).mean(axis=1).sort_values(kind="stable")
    best, groups = means.index[0], groups_within(means.to_dict(), nemenyi_difference(methods, tasks))
    return {
        "best": best,
        "rank": means[best],
        "near": next((group[1:] for group in groups if group[0] == best), ()),
        "p": friedman(scores)[1],
        "methods": methods,
        "tasks": tasks,
    }


def page(run) -> str:
    """The page as Markdown."""
    units, costs = matrix.units(run), run.rows("T4")
    seconds = costs[costs["column"] == matrix.ALONE].set_index("model")["value"].sort_values()
    return render(
        "guide.md.j2",
        "studies",
        order=order(matrix.scores(run)),
        picks=picks(units).reset_index().to_dict("records"),
        compared=cross_encoder(units),
        seconds=list(seconds.items()),
        settings=run.settings,
        encoder=encoder_name(run.settings.encoder),
    )


def guide(run):
    """The page, written into the run's folder and returned to be shown."""
    from IPython.display import Markdown

    text = page(run)
    (run.folder / FILE).write_text(text, encoding="utf-8")
    return Markdown(text)
