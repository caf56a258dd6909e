"""Dialogue action prediction: two different tasks under one name (fidelity trap 2).

DSE tags the acts of a system utterance that is part of the input, after few-shot fine-tuning. DiaEval predicts the
acts of the next utterance of either speaker from the history, with a linear layer on a frozen encoder and all data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from dialnb.data.records import Dialogue
from dialnb.errors import DataError
from dialnb.evaluation.finetuning import ACTIONS, FineTuning, fit_classifier, in_batches
from dialnb.evaluation.linear import fit_linear
from dialnb.evaluation.metrics import f1_scores, group_values, tidy_frame, tidy_rows
from dialnb.evaluation.sampling import few_shot_multilabel_split
from dialnb.evaluation.vectors import SupportsEncode, encode

KEPT_WORDS = int(0.9 * ACTIONS.max_length)
"""Words kept from the end of DSE's input before it is cut to 32 tokens."""


@dataclass(frozen=True, slots=True)
class ActionExample:
    """An input text and the acts to predict from it."""

    text: str
    acts: tuple[str, ...]


def act_tagging_examples(
    dialogues: Iterable[Dialogue],
    *,
    target_in_input: bool = True,
    turns: Literal["last", "all"] = "last",
    separator: str = "[SEP]",
    words: int = KEPT_WORDS,
) -> list[ActionExample]:
    """DSE's samples: history, a system utterance and the user's answer in; the acts of the system utterance out.

    The label's utterance is in the input, as in the authors' data; ``target_in_input=False`` gives the honest variant
    (history only). One sample per dialogue, its last system utterance with acts, as the printed test sizes imply, or
    ``turns="all"``. The last ``words`` words are kept.
    """
    examples: list[ActionExample] = []
    for dialogue in dialogues:
        said = dialogue.utterances
        targets = [i for i, utterance in enumerate(said) if utterance.speaker == "system" and utterance.acts]
        for i in targets[-1:] if turns == "last" else targets:
            parts = [f"{separator} {utterance.text}" for utterance in said[:i]]
            if target_in_input:
                parts.append(f"{separator} {separator} {said[i].text}")
                parts += [f"{separator} {utterance.text}" for utterance in said[i + 1 : i + 2]]
            text = " ".join(" ".join(parts).split()[-words:])
            examples.append(ActionExample(text, said[i].acts))
    return examples


def next_act_examples(dialogues: Iterable[Dialogue], *, separator: str = "[SEP]") -> list[ActionExample]:
    """DiaEval's samples: every utterance from the third on is a target, its input all utterances before it."""
    examples: list[ActionExample] = []
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
    acts = _columns(acts, train, test)
    labels, gold = act_matrix(train, acts), act_matrix(test, acts)
    tokens, test_tokens = (
        encoder.tokenize([e.text for e in examples], max_length=recipe.max_length, truncate="right")
        for examples in (train, test)
    )
    seeds = list(seeds)
    rows: list[dict[str, Any]] = []
    for k in shots:
        for seed in seeds:
            split = few_shot_multilabel_split([example.acts for example in train], k, seed)
            parts = [([tokens[row] for row in part], labels[part]) for part in (split.train, split.validation)]
            model = fit_classifier(encoder, *parts, _selection_score, recipe)
            values = f1_scores(gold, in_batches(model, test_tokens) > 0)
            settings = {"shots": k, "method": "fine-tuning", "train_size": len(split.train)}
            common = {"task": "action tagging", "dataset": dataset, "protocol": "code", "seed": seed}
            rows += tidy_rows(values, n=len(test), **common, **settings)
    return tidy_frame(rows)


def evaluate_actions(
    encoder: SupportsEncode,
    train: Sequence[ActionExample],
    validation: Sequence[ActionExample],
    test: Sequence[ActionExample],
    *,
    dataset: str,
    acts: Sequence[str] | None = None,
    max_length: int = 128,
    groups: np.ndarray | None = None,
    **encoding: Any,
) -> pd.DataFrame:
    """DiaEval: F1 of a linear layer on the frozen encoder; the chosen penalty is in a setting column.

    Histories are truncated from the left. ``groups`` of test examples give one row each, numbered by ``seed``, whose
    mean is the F1 of all and whose spread its interval (:func:`~dialnb.evaluation.metrics.group_values`).
    """
    acts = _columns(acts, train, validation, test)
    settings = {"max_length": max_length, "truncate": "left"} | encoding
    parts = [
        (encode(encoder, [example.text for example in examples], **settings), act_matrix(examples, acts))
        for examples in (train, validation, test)
    ]
    probe = fit_linear(parts[0], parts[1], _selection_score)
    vectors, gold = parts[2]
    found = probe.logits(vectors) > 0
    groups = np.zeros(len(test), np.int64) if groups is None else groups
    values = group_values(lambda rows: f1_scores(gold[rows], found[rows]), groups)
    common = {"task": "action prediction", "dataset": dataset, "protocol": "paper", "n": len(test)}
    settings = {"method": "linear probe", "penalty": probe.penalty}
    return tidy_frame(
        row for group, scores in values.items() for row in tidy_rows(scores, seed=group, **common, **settings)
    )


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
    rows, often = np.unique(act_matrix(train, acts), axis=0, return_counts=True)
    gold = act_matrix(test, acts)
    found = np.broadcast_to(rows[often.argmax()], gold.shape)
    groups = np.zeros(len(test), np.int64) if groups is None else groups
    values = group_values(lambda rows: f1_scores(gold[rows], found[rows]), groups)
    common = {"task": task, "dataset": dataset, "protocol": "paper", "n": len(test), "method": "majority"}
    return tidy_frame(row for group, scores in values.items() for row in tidy_rows(scores, seed=group, **common))


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
