"""Semantic retrieval (DialogueCSE): rank each query's pool of relevant and irrelevant sentences by cosine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dialnb.data.records import RetrievalQuery
from dialnb.errors import DataError
from dialnb.evaluation.metrics import pad_lists, ranking_metrics, tidy_frame, tidy_rows
from dialnb.evaluation.vectors import SupportsEncode, encode_unique, normalise, pair_scores


@cache
def chance(relevant: int, pool: int) -> tuple[float, float]:
    """Expected average precision and reciprocal rank of a random order, as fractions.

    >>> [round(value, 3) for value in chance(30, 70)]
    [0.46, 0.637]
    """
    if not 1 <= relevant <= pool:
        raise DataError(f"a pool of {pool} cannot hold {relevant} relevant sentences; expected between 1 and {pool}")
    harmonic = float((1 / np.arange(1, pool + 1)).sum())
    precision = (harmonic + (relevant - 1) / max(1, pool - 1) * (pool - harmonic)) / pool
    reciprocal = 0.0
    later = 1.0
    for rank in range(1, pool - relevant + 2):
        hit = relevant / (pool - rank + 1)
        reciprocal += later * hit / rank
        later *= 1 - hit
    return precision, reciprocal


def evaluate_retrieval(
    encoder: SupportsEncode,
    queries: Sequence[RetrievalQuery],
    *,
    dataset: str,
    max_length: int = 64,
    **encoding: Any,
) -> pd.DataFrame:
    """MAP and MRR in percent over the released pools; protocol ``floor`` holds what a random order would give.

    Candidate ids are those of other queries of the same split. Ties count against the relevant sentences; queries
    without any are left out.
    """
    row_of = {query.id: row for row, query in enumerate(queries)}
    kept = [query for query in queries if query.positives]
    if not kept:
        raise DataError(f"{dataset} has no query with relevant sentences: there is nothing to rank")
    try:
        pools = [[row_of[i] for i in (*query.positives, *query.negatives)] for query in kept]
    except KeyError as error:
        raise DataError(
            f"{dataset} has no sentence {error} in this split, but a query lists it as a candidate"
        ) from None
    texts = [query.text for query in queries]
    settings = {"max_length": max_length, **encoding}
    vectors, rows = encode_unique(encoder, texts, **settings)
    own = getattr(encoder, "asking", None)
    vectors, asking = (vectors, encode_unique(encoder, texts, own, **settings)[0]) if own else [normalise(vectors)] * 2
    sizes = np.array([len(pool) for pool in pools])
    asked = np.repeat(rows[[row_of[query.id] for query in kept]], sizes)
    scores = pair_scores(asking, vectors, asked, rows[np.concatenate(pools)])
    relevant = np.array([len(query.positives) for query in kept])
    labels = (np.arange(sizes.max()) < relevant[:, None]).astype(np.int64)
    found = ranking_metrics(pad_lists(scores, sizes, -np.inf), labels, ks=())
    floors = np.array([chance(int(r), int(size)) for r, size in zip(relevant, sizes)]).mean(0)
    common = {"task": "retrieval", "dataset": dataset, "n": len(kept), "pool": float(sizes.mean())}
    values = {metric: 100 * found.values[metric] for metric in ("MAP", "MRR")}
    floor = {"MAP": 100 * floors[0], "MRR": 100 * floors[1]}
    return tidy_frame(tidy_rows(values, protocol="paper", **common) + tidy_rows(floor, protocol="floor", **common))
