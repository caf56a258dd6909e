"""Which models TaDSE's tables ask for, and how each is trained: what it starts from, reads, and minimises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from dialnb.data import Dataset
from dialnb.errors import DialnbError, Offline
from dialnb.examples.recogniser import default_recogniser
from dialnb.examples.templates import RULES
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.runs.profiles import load_profiles
from dialnb.studies.common import corpus, find, left_out, settings_for, why
from dialnb.studies.templates import Filled, Layers, train_templates
from dialnb.studies.training import Job, training
from dialnb.training import TrainingSettings
from dialnb.training.recipes import get_recipe, scaled

DATASETS = tuple(RULES)
"""SNIPS, ATIS, MASSIVE, HWU64, CLINC150."""

LOSSES = {
    "L_u": "TaDSE L_u",
    "L_u + L_t": "TaDSE L_u + L_t",
    "L_u + L_t + L_pair": "TaDSE",
    "L_u + L_t' + L_pair": "TaDSE w/ MLP",
}
"""Recipes by the name of T5; the dash is the alignment layer M_A."""

PAIR, ALIGNED = "L_u + L_t + L_pair", "L_u + L_t' + L_pair"
ABLATED = ("SNIPS", "ATIS", "MASSIVE")
"""The datasets of T5."""

ORDERED = (*ABLATED, "CLINC150")
"""The datasets of T4."""

TRAINED = {"SimCSE": "SimCSE-unsup", "TOD-BERT": "TOD-BERT", "DSE": "DSE"}
"""Baselines by row, and the recipe that DSE's notebook trains them with."""

CHECKPOINTS = {"BERT": "bert-base-uncased", "TOD-BERT": "TODBERT/TOD-BERT-JNT-V1", "DSE": "aws-ai/dse-bert-base"}
"""The printed baselines by hub id, where the run starts from the public SimCSE."""

MEAN = ("TOD-BERT", "TOD-BERT-aug", "DSE", "DSE-aug")
"""Rows whose authors pool by the mean; SimCSE and all that starts from it reads [CLS]."""

VARIANTS = {
    "code weight and direction": {"weight_pair": 0.01, "direction": "utterance"},
    "both directions": {"direction": "both"},
    "mask_same_template": {"mask_same_template": True},
}
"""What the paper and the code disagree on, or do not say, as options of the losses."""


class Spec(NamedTuple):
    """A model: its recipe, the datasets it reads with their k, what it starts from, and what else is changed."""

    recipe: str
    sources: tuple[tuple[str, int | None], ...]
    start: str = "SimCSE"
    options: Mapping[str, Any] = {}
    typed: bool = False
    mistaken: float = 0.0
    settings: Mapping[str, Any] = {}


class Model(NamedTuple):
    """An encoder, the layers trained on top of it, and how it is read."""

    encoder: Encoder
    layers: Layers
    pooling: str


# --- data -------------------------------------------------------------------------------------------------------------


def entities() -> str:
    """The recogniser that gives CLINC150 its slots here."""
    return default_recogniser().__name__


def intent_data(dataset: str, data: str) -> Dataset:
    """A dataset with slots: the authors' files where they can be had, else what is public of them."""
    if dataset == "ATIS":
        return find(data, ("sources", "ATIS", None))
    official = {"MASSIVE": "official", "HWU64": "tadse-official"}
    own = {"SNIPS": "slots", "MASSIVE": "joined", "HWU64": "tadse", "CLINC150": "plus"}[dataset]
    better = [("official", dataset, official[dataset])] if dataset in official else []
    return find(data, *better, ("bundled", f"bundled/{dataset}", own))


def available(run, datasets: tuple[str, ...] = DATASETS) -> dict[str, Dataset]:
    """The datasets that can be had here; the others are named in every table with the reason."""
    found, s = {}, run.settings
    for dataset in datasets:
        try:
            found[dataset] = intent_data(dataset, s.data)
        except Offline as error:
            lacking(run, dataset, why(error))
    return found


