"""The experiments of WMDC and DiaEval (Dialogue Representation Learning: A New Benchmark and Weighted Contrastive
Learning Approach).

Tables 2 to 4 ask DiaEval of every model; Figures 3 to 5 and the comparisons beyond the paper ask it of the points of
:mod:`dialnb.studies.wmdc_sweeps`; what is counted is in :mod:`dialnb.studies.wmdc_corpus`. The baselines are the stages
of the DSE study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dialnb import plots
from dialnb.claims.papers import FLOORS
from dialnb.data import Dataset
from dialnb.errors import DialnbError
from dialnb.evaluation import diaeval, geometry
from dialnb.evaluation.floors import chance_rows
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.projection import METHODS, project
from dialnb.examples.windows import WINDOWS, context_length
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.studies import common
from dialnb.studies import wmdc_sweeps as sweeps
from dialnb.studies.common import left_out, rows_of, settings_for, why
from dialnb.studies.figures import absent
from dialnb.studies.spaces import no_projection
from dialnb.studies.training import Job, training
from dialnb.studies.wmdc_corpus import corpus_tables, count_corpora, named_corpora
from dialnb.studies.wmdc_sweeps import FULL, PLAIN, TASKS, VARIANTS, wmdc_settings
from dialnb.training.recipes import get_recipe

ROWS = {
    "SimCSE-BERT-unsup": "SimCSE-unsup", "TOD-JNT-BERT": "TOD-BERT", "DSE-BERT": "DSE", "WMDC-BERT": "WMDC",
}  # fmt: skip
"""Recipes of the rows that start from the run's own encoder, whose raw row is "BERT"."""

SECOND = {"SimCSE-RoBERTa-unsup": "SimCSE-unsup", "DSE-RoBERTa": "DSE", "WMDC-RoBERTa": "WMDC"}
"""The same for the second encoder, whose raw row is "RoBERTa"."""

CHECKPOINTS = {
    "SimCSE-BERT-sup": "princeton-nlp/sup-simcse-bert-base-uncased",
    "SimCSE-RoBERTa-sup": "princeton-nlp/sup-simcse-roberta-base",
    "SimCSE-BERT-unsup (public)": "princeton-nlp/unsup-simcse-bert-base-uncased",
    "SimCSE-RoBERTa-unsup (public)": "princeton-nlp/unsup-simcse-roberta-base",
    "TOD-JNT-BERT (public)": "TODBERT/TOD-BERT-JNT-V1",
    "DSE-BERT (public)": "aws-ai/dse-bert-base",
    "DSE-RoBERTa (public)": "aws-ai/dse-roberta-base",
}
"""Public checkpoints by row; all are mean-pooled, as everything in DiaEval is."""

TABLES = ("T2", "T3", "T4")
SPACES = {"BERT": "raw encoder", PLAIN: "WMDC without weights", FULL: "WMDC"}
"""The models whose frequent utterances are drawn."""


class Trained(NamedTuple):
    """Models by the row they fill and their loss curves, points of the sweeps by name, encoders made from scratch by
    shape, and what was counted in the corpora."""

    models: dict[str, Encoder]
    points: dict[str, Encoder]
    scratch: dict[str, Encoder]
    curves: pd.DataFrame
    counted: dict[str, Any]


# --- training ---------------------------------------------------------------------------------------------------------


def model_jobs(s: Mapping[str, Any], encoder: Encoder, rows: Mapping[str, str], corpora: Sequence[Dataset]) -> dict:
    """The stages that train the table rows of one encoder, by row; baselines are the same stages as in DSE's study."""
    chosen = {row: recipe for row, recipe in rows.items() if recipe in s["models"]}
    settings = {
        row: wmdc_settings(s) if recipe == "WMDC" else settings_for(s, recipe) for row, recipe in chosen.items()
    }
    return {row: training(recipe, encoder, corpora, settings[row], s["dialogues"]) for row, recipe in chosen.items()}


