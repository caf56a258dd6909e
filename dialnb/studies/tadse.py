"""The experiments of TaDSE (Template-aware Dialogue Sentence Embeddings): its tables and what lies beyond them.

Every function takes the :class:`dialnb.runs.Run` of the notebook, does its work in cached stages and adds tidy rows to
the run's results; the notebook then shows ``run.table(...)``. Models are those of :mod:`dialnb.studies.tadse_models`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dialnb.claims.papers import load_paper
from dialnb.data import Dataset
from dialnb.studies import common
from dialnb.studies.common import left_out, summary
from dialnb.studies.figures import absent
from dialnb.studies.tadse_models import (
    ABLATED,
    ALIGNED,
    LOSSES,
    ORDERED,
    PAIR,
    VARIANTS,
    Model,
    best,
    entities,
    one,
    order_name,
    orders,
    single,
    sources,
    template_settings,
)
from dialnb.studies.templates import compressed_of, majority_of, neighbours_of, score_epochs, space_of
from dialnb.studies.training import Job
from dialnb.training.recipes import TADSE

ITEMISED = ("T3", "T4", "T5", "F6")
"""Tables whose test utterances are kept one by one."""

FLOORED = ("T3", "T4", "T5")
"""Tables that show what the most frequent intent reaches."""

RATIOS = (0.1, 0.2, 0.5)
"""The coefficients of compression that the paper chooses from, on validation data."""

GEOMETRY = {"F5": "ATIS", "F8": "SNIPS"}
COMPRESSED = {
    "L_u + L_t": "L_u + L_t, compressed",
    PAIR: f"{PAIR}, compressed",
    ALIGNED: f"{ALIGNED}, aligned and compressed",
}
"""Rows of T6 by the model that is compressed."""

# --- tables -----------------------------------------------------------------------------------------------------------


def evaluate(run, sets: Mapping[str, Dataset], models: Mapping[str, Model]) -> None:
    """Nearest neighbours of every model on the data it was made for: T3 to T5, F6, and the tables beyond the paper.

    The long trainings of F7 are made beside, so that no worker waits for them.
    """
    s, asked = run.settings, questions(run.settings, tuple(sets), list(models))
    inputs = {"limit": s.limit, "references": s.references}
    long = long_trainings(s, sets, models["SimCSE"])
    jobs, places = {stage: job for stage, (_, job) in long.items()}, {}
    for name, dataset, pooling, ks, labels in asked:
        model = models[name]
        pooling = pooling or model.pooling
        stage = f"neighbours: {name} on {dataset}, {pooling}" + (", several k" if len(ks) > 1 else "")
        given = {"encoder": model.encoder, "records": sets[dataset], "dataset": dataset, "pooling": pooling, "ks": ks}
        jobs[stage] = neighbours_of, given | inputs
        places.setdefault(stage, []).append(labels)
    jobs |= majority_jobs(sets, inputs)
    made = run.stage_each(jobs)
    for stage, (model, _) in long.items():
        run.add(made[stage]["rows"], table="F7", model=model)
    rows, items = [], []
    for stage, found in ((stage, made[stage]) for stage in places):
        for labels in places[stage]:
            rows.append(found["rows"].assign(**labels))
            items += [found["items"].assign(**labels)] if labels["table"] in ITEMISED else []
    run.add(pd.concat(rows, ignore_index=True))
    run.add_items(pd.concat(items, ignore_index=True))
    for table, dataset in dict.fromkeys((labels["table"], dataset) for _, dataset, _, _, labels in asked):
        if table in FLOORED:
            found = made[f"neighbours: Majority on {dataset}"]
            run.add(found["rows"], table=table, model="Majority", encoder="none")
            run.add_items(found["items"], table=table, model="Majority")
    left_out(run, [table for table in ("T3", "T4", "T5", "T6", "F6") if table not in s.tables])
    for table, columns in {"T4": {3: "top-3", 5: "top-5"}}.items():
        for k in set(columns) - set(s.orders):
            left_out(run, [table], column=columns[k])
    left_out(run, ["T4"], "the paper has no top-5 of ATIS", dataset="ATIS", column="top-5")
    if not s.mlp:
        left_out(run, ["T3"], model="TaDSE w/ MLP")


def majority_jobs(sets: Mapping[str, Dataset], inputs: Mapping[str, Any]) -> dict[str, Job]:
    """The stages of the floor: the most frequent intent of every dataset."""
    return {
        f"neighbours: Majority on {name}": (
            majority_of,
            {"encoder": None, "records": records, "dataset": name} | dict(inputs),
        )
        for name, records in sets.items()
    }


def questions(s: Mapping, datasets: tuple[str, ...], models: Sequence[str]) -> list[tuple]:
    """(model, dataset, pooling or "" for its own, ks, labels of its rows) of every question that is asked."""
    asked, printed = [], [row.labels["model"] for row in load_paper("tadse").tables["T3"].rows]
    rows = [name for name in printed if name in models] if "T3" in s["tables"] else []
    asked += [(name, dataset, "", (1,), {"table": "T3", "model": name}) for name in rows for dataset in datasets]
    asked += [(name, dataset, pooling, (1,), {"table": "X-pooling", "model": name})
              for name in rows for dataset in datasets for pooling in s["poolings"]]  # fmt: skip
    if "F6" in s["tables"]:
        shown = "MASSIVE" if "MASSIVE" in datasets else datasets[0]
        asked += [(name, shown, "", s["ks"], {"table": "F6", "model": name})
                  for name in ("SimCSE", "TaDSE") if name in models]  # fmt: skip
    for dataset in datasets:
        if "T4" in s["tables"] and dataset in ORDERED:
            asked += [(single(loss, dataset, k), dataset, "", (1,),
                       {"table": "T4", "model": row, "augmentation": order_name(k)})
                      for row, loss in {"L_u": "L_u", "L_pair": PAIR}.items()
                      for k in orders(dataset, s["orders"])]  # fmt: skip
        if {"T5", "T6", "F4"} & set(s["tables"]) and dataset in ABLATED:
            asked.append((single("L_u", dataset, 0), dataset, "", (1,),
                          {"table": "T5", "model": "L_u without augmentation"}))  # fmt: skip
            asked += [(single(loss, dataset, best(dataset)), dataset, "", (1,), {"table": "T5", "model": loss})
                      for loss in LOSSES]  # fmt: skip
    return asked + _beyond(s, datasets, models)


def _beyond(s: Mapping, datasets: tuple[str, ...], models: Sequence[str]) -> list[tuple]:
    """Questions beyond the paper."""
    asked, here = [], [dataset for dataset in datasets if dataset in ABLATED]
    for dataset in here:
        own = single(PAIR, dataset, best(dataset))
        names = {"typed": ("X-typed", f"typed on {dataset}", "one for each type"), "": ("X-typed", own, "{SLOT}")}
        asked += [(name, dataset, "", (1,), {"table": table, "model": shown})
                  for key, (table, name, shown) in names.items() if s["typed"]]  # fmt: skip
        if s["printed"]:
            asked += [(f"{loss} on {dataset}, printed rate", dataset, "", (1,), {"table": "X-printed", "model": loss})
                      for loss in ("L_u", PAIR, ALIGNED)]  # fmt: skip
            asked.append(("SimCSE", dataset, "", (1,), {"table": "X-printed", "model": "SimCSE"}))
    if (dataset := s["study"]) in here:
        own = {loss: single(loss, dataset, best(dataset)) for loss in ("L_u", PAIR)}
        for share in s["mistaken"]:
            asked += [(f"{loss} on {dataset}, {share:g} mistaken", dataset, "", (1,),
                       {"table": "X-noise", "model": loss, "mistaken": share}) for loss in own]  # fmt: skip
        if s["mistaken"]:
            asked += [(name, dataset, "", (1,), {"table": "X-noise", "model": loss, "mistaken": 0.0})
                      for loss, name in own.items()]  # fmt: skip
        asked += [(f"rate {rate:g}", dataset, "", (1,), {"table": "X-rates", "model": PAIR, "rate": rate})
                  for rate in s["rates"]]  # fmt: skip
        asked += [(f"{name} on {dataset}", dataset, "", (1,), {"table": "X-forms", "model": name})
                  for name in VARIANTS if name in s["variants"]]  # fmt: skip
        if s["variants"]:
            asked.append((own[PAIR], dataset, "", (1,), {"table": "X-forms", "model": "as printed"}))
    return [question for question in asked if question[0] in models]


def compress(run, sets: Mapping[str, Dataset], models: Mapping[str, Model]) -> None:
    """T6 and the sweep: each model of T5 compressed by its gold templates at the ratio that is best on dev."""
    s = run.settings
    here = [dataset for dataset in ("SNIPS", "ATIS") if dataset in sets and "T6" in s.tables]
    jobs = {}
    for dataset in here:
        for loss in COMPRESSED:
            model = models[single(loss, dataset, best(dataset))]
            jobs[f"compress: {loss} on {dataset}"] = compressed_of, {
                **model._asdict(), "records": sets[dataset], "dataset": dataset, "ratios": s.ratios, "limit": s.limit,
                "references": s.references, "entities": entities(),
            }  # fmt: skip
    rows, items = [], []
    for name, found in run.stage_each(jobs).items():
        loss, _, dataset = name.removeprefix("compress: ").rpartition(" on ")
        ratio = chosen_ratio(found["rows"])
        for kind, shown in (("gold", COMPRESSED[loss]), ("retrieved", f"{COMPRESSED[loss]}, retrieved templates")):
            where = f"template == '{kind}' and compression == {ratio}"
            rows.append(found["rows"].query(f"{where} and split == 'test'").assign(table="T6", model=shown))
            items.append(found["items"].query(where).assign(table="T6", model=shown))
        rows.append(found["rows"].query("split == 'test'").assign(table="X-compression", model=loss))
    plain = [frame[(frame["table"] == "T5") & frame["model"].isin(COMPRESSED) & frame["dataset"].isin(here)]
             for frame in (run.results, run.items) if len(frame)]  # fmt: skip
    if rows:
        run.add(pd.concat([*rows, plain[0].assign(table="T6")], ignore_index=True))
        run.add_items(pd.concat([*items, plain[1].assign(table="T6")], ignore_index=True))


def chosen_ratio(rows: pd.DataFrame) -> float:
    """The ratio of the paper's three that is best on dev with gold templates, the smallest of equals."""
    dev = rows[(rows["split"] == "dev") & (rows["template"] == "gold") & rows["compression"].isin(RATIOS)]
    values = dev.groupby("compression")["value"].mean()
    return float(values.index[int(np.argmax(values.to_numpy()))])


