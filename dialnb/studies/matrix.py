"""The matrix that no paper has: every method from one encoder, on one corpus, with one budget, on every paper's tasks.

Rows of T1 hold a task's score in paired units (``seed``), as a mean over the datasets of the task; those of each
dataset are in X-datasets. T2 holds differences to the raw encoder, unit by unit, T3 ranks, T4 costs, T5 geometry.
"""

from __future__ import annotations

import pandas as pd

from dialnb import plots
from dialnb.claims.papers import FLOORS, select
from dialnb.claims.ranks import against_best, friedman, nemenyi_difference, ranks_of
from dialnb.studies import common
from dialnb.studies.common import Task, left_out, rows_of
from dialnb.studies.figures import absent
from dialnb.studies.matrix_models import RAW, UMS, Trained
from dialnb.studies.matrix_tasks import COLUMNS, GEOMETRY, Column, retrieval_data

TASKS = [column.name for column in COLUMNS]
MEAN = "Mean rank"
ALONE, PACE = "Seconds alone", "Tokens a second alone (thousands)"
NO_VECTORS = "a cross-encoder scores a reply together with its context and gives no vectors"


# --- scores -----------------------------------------------------------------------------------------------------------


def evaluate(run, trained: Trained) -> None:
    """Ask every method everything, and fill all tables."""
    s = run.settings
    chosen = [column for column in COLUMNS if column.name in s.tasks]
    jobs = {f"{column.task.name}: {UMS} on {name}": (column.task.function, inputs)
            for column in chosen for name, inputs in _lists(run, column, trained).items()}  # fmt: skip
    tasks, raw = [*(_task(run, column) for column in chosen), GEOMETRY], trained.models[RAW]
    rows, more = common.evaluate(run, trained.models, tasks, jobs, raw)
    found = {(table, model): part for (table, model), part in rows.items() if table != GEOMETRY.table}
    for column in chosen:
        own = [part for name, part in more.items() if name.startswith(f"{column.task.name}: ")]
        found |= {(column.name, UMS): pd.concat(own)} if own else {}
    for column in chosen:
        for model in [*trained.models, UMS, *FLOORS]:
            if (column.name, model) in found:
                _add_scores(run, column, model, found[column.name, model])
    add_gains(run)
    add_ranks(run)
    _add_costs(run, trained)
    for model in trained.models:
        means = rows[GEOMETRY.table, model].groupby("metric")["value"].mean()
        shown = pd.DataFrame({"column": means.index.str.capitalize(), "value": means.to_numpy(), "n": 0, "seed": 0})
        run.add(shown, table="T5", model=model, task="geometry", dataset="all", metric="geometry", protocol="clean")
    _say_what_is_missing(run)


def _task(run, column: Column) -> Task:
    """The task of a column; retrieval sets are rebuilt once, not by the stage of every method."""
    if column.task.data is not retrieval_data:
        return column.task
    pools = retrieval_data(run)
    return column.task._replace(data=lambda data: pools)


def _lists(run, column: Column, trained: Trained) -> dict[str, dict]:
    """Inputs of the selector's stages: the datasets of a task whose replies are listed."""
    if trained.selector is None or not column.lists:
        return {}
    s, parts = run.settings, {name: trained.selector[name] for name in ("encoder", "heads", "max_length")}
    shared = parts | {name: getattr(s, name) for name in column.task.settings}
    return {name: shared | {"records": records, "dataset": name} for name, records in column.task.data(s.data).items()}


def _add_scores(run, column: Column, model: str, rows: pd.DataFrame) -> None:
    """A task's scores of one method: those of every dataset, and their mean in every unit that all of them have."""
    where = dict(column.where) | ({"shots": max(run.settings.shots)} if column.shots else {})
    own = select(rows, where)[["dataset", "metric", "seed", "value", "n"]].assign(task=column.name, protocol="paper")
    start = {"encoder": "none"} if model in FLOORS else {}
    run.add(own, table="X-datasets", model=model, **start)
    wide = own.pivot_table("value", "seed", "dataset").dropna()
    means = pd.DataFrame({"seed": wide.index, "value": wide.mean(axis=1).to_numpy()})
    items = int(own.groupby("dataset")["n"].max().sum())
    labels = {"task": column.name, "column": column.name, "dataset": "all", "metric": column.where["metric"]}
    labels |= start
    run.add(means.assign(n=items), table="T1", model=model, protocol="paper", **labels)


def _methods(run, table: str) -> pd.DataFrame:
    """The rows of a table that are no floors: these have neither gains nor ranks."""
    rows = rows_of(run, table)
    return rows[~rows["model"].isin(FLOORS)]


def units(run) -> pd.DataFrame:
    """Scores of T1 as [(task, unit), method]."""
    rows = _methods(run, "T1")
    return rows.pivot_table("value", ["task", "seed"], "model", sort=False)


def scores(run) -> pd.DataFrame:
    """Scores [method, task] of the methods that answer every task, in the order of T1."""
    means = _methods(run, "T1").pivot_table("value", "model", "task", sort=False)
    return means.dropna()


def add_gains(run) -> None:
    """T2: every method minus the raw encoder, in every unit."""
    found = units(run)
    gaps = found.drop(columns=RAW).sub(found[RAW], axis=0)
    rows = gaps.stack().rename("value").reset_index()
    run.add(rows.assign(column=rows["task"], n=0), table="T2", dataset="all", metric="gain", protocol="paper")