def train_all(run, corpora: list[Dataset]) -> Trained:
    """Train the rows of T2 to T4 and the points of all sweeps side by side, and count the corpora meanwhile."""
    s, models = run.settings, {"BERT": load_encoder(run.settings.encoder)}
    points, scratch = sweeps.point_jobs(s, corpora), sweeps.scratch_jobs(s, corpora)
    wanted = model_jobs(s, models["BERT"], ROWS, corpora)
    try:
        if not s.second_encoder:
            raise DialnbError("needs the encoder roberta-base from the hub: profile 'paper'")
        models["RoBERTa"] = load_encoder(s.second_encoder)
        wanted |= model_jobs(s, models["RoBERTa"], SECOND, corpora)
    except DialnbError as error:
        for row in ("RoBERTa", *SECOND):
            left_out(run, TABLES, why(error), model=row)
    jobs = {f"pretrain {shape}": job for shape, job in scratch.items()}
    jobs |= {f"train {name}": job for name, job in (wanted | points).items()}
    count = count_corpora, {
        "corpora": named_corpora(s.corpus), "limit": s.count_dialogues, "rare": s.plot_rare,
        "draws": s.geometry_draws, "pairs": s.geometry_pairs,
    }  # fmt: skip
    made = run.stage_each(jobs | {"count the corpora": count})
    models |= {row: made[f"train {row}"]["encoder"] for row in wanted} | _checkpoints(run)
    for row, recipe in (ROWS | SECOND).items():
        if recipe not in s.models:
            left_out(run, TABLES, model=row)
    curves = [made[f"train {row}"]["curve"].assign(model=row) for row in wanted]
    return Trained(
        models, {name: made[f"train {name}"]["encoder"] for name in points},
        {shape: made[f"pretrain {shape}"]["encoder"] for shape in scratch},
        pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(), made["count the corpora"],
    )  # fmt: skip


def _checkpoints(run) -> dict[str, Encoder]:
    """The public checkpoints of the profile that can be had; the others say why not."""
    found = {}
    for row, hub in CHECKPOINTS.items():
        try:
            if row not in run.settings.checkpoints:
                raise DialnbError(f"public checkpoint {hub}: profile 'paper'")
            found[row] = load_encoder(hub, "mean")
        except DialnbError as error:
            left_out(run, TABLES, why(error), model=row)
    return found


def training_times(run, curves: pd.DataFrame) -> pd.DataFrame:
    """Time and memory of the table rows; where steps were cut, what all of them would take."""
    recipes = ROWS | SECOND
    own = curves[curves["model"].isin(recipes)] if len(curves) else curves
    return common.training_times(run, own, lambda row: get_recipe(recipes[row]).settings.epochs) if len(own) else own


# --- DiaEval ----------------------------------------------------------------------------------------------------------


def evaluate(run, corpora: list[Dataset], trained: Trained) -> None:
    """Fill T2 to T4, score every point of the sweeps, look at the spaces; larger encoders are trained meanwhile."""
    s = run.settings
    jobs, sizes = sweeps.size_jobs(run, corpora, trained.scratch)
    raw = trained.models["BERT"]
    rows, made = common.evaluate(run, trained.models | trained.points, TASKS, jobs | space_jobs(trained), raw)
    for (table, model), part in rows.items():
        if model in trained.models or model in FLOORS:
            kept = diaeval.printed_rows(part.assign(table=table))
            run.add(kept, model=model, encoder=_encoder_of(run, model))
    sweeps.add_points(run, corpora, sweeps.task_rows(rows, trained.points))
    add_geometry(run, made)
    sweeps.score_sizes(run, made, sizes)
    corpus_tables(run, trained.counted)
    retrieved = rows_of(run, "T4")
    run.add(chance_rows(retrieved[retrieved["model"] == "BERT"]))
    if s.data == "bundled":
        left_out(run, ["T2"], "DSTC2 and GSIM are not bundled: profile 'gpu'")


def _encoder_of(run, row: str) -> str:
    """The encoder that a row starts from: a checkpoint's own is the printed one."""
    if row in FLOORS:
        return "none"
    if row in CHECKPOINTS:
        return "roberta-base" if "RoBERTa" in row else "bert-base-uncased"
    return run.settings.second_encoder if "RoBERTa" in row else run.settings.encoder


def chosen_points(run) -> pd.DataFrame:
    """The penalty that validation chose for every probe, beyond what the paper prints."""
    rows = pd.concat([rows_of(run, "T2"), rows_of(run, "T3")])
    if rows.empty or "penalty" not in rows:
        return pd.DataFrame()
    own = rows[rows["protocol"].eq("paper") & rows["penalty"].notna()]
    return own.groupby(["dataset", "model"], sort=False)["penalty"].median().reset_index()


# --- shape of the space -----------------------------------------------------------------------------------------------