def lacking(run, dataset: str, reason: str) -> None:
    """Say in every table that a dataset is not there."""
    left_out(run, ("T1", "T12"), reason, model=dataset)
    left_out(run, ("T3", "T5", "T6"), reason, column=dataset)
    left_out(run, ("T4",), reason, dataset=dataset)


# --- what is trained --------------------------------------------------------------------------------------------------


def order_name(k: int | None) -> str:
    return f"top-{k}" if k else "none"


def orders(dataset: str, wanted: tuple[int, ...]) -> list[int]:
    """The k of T4's columns for a dataset: ATIS has top-2 in place of top-3, and no top-5."""
    return [2 if dataset == "ATIS" and k == 3 else k for k in wanted if not (dataset == "ATIS" and k == 5)]


def single(loss: str, dataset: str, k: int | None) -> str:
    """The name of a model that reads one dataset."""
    return f"{loss} on {dataset}, {order_name(k)}"


def best(dataset: str) -> int:
    return RULES[dataset][0]


def specifications(s: Mapping[str, Any], datasets: tuple[str, ...]) -> dict[str, Spec]:
    """Every model that the profile's tables ask for, by name; equal ones are there once."""
    found: dict[str, Spec] = {}
    every = tuple((dataset, None) for dataset in datasets)
    if "T3" in s["tables"]:
        alone = {"weight_template": 0.0, "weight_pair": 0.0, "pooling": "mean"}
        found |= {"TaDSE": Spec("TaDSE", every), "SimCSE-aug": Spec("TaDSE L_u", every)}
        found |= {"TaDSE w/ MLP": Spec("TaDSE w/ MLP", every)} if s["mlp"] else {}
        rest = [row for row in s["baselines"] if row != "SimCSE"]
        found |= {f"{row}-aug": Spec("TaDSE", every, row, alone) for row in rest}
    ablated = [dataset for dataset in datasets if dataset in ABLATED]
    if {"T5", "T6", "F4"} & set(s["tables"]):
        for dataset in ablated:
            found[single("L_u", dataset, 0)] = Spec(LOSSES["L_u"], ((dataset, 0),))
            found |= {single(loss, dataset, best(dataset)): one(loss, dataset) for loss in LOSSES}
    if "T4" in s["tables"]:
        for dataset in (dataset for dataset in datasets if dataset in ORDERED):
            for k in orders(dataset, s["orders"]):
                found |= {single(loss, dataset, k): Spec(LOSSES[loss], ((dataset, k),)) for loss in ("L_u", PAIR)}
    return found | beyond(s, ablated)


def one(loss: str, dataset: str, **changes: Any) -> Spec:
    """A model of T5, at the dataset's own k."""
    return Spec(LOSSES[loss], ((dataset, best(dataset)),), **changes)


def beyond(s: Mapping[str, Any], ablated: list[str]) -> dict[str, Spec]:
    """Models of what is beyond the paper: placeholders, noise, rates and forms of the losses."""
    found = {}
    for dataset in ablated:
        if s["typed"]:
            found[f"typed on {dataset}"] = one(PAIR, dataset, typed=True)
        for share in s["mistaken"] if dataset == s["study"] else ():
            for loss in ("L_u", PAIR):
                found[f"{loss} on {dataset}, {share:g} mistaken"] = one(loss, dataset, mistaken=share)
        for rate in s["rates"] if dataset == s["study"] else ():
            found[f"rate {rate:g}"] = one(PAIR, dataset, settings={"learning_rate": rate})
        for variant in s["variants"] if dataset == s["study"] else ():
            found[f"{variant} on {dataset}"] = one(PAIR, dataset, options=VARIANTS[variant])
        if s["printed"]:
            rate = {"learning_rate": get_recipe("TaDSE").settings.learning_rate}
            found |= {f"{loss} on {dataset}, printed rate": one(loss, dataset, settings=rate)
                      for loss in ("L_u", PAIR, ALIGNED)}  # fmt: skip
    return found


