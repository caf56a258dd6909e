"""Dialogue action prediction: two different tasks under one name (fidelity trap 2).

DSE tags the acts of a system utterance that is part of the input, after few-shot fine-tuning. DiaEval predicts the
acts of the next utterance of either speaker from the history, with a linear layer on a frozen encoder and all data.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy import ndarray

from dialnb.data import Dataset, Dialogue, Texts
from dialnb.errors import DataError
from dialnb.evaluation.finetuning import ACTIONS, FineTuning, few_shot_logits
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.linear import most_frequent
from dialnb.evaluation.metrics import Scores, evaluator, f1_scores
from dialnb.evaluation.sampling import parts_of
from dialnb.examples.acts import act_columns, with_universal_acts
from dialnb.examples.readings import Limit

UNIVERSAL = ("DSTC2", "GSIM")
"""Datasets whose acts are translated to universal ones, so that both have the printed number of columns."""

KEPT_WORDS = int(0.9 * ACTIONS.max_length)
"""Words kept from the end of DSE's input before it is cut to 32 tokens."""


@dataclass(frozen=True, slots=True)
class ActionExample:
    """An input text, the acts to predict from it, and the dialogue and the split that it comes from."""

    text: str
    acts: Texts
    dialogue: str = ""
    split: str = ""


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
        utterances = dialogue.utterances
        targets = [i for i, utterance in enumerate(utterances) if utterance.speaker == "system" and utterance.acts]
        for target in targets if every else targets[-1:]:
            parts = [f"[SEP] {utterance.text}" for utterance in utterances[:target]]
            if target_in_input:
                parts.append(f"[SEP] [SEP] {utterances[target].text}")
                parts += [f"[SEP] {utterance.text}" for utterance in utterances[target + 1 : target + 2]]
            text = " ".join(" ".join(parts).split()[-KEPT_WORDS:])
            examples.append(ActionExample(text, utterances[target].acts, split=dialogue.split))
    return examples


def next_act_examples(dialogues: Iterable[Dialogue], *, separator: str = "[SEP]") -> list[ActionExample]:
    """DiaEval's samples: every utterance from the third on is a target, its input all utterances before it."""
    examples = []
    for number, dialogue in enumerate(dialogues):
        texts = [utterance.text for utterance in dialogue.utterances]
        for i in range(2, len(texts)):
            known, acts = f" {separator} ".join(texts[:i]), dialogue.utterances[i].acts
            examples.append(ActionExample(known, acts, f"{number} {dialogue.id}", dialogue.split))
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


def dialogues_of(records: Dataset, dataset: str) -> list[Dialogue]:
    """The dialogues with universal acts, where the dataset is named in ``UNIVERSAL``, else with their own."""
    return with_universal_acts(records, dataset) if dataset in UNIVERSAL else list(records)


def act_names(records: Dataset, dataset: str) -> list[str]:
    """The label columns: universal acts, or all acts that occur."""
    return act_columns(dataset) if dataset in UNIVERSAL else sorted(set(records.column("utterances.acts")))


Tagged = Iterator[tuple[str, Examples, Examples, ndarray, ndarray]]


def tagged(records: Dataset, dataset: str, limit: Limit, all_turns: Sequence[str]) -> Tagged:
    """Protocol, training and test examples and the labels of both, for each reading of T5."""
    dialogues, acts = dialogues_of(records, dataset), act_names(records, dataset)
    for protocol in ("code", "clean"):
        examples = act_tagging_examples(dialogues, target_in_input=protocol == "code", every=dataset in all_turns)
        train, test = parts_of(examples, limit=limit)
        yield protocol, train, test, act_matrix(train, acts), act_matrix(test, acts)


@evaluator("action tagging")
def finetune_actions(
    encoder: Any,
    records: Dataset,
    *,
    dataset: str,
    limit: Limit = None,
    shots: Iterable[int] = (10, 20),
    seeds: Iterable[int] = range(5),
    all_turns: Sequence[str] = (),
    recipe: FineTuning = ACTIONS,
) -> Scores:
    """Few-shot fine-tuning (DSE T5): F1 of acts with sigmoid above 0.5, where the system utterance that is tagged is in
    the input, as in the authors' data (``code``), and where it is not (``clean``).

    Columns are all acts of the dataset, of both speakers: those that never occur count as 0 in Macro-F1. Of the
    datasets in ``all_turns`` every system utterance is asked for, of the others the last of each dialogue.
    """
    encoder = as_trainable(encoder)
    for protocol, train, test, labels, gold in tagged(records, dataset, limit, all_turns):
        parts = (texts_of(train), labels), [example.acts for example in train], texts_of(test)
        for logits, settings in few_shot_logits(encoder, *parts, selection_score, (shots, seeds), recipe):
            yield f1_scores(gold, logits > 0), settings | {"protocol": protocol}


@evaluator("action tagging")
def majority_tags(
    encoder: Any,
    records: Dataset,
    *,
    dataset: str,
    shots: Iterable[int],
    seeds: Sequence[int],
    limit: Limit = None,
    all_turns: Sequence[str] = (),
    **_: Any,
) -> Scores:
    """The floor of T5: the most frequent combination of acts of the training set, however few examples models see."""
    for protocol, _train, test, labels, gold in tagged(records, dataset, limit, all_turns):
        values = f1_scores(gold, np.broadcast_to(most_frequent(labels), gold.shape))
        for k, seed in product(shots, seeds):
            yield values, {"protocol": protocol, "seed": seed, "n": len(test), "shots": k, "method": "majority"}


def selection_score(logits: ndarray, gold: ndarray) -> float:
    """Mean of Micro- and Macro-F1, by which both forms choose their weights."""
    scores = f1_scores(gold, logits > 0)
    return (scores["Micro-F1"] + scores["Macro-F1"]) / 2


def texts_of(examples: Examples) -> list[str]:
    return [example.text for example in examples]
