"""Semantic retrieval (DialogueCSE): rank each query's pool of relevant and irrelevant sentences by cosine."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from dialnb.data.records import RetrievalQuery
from dialnb.errors import DataError
from dialnb.evaluation.metrics import Scores, evaluator, pad_lists, ranking_metrics
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode, listed_scores


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


@evaluator("retrieval")
def evaluate_retrieval(
    encoder: SupportsEncode, queries: Sequence[RetrievalQuery], *, max_length: int = 64, **encoding: Any
) -> Scores:
    """MAP and MRR in percent over the released pools; protocol ``floor`` holds what a random order would give.

    Candidate ids are those of other queries of the same split. Ties count against the relevant sentences; queries
    without any are left out.
    """
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
    found, _ = ranking_metrics(pad_lists(scores, sizes, -np.inf), labels, ks=())
    floors = np.array([chance(int(r), int(size)) for r, size in zip(relevant, sizes)]).mean(0)
    common = {"n": len(kept), "pool": float(sizes.mean())}
    yield {metric: 100 * found[metric] for metric in ("MAP", "MRR")}, {"protocol": "paper", **common}
    yield dict(zip(("MAP", "MRR"), 100 * floors)), {"protocol": "floor", **common}
