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
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray
from pandas import DataFrame

from dialnb.data import Dataset, Dialogue, InferenceItem, SelectionGroup, conversation_of, named_data
from dialnb.evaluation.actions import ActionExample, evaluate_actions, majority_rows, next_act_examples
from dialnb.evaluation.foreign import as_encoder
from dialnb.evaluation.linear import probe_texts
from dialnb.evaluation.metrics import (
    Scores,
    accuracy,
    each_group,
    evaluator,
    group_scores,
    stacked,
    student_half,
    top_accuracy,
)
from dialnb.evaluation.sampling import item_groups
from dialnb.evaluation.selection import evaluate_candidates
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode, label_ids
from dialnb.examples.acts import act_columns, with_universal_acts
from dialnb.examples.readings import Limit, thin

GROUPS = 10
SPLITS = ("train", "dev", "test")
UNIVERSAL = ("DSTC2", "GSIM")
"""Datasets whose acts are translated to universal ones, so that both have the printed number of columns."""

LONGEST = 256
"""Dialogues of DECODE with as many words and marks or more are left out."""


# --- data -------------------------------------------------------------------------------------------------------------


def separator_of(encoder: SupportsEncode) -> str:
    """What stands between two utterances: the token that the encoder's own tokenizer ends a sequence with."""
    tokenizer = getattr(as_encoder(getattr(encoder, "encoder", encoder)), "tokenizer", None)
    return getattr(tokenizer, "sep_token", None) or getattr(tokenizer, "eos_token", None) or "[SEP]"


def dialogues_of(records: Dataset, dataset: str) -> list[Dialogue]:
    """The dialogues with universal acts, where the dataset is named in ``UNIVERSAL``, else with their own."""
    return with_universal_acts(records, dataset) if dataset in UNIVERSAL else list(records)


def act_names(records: Dataset, dataset: str) -> list[str]:
    """The label columns: universal acts, or all acts that occur."""
    return act_columns(dataset) if dataset in UNIVERSAL else sorted(set(records.column("utterances.acts")))


def short_enough(item: InferenceItem) -> bool:
    """Is the dialogue shorter than 256 words and punctuation marks?"""
    return sum(len(re.findall(r"\w+|[^\w\s]", said)) for said in item.utterances) < LONGEST


def asked_actions(
    records: Dataset, dataset: str, limit: Limit = None, train_limit: Limit = None, separator: str = "[SEP]"
) -> dict[str, list[ActionExample]]:
    """The samples of each split that are learned from and scored: every utterance from the third on.

    Public copies do not know the acts of every utterance. There an utterance without acts is not asked for, since its
    acts are unknown; in the official files it has none, and that is its label.
    """
    found: dict[str, list[ActionExample]] = {split: [] for split in SPLITS}
    for number, dialogue in enumerate(dialogues_of(records, dataset)):
        for example in next_act_examples([dialogue], separator=separator):
            if example.acts or records.variant == "official":
                found[dialogue.split].append(replace(example, dialogue=f"{number} {dialogue.id}"))
    return {split: thin(part, train_limit if split == "train" else limit) for split, part in found.items()}


def asked_items(
    records: Dataset, dataset: str, limit: Limit = None, train_limit: Limit = None
) -> dict[str, list[InferenceItem]]:
    """The judged dialogues of each split that are learned from and scored; without a training split all are a test."""
    items = [item for item in records if dataset != "DECODE" or short_enough(item)]
    splits = {split: [item for item in items if item.split == split] for split in SPLITS}
    if not splits["train"]:
        splits = {"train": [], "dev": [], "test": items}
    return {split: thin(part, train_limit if split == "train" else limit) for split, part in splits.items()}


def asked_lists(records: Dataset, groups: Limit = None) -> list[SelectionGroup]:
    """The lists of candidates that are scored."""
    return thin(records.filter(split=("dev", "test")), groups)


def conversations(records: Sequence) -> ndarray:
    """The group of every record: whole conversations, the same for every encoder."""
    return item_groups([conversation_of(record) for record in records], GROUPS)


# --- tasks ------------------------------------------------------------------------------------------------------------


def actions_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, probe: str = "linear", **limits: Any
) -> DataFrame:
    """Table 2: F1 of the next utterance's acts, groups made of whole dialogues."""
    parts = asked_actions(records, dataset, **limits, separator=separator_of(encoder))
    groups = item_groups([example.dialogue for example in parts["test"]], GROUPS)
    known = {"dataset": dataset, "acts": act_names(records, dataset), "groups": groups, "probe": probe}
    return evaluate_actions(encoder, *parts.values(), **known)


def majority_actions_of(encoder: Any, records: Dataset, dataset: str, **limits: Any) -> DataFrame:
    """The floor of Table 2: the most frequent combination of acts; no encoder is asked."""
    parts = asked_actions(records, dataset, **limits)
    groups = item_groups([example.dialogue for example in parts["test"]], GROUPS)
    return majority_rows(
        parts["train"], parts["test"], dataset=dataset, acts=act_names(records, dataset), groups=groups
    )