# --- spaces and curves ------------------------------------------------------------------------------------------------


def shapes(run, sets: Mapping[str, Dataset], models: Mapping[str, Model]) -> None:
    """Alignment and uniformity (F5, F8) and clusters (F4, F9, F10) of the models of T5, plain and compressed."""
    s, jobs = run.settings, {}
    for dataset in (dataset for dataset in GEOMETRY.values() if dataset in sets and "F4" in s.tables):
        wanted = {"SimCSE": "SimCSE"} | {loss: single(loss, dataset, best(dataset)) for loss in LOSSES}
        for shown, name in wanted.items():
            ratios = (0.0, *RATIOS) if shown in (PAIR, ALIGNED) else (0.0,)
            jobs[f"space: {shown} on {dataset}"] = space_of, {
                **models[name]._asdict(), "records": sets[dataset], "dataset": dataset, "ratios": ratios,
                "limit": s.limit, "folds": s.folds, "entities": entities(),
            }  # fmt: skip
    rows = []
    for name, found in run.stage_each(jobs).items():
        shown, _, dataset = name.removeprefix("space: ").rpartition(" on ")
        table = next(figure for figure, of in GEOMETRY.items() if of == dataset)
        folds, whole = (found[found["protocol"] == protocol] for protocol in ("folds", "paper"))
        shape = folds[folds["metric"] != "Silhouette"]
        rows += [shape.assign(table=table, model=shown), whole.assign(table="X-geometry", model=shown)]
        for figure, of, model, ratio, label in CLUSTERS:
            if (of, model) == (dataset, shown):
                kept = folds[(folds["metric"] == "Silhouette") & (folds["compression"] == ratio)]
                rows.append(kept.assign(table=figure, model=label))
    if rows:
        run.add(pd.concat(rows, ignore_index=True))


