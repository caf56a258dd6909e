"""The tasks of the five papers, each as a column of the matrix: whose task it is, its data, and which rows score it.

All scores are in percent and come in paired units, numbered by ``seed``: draws of the few examples, or ten groups of
test items that are the same for every method. Their mean is the score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dialnb.data import Dataset, load
from dialnb.data.records import RetrievalQuery
from dialnb.errors import Offline
from dialnb.evaluation import diaeval, evaluate_blocks, evaluate_retrieval, evaluate_similarity
from dialnb.evaluation.metrics import group_values, tidy_frame, tidy_rows
from dialnb.evaluation.sampling import item_groups
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode
from dialnb.models.encoder import Encoder
from dialnb.studies import tasks
from dialnb.studies.common import Task, find
from dialnb.studies.dialoguecse import REBUILT, rebuilt, thinned
from dialnb.studies.selectors import Heads, answer
from dialnb.studies.spaces import geometry_of
from dialnb.studies.tadse_models import DATASETS, intent_data
from dialnb.studies.templates import majority_of, neighbours_of
from dialnb.studies.training import thin

GROUPS = 10
BLOCK = 100
"""Replies of a block, so that no group of questions may be smaller."""


# --- data -------------------------------------------------------------------------------------------------------------


def within_reach(*sets: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The datasets that can be had; every column has at least one that is bundled."""
    found: dict[str, Any] = {}
    for read in sets:
        try:
            made = read()
        except Offline:
            continue
        found |= made
    return found


def neighbour_data(data: str) -> dict[str, Dataset]:
    """The datasets of TaDSE."""
    return within_reach(*(lambda name=name: {name: intent_data(name, data)} for name in DATASETS))


def inference_data(data: str) -> dict[str, Dataset]:
    """CI-ToD and DECODE."""
    return within_reach(lambda: diaeval.consistency_data(data), lambda: diaeval.contradiction_data(data))


def retrieval_data(run) -> dict[str, list[RetrievalQuery]]:
    """Retrieval sets as DialogueCSE's notebook rebuilds them: SGD's, and MDC's where it can be had."""
    return within_reach(*(lambda name=name: {name: rebuilt(run, name)} for name in REBUILT))


def similarity_data(data: str) -> dict[str, Dataset]:
    """STS-B in place of DialogueCSE's human scores, of which the English ones were never released; its captions are
    bundled."""
    found = find(data, ("sources", "STS-B", "all"), ("bundled", "bundled/STS-B", "captions"))
    return {"STS-B" if found.variant == "all" else "STS-B captions": found}


def list_data(data: str) -> dict[str, Dataset]:
    """Ubuntu's lists of ten candidates, for the adversarial test."""
    return {"UbuntuIRC": load("bundled/UbuntuIRC", "selection-10")}


# --- scores -----------------------------------------------------------------------------------------------------------


def by_group(items: pd.DataFrame, scale: float = 1.0) -> pd.DataFrame:
    """What each test item scored, as one row for every group of items; a conversation stays within a group."""
    rows = []
    for (dataset, metric), part in items.groupby(["dataset", "metric"], sort=False):
        groups = item_groups(part["group" if "group" in part else "item"].tolist(), GROUPS)
        for group, value in part["value"].groupby(groups).mean().items():
            rows += tidy_rows({metric: scale * value}, task="", dataset=dataset, protocol="paper", n=len(part),
                              seed=int(group))  # fmt: skip
    return tidy_frame(rows)


def neighbours_in_groups(
    encoder: Encoder, records: Dataset, dataset: str, limit: int | None, references: int | None
) -> pd.DataFrame:
    """TaDSE's test: the intent of the nearest training utterance."""
    return by_group(neighbours_of(encoder, records, dataset, encoder.pooling, (1,), limit, references)["items"])


def majority_in_groups(
    encoder: Any, records: Dataset, dataset: str, limit: int | None, references: int | None
) -> pd.DataFrame:
    """The floor of TaDSE's test: the most frequent intent, whatever is said."""
    return by_group(majority_of(encoder, records, dataset, limit=limit, references=references)["items"])


