"""The tasks that DSE's tables ask of an encoder: records of one dataset in, tidy rows out; each is a stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pandas as pd

from dialnb.data import Dataset
from dialnb.data.records import IntentUtterance, QuestionAnswer
from dialnb.evaluation import (
    act_tagging_examples,
    evaluate_blocks,
    evaluate_candidates,
    evaluate_nli_probe,
    evaluate_prototypes,
    evaluate_scope,
    finetune_actions,
    finetune_intents,
    finetune_responses,
)
from dialnb.evaluation.actions import majority_rows
from dialnb.evaluation.diaeval import UNIVERSAL
from dialnb.evaluation.finetuning import ACTIONS, INTENTS, RESPONSES
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.scope import OUT, PROTOCOLS, scope_metrics
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode
from dialnb.examples.acts import act_columns, with_universal_acts
from dialnb.examples.pairs import enough_words
from dialnb.examples.readings import Dialogues, thin
from dialnb.models.encoder import Encoder

POOL = 5000
"""Pairs that fine-tuning on responses draws its 500 or 1000 from; the others are for testing."""


# --- data -------------------------------------------------------------------------------------------------------------


def train_and_test(records: Dataset, limit: int | None = None) -> tuple[list[IntentUtterance], list[IntentUtterance]]:
    """In-scope training utterances, and test utterances, of which ``limit`` are kept."""
    train, test = ([r for r in records.filter(split=split) if r.intent != "oos"] for split in ("train", "test"))
    return train, thin(test, limit)


def question_answers(records: Dataset, limit: int | None) -> list[QuestionAnswer]:
    """The pairs of a question-answer dataset, or of a dialogue corpus: every question with the reply to it.

    A dialogue has about two of them; where ``limit`` are wanted, four dialogues for each are looked into.
    """
    if records.table.kind == "QuestionAnswer":
        return [records[row] for row in thin(range(len(records)), limit)]
    pairs = dict.fromkeys(
        (first, second)
        for c in Dialogues([records], 4 * limit if limit else None).read()
        for first, second in zip(c.utterances, c.utterances[1:])
        if first.endswith("?") and enough_words(first) and enough_words(second)
    )
    return [QuestionAnswer(*pair) for pair in thin(list(pairs), limit)]


def nli_triples(items: Sequence) -> list[tuple[str, str, str]]:
    """(anchor, entailment, contradiction) from NLI pairs that share a premise; one triple per premise."""
    by_premise: dict[str, dict[str, str]] = {}
    for item in items:
        premise, hypothesis = item.utterances
        by_premise.setdefault(premise, {}).setdefault(item.label, hypothesis)
    return [
        (premise, said["entailment"], said["contradiction"])
        for premise, said in by_premise.items()
        if {"entailment", "contradiction"} <= said.keys()
    ]


# --- without training -------------------------------------------------------------------------------------------------


def intents_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None, shots, seeds
) -> pd.DataFrame:
    """T2: few-shot prototypes, with the code's prototypes and with re-normalised ones."""
    parts, forms = train_and_test(records, limit), ("code", "cosine")
    return evaluate_prototypes(encoder, *parts, dataset=dataset, shots=shots, seeds=seeds, forms=forms)


def one_shot_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None, seeds) -> pd.DataFrame:
    """The 1-shot accuracy that ablations are scored by."""
    return intents_of(encoder, records, dataset, limit, (1,), seeds).query("method == 'prototype-code'")


def scope_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None, shots, seeds) -> pd.DataFrame:
    """T3 and T8: out-of-scope detection under all protocols, and the trivial floors."""
    train, test = list(records.filter(split="train")), thin(records.filter(split="test"), limit)
    return evaluate_scope(encoder, train, test, dataset=dataset, shots=shots, seeds=seeds)


def blocks_of(encoder: SupportsEncode, records: Dataset, dataset: str, questions: int | None) -> pd.DataFrame:
    """T4, left: the answer to a question among the 100 of its block, over three shuffles."""
    return evaluate_blocks(encoder, question_answers(records, questions), dataset=dataset)


def candidates_of(encoder: SupportsEncode, records: Dataset, dataset: str, groups: int | None) -> pd.DataFrame:
    """T4, right: the next utterance among the 100 listed (``paper``), and with the true one twice (``code``)."""
    chosen, once = thin(records.filter(split=("dev", "test")), groups), EncodeOnce(encoder)
    return pd.concat(evaluate_candidates(once, chosen, dataset=dataset, protocol=p) for p in ("code", "paper"))


def nli_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None) -> pd.DataFrame:
    """X1: is the entailed sentence closer than the contradicting one?"""
    return evaluate_nli_probe(encoder, thin(nli_triples(records), limit), dataset=dataset)


def guessed_intents_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None, shots, seeds=(), finetune_seeds=(), **_
) -> pd.DataFrame:
    """The floor of T2 and T7: an intent drawn blindly, in every draw of the few examples."""
    train, test = train_and_test(records, limit)
    common = {"task": "intent", "dataset": dataset, "n": len(test), "method": "guess"}
    value = {"Accuracy": 100 / len({example.intent for example in train})}
    rows = [
        tidy_rows(value, protocol=protocol, shots=k, seed=seed, **common)
        for protocol in ("code", "paper")
        for k in shots
        for seed in (seeds or finetune_seeds)
    ]
    return tidy_frame(row for part in rows for row in part)