def geometry_of(encoder: Encoder, pairs: pd.DataFrame) -> pd.DataFrame:
    """Uniformity and anisotropy of distinct responses, alignment of responses with their contexts, in every draw."""
    rows, mark = [], f" {diaeval.separator_of(encoder)} "
    for draw, part in pairs.groupby("draw"):
        contexts, responses = [mark.join(said) for said in part["context"]], part["response"].tolist()
        before = encoder.encode(contexts, max_length=context_length(max(WINDOWS)), truncate="left")
        after, alone = (encoder.encode(texts, max_length=64) for texts in (responses, list(dict.fromkeys(responses))))
        values = {
            "Uniformity": geometry.uniformity(alone),
            "Anisotropy": geometry.anisotropy(alone),
            "Alignment": geometry.alignment(np.concatenate([before, after]), [*range(len(part))] * 2),
        }
        labels = {"task": "geometry", "dataset": "responses", "protocol": "clean", "n": len(alone)}
        rows += tidy_rows(values, seed=int(draw), **labels)
    return tidy_frame(rows)


def frequent_places(
    encoder: Encoder, frequent: list[str], rare: list[str], method: str, seed: int, shared: bool
) -> pd.DataFrame:
    """Frequent utterances and some that occur once, in a plane; with their texts where these may be ``shared``."""
    plane, half = project(encoder.encode([*frequent, *rare]), method, seed=seed), len(frequent) // 2
    labels = ["most frequent"] * half + ["frequent"] * (len(frequent) - half) + ["seen once"] * len(rare)
    return plane.assign(label=labels, text=[*frequent, *rare] if shared else "")


def space_jobs(trained: Trained) -> dict[str, Job]:
    """The stages of the geometry, for the models of the tables and for the weightings."""
    points = {name: trained.points[name] for name in (FULL, PLAIN, *VARIANTS) if name in trained.points}
    return {
        f"geometry: {name}": (geometry_of, {"encoder": model, "pairs": trained.counted["pairs"]})
        for name, model in (trained.models | points).items()
    }


def add_geometry(run, made: Mapping[str, Any]) -> None:
    """Rows of X-geometry; points with and without weights carry their ``weighting``."""
    for name, rows in made.items():
        model = name.removeprefix("geometry: ")
        if name.startswith("geometry: "):
            run.add(rows, table="X-geometry", model=model, weighting={FULL: "IRF", PLAIN: "none"}.get(model, ""))


def geometry_table(run) -> pd.DataFrame:
    """Uniformity, alignment and anisotropy of every model."""
    own = rows_of(run, "X-geometry")
    if own.empty:
        return own
    return own.pivot_table(index="model", columns="metric", values="value", sort=False).round(3).reset_index()


def geometry_figure(run):
    """Uniformity against alignment."""
    own = rows_of(run, "X-geometry").replace({"model": {FULL: "weighted", PLAIN: "unweighted"}})
    own = own[~own["model"].isin(VARIANTS)]
    data = own.pivot_table(index="model", columns="metric", values="value", sort=False).reset_index()
    return run.figure(
        "geometry", plots.uniformity_alignment, data=data.rename(columns=str.lower),
        caption="Uniformity of responses and alignment of responses with their contexts; \"weighted\" and "
        "\"unweighted\" are WMDC with windows 1 to 3, trained for as many steps as the points of the sweeps.",
        alt="Scatter plot of alignment against uniformity, one marker for each model.",
    )  # fmt: skip


def spaces_figure(run, trained: Trained, method: str):
    """Where frequent utterances lie, before and after training, with and without weights."""
    figure, s = f"frequent-{method}", run.settings
    if reason := no_projection(run, method):
        return absent(run, figure, reason)
    every = trained.models | trained.points
    shown = {shown: every[name] for name, shown in SPACES.items() if name in every}
    if FULL not in every and "WMDC-BERT" in every:
        shown["WMDC"] = every["WMDC-BERT"]
    frequent = list(trained.counted["frequencies"]["every"])[: s.plot_frequent]
    own = {"frequent": frequent, "rare": trained.counted["rare"], "method": method, "seed": s.seed,
           "shared": s.corpus == "bundled"}  # fmt: skip
    made = run.stage_each({f"{METHODS[method]} of frequent utterances: {name}":
                           (frequent_places, {"encoder": model, **own})
                           for name, model in shown.items()})  # fmt: skip
    frames = [frame.assign(model=name.rpartition(": ")[2]) for name, frame in made.items()]
    return run.figure(
        figure, plots.projection_panels, data=pd.concat(frames, ignore_index=True), grey=("seen once",), circles=(),
        title=f"{METHODS[method]} of frequent and rare utterances",
        caption=f"{METHODS[method]} of the most frequent utterances of the corpus among utterances that occur once.",
        alt="Scatter plots side by side, one for each model; frequent utterances in colour, rare ones grey.",
    )  # fmt: skip