def blocks_in_groups(encoder: SupportsEncode, records: Dataset, dataset: str, questions: int | None) -> pd.DataFrame:
    """DSE's utterance-level test: the reply among the hundred of its block."""
    pairs, once = tasks.question_answers(records, questions), EncodeOnce(encoder)
    groups = item_groups(range(len(pairs)), max(1, min(GROUPS, len(pairs) // BLOCK)))
    rows = [
        evaluate_blocks(once, [pairs[i] for i in np.flatnonzero(groups == group)], dataset=dataset, seeds=(0,))
        .assign(seed=int(group), n=len(pairs)) for group in np.unique(groups)
    ]  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def replies_in_groups(
    encoder: Encoder, records: Dataset, dataset: str, groups: int | None, heads: Heads | None = None,
    max_length: int = 128,
) -> pd.DataFrame:  # fmt: skip
    """The true reply among a hundred, by cosine or, with ``heads``, by a cross-encoder."""
    items = answer(encoder, heads, max_length, [_tested(records, groups)], dataset, None, (), ())["items"]
    return by_group(items.assign(metric="Top-1"), 100.0)


def adversarial_in_groups(
    encoder: Encoder, records: Dataset, dataset: str, limit: int | None, adversarial_seeds: Sequence[int],
    heads: Heads | None = None, max_length: int = 128,
) -> pd.DataFrame:  # fmt: skip
    """UMS's test: the true reply among ten, one of which was said before."""
    seeds, kinds = tuple(adversarial_seeds), ("random",)
    items = answer(encoder, heads, max_length, [_tested(records, limit)], dataset, None, seeds, kinds)["items"]
    return by_group(items[items["metric"] == "Adversarial R10@1"].assign(metric="Top-1"), 100.0)


def _tested(records: Dataset, limit: int | None) -> Dataset:
    """``limit`` lists of the test split, drawn once."""
    found = records.filter(split="test")
    return found.take(thin(range(len(found)), limit))


def retrieval_in_groups(
    encoder: SupportsEncode, records: Sequence[RetrievalQuery], dataset: str, retrieval_limit: int | None
) -> pd.DataFrame:
    """DialogueCSE's retrieval: sentences of the same intent before others."""
    asked, once, rows = thinned(records, retrieval_limit), EncodeOnce(encoder), []
    kept = [query.id for query in asked if query.positives]
    number = dict(zip(kept, item_groups(kept, GROUPS)))
    for group in sorted(set(number.values())):
        own = [q if number.get(q.id) == group else replace(q, positives=(), negatives=()) for q in asked]
        found = evaluate_retrieval(once, own, dataset=dataset, max_length=50)
        rows.append(found[found["protocol"] == "paper"].assign(seed=int(group), n=len(kept)))
    return pd.concat(rows, ignore_index=True)


def similarity_in_groups(encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None) -> pd.DataFrame:
    """Correlation with human scores; groups by the jackknife, since a correlation is no average over pairs."""
    pairs, once = thin(records.filter(split="test"), limit), EncodeOnce(encoder)

    def score(rows: np.ndarray) -> dict[str, float]:
        return {"Corr": float(evaluate_similarity(once, [pairs[i] for i in rows], dataset=dataset)["value"].iloc[0])}

    values = group_values(score, item_groups(range(len(pairs)), GROUPS))
    shared = {"task": "similarity", "dataset": dataset, "protocol": "paper", "n": len(pairs)}
    return tidy_frame(row for group, value in values.items() for row in tidy_rows(value, seed=group, **shared))


# --- columns ----------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A task: its name in the matrix, the paper that asks it, how it is asked, and the rows that score it.

    ``lists``: replies are listed, so that a cross-encoder can answer too; ``shots``: of several, the most count.
    """

    name: str
    paper: str
    task: Task
    where: Mapping[str, Any]
    lists: bool = False
    shots: bool = False


def _task(
    name: str, function: Callable, data: Callable, *settings: str, floor: tuple[str, Callable | None] | None = None
) -> Task:
    return Task(name, name.lower(), function, data, settings, floors=(floor,) if floor else ())


FEW, PROBE, WORDS = ("limit", "shots", "seeds"), ("limit", "train_limit"), ("TF-IDF", None)
COLUMNS = (
    Column("Intents", "DSE", _task("Intents", tasks.intents_of, tasks.intent_data, *FEW,
                                   floor=("Chance", tasks.guessed_intents_of)),
           {"metric": "Accuracy", "protocol": "code"}, shots=True),
    Column("Nearest neighbours", "TaDSE",
           _task("Nearest neighbours", neighbours_in_groups, neighbour_data, "limit", "references",
                 floor=("Majority", majority_in_groups)),
           {"metric": "Accuracy"}),
    Column("Out of scope", "DSE", _task("Out of scope", tasks.scope_of, tasks.scope_data, *FEW,
                                        floor=("Majority", tasks.rejected_of)),
           {"metric": "Ave", "protocol": "clean", "threshold": "mean-std"}, shots=True),
    Column("Utterance replies", "DSE",
           _task("Utterance replies", blocks_in_groups, tasks.question_data, "questions", floor=WORDS),
           {"metric": "Top-1"}),
    Column("Dialogue replies", "WMDC",
           _task("Dialogue replies", replies_in_groups, tasks.candidate_data, "groups", floor=WORDS),
           {"metric": "Top-1"}, lists=True),
    Column("Adversarial", "UMS",
           _task("Adversarial", adversarial_in_groups, list_data, "limit", "adversarial_seeds", floor=WORDS),
           {"metric": "Top-1"}, lists=True),
    Column("Actions", "WMDC", _task("Actions", diaeval.actions_of, diaeval.action_data, *PROBE,
                                     floor=("Majority", diaeval.majority_actions_of)),
           {"metric": "Micro-F1", "protocol": "paper"}),
    Column("Inference", "WMDC", _task("Inference", diaeval.inference_of, inference_data, *PROBE,
                                       floor=("Majority", diaeval.majority_inference_of)),
           {"metric": "Accuracy", "protocol": "paper"}),
    Column("Retrieval", "DialogueCSE",
           _task("Retrieval", retrieval_in_groups, retrieval_data, "retrieval_limit", floor=("BM25", None)),
           {"metric": "MAP"}),
    Column("Similarity", "DialogueCSE",
           _task("Similarity", similarity_in_groups, similarity_data, "limit"), {"metric": "Corr"}),
)  # fmt: skip
GEOMETRY = _task("Geometry", geometry_of, tasks.intent_data, "limit")
"""Uniformity and alignment: shown beside the tasks, but no task; they have no rank."""
