"""Dialogue action prediction: two different tasks under one name (fidelity trap 2).

DSE tags the acts of a system utterance that is part of the input, after few-shot fine-tuning. DiaEval predicts the
acts of the next utterance of either speaker from the history, with a linear layer on a frozen encoder and all data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dialnb.data.records import Dialogue
from dialnb.errors import DataError
from dialnb.evaluation.finetuning import ACTIONS, FineTuning, fit_classifier, in_batches
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.linear import fit_linear
from dialnb.evaluation.metrics import f1_scores, group_rows, tidy_frame, tidy_rows
from dialnb.evaluation.sampling import few_shot_splits
from dialnb.evaluation.vectors import SupportsEncode, encode

KEPT_WORDS = int(0.9 * ACTIONS.max_length)
"""Words kept from the end of DSE's input before it is cut to 32 tokens."""


@dataclass(frozen=True, slots=True)
class ActionExample:
    """An input text and the acts to predict from it."""

    text: str
    acts: tuple[str, ...]


def act_tagging_examples(dialogues: Iterable[Dialogue], *, target_in_input: bool = True) -> list[ActionExample]:
    """DSE's samples: history, a system utterance and the user's answer in; the acts of the system utterance out.

    The label's utterance is in the input, as in the authors' data; ``target_in_input=False`` gives the honest variant
    (history only). One sample per dialogue, its last system utterance with acts, as the printed test sizes imply.
    """
    examples = []
    for dialogue in dialogues:
        said = dialogue.utterances
        targets = [i for i, utterance in enumerate(said) if utterance.speaker == "system" and utterance.acts]
        for target in targets[-1:]:
            parts = [f"[SEP] {utterance.text}" for utterance in said[:target]]
            if target_in_input:
                parts.append(f"[SEP] [SEP] {said[target].text}")
                parts += [f"[SEP] {utterance.text}" for utterance in said[target + 1 : target + 2]]
            text = " ".join(" ".join(parts).split()[-KEPT_WORDS:])
            examples.append(ActionExample(text, said[target].acts))
    return examples


def next_act_examples(dialogues: Iterable[Dialogue], *, separator: str = "[SEP]") -> list[ActionExample]:
    """DiaEval's samples: every utterance from the third on is a target, its input all utterances before it."""
    examples = []
    for dialogue in dialogues:
        texts = [utterance.text for utterance in dialogue.utterances]
        for i in range(2, len(texts)):
            examples.append(ActionExample(f" {separator} ".join(texts[:i]), dialogue.utterances[i].acts))
    return examples


def act_matrix(examples: Sequence[ActionExample], acts: Sequence[str]) -> np.ndarray:
    """Labels as a 0/1 matrix [n, acts]."""
    column = {act: i for i, act in enumerate(acts)}
    matrix = np.zeros((len(examples), len(acts)), np.int8)
    for row, example in enumerate(examples):
        for act in example.acts:
            if act not in column:
                raise DataError(f"act {act!r} is not among the {len(acts)} label columns: {', '.join(acts)}")
            matrix[row, column[act]] = 1
    return matrix


def finetune_actions(
    encoder: Any,
    train: Sequence[ActionExample],
    test: Sequence[ActionExample],
    *,
    dataset: str,
    acts: Sequence[str] | None = None,
    shots: Iterable[int] = (10, 20),
    seeds: Iterable[int] = range(5),
    recipe: FineTuning = ACTIONS,
) -> pd.DataFrame:
    """Few-shot fine-tuning (DSE T5): F1 of acts with sigmoid above 0.5; ``acts`` are all columns of the dataset."""
    encoder = as_trainable(encoder)
    acts = _columns(acts, train, test)
    labels = act_matrix(train, acts)
    gold = act_matrix(test, acts)
    cut = {"max_length": recipe.max_length, "truncate": "right"}
    tokens = encoder.tokenize([example.text for example in train], **cut)
    test_tokens = encoder.tokenize([example.text for example in test], **cut)
    common = {"task": "action tagging", "dataset": dataset, "protocol": "code", "n": len(test), "method": "fine-tuning"}
    splits = few_shot_splits([example.acts for example in train], shots, seeds)
    rows = []
    for (k, seed), split in splits.items():
        parts = [([tokens[row] for row in part], labels[part]) for part in (split.train, split.validation)]
        model = fit_classifier(encoder, *parts, _selection_score, recipe)
        values = f1_scores(gold, in_batches(model, test_tokens) > 0)
        rows += tidy_rows(values, seed=seed, shots=k, train_size=len(split.train), **common)
    return tidy_frame(rows)


def evaluate_actions(
    encoder: SupportsEncode,
    train: Sequence[ActionExample],
    validation: Sequence[ActionExample],
    test: Sequence[ActionExample],
    *,
    dataset: str,
    acts: Sequence[str] | None = None,
    groups: np.ndarray | None = None,
    **encoding: Any,
) -> pd.DataFrame:
    """DiaEval: F1 of a linear layer on the frozen encoder; the chosen penalty is in a setting column.

    Histories are truncated from the left. ``groups`` of test examples give one row each, numbered by ``seed``, whose
    mean is the F1 of all and whose spread its interval (:func:`~dialnb.evaluation.metrics.group_values`).
    """
    acts = _columns(acts, train, validation, test)
    settings = {"max_length": 128, "truncate": "left"} | encoding
    vectors = []
    labels = []
    for examples in (train, validation, test):
        vectors.append(encode(encoder, [example.text for example in examples], **settings))
        labels.append(act_matrix(examples, acts))
    probe = fit_linear((vectors[0], labels[0]), (vectors[1], labels[1]), _selection_score)
    found = {"method": "linear probe", "penalty": probe.penalty}
    return _f1_rows(labels[2], probe.logits(vectors[2]) > 0, groups, dataset=dataset, **found)


def majority_rows(
    train: Sequence[ActionExample],
    test: Sequence[ActionExample],
    *,
    dataset: str,
    acts: Sequence[str],
    groups: np.ndarray | None = None,
    task: str = "action prediction",
) -> pd.DataFrame:
    """The floor of both forms: F1 of the most frequent combination of acts, whatever is asked."""
    combinations, often = np.unique(act_matrix(train, acts), axis=0, return_counts=True)
    gold = act_matrix(test, acts)
    found = np.broadcast_to(combinations[often.argmax()], gold.shape)
    return _f1_rows(gold, found, groups, dataset=dataset, task=task, method="majority")


def _f1_rows(
    gold: np.ndarray, found: np.ndarray, groups: np.ndarray | None, task: str = "action prediction", **settings: Any
) -> pd.DataFrame:
    """F1 of predicted acts, for each group of examples where there are some."""
    groups = np.zeros(len(gold), np.int64) if groups is None else groups
    common = {"task": task, "protocol": "paper", "n": len(gold)}
    return tidy_frame(group_rows(lambda rows: f1_scores(gold[rows], found[rows]), groups, **common, **settings))


def _selection_score(logits: np.ndarray, gold: np.ndarray) -> float:
    """Mean of Micro- and Macro-F1, by which both forms choose their weights."""
    scores = f1_scores(gold, logits > 0)
    return (scores["Micro-F1"] + scores["Macro-F1"]) / 2


def _columns(acts: Sequence[str] | None, *parts: Sequence[ActionExample]) -> list[str]:
    """The given label columns, or every act that occurs, sorted."""
    for part in parts:
        if not part:
            raise DataError("action prediction needs examples in every split, and one of them is empty")
    return list(acts) if acts is not None else sorted({act for part in parts for e in part for act in e.acts})
