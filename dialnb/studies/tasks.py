"""Tasks of DSE's tables that are more than one evaluator: both poolings, and what each test item scored. The others
are evaluators of `dialnb.evaluation` as they are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from dialnb.data import Dataset, conversation_of
from dialnb.evaluation import (
    EncodeOnce,
    SupportsEncode,
    evaluate_candidates,
    evaluate_nli_probe,
    evaluate_prototypes,
    stacked,
)
from dialnb.evaluation.diaeval import asked_lists
from dialnb.evaluation.intent import train_and_test
from dialnb.evaluation.selection import candidate_ranks
from dialnb.evaluation.similarity import nli_hits
from dialnb.examples.readings import Limit, thin


def poolings_of(encoder: SupportsEncode, records: Dataset, dataset: str, limit: Limit, **few: Any) -> DataFrame:
    """Few-shot prototypes read with the mean and with the first token, on development (if any) and test utterances."""
    parts = []
    for split in ("dev", "test"):
        known, asked = train_and_test(records, limit, split)
        for pooling in ("mean", "cls") if asked else ():
            rows = evaluate_prototypes(encoder, known, asked, dataset=dataset, pooling=pooling, **few)
            parts.append(rows.assign(pooling=pooling, split=split))
    return stacked(parts)


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


def nli_triples(items: Sequence) -> list[tuple[str, str, str]]:
    """(anchor, entailment, contradiction) from NLI pairs that share a premise; one triple per premise."""
    by_premise: dict[str, dict[str, str]] = {}
    for item in items:
        premise, hypothesis = item.utterances
        by_premise.setdefault(premise, {}).setdefault(item.label, hypothesis)
    triples = []
    for premise, hypotheses in by_premise.items():
        if "entailment" in hypotheses and "contradiction" in hypotheses:
            triples.append((premise, hypotheses["entailment"], hypotheses["contradiction"]))
    return triples


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
