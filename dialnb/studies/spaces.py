"""Embedding spaces as DSE's figures look at them: projections with coordinates, clusters, the shape of a space."""

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from dialnb.data import Dataset, IntentUtterance
from dialnb.evaluation import Scores, SupportsEncode, evaluator
from dialnb.evaluation.intent import train_and_test
from dialnb.evaluation.projection import project
from dialnb.evaluation.selection import question_answers
from dialnb.examples.readings import Limit, thin
from dialnb.studies.shared import shape_of

OUTSIDE, RANDOM = "out of scope", "random response"


def sample_intents(
    records: Dataset,
    intents: int,
    points: int,
    outside: int,
    seed: int,
) -> list[IntentUtterance]:
    """``points`` test utterances of each of ``intents`` classes drawn by ``seed``, then out-of-scope ones."""
    test, kept = records.filter(split="test"), []
    labels = sorted({*test.column("intent")} - {"oos"})
    for place in np.random.default_rng(seed).choice(len(labels), min(intents, len(labels)), False):
        kept += test.filter(intent=labels[place])[:points]
    return kept + thin(test.filter(intent="oos"), outside)


def project_intents(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    method: str,
    intents: int,
    points: int,
    outside: int,
    seed: int,
) -> DataFrame:
    """F1, left: utterances of some intents and out-of-scope ones in a plane."""
    kept = sample_intents(records, intents, points, outside, seed=24)
    texts = [record.text for record in kept]
    labels = [OUTSIDE if record.intent == "oos" else record.intent for record in kept]
    return project(encoder.encode(texts), method, seed=seed).assign(part="intents", label=labels, pair="", text=texts)


def project_pairs(
    encoder: SupportsEncode, records: Dataset, dataset: str, method: str, pairs: int, responses: int, seed: int
) -> DataFrame:
    """F1, right: questions with their answers, and responses to other questions, in a plane."""
    chosen = question_answers(records, pairs + responses)
    order = np.random.default_rng(24).permutation(len(chosen)).tolist()
    rows = []
    for side in ("question", "answer"):
        rows += [(side, f"pair {n}", getattr(chosen[i], side)) for n, i in enumerate(order[:pairs])]
    rows += [(RANDOM, "", chosen[i].answer) for i in order[pairs:]]
    data = DataFrame(rows, columns=["label", "pair", "text"])
    plane = project(encoder.encode(data["text"].tolist(), max_length=128), method, seed=seed)
    if not records.name.startswith("bundled/"):  # coordinates may be published, other texts may not
        data["text"] = ""
    return plane.assign(part="questions and answers", **data)


@evaluator("clusters")
def clusters_of(
    encoder: SupportsEncode,
    records: Dataset,
    *,
    dataset: str,
    plot_intents: int,
    plot_points: int,
    seeds: Sequence[int],
) -> Scores:
    """How clearly intents form clusters: silhouette (cosine, in percent) of several draws of classes as in F1."""
    from sklearn.metrics import silhouette_score

    for seed in seeds:
        kept = sample_intents(records, plot_intents, plot_points, 0, seed)
        vectors = encoder.encode([record.text for record in kept])
        value = 100 * silhouette_score(vectors, [record.intent for record in kept], metric="cosine")
        yield {"Silhouette": value}, {"protocol": "clean", "seed": seed, "n": len(kept)}


def intent_geometry(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    limit: Limit,
) -> DataFrame:
    """Uniformity and alignment of the test utterances of an intent dataset (lower is better for both)."""
    _, test = train_and_test(records, limit)
    return shape_of(encoder.encode([row.text for row in test]), [row.intent for row in test], dataset=dataset)
