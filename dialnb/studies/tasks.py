"""The tasks that DSE's tables ask of an encoder: records of one dataset in, tidy rows out; each is a stage."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from pandas import DataFrame

from dialnb.data import Dataset, QuestionAnswer, conversation_of
from dialnb.evaluation import (
    EncodeOnce,
    SupportsEncode,
    act_tagging_examples,
    evaluate_blocks,
    evaluate_candidates,
    evaluate_nli_probe,
    evaluate_prototypes,
    evaluate_scope,
    finetune_actions,
    finetune_intents,
    finetune_responses,
    stacked,
    tidy_frame,
    tidy_rows,
)
from dialnb.evaluation.actions import majority_rows
from dialnb.evaluation.bundled import train_and_test
from dialnb.evaluation.diaeval import act_names, asked_lists, dialogues_of
from dialnb.evaluation.finetuning import ACTIONS, INTENTS, RESPONSES
from dialnb.evaluation.scope import OUT, PROTOCOLS, scope_metrics
from dialnb.evaluation.selection import candidate_ranks
from dialnb.evaluation.similarity import nli_hits
from dialnb.examples.pairs import enough_words
from dialnb.examples.readings import Dialogues, Limit, thin
from dialnb.models.encoder import Encoder
from dialnb.studies.shared import for_all

POOL = 5000
"""Pairs that fine-tuning on responses draws its 500 or 1000 from; the others are for testing."""


# --- data -------------------------------------------------------------------------------------------------------------


def question_answers(records: Dataset, limit: Limit) -> list[QuestionAnswer]:
    """The pairs of a question-answer dataset, or of a dialogue corpus: every question with the reply to it.

    A dialogue has about two of them; where ``limit`` are wanted, four dialogues for each are looked into.
    """
    if records.table.kind == "QuestionAnswer":
        return [records[row] for row in thin(range(len(records)), limit)]
    pairs = {}
    for talk in Dialogues([records], 4 * limit if limit else None).read():
        for first, second in pairwise(talk.utterances):
            if first.endswith("?") and enough_words(first) and enough_words(second):
                pairs[first, second] = QuestionAnswer(first, second)
    return thin(list(pairs.values()), limit)


def nli_triples(items: Sequence) -> list[tuple[str, str, str]]:
    """(anchor, entailment, contradiction) from NLI pairs that share a premise; one triple per premise."""
    by_premise: dict[str, dict[str, str]] = {}
    for item in items:
        premise, hypothesis = item.utterances
        by_premise.setdefault(premise, {}).setdefault(item.label, hypothesis)
    triples = []
    for premise, said in by_premise.items():
        if "entailment" in said and "contradiction" in said:
            triples.append((premise, said["entailment"], said["contradiction"]))
    return triples


# --- without training -------------------------------------------------------------------------------------------------


def intents_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit, **few: Any) -> DataFrame:
    """T2: few-shot prototypes (``few`` are shots and seeds), with the code's and with re-normalised ones."""
    parts = train_and_test(records, limit)
    return evaluate_prototypes(encoder, *parts, dataset=dataset, forms=("code", "cosine"), **few)


def poolings_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit, **few: Any) -> DataFrame:
    """Few-shot prototypes read with the mean and with the first token, on development (if any) and test utterances."""
    found = []
    for split in ("dev", "test"):
        known, asked = train_and_test(records, limit, split)
        for pooling in ("mean", "cls") if asked else ():
            rows = evaluate_prototypes(encoder, known, asked, dataset=dataset, pooling=pooling, **few)
            found.append(rows.assign(pooling=pooling, split=split))
    return stacked(found)


def scope_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit, **few: Any) -> DataFrame:
    """T3 and T8: out-of-scope detection under all protocols, and the trivial floors."""
    train, test = list(records.filter(split="train")), thin(records.filter(split="test"), limit)
    return evaluate_scope(encoder, train, test, dataset=dataset, **few)


def blocks_of(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    questions: Limit,
) -> DataFrame:
    """T4, left: the answer to a question among the 100 of its block, over three shuffles."""
    return evaluate_blocks(encoder, question_answers(records, questions), dataset=dataset)


def candidates_of(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    groups: Limit,
) -> dict[str, DataFrame]:
    """T4, right: the next utterance among the 100 listed (``paper``), and with the true one twice (``code``); ``items``
    of ties against it, with the conversation of each dialogue as its ``group``."""
    chosen, once = asked_lists(records, groups), EncodeOnce(encoder)
    talks, rows, items = [conversation_of(each) for each in chosen], [], []
    for protocol in ("code", "paper"):
        rows.append(evaluate_candidates(once, chosen, dataset=dataset, protocol=protocol))
        ranks = candidate_ranks(once, chosen, protocol)["against"]
        first = {f"Top-{k}": ranks <= k for k in (1, 3, 10)}
        items.append(item_rows(first, group=talks, dataset=dataset, protocol=protocol, ties="against"))
    return {"rows": stacked(rows), "items": stacked(items).assign(task="response selection")}


def nli_of(
    encoder: SupportsEncode,
    records: Dataset,
    dataset: str,
    limit: Limit,
) -> dict[str, DataFrame]:
    """X1: is the entailed sentence closer than the contradicting one? With ``items``, one for each triple."""
    triples, once = thin(nli_triples(records), limit), EncodeOnce(encoder)
    items = item_rows({"Accuracy": nli_hits(once, triples)}, dataset=dataset, protocol="paper", task="NLI probe")
    return {"rows": evaluate_nli_probe(once, triples, dataset=dataset), "items": items}


