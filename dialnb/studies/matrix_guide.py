"""What a practitioner should pick for which task: one page, written by rules from the rows of the matrix.

The rules: a task's pick is the method with the best score. Methods whose paired difference to it has an interval that
reaches 0 are as good; where the raw encoder is among them, no training has shown its worth. Over all tasks the pick is
the best mean rank, and those within the critical difference cannot be told from it.
"""

from __future__ import annotations

import pandas as pd

from dialnb.claims.ranks import friedman, nemenyi_difference, ranks_of
from dialnb.evaluation.intervals import Interval, mean_interval
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
        gain = gaps.get(RAW)
        lines.append(
            {
                "task": task,
                "pick": best,
                "score": means[best],
                "gain": gain,
                "equal": equal,
            }
        )
    return pd.DataFrame(lines).set_index("task")


def guide(run):
    """The page, written into the run's folder and returned to be shown."""
    from IPython.display import Markdown

    text = page(run)
    (run.folder / FILE).write_text(text, encoding="utf-8")
    return Markdown(text)


def page(run) -> str:
    """The page as Markdown."""
    found = picks(matrix.units(run))
    lines = [_overall(run), "", "| task | pick | score | gain over raw | as good |", "|---|---|---:|---:|---|"]
    for task, row in found.iterrows():
        gain = _interval(row["gain"]) if row["gain"] is not None else "–"
        equal = ", ".join(row["equal"]) or "none"
        lines.append(f"| {task} | **{row['pick']}** | {row['score']:.1f} | {gain} | {equal} |")
    lines += ["", *(f"- {line}" for line in advice(run, found)), "", _scope(run)]
    return "\n".join(lines) + "\n"


def _overall(run) -> str:
    scores = matrix.scores(run)
    if scores.shape[0] < 3 or scores.shape[1] < 2:
        return "Too few methods or tasks were run to order them."
    means = ranks_of(scores).mean(axis=1).sort_values(kind="stable")
    p = friedman(scores)[1]
    if p > 0.05:
        return (
            f"**Over all {scores.shape[1]} tasks no order of the methods can be shown** (Friedman's test, p = {p:.2g})."
        )
    best, difference = means.index[0], nemenyi_difference(*scores.shape)
    near = next((group[1:] for group in groups_within(means.to_dict(), difference) if group[0] == best), ())
    apart = f"; {_and(near)} cannot be told from it" if near else ""
    return (
        f"**For one encoder that must do everything: {best}**, with the best mean rank over {scores.shape[1]} tasks "
        f"({means[best]:.1f} among {len(means)} methods; Friedman's test, p = {p:.2g}){apart}."
    )


def advice(run, found: pd.DataFrame) -> list[str]:
    """Sentences that follow from the table by rule."""
    idle = [task for task, row in found.iterrows() if RAW in (row["pick"], *row["equal"])]
    lines = [f"{_and(idle)}: no method could be shown to beat the raw encoder."] if idle else []
    trained = [task for task in found.index if task not in idle]
    for pick in found["pick"].unique():
        tasks = [task for task in trained if found.loc[task, "pick"] == pick]
        if tasks:
            lines.append(f"{pick} for {_and(tasks)}.")
    units = matrix.units(run)
    if UMS in units:
        for task, part in units.dropna(subset=[UMS]).groupby(level="task", sort=False):
            lines.append(f"{task}: {_cross_encoder(part)}")
    costs = run.rows("T4")
    seconds = costs[costs["column"] == matrix.ALONE].set_index("model")["value"].sort_values()
    if len(seconds) > 1:
        fastest = f"{seconds.index[0]} trains fastest ({seconds.iloc[0]:.0f} s with the device to itself)"
        lines.append(f"For equal tokens {fastest} and {seconds.index[-1]} slowest ({seconds.iloc[-1]:.0f} s).")
    return lines


def _cross_encoder(part: pd.DataFrame) -> str:
    """How UMS does on a task, beside the best sentence encoder."""
    others = part.drop(columns=UMS)
    best = others.mean().idxmax()
    gap = mean_interval((part[UMS] - others[best]).to_numpy())
    word = "better than" if gap.low > 0 else "worse than" if gap.high < 0 else "not told apart from"
    end = "; it must read every candidate with its context."
    if mean_interval((part[UMS] - part[RAW]).to_numpy()).high < 0:
        end = " and than the raw encoder, so this training was too short for it: no verdict on cross-encoders."
    return f"the cross-encoder {UMS} is {word} the best sentence encoder, {best} ({_interval(gap)}){end}"


def _scope(run) -> str:
    s = run.settings
    return (
        f"Read with care: one encoder (`{encoder_name(s.encoder)}`), one corpus (`{s.corpus}`), "
        f"{s.tokens / 1e6:g} million tokens for every method, one training of each; intervals are "
        "over draws and test items, not over trainings."
    )


def _interval(found: Interval) -> str:
    """+1.2 [+0.4, +2.0]"""
    return f"{found.estimate:+.1f} [{found.low:+.1f}, {found.high:+.1f}]".replace("-", "−")


def _and(names) -> str:
    """a, b and c"""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
