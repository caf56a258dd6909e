"""DiaEval, the benchmark of the WMDC paper: three tasks, each with a frozen encoder, for any encoder in one call.

* action prediction: the acts of the next utterance, from the dialogue so far (DSTC2, GSIM; micro and macro F1);
* dialogue inference: is the last reply consistent with the dialogue? (CI-ToD, DECODE; accuracy)
* response retrieval: the true reply among 100 by cosine, nothing is trained (DSTC7-Ubuntu; Top-k).

The first two train one linear layer on mean-pooled vectors; its penalty is chosen on validation data. Every score comes
as ten rows, numbered by ``seed``: groups of whole test conversations that are the same for every encoder. Their mean is
the score, their spread its interval, and two encoders can be compared group by group.

>>> rows = run_diaeval(dialnb.load_encoder("mini"))                                             # doctest: +SKIP
>>> diaeval_summary(rows)                                                                       # doctest: +SKIP
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from pandas import DataFrame

from dialnb.data import Dataset, InferenceItem, SelectionGroup, conversation_of, named_data
from dialnb.evaluation.actions import (
    ActionExample,
    act_matrix,
    act_names,
    dialogues_of,
    next_act_examples,
    selection_score,
    texts_of,
)
from dialnb.evaluation.foreign import as_encoder
from dialnb.evaluation.linear import probe_texts
from dialnb.evaluation.metrics import (
    Scores,
    each_group,
    evaluator,
    f1_scores,
    group_scores,
    stacked,
    student_half,
    top_accuracy,
)
from dialnb.evaluation.sampling import item_groups, parts_of
from dialnb.evaluation.selection import evaluate_candidates
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode, label_ids
from dialnb.examples.readings import Limit, thin

GROUPS = 10
SPLITS = ("train", "dev", "test")
LONGEST = 256
"""Dialogues of DECODE with as many words and marks or more are left out."""


# --- data -------------------------------------------------------------------------------------------------------------


def separator_of(encoder: SupportsEncode) -> str:
    """What stands between two utterances: the token that the encoder's own tokenizer ends a sequence with."""
    tokenizer = getattr(as_encoder(getattr(encoder, "encoder", encoder)), "tokenizer", None)
    return getattr(tokenizer, "sep_token", None) or getattr(tokenizer, "eos_token", None) or "[SEP]"


def short_enough(item: InferenceItem) -> bool:
    """Is the dialogue shorter than 256 words and punctuation marks?"""
    return sum(len(re.findall(r"\w+|[^\w\s]", text)) for text in item.utterances) < LONGEST


def asked_actions(
    records: Dataset, dataset: str, limit: Limit = None, train_limit: Limit = None, separator: str = "[SEP]"
) -> dict[str, Sequence[ActionExample]]:
    """The samples of each split that are learned from and scored: every utterance from the third on.

    Public copies do not know the acts of every utterance. There an utterance without acts is not asked for, since its
    acts are unknown; in the official files it has none, and that is its label.
    """
    asked = next_act_examples(dialogues_of(records, dataset), separator=separator)
    known = [example for example in asked if example.acts or records.variant == "official"]
    return dict(zip(SPLITS, parts_of(known, SPLITS, limit, train_limit)))


def asked_items(
    records: Any, dataset: str, limit: Limit = None, train_limit: Limit = None
) -> dict[str, Sequence[InferenceItem]]:
    """The judged dialogues of each split that are learned from and scored; without a training split all are a test."""

    def kept(item: InferenceItem) -> bool:
        return dataset != "DECODE" or short_enough(item)

    parts = parts_of(records, SPLITS, limit, train_limit, kept)
    if not len(parts[0]):
        parts = [], [], thin([item for item in records if kept(item)], limit)
    return dict(zip(SPLITS, parts))


def asked_lists(records: Dataset, limit: Limit = None) -> list[SelectionGroup]:
    """The lists of candidates that are scored."""
    return thin(records.filter(split=("dev", "test")), limit)


