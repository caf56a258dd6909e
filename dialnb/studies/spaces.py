"""Embedding spaces as the studies look at them: projections with coordinates, clusters, uniformity and alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from dialnb.data import Dataset
from dialnb.data.records import IntentUtterance
from dialnb.evaluation import geometry
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.projection import METHODS, project
from dialnb.evaluation.vectors import SupportsEncode
from dialnb.examples.readings import thin
from dialnb.runs.grid import Task
from dialnb.studies.tasks import question_answers, train_and_test

OUTSIDE, RANDOM = "out of scope", "random response"


def sample_intents(records: Dataset, intents: int, points: int, outside: int, seed: int) -> list[IntentUtterance]:
    """``points`` test utterances of each of ``intents`` classes drawn by ``seed``, then out-of-scope ones."""
    test = list(records.filter(split="test"))
    labels = sorted({r.intent for r in test} - {"oos"})
    chosen = [labels[i] for i in np.random.default_rng(seed).choice(len(labels), min(intents, len(labels)), False)]
    kept = [r for label in chosen for r in [x for x in test if x.intent == label][:points]]
    return kept + thin([r for r in test if r.intent == "oos"], outside)


def project_intents(
    encoder: SupportsEncode, records: Dataset, method: str, intents: int, points: int, outside: int, seed: int
) -> pd.DataFrame:
    """F1, left: utterances of some intents and out-of-scope ones in a plane."""
    kept = sample_intents(records, intents, points, outside, seed=24)
    plane = project(encoder.encode([r.text for r in kept]), method, seed=seed)
    labels = [OUTSIDE if r.intent == "oos" else r.intent for r in kept]
    return plane.assign(part="intents", label=labels, pair="", text=[r.text for r in kept])


def project_pairs(
    encoder: SupportsEncode, records: Dataset, method: str, pairs: int, responses: int, seed: int
) -> pd.DataFrame:
    """F1, right: questions with their answers, and responses to other questions, in a plane."""
    chosen = question_answers(records, pairs + responses)
    order = np.random.default_rng(24).permutation(len(chosen))
    joined, others = ([chosen[i] for i in part] for part in np.split(order, [pairs]))
    rows = [("question", f"pair {i}", p.question) for i, p in enumerate(joined)]
    rows += [("answer", f"pair {i}", p.answer) for i, p in enumerate(joined)]
    rows += [(RANDOM, "", p.answer) for p in others]
    labels, named, texts = zip(*rows)
    plane = project(encoder.encode(texts, max_length=128), method, seed=seed)
    shared = texts if records.name.startswith("bundled/") else ""  # coordinates may be published, other texts may not
    return plane.assign(part="questions and answers", label=labels, pair=named, text=shared)


def plane_tasks(s: Mapping[str, Any], method: str) -> list[Task]:
    """The two rows of F1: intents with out-of-scope utterances, questions with their answers."""
    shape = {"intents": s["plot_intents"], "points": s["plot_points"], "outside": s["plot_outside"]}
    pairs = {"pairs": s["plot_pairs"], "responses": s["plot_random"]}
    common = {"method": method, "seed": s["seed"]}
    return [
        Task("", project_intents, "out of scope", common | shape, f"{METHODS[method]} of intents"),
        Task("", project_pairs, "questions", common | pairs, f"{METHODS[method]} of questions"),
    ]


def no_projection(run, method: str) -> str:
    """Why a projection is not drawn in this run; empty where it is."""
    if method == "umap" and not run.settings.umap:
        return f"left out of the {run.profile} profile"
    missing = method == "umap" and find_spec("umap") is None
    return "the package umap-learn is not installed: pip install umap-learn" if missing else ""


def clusters_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, plot_intents: int, plot_points: int, seeds: Sequence[int]
) -> pd.DataFrame:
    """How clearly intents form clusters: silhouette (cosine, in percent) of several draws of classes as in F1."""
    from sklearn.metrics import silhouette_score

    rows = []
    for seed in seeds:
        kept = sample_intents(records, plot_intents, plot_points, 0, seed)
        vectors = encoder.encode([r.text for r in kept])
        value = 100 * silhouette_score(vectors, [r.intent for r in kept], metric="cosine")
        common = {"task": "clusters", "dataset": dataset, "protocol": "clean", "seed": seed, "n": len(kept)}
        rows += tidy_rows({"Silhouette": value}, **common)
    return tidy_frame(rows)


def geometry_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None) -> pd.DataFrame:
    """Uniformity and alignment of the test utterances of an intent dataset (lower is better for both)."""
    _, test = train_and_test(records, limit)
    vectors, labels = encoder.encode([r.text for r in test]), [r.intent for r in test]
    values = {"uniformity": geometry.uniformity(vectors), "alignment": geometry.alignment(vectors, labels)}
    return tidy_frame(tidy_rows(values, task="geometry", dataset=dataset, protocol="clean", n=len(test)))