def item_rows(hits: Mapping[str, np.ndarray], **labels: Any) -> DataFrame:
    """What each test item scored, in percent, by metric: tidy rows with a column ``item``."""
    return stacked(
        DataFrame({"metric": metric, "item": range(len(hit)), "value": 100.0 * hit, **labels})
        for metric, hit in hits.items()
    )


def guessed_intents_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit, shots, seeds=(), finetune_seeds=(), **_
) -> DataFrame:
    """The floor of T2 and T7: an intent drawn blindly, in every draw of the few examples."""
    train, test = train_and_test(records, limit)
    value = {"Accuracy": 100 / len({example.intent for example in train})}
    rows = tidy_rows(value, task="intent", dataset=dataset, protocol="code", n=len(test), method="guess")
    return for_all(tidy_frame(rows), protocol=("code", "paper"), shots=shots, seed=seeds or finetune_seeds)


def rejected_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit, shots, seeds) -> DataFrame:
    """The floor of T3 and T8: every utterance is of the largest class, out of scope, whatever the protocol."""
    test = thin(records.filter(split="test"), limit)
    labels = np.array([OUT if example.intent == "oos" else 0 for example in test])
    values = scope_metrics(np.full(len(test), OUT), labels)
    rows = tidy_frame(tidy_rows(values, task="out-of-scope", dataset=dataset, protocol="code", n=len(test)))
    return for_all(rows, protocol=PROTOCOLS, threshold=("mean", "mean-std"), shots=shots, seed=seeds)


def worded_selection_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, questions: Limit, response_shots, finetune_seeds, **_
) -> DataFrame:
    """The floor of T9: the same pairs in the same blocks, ranked by shared words."""
    test = learned_and_ranked(records, questions)[1]
    rows = evaluate_blocks(encoder, test, dataset=dataset, seeds=(0,)).assign(protocol="code")
    return for_all(rows, shots=response_shots, seed=finetune_seeds)


def majority_actions_of(
    encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit, action_shots, action_seeds, **rest
) -> DataFrame:
    """The floor of T5: the most frequent combination of acts of the training set, however few examples models see."""
    answer = partial(majority_rows, task="action tagging")
    rows = tagged(answer, records, dataset, limit, rest.get("all_turns", ()))
    return for_all(rows, shots=action_shots, seed=action_seeds)


# --- fine-tuned -------------------------------------------------------------------------------------------------------


def actions_of(
    encoder: Encoder,
    records: Dataset,
    dataset: str,
    limit: Limit,
    action_shots,
    action_seeds,
    action_rate: float = 1.0,
    all_turns: Sequence[str] = (),
) -> DataFrame:
    """T5: acts of a system utterance that is in the input, as in the authors' data (``code``), or is not (``clean``).

    Columns are all acts of the dataset, of both speakers: those that never occur count as 0 in Macro-F1. Of the
    datasets in ``all_turns`` every system utterance is asked for, of the others the last of each dialogue.
    """
    recipe = ACTIONS.times(action_rate)
    tune = partial(finetune_actions, encoder, shots=action_shots, seeds=action_seeds, recipe=recipe)
    return tagged(tune, records, dataset, limit, all_turns)


def tagged(
    score: Callable[..., DataFrame], records: Dataset, dataset: str, limit: Limit, all_turns: Sequence[str]
) -> DataFrame:
    """The rows that ``score`` gives of the training and test examples of T5, under both protocols."""
    dialogues, acts = dialogues_of(records, dataset), act_names(records, dataset)
    rows = []
    for protocol in ("code", "clean"):
        parts = []
        for split in ("train", "test"):
            chosen = [dialogue for dialogue in dialogues if dialogue.split == split]
            every, seen = dataset in all_turns, protocol == "code"
            parts.append(act_tagging_examples(chosen, target_in_input=seen, every=every))
        scored = score(parts[0], thin(parts[1], limit), dataset=dataset, acts=acts)
        rows.append(scored.assign(protocol=protocol))
    return stacked(rows)


def finetuned_intents_of(
    encoder: Encoder,
    records: Dataset,
    dataset: str,
    limit: Limit,
    shots,
    finetune_seeds,
    finetune_rate: float = 1.0,
) -> DataFrame:
    """T7: a classifier on a few examples of each intent."""
    parts, recipe = train_and_test(records, limit), INTENTS.times(finetune_rate)
    return finetune_intents(encoder, *parts, dataset=dataset, shots=shots, seeds=finetune_seeds, recipe=recipe)


def finetuned_selection_of(
    encoder: Encoder,
    records: Dataset,
    dataset: str,
    questions: Limit,
    response_shots,
    finetune_seeds,
    finetune_rate: float = 1.0,
) -> DataFrame:
    """T9: 500 or 1000 pairs to learn from, disjoint from those that are ranked."""
    parts, few = learned_and_ranked(records, questions), {"shots": response_shots, "seeds": finetune_seeds}
    return finetune_responses(encoder, *parts, dataset=dataset, recipe=RESPONSES.times(finetune_rate), **few)


def learned_and_ranked(records: Dataset, questions: Limit) -> tuple[list[QuestionAnswer], list[QuestionAnswer]]:
    """The pairs that T9 learns from and those that it ranks, drawn once."""
    pairs = question_answers(records, questions)
    order = np.random.default_rng(24).permutation(len(pairs))
    shuffled, half = [pairs[i] for i in order], min(POOL, len(pairs) // 2)
    return shuffled[:half], shuffled[half:]