def add_ranks(run) -> None:
    """T3: ranks by task and their mean; X-ranks: mean ranks where every dataset counts as a task of its own."""
    labels = {"dataset": "all", "metric": "rank", "protocol": "paper", "seed": 0, "n": 0}
    for table, found in (("T3", scores(run)), ("X-ranks", dataset_scores(run))):
        ranks = ranks_of(found)
        long = ranks.assign(**{MEAN: ranks.mean(axis=1)}).rename_axis("model").reset_index()
        rows = long.melt("model", var_name="column", value_name="value")
        kept = rows if table == "T3" else rows[rows["column"] == MEAN]
        run.add(kept.assign(task=kept["column"], **labels), table=table)


def dataset_scores(run) -> pd.DataFrame:
    """Scores [method, task on a dataset], of the methods that answer all."""
    own = _methods(run, "X-datasets")
    own = own.assign(task=own["task"] + " " + own["dataset"].astype(str))
    return own.pivot_table("value", "model", "task", sort=False).dropna()


def _add_costs(run, trained: Trained) -> None:
    """T4: what every training took."""
    told = trained.costs.assign(tokens=trained.costs["tokens"] / 1e3)
    names = {"steps": "Steps", "tokens": "Tokens (thousands)", "seconds": "Seconds", "memory": "GPU memory (GB)"}
    if "seconds alone" in told:
        told["tokens a second"] /= 1e3
        names |= {"seconds alone": ALONE, "tokens a second": PACE}
    else:
        for column in (ALONE, PACE):
            left_out(run, ("T4",), column=column)
    rows = told.rename(columns=names).melt("model", var_name="column", value_name="value")
    run.add(rows.assign(n=0, seed=0), table="T4", task="cost", dataset="all", metric="cost", protocol="paper")


def _say_what_is_missing(run) -> None:
    left_out(run, ("T2", "T4"), "nothing is trained: it is what the others are compared with", model=RAW)
    for table in ("T1", "T2", "T3", "T5"):
        left_out(run, (table,), NO_VECTORS, model=UMS)
    for floor in FLOORS:
        left_out(run, ("T1",), "the floor of other tasks", model=floor)
    for task in TASKS:
        if task not in run.settings.tasks:
            left_out(run, ("T1", "T2", "T3"), column=task)


# --- what it is made of -----------------------------------------------------------------------------------------------


def columns_table(run) -> pd.DataFrame:
    """Every task: the paper that asks it, the data behind it here, the metric, and how many items and units it has."""
    own, lines = rows_of(run, "X-datasets"), []
    for column in COLUMNS:
        rows = own[own["task"] == column.name]
        if len(rows):
            sizes = rows.groupby("dataset", sort=False)["n"].max()
            lines.append({"task": column.name, "paper": column.paper, "data": ", ".join(sizes.index),
                          "metric": column.where["metric"], "test items": int(sizes.sum()),
                          "units": rows["seed"].nunique()})  # fmt: skip
    return pd.DataFrame(lines).set_index("task")


def datasets_table(run) -> pd.DataFrame:
    """Scores of every dataset, which T1 averages within a task."""
    return common.summary(run, "X-datasets", ["task", "dataset"], ["model"])


# --- ranks ------------------------------------------------------------------------------------------------------------


def rank_figure(run):
    """F1: mean ranks, and which methods cannot be told apart."""
    found = scores(run)
    methods, tasks = found.shape
    if methods < 3 or tasks < 2:
        return absent(run, "F1", f"ranks of {methods} methods on {tasks} tasks say nothing: three and two are needed")
    statistic, p = friedman(found)
    return run.figure(
        "F1", plots.critical_difference, data=_long_ranks(found), difference=nemenyi_difference(methods, tasks),
        caption=f"Mean ranks of {methods} methods over {tasks} tasks. A bar joins methods whose mean ranks differ by "
        f"less than the critical difference of Nemenyi's test at 5 %. Friedman's statistic {statistic:.1f}, "
        f"p = {p:.2g}.",
        alt="Mean ranks of the methods on a line; horizontal bars join those that cannot be told apart.",
    )  # fmt: skip


def grid_figure(run):
    """F2: the rank of every method on every task."""
    return run.figure(
        "F2", plots.rank_grid, data=_long_ranks(scores(run)),
        caption="Rank of every method on every task, the best mean rank on top; the best of each task is bold.",
        alt="A grid of ranks, methods as rows and tasks as columns, darker where the rank is better.",
    )  # fmt: skip


def _long_ranks(found: pd.DataFrame) -> pd.DataFrame:
    long = ranks_of(found).rename_axis("method").reset_index()
    return long.melt("method", var_name="task", value_name="rank")


def best_against_others(run) -> pd.DataFrame:
    """Is the best mean rank better than each of the others? Over tasks; beside it, the mean rank over all datasets."""
    others = rows_of(run, "X-ranks").set_index("model")["value"].rename("mean rank over datasets")
    return against_best(scores(run)).join(others).round(3)


def geometry_figure(run):
    """F3: uniformity against alignment."""
    data = rows_of(run, "T5").pivot_table("value", "model", "column", sort=False).rename(columns=str.lower)
    return run.figure(
        "F3", plots.uniformity_alignment, data=data.reset_index(),
        caption="Uniformity and alignment of the test utterances of the intent datasets; lower is better for both.",
        alt="Scatter plot of alignment against uniformity, one marker for each method.",
    )  # fmt: skip
