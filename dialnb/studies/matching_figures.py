"""DialogueCSE over its settings (T3, T4, Figures 2 and 3, and beyond the paper), its drawings and its spaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from dialnb import plots
from dialnb.data import load
from dialnb.data.records import MatchingGroup
from dialnb.errors import DataError
from dialnb.evaluation.projection import METHODS
from dialnb.examples.matching import build_groups, matching_examples, neighbours, sessions
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.studies.common import left_out, rows_of, summary
from dialnb.studies.dialoguecse import BASELINES, Trained, encoder_name, instead, matching_jobs
from dialnb.studies.figures import absent
from dialnb.studies.matching import Matching, geometry_of, matching_of, plane_of, sweep_point
from dialnb.studies.matching_data import FAMILIES, LENGTHS, count, dialogues_of, evaluation_of, families, min_turns
from dialnb.studies.matching_speed import bench_matching
from dialnb.studies.spaces import no_projection

OURS, SIAMESE = "DialogueCSE I2", "SiameseBERT-m"
COMPARED = ("BERT(adapt)-avg", SIAMESE, OURS)
CROWDED = ("Avg. GloVe embeddings", "BERT-CLS", "BERT-flow", "BERT-whitening", "BERT(adapt)-CLS")
"""Rows that the figure of uniformity and alignment leaves out to stay readable; their values are in the results."""


class Sweep(NamedTuple):
    """One setting that is varied: the table of its rows, which models, and where (None: every family)."""

    table: str
    setting: str
    values: str
    models: tuple[str, ...]
    families: tuple[str, ...] | None = None


SWEEPS = (
    Sweep("T3", "temperature", "temperatures", (OURS,), ("ECD",)),
    Sweep("T4", "negatives", "negative_counts", (OURS,), ("ECD",)),
    Sweep("F2", "turns", "turn_counts", (OURS, SIAMESE)),
    Sweep("F3", "dialogues", "dialogue_counts", (OURS, SIAMESE)),
    Sweep("X-sides", "sides", "sides", (OURS,)),
)


# --- sweeps -----------------------------------------------------------------------------------------------------------


def sweep(run, trained: Trained) -> None:
    """Every setting that the profile varies, one at a time; the main models of T2 are the point at its usual value."""
    jobs, places, with_models = {}, {}, {family for family, _, _ in trained.models}
    for one, family in [(each, family) for each in SWEEPS for family in each.families or families(run)]:
        values = run.settings[one.values]
        if not values or family not in with_models:
            continue
        usual = _usual(run, one, family)
        tests = {name: evaluation_of(run, name) for name in families(run)[family]}
        for model in one.models:
            for value in [value for value in values if value != usual and _possible(one, value, usual)]:
                name = f"{one.table}: {model} with {one.setting} {value}"
                matching = replace(Matching(model), **{one.setting: value})
                made = matching_jobs(run, trained.adapted, family, matching, name, sweep_point, tests=tests)
                jobs |= made
                places |= dict.fromkeys(made, (one, model, value, family))
            _add_usual(run, one, model, usual, FAMILIES[family])
    for name, rows in run.stage_each(jobs).items():
        one, model, value, family = places[name]
        rows = rows[rows["protocol"] == "paper"]
        labels = {"model": model, "encoder": encoder_name(run, family), one.setting: value}
        run.add(
            rows.assign(substitute=[instead(model, dataset) for dataset in rows["dataset"]], **labels), table=one.table
        )
    for one in SWEEPS:
        if rows_of(run, one.table).empty:
            left_out(run, [one.table])


def _usual(run, one: Sweep, family: str) -> Any:
    """The value of the main models; of the number of dialogues, all there are."""
    if one.setting != "dialogues":
        return getattr(Matching(), one.setting)
    found = run.stage(f"count {family}", count, corpora=dialogues_of(family, run.settings.data),
                      shortest=min_turns(family), characters=family == "ECD")  # fmt: skip
    return min(found["dialogues"], run.settings.dialogues or found["dialogues"])


def _possible(one: Sweep, value: Any, usual: Any) -> bool:
    return one.setting != "dialogues" or value < usual


def _add_usual(run, one: Sweep, model: str, usual: Any, datasets: tuple[str, ...]) -> None:
    rows = rows_of(run, "T2")
    rows = rows[(rows["model"] == model) & rows["dataset"].isin(datasets)]
    if len(rows):
        run.add(rows.assign(table=one.table, **{one.setting: usual}))


def draw_sweep(run, table: str):
    """F2 or F3: MAP and correlation over a setting, a panel for each evaluation set and metric."""
    (one,) = (one for one in SWEEPS if one.table == table)
    rows = rows_of(run, table)
    rows = rows[rows["metric"].isin(("MAP", "Corr"))] if len(rows) else rows
    if rows.empty or rows[one.setting].nunique() < 2:
        return absent(run, table, f"the {run.profile} profile varies no {one.setting}; 'gpu' does")
    panel = rows["dataset"] + " " + rows["metric"]
    data = rows.assign(panel=panel, seed=rows["train_seed"], at=rows[one.setting].astype(float)).sort_values("panel")
    named = {"turns": "context turns", "dialogues": "training dialogues"}[one.setting]
    return run.figure(
        table, plots.sweep, data=data[["panel", "model", "at", "seed", "value"]], x="at", line="model",
        panels="panel", x_label=named, y_label="score (%)", log_x=one.setting == "dialogues",
        title=f"Scores over the number of {named}",
        caption=f"MAP and correlation over the number of {named}; the band is the 95 % interval over training seeds.",
        alt=f"Line plots of score against the number of {named}, one line for each of two models.",
    )  # fmt: skip


def sides(run):
    """Beyond the paper: a context of both sides against what was said before alone."""
    table = summary(run, "X-sides", ["sides"], ["dataset", "metric"])
    return table if len(table) else absent(run, "X-sides", f"the {run.profile} profile compares no sides; 'gpu' does")


# --- drawings ---------------------------------------------------------------------------------------------------------


def example_group() -> MatchingGroup:
    """The first group of the bundled dialogues whose response and three context turns are short enough to draw."""
    found = sessions(load("bundled/SGD", split="train")[:300])
    for group in build_groups(found, 9):
        before, after = neighbours(group)
        said = [*before, *after, group.candidates[0]]
        if len(said) == 4 and after and all(5 <= len(text.split()) <= 9 and len(text) < 45 for text in said):
            return group
    raise DataError("no group of the bundled dialogues suits the drawing")


def architecture(run):
    """F1 with the shapes of one real example, under the run's encoder."""
    encoder, group = load_encoder(run.settings.encoder), example_group()
    before, after = neighbours(group)
    said = [*before[::-1], *after]
    roles = [*(f"u{i - len(before)}" for i in range(len(before))), *(f"u+{i + 1}" for i in range(len(after)))]
    texts = [*said, group.candidates[0], group.candidates[1]]
    data = pd.DataFrame({"role": [*roles, "response", "negative"], "text": texts})
    data = data.assign(tokens=encoder.tokenize(texts, 50).lengths, width=encoder.dim)
    return run.figure(
        "F1", plots.architecture, data=data, candidates=len(group.candidates),
        caption="Matching-guided embedding of a response, with the shapes of a real example: every context turn meets "
        "the response token by token; the result is compared with the response itself.",
        alt="Flow from context turns and response through one encoder to matching matrices, the context-aware "
        "response and the cosine with the response's own vector.",
    )  # fmt: skip