def rejected_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, limit: int | None, shots, seeds
) -> pd.DataFrame:
    """The floor of T3 and T8: every utterance is of the largest class, out of scope, whatever the protocol."""
    test = thin(records.filter(split="test"), limit)
    labels = np.array([OUT if example.intent == "oos" else 0 for example in test])
    values = scope_metrics(np.full(len(test), OUT), labels)
    common = {"task": "out-of-scope", "dataset": dataset, "n": len(test)}
    return tidy_frame(
        row
        for protocol, threshold in product(PROTOCOLS, ("mean", "mean-std"))
        for k, seed in product(shots, seeds)
        for row in tidy_rows(values, protocol=protocol, threshold=threshold, shots=k, seed=seed, **common)
    )


def worded_selection_of(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    questions: int | None,
    response_shots,
    finetune_seeds,
    finetune_rate: float = 1.0,
) -> pd.DataFrame:
    """The floor of T9: the same pairs in the same blocks, ranked by shared words."""
    _, test = learned_and_ranked(records, questions)
    found = evaluate_blocks(encoder, test, dataset=dataset, seeds=(0,)).assign(protocol="code")
    return pd.concat(found.assign(shots=k, seed=seed) for k in response_shots for seed in finetune_seeds)


def majority_actions_of(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    limit: int | None,
    action_shots,
    action_seeds,
    finetune_rate: float = 1.0,
) -> pd.DataFrame:
    """The floor of T5: the most frequent combination of acts of the training set, however few examples models see."""
    rows = []
    for protocol, train, test, acts in tagging_parts(records, dataset, limit):
        found = majority_rows(train, test, dataset=dataset, acts=acts, task="action tagging")
        rows += [found.assign(protocol=protocol, shots=k, seed=seed) for k in action_shots for seed in action_seeds]
    return pd.concat(rows)


# --- fine-tuned -------------------------------------------------------------------------------------------------------


def actions_of(
    encoder: Encoder, records: Dataset, dataset: str, limit: int | None, action_shots, action_seeds,
    finetune_rate: float = 1.0,
) -> pd.DataFrame:  # fmt: skip
    """T5: acts of a system utterance that is in the input, as in the authors' data (``code``), or is not (``clean``).

    Columns are all acts of the dataset, of both speakers: those that never occur count as 0 in Macro-F1.
    """
    rows = []
    for protocol, train, test, acts in tagging_parts(records, dataset, limit):
        options = {
            "dataset": dataset,
            "acts": acts,
            "shots": action_shots,
            "seeds": action_seeds,
            "recipe": ACTIONS.times(finetune_rate),
        }
        rows.append(finetune_actions(encoder, train, test, **options).assign(protocol=protocol))
    return pd.concat(rows)


def tagging_parts(records: Dataset, dataset: str, limit: int | None) -> Iterator[tuple]:
    """Protocol, training and test examples, and the columns of T5."""
    dialogues = with_universal_acts(records, dataset) if dataset in UNIVERSAL else list(records)
    said = (utterance.acts for dialogue in dialogues for utterance in dialogue.utterances)
    acts = act_columns(dataset) if dataset in UNIVERSAL else sorted({act for acts in said for act in acts})
    for protocol, inside in (("code", True), ("clean", False)):
        train, test = (
            act_tagging_examples((d for d in dialogues if d.split == split), target_in_input=inside)
            for split in ("train", "test")
        )
        yield protocol, train, thin(test, limit), acts


def finetuned_intents_of(
    encoder: Encoder, records: Dataset, dataset: str, limit: int | None, shots, finetune_seeds,
    finetune_rate: float = 1.0,
) -> pd.DataFrame:  # fmt: skip
    """T7: a classifier on a few examples of each intent."""
    parts = train_and_test(records, limit)
    recipe = INTENTS.times(finetune_rate)
    return finetune_intents(encoder, *parts, dataset=dataset, shots=shots, seeds=finetune_seeds, recipe=recipe)


def finetuned_selection_of(
    encoder: Encoder, records: Dataset, dataset: str, questions: int | None, response_shots, finetune_seeds,
    finetune_rate: float = 1.0,
) -> pd.DataFrame:  # fmt: skip
    """T9: 500 or 1000 pairs to learn from, disjoint from those that are ranked."""
    train, test = learned_and_ranked(records, questions)
    options = {"dataset": dataset, "shots": response_shots, "seeds": finetune_seeds}
    return finetune_responses(encoder, train, test, recipe=RESPONSES.times(finetune_rate), **options)


def learned_and_ranked(records: Dataset, questions: int | None) -> tuple[list[QuestionAnswer], list[QuestionAnswer]]:
    """The pairs that T9 learns from and those that it ranks, drawn once."""
    pairs = question_answers(records, questions)
    order = np.random.default_rng(24).permutation(len(pairs))
    train, test = ([pairs[i] for i in part] for part in np.split(order, [min(POOL, len(pairs) // 2)]))
    return train, test