def template_settings(s: Mapping[str, Any], recipe: str, single_source: bool, **changes: Any) -> TrainingSettings:
    """The printed settings with the profile's changes: two epochs, eight with M_A on one dataset."""
    own = {name: s[name] for name in ("batch_size", "max_steps", "learning_rate", "precision")}
    longer = recipe == LOSSES[ALIGNED] and single_source
    own["epochs"] = s["aligned_epochs"] if longer else s["epochs"]
    return scaled(get_recipe(recipe).settings, seed=s["seed"], **own | changes)


def pooling_of(model: str, s: Mapping[str, Any]) -> str:
    return "mean" if model in MEAN else s["pooling"]


def start_models(run) -> dict[str, Encoder]:
    """The baselines by row: those of DSE's notebook, from its stages, or the run's encoder as SimCSE itself."""
    s, raw = run.settings, load_encoder(run.settings.encoder)
    if s.start == "encoder":
        return {"SimCSE": raw} | _checkpoints(run)
    models = {"BERT": raw}
    dse = load_profiles("dse", run.root).resolve(run.profile, s.seed, s.encoder)
    jobs = {
        f"train {recipe}": training(recipe, raw, corpus(run), settings_for(dse, recipe), dse["dialogues"],
                                    dse["tail_quirk"])
        for row, recipe in TRAINED.items()
        if row in s.baselines
    }  # fmt: skip
    made = run.stage_each(jobs)
    models |= {row: made[f"train {recipe}"]["encoder"] for row, recipe in TRAINED.items() if row in s.baselines}
    for row in TRAINED:
        if row not in s.baselines:
            left_out(run, ("T3",), model=row)
            left_out(run, ("T3",), model=f"{row}-aug")
    return models


def _checkpoints(run) -> dict[str, Encoder]:
    found = {}
    for row, hub in CHECKPOINTS.items():
        try:
            found[row] = load_encoder(hub)
        except DialnbError as error:
            left_out(run, ("T3",), why(error), model=row)
            left_out(run, ("T3",), why(error), model=f"{row}-aug")
    return found


def train_all(run, sets: Mapping[str, Dataset]) -> tuple[dict[str, Model], pd.DataFrame]:
    """Every model of the run by name, and the loss curves of those that read templates."""
    s = run.settings
    starts = start_models(run)
    wanted = {
        name: spec for name, spec in specifications(s, tuple(sets)).items() if spec.start in starts
    }  # those without a start have said why
    made = run.stage_each({f"train {name}": job(s, spec, starts, sets) for name, spec in wanted.items()})
    models = {name: Model(encoder, {}, pooling_of(name, s)) for name, encoder in starts.items()}
    for name in wanted:
        result = made[f"train {name}"]
        models[name] = Model(result["encoder"], result["layers"], pooling_of(name, s))
    curves = [made[f"train {name}"]["curve"].assign(model=name) for name in wanted]
    return models, pd.concat(curves, ignore_index=True)


def job(s: Mapping[str, Any], spec: Spec, starts: Mapping[str, Encoder], sets: Mapping[str, Dataset]) -> Job:
    """The stage that trains one model."""
    settings = template_settings(s, spec.recipe, len(spec.sources) == 1, **spec.settings)
    return train_templates, {
        "recipe": spec.recipe, "encoder": starts[spec.start], "sources": sources(spec, sets, s["utterances"]),
        "settings": settings, "options": dict(spec.options),
    }  # fmt: skip


def sources(spec: Spec, sets: Mapping[str, Dataset], limit: int | None) -> list[Filled]:
    """What a model reads, of at most ``limit`` original utterances of each dataset."""
    return [Filled(name, sets[name], k, limit, entities(), spec.typed, spec.mistaken) for name, k in spec.sources]
