"""How close two sentences are: correlation with human scores (D-STS of DialogueCSE), the NLI probe of DSE, and semantic
retrieval (DialogueCSE), which ranks each query's pool of relevant and irrelevant sentences."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy import ndarray

from dialnb.data.records import RetrievalQuery, ScoredPair
from dialnb.errors import DataError
from dialnb.evaluation.metrics import Scores, evaluator, group_scores, list_metrics, pad_lists
from dialnb.evaluation.sampling import item_groups
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode, cosines, listed_scores
from dialnb.examples.readings import Limit, thin

Triples = Sequence[tuple[str, str, str]]
Queries = Sequence[RetrievalQuery]


def spearman(gold: Sequence[float] | ndarray, model: Sequence[float] | ndarray) -> float:
    """Spearman's rank correlation times 100, average ranks for ties; NaN where one side does not vary.

    >>> round(spearman([1, 2, 3, 4, 5], [0.1, 0.4, 0.3, 0.7, 0.6]), 6)
    80.0
    """
    if len(gold) < 2:
        raise DataError(f"a correlation needs at least two scored pairs, found {len(gold)}")
    a, b = (ranks - ranks.mean() for ranks in (pd.Series(side).rank().to_numpy() for side in (gold, model)))
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return 100 * float(a @ b) / scale if scale else float("nan")


@evaluator("similarity")
def evaluate_similarity(
    encoder: SupportsEncode,
    records: Sequence[ScoredPair],
    *,
    dataset: str,
    split: str = "",
    limit: Limit = None,
    groups: int = 1,
    max_length: int = 64,
    **encoding: Any,
) -> Scores:
    """Spearman between the cosine of two sentences and their human score, as ``Corr`` in percent; a row for each of so
    many ``groups`` of pairs (:func:`~dialnb.evaluation.metrics.group_values`), of all or those of a ``split``."""
    pairs = thin([pair for pair in records if split in ("", pair.split)], limit)
    first, second = ([getattr(pair, side) for pair in pairs] for side in ("first", "second"))
    (cosine,) = cosines(encoder, first, second, max_length=max_length, **encoding)
    gold = np.array([pair.score for pair in pairs])
    dealt = item_groups(range(len(pairs)), max(1, min(groups, len(pairs) // 2)))  # two pairs are left without any
    yield from group_scores(lambda rows: {"Corr": spearman(gold[rows], cosine[rows])}, dealt)


@evaluator("NLI probe")
def evaluate_nli_probe(encoder: SupportsEncode, records: Triples, *, dataset: str) -> Scores:
    """Is the entailed sentence closer to its anchor than the contradicting one? Accuracy in percent over (anchor,
    entailment, contradiction) texts; chance is 50, a tie is a loss."""
    yield {"Accuracy": 100 * nli_hits(encoder, records).mean()}, {"protocol": "paper", "n": len(records)}


def nli_hits(encoder: SupportsEncode, triples: Triples) -> ndarray:
    """Tell for each triple whether the entailed sentence is the closer one."""
    if not len(triples):
        raise DataError("the NLI probe needs at least one (anchor, entailment, contradiction) triple")
    entailed, contradicting = cosines(encoder, *zip(*triples), max_length=50)
    return entailed > contradicting


@cache
def chance(relevant: int, pool: int) -> tuple[float, float]:
    """Expected average precision and reciprocal rank of a random order, as fractions.

    >>> [round(value, 3) for value in chance(30, 70)]
    [0.46, 0.637]
    """
    harmonic = float((1 / np.arange(1, pool + 1)).sum())
    precision = (harmonic + (relevant - 1) / max(1, pool - 1) * (pool - harmonic)) / pool
    reciprocal = 0.0
    later = 1.0
    for rank in range(1, pool - relevant + 2):
        hit = relevant / (pool - rank + 1)
        reciprocal += later * hit / rank
        later *= 1 - hit
    return precision, reciprocal


def thinned(queries: Queries, limit: Limit = None) -> Queries:
    """Keep ``limit`` of the queries with all their candidates, which are then no queries themselves."""
    if limit is None:
        return queries
    asked = {query.id: query for query in thin(queries, limit)}
    needed = set(asked).union(*((*query.positives, *query.negatives) for query in asked.values()))
    return [
        asked.get(query.id) or replace(query, positives=(), negatives=()) for query in queries if query.id in needed
    ]


@evaluator("retrieval")
def evaluate_retrieval(
    encoder: SupportsEncode,
    records: Queries,
    *,
    dataset: str,
    limit: Limit = None,
    groups: int = 1,
    max_length: int = 64,
    **encoding: Any,
) -> Scores:
    """MAP and MRR in percent over the released pools; protocol ``floor`` holds what a random order would give. A row
    for each of so many ``groups`` of queries (:func:`~dialnb.evaluation.metrics.group_values`).

    Candidate ids are those of other queries of the same split. Ties count against the relevant sentences; queries
    without any are left out.
    """
    queries = thinned(records, limit)
    text_of = {query.id: query.text for query in queries}
    kept = [query for query in queries if query.positives]
    if not kept:
        raise DataError("no query has relevant sentences: there is nothing to rank")
    pools = [(*query.positives, *query.negatives) for query in kept]
    listed = [name for pool in pools for name in pool]
    unknown = set(listed) - text_of.keys()
    if unknown:
        raise DataError(f"there is no sentence {min(unknown)} in this split, but a query lists it as a candidate")
    settings = {"max_length": max_length, **encoding}
    once = EncodeOnce(encoder)
    once.encode([text if text.strip() else "." for text in text_of.values()], **settings)  # in one pass
    sizes = np.array(list(map(len, pools)))
    asked = [query.text for query in kept]
    scores = listed_scores(once, asked, [text_of[name] for name in listed], sizes, settings, settings)
    relevant = np.array([len(query.positives) for query in kept])
    labels = (np.arange(sizes.max()) < relevant[:, None]).astype(np.int64)
    measured = list_metrics(pad_lists(scores, sizes, -np.inf), labels, ks=())
    floors = np.array([chance(int(r), int(size)) for r, size in zip(relevant, sizes)])
    dealt = item_groups(range(len(kept)), groups)

    def percent(each: dict[str, ndarray], rows: ndarray) -> dict[str, float]:
        return {metric: 100 * each[metric][rows].mean() for metric in ("MAP", "MRR")}

    for protocol, each in (("paper", measured), ("floor", dict(zip(("MAP", "MRR"), floors.T)))):
        yield from group_scores(
            partial(percent, each),
            dealt,
            protocol=protocol,
            pool=float(sizes.mean()),
        )