def conversations(records: Sequence, count: int = GROUPS) -> ndarray:
    """The group of every record: whole conversations, the same for every encoder."""
    return item_groups([conversation_of(record) for record in records], count)


# --- tasks ------------------------------------------------------------------------------------------------------------


@evaluator("action prediction")
def evaluate_actions(
    encoder: SupportsEncode,
    records: Dataset,
    *,
    dataset: str,
    limit: Limit = None,
    train_limit: Limit = None,
    probe: str = "linear",
) -> Scores:
    """Table 2: F1 of the next utterance's acts by a probe on the frozen encoder, groups made of whole dialogues; the
    chosen penalty is in a setting column."""
    splits = asked_actions(records, dataset, limit, train_limit, separator_of(encoder)).values()
    *_, test = splits
    acts = act_names(records, dataset)
    *known, gold = [act_matrix(examples, acts) for examples in splits]
    logits, settings = probe_texts(encoder, list(map(texts_of, splits)), known, selection_score, 128, probe)
    groups = item_groups([example.dialogue for example in test], GROUPS)
    yield from group_scores(lambda rows: f1_scores(gold[rows], logits[rows] > 0), groups, **settings)


def majority_actions(encoder: Any, records: Dataset, dataset: str, **limits: Limit) -> DataFrame:
    """The floor of Table 2: the most frequent combination of acts; no encoder is asked."""
    return evaluate_actions(encoder, records, dataset=dataset, probe="majority", **limits)


@evaluator("dialogue inference")
def evaluate_inference(
    encoder: SupportsEncode,
    records: Any,
    *,
    dataset: str,
    limit: Limit = None,
    train_limit: Limit = None,
    groups: int = GROUPS,
    probe: str = "linear",
) -> Scores:
    """Table 3: is the last utterance consistent with what was said before? Accuracy of a probe on the frozen encoder in
    so many ``groups`` of conversations, and that of the majority label of the training items (protocol ``floor``).

    The input is all utterances joined by the encoder's separator, truncated from the left so that the judged reply
    stays. A dataset without a training split is cross-validated: every group is the test set once, the next one is for
    validation, the others are for training.
    """
    train, dev, test = asked_items(records, dataset, limit, train_limit).values()
    dealt = conversations(test, groups)
    if len(train) or probe == "majority":
        yield from _judged(encoder, (train if len(train) else test, dev, test), dealt, probe)
        return
    once = EncodeOnce(encoder)
    for group in np.unique(dealt).tolist():
        held_out = (group + 1) % (dealt.max() + 1)
        folds: tuple[list[InferenceItem], ...] = [], [], []
        for item, number in zip(test, dealt):
            folds[2 if number == group else int(number == held_out)].append(item)
        for values, settings in _judged(once, folds, dealt[dealt == group], probe):
            yield values, settings | {"n": len(dealt)}


def _judged(encoder: SupportsEncode, splits: Sequence[Sequence[InferenceItem]], groups: ndarray, probe: str) -> Scores:
    """Accuracy of a probe in each group of test items and, beside one that learns, of the majority label."""
    mark = f" {separator_of(encoder)} "
    texts = [[mark.join(item.utterances) for item in items] for items in splits]
    _, ids = label_ids(*([item.label for item in items] for items in splits))
    for kind in dict.fromkeys((probe, "majority")):
        logits, settings = probe_texts(encoder, texts, ids, top_accuracy, 256, kind)
        protocol = "paper" if kind == probe else "floor"
        score = partial(_accuracy, logits, ids[2])
        yield from group_scores(score, groups, **settings | {"protocol": protocol})


def _accuracy(logits: ndarray, labels: ndarray, rows: ndarray) -> dict[str, float]:
    return {"Accuracy": top_accuracy(logits[rows], labels[rows])}


def majority_inference(encoder: Any, records: Dataset, dataset: str, **limits: Limit) -> DataFrame:
    """The floor of Table 3: the most frequent label, of the test items where there is no training set; no encoder is
    asked."""
    return evaluate_inference(encoder, records, dataset=dataset, probe="majority", **limits)


