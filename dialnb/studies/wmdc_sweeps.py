"""The points of WMDC's Figures 3 to 5 and of what goes beyond the paper: windows, weights, size of the encoder and of
the corpus. Every point is a model of its own, scored by the three tasks of DiaEval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dialnb import plots
from dialnb.data import Dataset
from dialnb.errors import DialnbError
from dialnb.evaluation import diaeval
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.places import encoder_name
from dialnb.studies import common
from dialnb.studies.common import Task, rows_of, settings_for, why
from dialnb.studies.figures import absent
from dialnb.studies.training import Job, pretraining, training
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import SHAPES
from dialnb.training.recipes import wmdc

WEIGHTINGS = {"IRF": "irf", "none": None}
VARIANTS = {
    "inverse square root": ("WMDC, inverse square root", {}),
    "duplicates masked": ("WMDC, masked", {}),
    "weights normalised": ("WMDC", {"normalise_weights": True}),
    "window 3 alone": ("WMDC {3}", {}),
}
"""Other choices than the paper's, by name: recipe and options of the loss. All but the last have windows 1 to 3."""

FULL, PLAIN = "window 3, IRF", "window 3, none"
"""The points with windows 1 to 3, with and without weights."""

UNITS = "groups of test dialogues"
BAND = "The band is the 95 % interval over groups of test dialogues, without what all points share in a group."
TASKS = tuple(
    Task(
        test.table,
        f"{test.name} ({test.data.__name__.removesuffix('_data')})",
        test.function,
        test.data,
        test.settings,
        floors=(test.floor,),
    )
    for test in diaeval.BENCHMARK
)

HEAD = 40
"""The rate of the heads is forty times that of the encoder."""


# --- points -----------------------------------------------------------------------------------------------------------


def wmdc_settings(s: Mapping[str, Any], sweep: bool = False, recipe: str = "WMDC") -> TrainingSettings:
    """WMDC's settings in this profile; the points of a sweep may have fewer steps, all of them the same number."""
    rate = s["wmdc_learning_rate"]
    own = {"learning_rate": rate, "head_learning_rate": rate and HEAD * rate, "epochs": s["wmdc_epochs"]}
    if sweep and s["sweep_steps"]:
        own["max_steps"] = s["sweep_steps"]
    return settings_for(s, recipe, **own)


def window_points(s: Mapping[str, Any]) -> dict[str, tuple[int, str, str]]:
    """Window, weighting and recipe of every point of F3; ``w`` stands for all windows from 1 to w."""
    return {
        f"window {w}, {name}": (w, name, wmdc(tuple(range(1, w + 1)), weighting).name)
        for w in s["windows"]
        for name, weighting in WEIGHTINGS.items()
    }


def nested(corpora: Sequence[Dataset], part: float, seed: int = 24) -> list[Dataset]:
    """``part`` of every corpus: the same dialogues are in every larger part."""
    found = []
    for records in corpora:
        order = np.random.default_rng(seed).permutation(len(records))
        found.append(records.take(order[: max(1, round(part * len(records)))]))
    return found


def fractions(s: Mapping[str, Any], corpora: Sequence[Dataset]) -> dict[str, list[Dataset]]:
    """The corpora of every point of F5, nested in each other; the whole is what the profile trains on."""
    every = sum(map(len, corpora))
    whole = min(1.0, s["dialogues"] / every) if s["dialogues"] else 1.0
    return {f"corpus {part:g}": nested(corpora, part * whole) for part in s["fractions"]}


def point_jobs(s: Mapping[str, Any], corpora: Sequence[Dataset]) -> dict[str, Job]:
    """The stages of all points that start from the run's encoder, by name."""
    encoder, jobs = load_encoder(s["encoder"]), {}
    for name, (_, _, recipe) in window_points(s).items():
        jobs[name] = training(recipe, encoder, corpora, wmdc_settings(s, True, recipe), s["dialogues"])
    for name in s["variants"]:
        recipe, options = VARIANTS[name]
        jobs[name] = training(recipe, encoder, corpora, wmdc_settings(s, True, recipe), s["dialogues"], options=options)
    for name, part in fractions(s, corpora).items():
        jobs[name] = training("WMDC", encoder, part, wmdc_settings(s, True))
    return jobs


def scratch_jobs(s: Mapping[str, Any], corpora: Sequence[Dataset]) -> dict[str, Job]:
    """The encoders of F4 that are made from scratch, all of them alike, the largest first; DSE's T10 shares them."""
    words = load_encoder(s["encoder"])
    shapes = sorted((size for size in s["sizes"] if size in SHAPES), key=list(SHAPES).index, reverse=True)
    return {shape: pretraining(shape, words, corpora, s["pretrain_epochs"], s["dialogues"], s["max_steps"], s["seed"])
            for shape in shapes}  # fmt: skip


def size_jobs(run, corpora: Sequence[Dataset], scratch: Mapping[str, Encoder]) -> tuple[dict[str, Job], dict[str, int]]:
    """The stages that train WMDC from each encoder of F4, and the parameters of each; hub encoders may be missing."""
    s, jobs, sizes = run.settings, {}, {}
    for name in s.sizes:
        try:
            raw = scratch[name] if name in SHAPES else load_encoder(name)
        except DialnbError as error:
            run.not_run("F4", model=encoder_name(name), reason=why(error))
            continue
        name = encoder_name(name)
        sizes[name] = sum(weights.numel() for weights in raw.transformer.parameters())
        jobs[f"train WMDC from {name}"] = training("WMDC", raw, corpora, wmdc_settings(s, True), s.dialogues)
    return jobs, sizes


