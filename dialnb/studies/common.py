"""What the studies share: which data a profile reads, how a model is scaled, and how tasks become rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from dialnb.data import Dataset, load
from dialnb.data.corpora import collection
from dialnb.data.levels import find as find
from dialnb.errors import DialnbError, Offline
from dialnb.evaluation.floors import WEIGHTINGS, Lexical
from dialnb.files import say
from dialnb.models.encoder import Encoder
from dialnb.studies.training import Job
from dialnb.training import TrainingSettings
from dialnb.training.recipes import get_recipe, scaled

# --- data -------------------------------------------------------------------------------------------------------------


def corpus(run) -> list[Dataset]:
    """The dialogue corpora of the profile: what is bundled, or a collection read from its sources."""
    name = run.settings.corpus
    if name == "bundled":
        return [load("bundled/dialogues")]
    return [load(part.dataset, part.variant) for part in collection(name) if part.paired]


# --- models -----------------------------------------------------------------------------------------------------------


def settings_for(s: Mapping[str, Any], recipe: str, **changes: Any) -> TrainingSettings:
    """The recipe's printed settings with the profile's changes; ``None`` leaves the printed value.

    The rates of a profile are those of DSE: the other recipes were printed with rates that move small encoders too.
    """
    own = {name: s[name] for name in ("batch_size", "max_steps", "precision", "chunk")}
    if recipe.startswith("DSE"):
        own |= {name: s[name] for name in ("learning_rate", "head_learning_rate")}
        own["epochs"] = s["dropout_epochs"] if recipe == "DSE-dropout" else s["epochs"]
    return scaled(get_recipe(recipe).settings, seed=s["seed"], **own | changes)


SHOWN = 8
"""Rows of a table of trainings that a notebook shows."""


def training_times(run, curves: pd.DataFrame, full: Callable[[str], float]) -> pd.DataFrame:
    """What each training took and, where it was cut short, how long all of ``full(model)`` epochs would take."""
    made = {stage.name.removeprefix("train "): stage.facts["training"][0] for stage in run.stages
            if stage.name.startswith("train ") and "training" in stage.facts}  # fmt: skip
    rows = []
    for model, curve in curves.groupby("model", sort=False):
        if model not in made:
            continue
        facts, last = made[model], curve.iloc[-1]
        steps = max(int(facts["steps"]), round(full(model) * last["step"] / last["epoch"]))
        each = facts["seconds"] / max(1, facts["steps"] - facts["resumed_at"])
        took = {"steps": facts["steps"], "minutes": facts["seconds"] / 60, "GPU memory (GB)": facts["peak_memory_gb"]}
        rows.append({"model": model, **took, "printed steps": steps, "projected hours": steps * each / 3600})
    times = run.keep("training-times", pd.DataFrame(rows).round(3))
    if len(times) > SHOWN:
        say(f"the first {SHOWN} of {len(times)} trainings; tables/training-times.csv has all of them")
    return times.head(SHOWN)


# --- tasks ------------------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """One table's evaluation: how its stages are called, the function, its data, and the settings it takes.

    ``only`` names the models of the printed table, where it has fewer than were trained. ``floors`` are what is reached
    without training, each with the function that asks it (None: the task's own).
    """

    table: str
    name: str
    function: Callable[..., pd.DataFrame]
    data: Callable[[str], dict[str, Dataset]]
    settings: tuple[str, ...]
    only: tuple[str, ...] = ()
    floors: tuple[tuple[str, Callable[..., pd.DataFrame] | None], ...] = ()


def evaluations(
    run, models: Mapping[str, Encoder], tasks: Iterable[Task]
) -> tuple[dict[str, Job], dict[tuple[str, str], list[str]]]:
    """The stages of every task, dataset and model, and their names by (table, model).

    Data that cannot be had becomes a reason in the task's table.
    """
    s, jobs, places = run.settings, {}, {}
    for task in tasks:
        try:
            sets = task.data(s.data)
        except Offline as error:
            run.not_run(task.table, reason=why(error))
            continue
        chosen = {key: getattr(s, key) for key in task.settings}
        for model in [name for name in models if not task.only or name in task.only]:
            for dataset, records in sets.items():
                name = f"{task.name}: {model} on {dataset}"
                jobs[name] = task.function, {"encoder": models[model], "records": records, "dataset": dataset, **chosen}
                places.setdefault((task.table, model), []).append(name)
    return jobs, places


def floor_jobs(
    s: Mapping[str, Any], tasks: Iterable[Task], pieces: Encoder
) -> tuple[dict[str, Job], dict[tuple[str, str], list[str]]]:
    """As `evaluations`, of the floors of every task; words are the ``pieces`` of an encoder, as far as models see them.

    The settings may also be those of a recorded run.
    """
    jobs, places = {}, {}
    for task, (floor, function) in [(each, floor) for each in tasks for floor in each.floors]:
        try:
            sets = task.data(s["data"])
        except Offline:
            continue
        chosen = {key: s[key] for key in task.settings}
        for dataset, records in sets.items():
            name = f"{task.name}: {floor} on {dataset}"
            words = Lexical(pieces, records, floor if floor in WEIGHTINGS else WEIGHTINGS[0])
            jobs[name] = function or task.function, {"encoder": words, "records": records, "dataset": dataset, **chosen}
            places.setdefault((task.table, floor), []).append(name)
    return jobs, places


def evaluate(
    run,
    models: Mapping[str, Encoder],
    tasks: Iterable[Task],
    more: Mapping[str, Job] | None = None,
    floors: Encoder | None = None,
) -> tuple[dict[tuple[str, str], pd.DataFrame], dict[str, Any]]:
    """Rows by (table, model) of every task, dataset and model; and the results of ``more`` stages by their names.

    All stages go out at once, so that no worker waits for a table to be complete. With an encoder for ``floors``, the
    floors of the tasks are among the models.
    """
    tasks = list(tasks)
    jobs, places = evaluations(run, models, tasks)
    for found, whole in zip(floor_jobs(run.settings, tasks, floors) if floors else (), (jobs, places)):
        whole |= found
    results = run.stage_each(dict(more or {}) | jobs)
    rows = {place: pd.concat([results[name] for name in names]) for place, names in places.items()}
    return rows, {name: results[name] for name in more or {}}


def rows_of(run, table: str) -> pd.DataFrame:
    """The rows of one table so far."""
    return run.results[run.results["table"] == table] if "table" in run.results else pd.DataFrame()


def summary(run, table: str, index: Sequence[str], columns: Sequence[str], **where: Any) -> pd.DataFrame:
    """Means over seeds of a table's rows, laid out by ``index`` and ``columns``, for what the paper does not print."""
    from dialnb.claims.papers import select

    rows = select(rows_of(run, table), where)
    if rows.empty:
        return pd.DataFrame()
    rows = rows.assign(**rows[[*index, *columns]].convert_dtypes())  # shots and candidates are whole numbers
    return rows.pivot_table("value", list(index), list(columns), sort=False).round(2)


def left_out(run, tables: Iterable[str], reason: str = "", **labels: str) -> None:
    """Say of whole tables, or of a model in them, that the profile leaves them out."""
    for table in tables:
        run.not_run(table, reason=reason or not_in(run), **labels)


def not_in(run) -> str:
    """The reason of what a profile leaves out, with the profile that has it."""
    larger = {"gpu": "; it runs with 'paper'", "paper": ""}.get(run.profile, "; it runs with 'gpu'")
    return f"left out of the {run.profile} profile to keep its time{larger}"


def why(error: DialnbError) -> str:
    """The first sentence of an error, as a reason in a table."""
    return str(error).splitlines()[0].split(". ")[0]
