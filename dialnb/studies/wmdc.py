"""What belongs to WMDC and DiaEval alone (Dialogue Representation Learning: A New Benchmark and Weighted Contrastive
Learning Approach): its models in a profile, counts of corpora, scores of the sweeps, the geometry.
Models, tasks and figures are in its notebook.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pandas import DataFrame

from dialnb.data import Dataset, Utterance
from dialnb.evaluation import Scores, diaeval, evaluator, geometry
from dialnb.examples.readings import Dialogues
from dialnb.examples.windows import WINDOWS, context_length, cumulative_share
from dialnb.files import Fields
from dialnb.losses import inverse_response_frequency
from dialnb.models.encoder import Encoder
from dialnb.runs.grid import Model
from dialnb.studies import dse
from dialnb.studies.shared import NAMES

NAMED = NAMES["wmdc"]
CHECKPOINTS = NAMED["checkpoints"]
"""Public checkpoints by row; all are mean-pooled, as everything in DiaEval is."""

VARIANTS = NAMED["variants"]
"""Other choices than the paper's, by name: recipe and options of the loss. All but the last have windows 1 to 3."""

HEAD = 40
"""The rate of the heads is forty times that of the encoder."""

WHOLE = "all corpora"
POINTS = 120


def model(
    recipe: str,
    s: Fields,
    dialogues: Dialogues,
    sweep: bool = False,
    **changes: Any,
) -> Model:
    """A model as WMDC's notebook trains it in a profile; the baselines are those of DSE's notebook.

    The points of a sweep may have fewer steps, all of them the same number.
    """
    if not recipe.startswith("WMDC"):
        made = dse.model(recipe, s, dialogues, **changes)
        return replace(made, watch=None, report=0) if recipe == "DSE" else made  # no figure shows its epochs here
    rate = s["wmdc_learning_rate"]
    settings = {
        "learning_rate": rate,
        "head_learning_rate": rate and HEAD * rate,
        "epochs": s["wmdc_epochs"],
        "max_steps": s["wmdc_max_steps"] or s["max_steps"],
    }
    if sweep and s["sweep_steps"]:  # however small the corpus is
        settings |= {"max_steps": s["sweep_steps"], "epochs": float(s["sweep_steps"])}
    return Model(recipe, data=dialogues, settings=settings, **changes)


def nested(corpora: Sequence[Dataset], part: float) -> list[Dataset]:
    """``part`` of every corpus: the same dialogues are in every larger part."""
    found = []
    for records in corpora:
        order = np.random.default_rng(24).permutation(len(records))
        found.append(records.take(order[: max(1, round(part * len(records)))]))
    return found


# --- corpora ----------------------------------------------------------------------------------------------------------


def sample_pairs(dialogues: Sequence[Sequence[str]], draws: int, size: int) -> DataFrame:
    """``draws`` disjoint samples of a context of three utterances and its response, one pair a dialogue."""
    longest = max(WINDOWS)
    said = [utterances for utterances in dialogues if len(utterances) > longest]
    rng = np.random.default_rng(24)
    order = rng.permutation(len(said))
    size, rows = min(size, len(order) // draws), []
    for number, place in enumerate(order[: draws * size]):
        k = int(rng.integers(longest, len(said[place])))
        rows.append(
            {
                "draw": number // size,
                "context": list(said[place][k - longest : k]),
                "response": said[place][k],
            }
        )
    return DataFrame(rows)


def share_curve(frequencies: Counter[str]) -> DataFrame:
    """Points of F1: the most frequent utterances, in percent of the distinct ones, and the share that they cover.

    >>> share_curve(Counter({"yes": 98, "no": 1, "maybe": 1}))["share"].round(1).tolist()
    [98.0, 99.0, 100.0]
    """
    covered = cumulative_share(frequencies)
    ranks = np.unique(np.geomspace(1, len(covered), POINTS).round().astype(np.int64))
    ranks = np.unique(np.append(ranks, max(1, round(len(covered) / 100))))
    return DataFrame({"top": 100 * ranks / len(covered), "share": 100 * covered[ranks - 1]})


def window_rows(utterances: Sequence[Utterance], counts: Sequence[int]) -> DataFrame:
    """For F2: what was said, how often each utterance occurs in a corpus, and the weight that follows from it."""
    data = DataFrame({"speaker": [said.speaker for said in utterances]})
    data["text"] = [" ".join(said.text.split()) for said in utterances]
    return data.assign(frequency=counts, weight=inverse_response_frequency(counts).tolist())


# --- scores -----------------------------------------------------------------------------------------------------------

SCORES = DataFrame(NAMED["scores"])
"""What the ablation of the paper averages: micro-F1, accuracy and TOP@3."""


def task_scores(rows: DataFrame, *labels: str) -> DataFrame:
    """The score of each task and model: its metric, averaged over its datasets, for every group of test dialogues.

    ``labels`` are further columns that tell models apart.
    """
    if rows.empty:
        return DataFrame(columns=["value", "model", *labels])
    kept = diaeval.printed_rows(rows).query("protocol == 'paper'").drop(columns="task", errors="ignore")
    keys = ["task", "metric", "model", *labels, *(["train_seed"] if "train_seed" in kept else []), "seed"]
    groups = kept.merge(SCORES, on=["table", "metric"]).groupby(keys, sort=False, dropna=False)
    values = groups.agg(value=("value", "mean"), n=("n", "sum")).reset_index()
    return values.assign(dataset="DiaEval", protocol="paper")


# --- shape of the space -----------------------------------------------------------------------------------------------


@evaluator("geometry")
def geometry_of(encoder: Encoder, records: DataFrame) -> Scores:
    """Uniformity and anisotropy of distinct responses, alignment of responses with their contexts, in every draw."""
    mark = f" {diaeval.separator_of(encoder)} "
    for draw, part in records.groupby("draw"):
        contexts, responses = part["context"].map(mark.join).tolist(), part["response"].tolist()
        before = encoder.encode(contexts, max_length=context_length(max(WINDOWS)), truncate="left")
        after = encoder.encode(responses, max_length=64)
        alone = encoder.encode(list(dict.fromkeys(responses)), max_length=64)
        values = {
            "Uniformity": geometry.uniformity(alone),
            "Anisotropy": geometry.anisotropy(alone),
            "Alignment": geometry.alignment(np.concatenate([before, after]), [*range(len(part))] * 2),
        }
        yield values, {"protocol": "clean", "n": len(alone), "seed": int(draw)}
