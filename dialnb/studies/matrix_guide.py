"""What a practitioner should pick for which task: one page, written by rules from the rows of the matrix.

The rules, for every start of the run: a task's pick is the method with the best score. Methods whose paired difference
to it has an interval that reaches 0 are as good; where the raw encoder is among them, the advice is to do nothing. Over
all tasks the pick is the best mean rank, if its mean gain over the raw encoder is above 0, and those within the
critical difference cannot be told from it. Intervals are over trainings and test units. With one training there is
none to show, and test units alone decide.
"""

from __future__ import annotations

from math import isnan

import numpy as np
import pandas as pd

from dialnb.claims.ranks import friedman, nemenyi_difference, ranks_of
from dialnb.evaluation.intervals import Interval, Stratum, crossed_interval
from dialnb.plots.ranks import groups_within
from dialnb.studies import matrix
from dialnb.studies.matrix import RAW, UMS

FILE = "guide.md"
"""Where a run keeps the page, and where the report looks for it."""

COSTS = {"T1": "T4", "T6": "T9"}
"""By the table of scores, from the first start of a run and from the second, that of costs."""

STARTS = {"masked words": "A raw language model", "as it comes": "The encoder as it comes"}


def difference(gaps: pd.Series) -> Interval:
    """Interval of the mean over tasks of paired differences [(task, training, unit)]."""
    tables = [part.unstack("seed").to_numpy() for _, part in gaps.groupby(level="task", sort=False)]
    return crossed_interval([Stratum(table, np.ones(table.shape[1]), 1 / len(tables)) for table in tables])


def picks(units: pd.DataFrame) -> pd.DataFrame:
    """For every task of units [(task, training, unit), method]: the best method, its gain over the raw encoder, and
    which others are as good."""
    lines = []
    for task, part in units.groupby(level="task", sort=False):
        part = part.dropna(axis=1)
        means = part.mean().sort_values(ascending=False, kind="stable")
        best = means.index[0]
        gaps = {name: difference(part[best] - part[name]) for name in means.index[1:]}
        equal = [name for name, gap in gaps.items() if gap.low <= 0]
        lines.append([task, best, means[best], gaps.get(RAW), equal, RAW in (best, *equal)])
    return pd.DataFrame(lines, columns=["task", "pick", "score", "gain", "equal", "idle"]).set_index("task")


def recommended(run, table: str) -> list[str]:
    """The methods that the page recommends from a start: for everything, then for single tasks."""
    found = picks(matrix.units(run, table))
    names = [_overall(run, table)[0], *found["pick"][~found["idle"]]]
    return list(dict.fromkeys(filter(None, names)))


def page(run) -> str:
    """The page as Markdown."""
    return "\n\n".join([*(_part(run, table) for table in COSTS if len(run.rows(table))), _scope(run)]) + "\n"


def _part(run, table: str) -> str:
    """What to pick from one start; rows without one are of an encoder as it comes."""
    rows, found = run.rows(table), picks(matrix.units(run, table))
    start = rows["start"].iloc[0] if "start" in rows else "as it comes"
    lines = [f"### {STARTS[start]}: `{rows['encoder'].iloc[0]}`", "", _overall(run, table)[-1], ""]
    lines += ["| task | pick | score | gain over raw | as good |", "|---|---|---:|---:|---|"]
    for task, row in found.iterrows():
        pick = f"**do nothing** ({row['pick']} is first)" if row["idle"] else f"**{row['pick']}**"
        gain = "–" if row["gain"] is None else _interval(row["gain"])
        lines.append(f"| {task} | {pick} | {row['score']:.1f} | {gain} | {', '.join(row['equal']) or 'none'} |")
    lines += ["", *(f"- {line}" for line in advice(run, found, table))]
    commands = run.facts.get("commands", {}).get(start, {})
    made = [f"# {name}\n{commands[name]}" for name in recommended(run, table) if name in commands]
    return "\n".join(lines + ["", "```sh", *made, "```"] * bool(made))