CLUSTERS = (
    ("F4", "SNIPS", "SimCSE", 0.0, "SimCSE"),
    ("F4", "SNIPS", PAIR, 0.0, "TaDSE"),
    ("F4", "SNIPS", PAIR, 0.5, "TaDSE compressed 0.5"),
    ("F9", "ATIS", "L_u", 0.0, "SimCSE"),
    ("F10", "ATIS", PAIR, 0.2, "TaDSE"),
)
"""(figure, dataset, model, compression, its name there): SimCSE in F9 was trained on the same utterances."""


def long_trainings(s: Mapping, sets: Mapping[str, Dataset], start: Model) -> dict[str, tuple[str, Job]]:
    """F7, accuracy after every epoch with and without the alignment layer: (model, job) of each stage."""
    jobs = {}
    for dataset in (dataset for dataset in s["curve_datasets"] if dataset in sets):
        test = {"records": sets[dataset], "dataset": dataset, "pooling": start.pooling, "limit": s["limit"]}
        for loss in (PAIR, ALIGNED):
            settings = template_settings(s, LOSSES[loss], True, epochs=s["curve_epochs"], max_steps=None)
            given = test | {
                "recipe": LOSSES[loss], "encoder": start.encoder, "settings": settings, "options": {},
                "sources": sources(one(loss, dataset), sets, s["curve_utterances"]), "references": s["references"],
            }  # fmt: skip
            jobs[f"epochs: {loss} on {dataset}"] = loss, (score_epochs, given)
    return jobs


def training_times(run, curves: pd.DataFrame) -> pd.DataFrame:
    """Time and memory of every training; where steps were cut, what the printed epochs would take."""
    return common.training_times(run, curves, lambda name: 8 if ALIGNED in name else TADSE.epochs)


def further(run, table: str, columns: Sequence[str] = ("dataset",)) -> pd.DataFrame | str:
    """A table beyond the paper: our means by model, or the sentence that says why there are none."""
    found = summary(run, table, ["model"], columns)
    return found if len(found) else absent(run, table, f"the {run.profile} profile has no time for it; 'gpu' has")