def score_sizes(run, made: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Rows of F4."""
    models = {name: made[f"train WMDC from {name}"]["encoder"] for name in sizes}
    if models:
        rows, _ = common.evaluate(run, models, TASKS)
        found = task_rows(rows, models)
        run.add(found.assign(parameters=found["model"].map(sizes), encoder=found["model"]), table="F4")


def add_points(run, corpora: Sequence[Dataset], rows: pd.DataFrame) -> None:
    """Rows of F3, F5 and X-weights from the scores of all points, each with what it stands for."""
    s, windows = run.settings, window_points(run.settings)
    if rows.empty:
        return
    told = rows[rows["model"].isin(windows)]
    if len(told):
        window, weighting = (told["model"].map({name: facts[i] for name, facts in windows.items()}) for i in (0, 1))
        run.add(told.assign(window=window, weighting=weighting), table="F3")
    sizes = {name: sum(len(part.column("utterances.speaker")) for part in parts)
             for name, parts in fractions(s, corpora).items()}  # fmt: skip
    told = rows[rows["model"].isin(sizes)]
    if len(told):
        run.add(told.assign(utterances=told["model"].map(sizes)), table="F5")
    told = rows[rows["model"].isin([FULL, PLAIN, *VARIANTS])]
    if len(told):
        run.add(told, table="X-weights")


# --- scores -----------------------------------------------------------------------------------------------------------


def task_rows(rows: Mapping[tuple[str, str], pd.DataFrame], names: Iterable[str]) -> pd.DataFrame:
    """One score per task, model and group of test dialogues, as Figures 3 to 5 show them."""
    found = []
    for name in names:
        parts = [part.assign(table=table) for (table, model), part in rows.items() if model == name]
        if parts:
            found.append(task_scores(pd.concat(parts, ignore_index=True)).assign(model=name))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["value", "model"])


SCORES = {"T2": ("action prediction", "Micro-F1"), "T3": ("dialogue inference", "Accuracy"),
          "T4": ("response retrieval", "Top-3")}  # fmt: skip
"""What the ablation of the paper averages: micro-F1, accuracy and TOP@3."""


def task_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """The score of each task: its metric, averaged over its datasets, for every group of test dialogues."""
    kept = diaeval.printed_rows(rows)
    kept = kept[kept["protocol"] == "paper"]
    found = []
    for table, (task, metric) in SCORES.items():
        part = kept[(kept["table"] == table) & (kept["metric"] == metric)]
        values = part.groupby("seed").agg(value=("value", "mean"), n=("n", "sum")).reset_index()
        found.append(values.assign(task=task, metric=metric, dataset="DiaEval", protocol="paper"))
    return pd.concat(found, ignore_index=True)


def average_of_tasks(rows: pd.DataFrame) -> pd.DataFrame:
    """The three scores and their mean as a fourth ``task``, for the figures."""
    keys = [name for name in rows if name not in ("task", "metric", "value", "n")]
    mean = rows.groupby(keys, dropna=False)["value"].mean().reset_index().assign(task="average of the three")
    return pd.concat([rows, mean], ignore_index=True)


def without_shared(rows: pd.DataFrame) -> pd.DataFrame:
    """Scores without what all points share in a group of test dialogues, since some groups are harder than others.

    Intervals then show how sure the differences between points are; means stay as they are.
    """
    shared = rows.groupby(["task", "seed"])["value"].transform("mean") - rows.groupby("task")["value"].transform("mean")
    return rows.assign(value=rows["value"] - shared)


# --- figures ----------------------------------------------------------------------------------------------------------


def _reason(run) -> str:
    return f"the {run.profile} profile has no time for sweeps; 'gpu' has"


def windows_figure(run):
    """F3: window size, with and without weights, on the three tasks and their mean."""
    rows = rows_of(run, "F3")
    if rows.empty or rows["window"].nunique() < 2:
        return absent(run, "F3", _reason(run))
    names = {"IRF": "with reweighting", "none": "without reweighting"}
    data = without_shared(average_of_tasks(rows[["task", "metric", "model", "window", "weighting", "seed", "value"]]))
    return run.figure(
        "F3", plots.sweep, data=data.assign(weighting=data["weighting"].map(names)), x="window", line="weighting",
        panels="task", log_x=False, x_label="largest window", title="Context windows, with and without reweighting",
        units=UNITS,
        caption="Scores of the three tasks (micro-F1, accuracy, Top-3) and their mean over the largest window, with "
        f"and without weights. {BAND}",
        alt="Four line plots of score against window size, each with a line with and one without reweighting.",
    )  # fmt: skip


def _scaling_figure(run, figure: str, x: str, what: str, title: str):
    """A score over a size, on a logarithmic axis."""
    label, rows = x, rows_of(run, figure)
    if rows.empty or rows[x].nunique() < 2:
        return absent(run, figure, _reason(run))
    data = without_shared(average_of_tasks(rows[["task", "metric", "model", x, "seed", "value"]]))
    millions = [float(f"{value / 1e6:.3g}") for value in data[x]]
    return run.figure(
        figure, plots.sweep, data=data.assign(**{x: millions}), x=x, panels="task", x_label=f"million {label}",
        title=title, units=UNITS, alt=f"Four line plots of score against the number of {label}.",
        caption=f"Scores of the three tasks and their mean over the {label} of the {what}. {BAND}",
    )  # fmt: skip


def sizes_figure(run):
    """F4: the size of the encoder."""
    return _scaling_figure(run, "F4", "parameters", "encoder", "Larger encoders")


def corpus_figure(run):
    """F5: the size of the corpus."""
    return _scaling_figure(run, "F5", "utterances", "corpus", "More dialogues")


def weights_table(run) -> pd.DataFrame:
    """Other weightings beyond the paper: one line a model, one column a task."""
    return common.summary(run, "X-weights", ["model"], ["task"])