def _overall(run, table: str) -> tuple[str, str]:
    """The method with the best mean rank over all tasks, if it helps, and that in words."""
    scores, units = matrix.scores(run, table), matrix.units(run, table)
    p = friedman(scores)[1]
    if isnan(p):
        return "", "Too few methods or tasks were run to order them."
    means = ranks_of(scores).mean(axis=1).sort_values(kind="stable")
    best = means.index[0]
    groups = groups_within(means.to_dict(), nemenyi_difference(*scores.shape))
    near = next((group[1:] for group in groups if group[0] == best), ())
    apart = f"; {_and(near)} cannot be told from it" if near else ""
    place = (
        f"the best mean rank over {scores.shape[1]} tasks ({means[best]:.1f} among {len(means)} methods; Friedman's "
        f"test, p = {p:.2g}{': no order of the methods can be shown' if p > 0.05 else ''}){apart}"
    )
    ask = "**For one encoder that must do everything:"
    if best == RAW:
        return "", f"{ask} do nothing.** The raw encoder has {place}."
    gain = difference((units[best] - units[RAW])[scores.columns.tolist()])
    mean = f"mean gain over the raw encoder is {_interval(gain)}"
    if gain.low > 0:
        return best, f"{ask} {best}**, with {place}. Its {mean}."
    return "", f"{ask} do nothing.** {best} has {place}, but its {mean}, which may be none."


def advice(run, found: pd.DataFrame, table: str = "T1") -> list[str]:
    """Sentences that follow from the table by rule."""
    idle = found.index[found["idle"]]
    lines = [f"Do nothing for {_and(idle)}: no method could be shown to beat the raw encoder."] if len(idle) else []
    for pick, rows in found[~found["idle"]].groupby("pick", sort=False):
        lines.append(f"{pick} for {_and(rows.index)}.")
    units = matrix.units(run, table)
    if UMS in units:
        for task, part in units.dropna(subset=[UMS]).groupby(level="task", sort=False):
            lines.append(f"{task}: {_cross_encoder(part)}")
    costs = run.rows(COSTS[table])
    seconds = costs[costs["column"] == matrix.ALONE].groupby("model")["value"].mean().sort_values()
    if len(seconds) > 1:
        fastest = f"{seconds.index[0]} trains fastest ({seconds.iloc[0]:.0f} s with the device to itself)"
        lines.append(f"For equal tokens {fastest} and {seconds.index[-1]} slowest ({seconds.iloc[-1]:.0f} s).")
    return lines


def _cross_encoder(part: pd.DataFrame) -> str:
    """How UMS does on a task, beside the best sentence encoder."""
    others = part.drop(columns=UMS)
    best = others.mean().idxmax()
    gap = difference(part[UMS] - others[best])
    word = "better than" if gap.low > 0 else "worse than" if gap.high < 0 else "not told apart from"
    end = "; it must read every candidate with its context."
    if difference(part[UMS] - part[RAW]).high < 0:
        end = ", and worse than the raw encoder, so this training was too short for it: no verdict on cross-encoders."
    return f"the cross-encoder {UMS} is {word} the best sentence encoder, {best}: {_interval(gap)}{end}"


def _scope(run) -> str:
    return (
        f"Read with care: one corpus (`{run.settings['corpus']}`), {run.settings['tokens'] / 1e6:g} million tokens for "
        f"every method, trainings of each: {run.rows('T1')['train_seed'].nunique()}. What is *as good* is told by "
        "paired intervals over draws, test items and, where there are several, trainings."
    )


def _interval(found: Interval) -> str:
    """+1.2 [+0.4, +2.0], where there are several trainings."""
    bounds = f"[{found.low:+.1f}, {found.high:+.1f}]" if found.trainings > 1 else "(one training: no interval)"
    return f"{found.estimate:+.1f} {bounds}".replace("-", "−")


def _and(names) -> str:
    """a, b and c"""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