def retrieval_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit = None) -> DataFrame:
    """Table 4: Top-k of the true reply among the listed candidates; dialogues are cut from the left."""
    mark = f" {separator_of(encoder)} "
    chosen = [replace(each, context=(mark.join(each.context),)) for each in asked_lists(records, limit)]
    settings = {"encoder": EncodeOnce(encoder), "dataset": dataset, "response_length": 64, "truncate": "left"}
    return each_group(lambda part: evaluate_candidates(records=part, **settings), chosen, conversations(chosen))


class Test(NamedTuple):
    """One part of the benchmark: table, name, function, and what `papers/wmdc/data.yaml` calls its data."""

    table: str
    name: str
    function: Callable[..., DataFrame]
    data: str


BENCHMARK = (
    Test("T2", "action prediction", evaluate_actions, "actions"),
    Test("T3", "dialogue inference", evaluate_inference, "consistency"),
    Test("T3", "dialogue inference", evaluate_inference, "contradiction"),
    Test("T3", "dialogue inference", evaluate_inference, "entailment"),
    Test("T4", "response retrieval", retrieval_of, "candidates"),
)


def run_diaeval(
    encoder: SupportsEncode,
    data: str = "bundled",
    *,
    limit: Limit = None,
    train_limit: Limit = None,
    groups: Limit = None,
    progress: Callable[[str], Any] = lambda line: None,
    keep: Callable[[DataFrame], Any] = lambda rows: None,
) -> DataFrame:
    """All of DiaEval for one encoder: tidy rows with a column ``table``; what could not be had is in ``.attrs``.

    Args:
        encoder: a :class:`~dialnb.models.encoder.Encoder`, or anything that `as_encoder` makes one of.
        data: ``"bundled"`` needs nothing else, ``"sources"`` takes public copies as well (a mirror or the network),
            ``"official"`` the paper's own releases where they can be had.
        limit, train_limit, groups: at most so many validation and test items, training items, lists of candidates.
        progress: is called with a line before each dataset.
        keep: is called with all rows so far after each dataset, so that what is interrupted is not lost.
    """
    encoder = as_encoder(encoder)
    rows = []
    missing: dict[str, str] = {}
    for test in BENCHMARK:
        limits = {"limit": groups} if test.table == "T4" else {"limit": limit, "train_limit": train_limit}
        sets, lacking = named_data("wmdc", test.data, data)
        missing |= lacking
        for dataset, records in sets.items():
            progress(f"{test.name}: {dataset}")
            rows.append(test.function(encoder, records, dataset=dataset, **limits).assign(table=test.table))
            frame = stacked(rows)
            keep(frame)
    frame.attrs["not_run"] = missing
    return frame


SHOWN = {"T2": ["Micro-F1", "Macro-F1"], "T3": ["Accuracy"], "T4": ["Top-1", "Top-3", "Top-5", "Top-10"]}


def printed_rows(rows: DataFrame) -> DataFrame:
    """The rows that answer the paper's tables, and the majority's: no second way of breaking ties, no extra metrics."""
    wanted = [metric in SHOWN[table] for table, metric in zip(rows["table"], rows["metric"])]
    ties = rows["ties"].isna() | (rows["ties"] == "against") if "ties" in rows else True
    return rows[np.array(wanted) & ties]


def diaeval_summary(rows: DataFrame) -> DataFrame:
    """One line for each score: task, dataset, metric, value ± 95 % interval over groups of test dialogues, items."""
    rows = printed_rows(rows)
    named = rows["metric"].mask(rows["protocol"] == "floor", rows["metric"] + " of the majority label")
    scores = rows.assign(metric=named).groupby(["task", "dataset", "metric"], sort=False)
    table = scores.agg(**{"value": ("value", "mean"), "±": ("value", student_half), "n": ("n", "max")})
    return table.round(2).reset_index()