def heat_map(run, trained: Trained):
    """Beyond the paper: the matching matrix of a real dialogue, before and after training."""
    seed, group = run.settings.train_seeds[0], example_group()
    family = next((name for name in families(run) if (name, OURS, seed) in trained.models and name != "ECD"), None)
    if family is None:
        return absent(run, "matching", f"no {OURS} was trained on English dialogues, from which the example is taken")
    before, after = neighbours(group)
    models = {"adapted encoder": trained.adapted[family, seed], OURS: trained.models[family, OURS, seed]}
    inputs = {"turns": [*before[::-1], *after], "response": group.candidates[0]}
    frames = [run.stage(f"matching matrix: {name}", matching_of, encoder=encoder, **inputs).assign(model=name)
              for name, encoder in models.items()]  # fmt: skip
    return run.figure(
        "matching", plots.matching_matrices, data=pd.concat(frames, ignore_index=True),
        caption="Matching matrix of each context turn (rows) with the response (columns), before and after training; "
        "each panel has its own scale.",
        alt="Heat maps of token against token, a column for each context turn, a row for each model.",
    )  # fmt: skip


def bench(run) -> pd.DataFrame:
    """One step with the context encoded once and candidates together, against a loop over candidates."""
    row = run.stage("bench the matching", bench_step, encoder=load_encoder(run.settings.encoder),
                    groups=run.settings.bench_groups)  # fmt: skip
    return pd.DataFrame([row])


