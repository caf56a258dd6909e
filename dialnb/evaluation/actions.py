"""Dialogue action prediction: two different tasks under one name (fidelity trap 2).

DSE tags the acts of a system utterance that is part of the input, after few-shot fine-tuning. DiaEval predicts the
acts of the next utterance of either speaker from the history, with a linear layer on a frozen encoder and all data.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy import ndarray

from dialnb.data.records import Dialogue, Texts
from dialnb.errors import DataError
from dialnb.evaluation.finetuning import ACTIONS, FineTuning, few_shot_logits
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.linear import probe_texts
from dialnb.evaluation.metrics import Scores, evaluator, f1_scores, group_scores
from dialnb.evaluation.vectors import SupportsEncode

KEPT_WORDS = int(0.9 * ACTIONS.max_length)
"""Words kept from the end of DSE's input before it is cut to 32 tokens."""


@dataclass(frozen=True, slots=True)
class ActionExample:
    """An input text, the acts to predict from it, and the dialogue that it comes from, where that is asked for."""

    text: str
    acts: Texts
    dialogue: str = ""


Examples = Sequence[ActionExample]


def act_tagging_examples(
    dialogues: Iterable[Dialogue], *, target_in_input: bool = True, every: bool = False
) -> list[ActionExample]:
    """DSE's samples: history, a system utterance and the user's answer in; the acts of the system utterance out.

    The label's utterance is in the input, as in the authors' data; ``target_in_input=False`` gives the honest variant
    (history only). One sample per dialogue, its last system utterance with acts, as the printed test sizes imply, or
    ``every`` one.
    """
    examples = []
    for dialogue in dialogues:
        said = dialogue.utterances
        targets = [i for i, utterance in enumerate(said) if utterance.speaker == "system" and utterance.acts]
        for target in targets if every else targets[-1:]:
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


def act_matrix(examples: Examples, acts: Sequence[str]) -> ndarray:
    """Labels as a 0/1 matrix [n, acts]."""
    column = {act: i for i, act in enumerate(acts)}
    matrix = np.zeros((len(examples), len(acts)), np.int8)
    for row, example in enumerate(examples):
        for act in example.acts:
            if act not in column:
                raise DataError(f"act {act!r} is not among the {len(acts)} label columns: {', '.join(acts)}")
            matrix[row, column[act]] = 1
    return matrix


@evaluator("action tagging")
def finetune_actions(
    encoder: Any,
    train: Examples,
    test: Examples,
    *,
    acts: Sequence[str],
    shots: Iterable[int] = (10, 20),
    seeds: Iterable[int] = range(5),
    recipe: FineTuning = ACTIONS,
) -> Scores:
    """Few-shot fine-tuning (DSE T5): F1 of acts with sigmoid above 0.5; ``acts`` are all columns of the dataset."""
    encoder = as_trainable(encoder)
    gold = act_matrix(test, acts)
    parts = (_texts(train), act_matrix(train, acts)), [example.acts for example in train], _texts(test)
    for logits, settings in few_shot_logits(encoder, *parts, _selection_score, (shots, seeds), recipe):
        yield f1_scores(gold, logits > 0), settings


@evaluator("action prediction")
def evaluate_actions(
    encoder: SupportsEncode,
    train: Examples,
    validation: Examples,
    test: Examples,
    *,
    acts: Sequence[str],
    groups: ndarray,
    probe: str = "linear",
) -> Scores:
    """DiaEval: F1 of a probe on the frozen encoder; the chosen penalty is in a setting column.

    ``groups`` of test examples give one row each, numbered by ``seed``, whose mean is the F1 of all and whose spread
    its interval (:func:`~dialnb.evaluation.metrics.group_values`).
    """
    splits = train, validation, test
    labels = [act_matrix(examples, acts) for examples in splits]
    logits, settings = probe_texts(encoder, list(map(_texts, splits)), labels, _selection_score, 128, probe)
    yield from group_scores(lambda rows: f1_scores(labels[2][rows], logits[rows] > 0), groups, **settings)


def majority_rows(
    train: Examples,
    test: Examples,
    *,
    dataset: str,
    acts: Sequence[str],
    groups: ndarray | None = None,
    task: str = "action prediction",
) -> pd.DataFrame:
    """The floor of both forms: F1 of the most frequent combination of acts, whatever is asked."""
    combinations, often = np.unique(act_matrix(train, acts), axis=0, return_counts=True)
    gold = act_matrix(test, acts)
    answers = np.broadcast_to(combinations[often.argmax()], gold.shape)
    groups = np.zeros(len(gold), np.int64) if groups is None else groups
    score = evaluator(task)(group_scores)
    return score(lambda rows: f1_scores(gold[rows], answers[rows]), groups, dataset=dataset, method="majority")


def _selection_score(logits: ndarray, gold: ndarray) -> float:
    """Mean of Micro- and Macro-F1, by which both forms choose their weights."""
    scores = f1_scores(gold, logits > 0)
    return (scores["Micro-F1"] + scores["Macro-F1"]) / 2


def _texts(examples: Examples) -> list[str]:
    return [example.text for example in examples]