@evaluator("dialogue inference")
def evaluate_inference(
    encoder: SupportsEncode,
    train: Sequence[InferenceItem],
    validation: Sequence[InferenceItem],
    test: Sequence[InferenceItem],
    *,
    groups: ndarray | None = None,
    probe: str = "linear",
) -> Scores:
    """Is the last utterance consistent with what was said before? Accuracy of a probe on the frozen encoder, and the
    floor of always answering the majority label of the training items (protocol ``floor``).

    The input is all utterances joined by the encoder's separator, truncated from the left so that the judged reply
    stays. ``groups`` of test items give one row each, numbered by ``seed``.
    """
    splits = train, validation, test
    mark = f" {separator_of(encoder)} "
    texts = [[mark.join(item.utterances) for item in items] for items in splits]
    _, ids = label_ids(*([item.label for item in items] for items in splits))
    logits, settings = probe_texts(encoder, texts, ids, top_accuracy, 256, probe)
    groups = np.zeros(len(test), np.int64) if groups is None else groups
    yield from _answer_scores(logits.argmax(1), ids[2], groups, **settings)
    majority = np.full(len(test), np.bincount(ids[0]).argmax())
    yield from _answer_scores(majority, ids[2], groups, protocol="floor", method="majority")


def _answer_scores(answers: ndarray, labels: ndarray, groups: ndarray, **settings: Any) -> Scores:
    """Accuracy of answers in each group of test items."""
    return group_scores(lambda rows: {"Accuracy": accuracy(answers[rows], labels[rows])}, groups, **settings)


def inference_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, probe: str = "linear", **limits: Any
) -> DataFrame:
    """Table 3: accuracy, and that of the majority label (protocol ``floor``).

    A dataset without a training split is cross-validated: every group is the test set once, the next one is for
    validation, the others are for training.
    """
    parts, known = asked_items(records, dataset, **limits), {"dataset": dataset, "probe": probe}
    groups = conversations(parts["test"])
    if parts["train"]:
        return evaluate_inference(encoder, *(parts[split] for split in SPLITS), groups=groups, **known)
    once = EncodeOnce(encoder)
    rows = []
    for group in np.unique(groups).tolist():
        held_out = (group + 1) % (groups.max() + 1)
        folds: dict[str, list[InferenceItem]] = {split: [] for split in SPLITS}
        for item, number in zip(parts["test"], groups):
            folds["test" if number == group else "dev" if number == held_out else "train"].append(item)
        found = evaluate_inference(once, *folds.values(), groups=groups[groups == group], **known)
        rows.append(found.assign(n=len(groups)))
    return stacked(rows)


def majority_inference_of(encoder: Any, records: Dataset, dataset: str, **limits: Limit) -> DataFrame:
    """The floor of Table 3: the most frequent label, of the others where there is no training set; no encoder is asked.

    Groups are those of the models.
    """
    parts = asked_items(records, dataset, **limits)
    known, asked = parts["train"] or parts["test"], parts["test"]
    _, (known_ids, labels) = label_ids(*([item.label for item in items] for items in (known, asked)))
    answers = np.full(len(labels), np.bincount(known_ids).argmax())
    score = evaluator("dialogue inference")(_answer_scores)
    return score(answers, labels, conversations(asked), dataset=dataset, method="majority")


def retrieval_of(encoder: SupportsEncode, records: Dataset, dataset: str, groups: Limit = None) -> DataFrame:
    """Table 4: Top-k of the true reply among the listed candidates; dialogues are cut from the left."""
    mark = f" {separator_of(encoder)} "
    chosen = [replace(each, context=(mark.join(each.context),)) for each in asked_lists(records, groups)]
    settings = {"encoder": EncodeOnce(encoder), "dataset": dataset, "response_length": 64, "truncate": "left"}
    return each_group(lambda part: evaluate_candidates(groups=part, **settings), chosen, conversations(chosen))


class Test(NamedTuple):
    """One part of the benchmark: table, name, function, and what `papers/wmdc/data.yaml` calls its data."""

    table: str
    name: str
    function: Callable[..., DataFrame]
    data: str


BENCHMARK = (
    Test("T2", "action prediction", actions_of, "actions"),
    Test("T3", "dialogue inference", inference_of, "consistency"),
    Test("T3", "dialogue inference", inference_of, "contradiction"),
    Test("T3", "dialogue inference", inference_of, "entailment"),
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
        limits = {"groups": groups} if test.table == "T4" else {"limit": limit, "train_limit": train_limit}
        sets, lacking = named_data("wmdc", test.data, data)
        missing |= lacking
        for dataset, records in sets.items():
            progress(f"{test.name}: {dataset}")
            rows.append(test.function(encoder, records, dataset, **limits).assign(table=test.table))
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