def bench_step(encoder: Encoder, groups: int) -> dict[str, float]:
    """Seconds of a step either way on bundled dialogues."""
    found = sessions(load("bundled/SGD", split="train")[:50])
    return bench_matching(encoder.eval(), matching_examples(encoder, build_groups(found)), groups)


# --- spaces -----------------------------------------------------------------------------------------------------------


def _shown(run, trained: Trained, family: str) -> dict[str, Encoder]:
    """The compared models of a family that were trained, first seed."""
    seed = run.settings.train_seeds[0]
    found = {"BERT(adapt)-avg": trained.adapted[family, seed]}
    return found | {name: encoder for (own, name, at), encoder in trained.models.items() if (own, at) == (family, seed)}


def _labelled(run, trained: Trained) -> list[tuple[str, str]]:
    """(family, evaluation set) of those with intents whose models were trained."""
    found = {family for family, _, _ in trained.models}
    return [(family, name) for family in families(run) for name in families(run)[family]
            if family in found and name != "ECD"]  # fmt: skip


def spaces(run, trained: Trained, method: str):
    """Sentences by intent in a plane, a row for each corpus with intents, a column for each model."""
    s, figure = run.settings, "spaces" if method == "tsne" else f"spaces-{method}"
    if reason := no_projection(run, method):
        return absent(run, figure, reason)
    shape = {"method": method, "intents": s.plot_intents, "points": s.plot_points, "seed": s.seed}
    jobs = {
        f"{METHODS[method]} of {name}: {model}": (plane_of, shape | {
            "encoder": encoder, "queries": evaluation_of(run, name)["queries"], "max_length": LENGTHS[name],
            "dataset": name})
        for family, name in _labelled(run, trained)
        for model, encoder in _shown(run, trained, family).items() if model in COMPARED
    }  # fmt: skip
    frames = [frame.assign(model=name.rpartition(": ")[2]) for name, frame in run.stage_each(jobs).items()]
    return run.figure(
        figure, plots.projection_panels, data=pd.concat(frames, ignore_index=True), rows="part",
        caption=f"{METHODS[method]} of test sentences by intent.",
        alt="Scatter plots of sentences coloured by intent, a column for each model and a row for each corpus.",
    )  # fmt: skip


def shape_of_spaces(run, trained: Trained):
    """Beyond the paper: uniformity and alignment of all models."""
    jobs = {}
    for family, name in _labelled(run, trained):
        queries, seed = evaluation_of(run, name)["queries"], run.settings.train_seeds[0]
        origins = {"raw": trained.raw[family], "adapted": trained.adapted[family, seed]}
        views = {row: (origins[origin], how) for row, (origin, how) in BASELINES.items()}
        views |= {row: (encoder, "mean") for row, encoder in _shown(run, trained, family).items() if row not in views}
        common = {"queries": queries, "max_length": LENGTHS[name], "dataset": name, "seed": seed}
        common |= {"sentences": run.settings.geometry_sentences, "flow_steps": run.settings.flow_steps}
        jobs |= {f"geometry: {row} on {name}": (geometry_of, common | {"encoder": encoder, "how": how})
                 for row, (encoder, how) in views.items()}  # fmt: skip
    for name, rows in run.stage_each(jobs).items():
        model, _, dataset = name.removeprefix("geometry: ").rpartition(" on ")
        family = next(own for own, names in FAMILIES.items() if dataset in names)
        run.add(rows.assign(model=model, encoder=encoder_name(run, family)), table="X-geometry")
    rows = rows_of(run, "X-geometry")
    rows = rows[~rows["model"].isin(CROWDED)]
    wide = rows.pivot_table("value", ["model", "dataset"], "metric", sort=False).reset_index()
    return run.figure(
        "geometry", plots.uniformity_alignment, data=wide, panels="dataset",
        caption="Uniformity and alignment by intent; the lower left corner is best.",
        alt="Scatter plot of alignment against uniformity, one marker for each model.",
    )  # fmt: skip
