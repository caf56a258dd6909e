"""Response selection: blocks of 100 pairs, listed candidates, labelled candidate lists, and fine-tuning.

Ties count against the true response. Where file order decides instead (the papers' stable sorts), it is reported
beside it as ``ties="file"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch.nn import functional

from dialnb.data.records import QuestionAnswer, SelectionGroup
from dialnb.errors import DataError, UnknownName
from dialnb.evaluation.finetuning import RESPONSES, FineTuning, finetune, in_batches
from dialnb.evaluation.foreign import as_encoder, as_trainable
from dialnb.evaluation.metrics import Ties, pad_lists, ranked_labels, ranking_metrics, tidy_frame, tidy_rows, top_k
from dialnb.evaluation.sampling import response_blocks, response_split
from dialnb.evaluation.vectors import SupportsEncode, encode, label_ids, listed_scores, normalise

Pairs = Sequence[QuestionAnswer] | Sequence[tuple[str, str]]
Scorer = Callable[[Sequence[SelectionGroup]], Sequence[Sequence[float]]]
PROTOCOLS: dict[Ties, str] = {"against": "paper", "file": "code"}
TIES = tuple(PROTOCOLS)


def block_ranks(
    queries: np.ndarray, responses: np.ndarray, blocks: np.ndarray, texts: np.ndarray | None = None
) -> np.ndarray:
    """Rank of every query's own response among the responses of its block, by dot product, ties against it.

    ``blocks`` holds pair numbers [blocks, size]; responses with the same number in ``texts`` are equal texts and tie
    exactly, whatever the rounding. Works on a few blocks at a time, however many there are.
    """
    texts = np.arange(responses.shape[0]) if texts is None else np.asarray(texts)
    ranks = np.empty(blocks.shape, np.int64)
    step = max(1, (1 << 24) // (blocks.shape[1] * (queries.shape[1] + blocks.shape[1])))
    for start in range(0, len(blocks), step):
        part = blocks[start : start + step]
        if sparse.issparse(queries):
            scores = np.stack([(queries[block] @ responses[block].T).toarray() for block in part])
        else:
            scores = np.matmul(queries[part], responses[part].transpose(0, 2, 1))
        own = np.diagonal(scores, axis1=1, axis2=2)[:, :, None]
        same = texts[part][:, None, :] == texts[part][:, :, None]
        ranks[start : start + step] = ((scores >= own) | same).sum(2)
    return ranks.ravel()


def evaluate_blocks(
    encoder: SupportsEncode,
    pairs: Pairs,
    *,
    dataset: str,
    protocol: Literal["paper", "code"] = "paper",
    seeds: Iterable[int] = (0, 1, 2),
    ks: Sequence[int] = (1, 3, 5, 10),
    size: int = 100,
    **encoding: Any,
) -> pd.DataFrame:
    """Utterance-level selection (DSE T4): Top-k of each query against the responses of its block.

    ``paper`` shuffles the pairs once per seed before cutting blocks; ``code`` keeps file order, which groups products
    and is much harder. All shuffles share one encoding pass.
    """
    orders = {"paper": list(seeds), "code": [None]}
    if protocol not in orders:
        raise UnknownName("protocol of block selection", protocol, orders)
    sides = list(zip(*_text_pairs(pairs)))
    queries, responses = (normalise(encode(encoder, side, **{"max_length": 128} | encoding)) for side in sides)
    _, (texts,) = label_ids(sides[1])
    rows = []
    for seed in orders[protocol]:
        ranks = block_ranks(queries, responses, response_blocks(len(pairs), size, seed), texts)
        common = {"task": "response selection", "dataset": dataset, "protocol": protocol, "seed": seed or 0}
        rows += tidy_rows(top_k(ranks, ks), n=len(ranks), candidates=size, **common)
    return tidy_frame(rows)


def evaluate_candidates(
    encoder: SupportsEncode,
    groups: Sequence[SelectionGroup],
    *,
    dataset: str,
    protocol: Literal["paper", "code"] = "paper",
    ks: Sequence[int] = (1, 3, 5, 10),
    max_length: int = 128,
    response_length: int = 32,
    truncate: Literal["right", "left"] = "right",
    **encoding: Any,
) -> pd.DataFrame:
    """Dialogue-level selection: Top-k of the true response among listed candidates, by cosine with the joined context.

    ``paper`` ranks the listed candidates (100). ``code`` puts the true response in front of them once more (101), as
    DSE's code does: where it is also listed, the copy ties with it, so ``ties="against"`` and ``ties="file"`` bound
    what an unstable sort prints. DSE truncates contexts on the right (oldest turns stay), DiaEval on the left.
    """
    if protocol not in ("paper", "code"):
        raise UnknownName("protocol of candidate selection", protocol, ("paper", "code"))
    asked = []
    for group in groups:
        if sum(group.labels) != 1:
            raise DataError(f"dialogue {group.id} has {sum(group.labels)} true responses, expected exactly one")
        if protocol == "code":
            listed = (group.candidates[group.labels.index(1)], *group.candidates)
            group = replace(group, candidates=listed, labels=(1, *(0 for _ in group.candidates)))
        asked.append(group)
    score = cosine_scorer(encoder, max_length, response_length, truncate, **encoding)
    scores, labels = as_matrices(score(asked), [group.labels for group in asked])
    settings = {"candidates": scores.shape[1], "truncate": truncate}
    common = {"task": "response selection", "dataset": dataset, "protocol": protocol, "n": len(groups), **settings}
    rows = []
    for ties in TIES:
        rows += tidy_rows(top_k(ranked_labels(scores, labels, ties).argmax(1) + 1, ks), ties=ties, **common)
    return tidy_frame(rows)


def cosine_scorer(
    encoder: SupportsEncode,
    max_length: int = 128,
    response_length: int | None = None,
    truncate: Literal["right", "left"] = "left",
    **encoding: Any,
) -> Scorer:
    """Candidates by cosine with the joined context, whose latest words count: a sentence encoder as a selector."""

    def score(groups: Sequence[SelectionGroup]) -> list[list[float]]:
        contexts = [" ".join(" ".join(group.context).split()) for group in groups]
        sizes = [len(group.candidates) for group in groups]
        listed = [text for group in groups for text in group.candidates]
        queried = {"max_length": max_length, "truncate": truncate, **encoding}
        settings = {"max_length": response_length or max_length, **encoding}
        scores = listed_scores(encoder, contexts, listed, sizes, queried, settings)
        return [part.tolist() for part in np.split(scores, np.cumsum(sizes)[:-1])]

    return score


def as_scorer(model: Any) -> Scorer:
    """Make a scorer of an encoder; a function or another callable object scores groups already."""
    is_scorer = callable(model) and not isinstance(model, torch.nn.Module)
    return model if is_scorer else cosine_scorer(as_encoder(model))


def as_matrices(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of candidate lists as matrices [n, candidates], shorter lists filled up."""
    sizes = [len(row) for row in labels]
    if [len(row) for row in scores] != sizes:
        raise DataError("every candidate needs one score and one label: the lists differ in length")
    flat = np.concatenate([np.asarray(row, np.float64) for row in scores])
    flags = np.concatenate([np.asarray(row, np.int64) for row in labels])
    return pad_lists(flat, sizes, -np.inf), pad_lists(flags, sizes, 0)


class ScoreOnce:
    """A scorer that remembers: a candidate that was scored before after the same context is not scored again."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.known = {}

    def __call__(self, groups: Sequence[SelectionGroup]) -> list[list[float]]:
        new = {}
        for group in groups:
            unknown = [text for text in group.candidates if (group.context, text) not in self.known]
            if unknown:
                new.setdefault(group.context, {}).update(dict.fromkeys(unknown))
        asked = [SelectionGroup("", context, tuple(texts), (0,) * len(texts)) for context, texts in new.items()]
        for group, scores in zip(asked, self.scorer(asked) if asked else (), strict=True):
            self.known |= {(group.context, text): score for text, score in zip(group.candidates, scores, strict=True)}
        return [[self.known[group.context, text] for text in group.candidates] for group in groups]


def selection_rows(
    scores: Sequence[Sequence[float]],
    labels: Sequence[Sequence[int]],
    *,
    dataset: str,
    ks: Sequence[int] = (1, 2, 5),
) -> pd.DataFrame:
    """R_n@k, MRR, MAP and P@1 (fractions) of labelled candidate lists under both ways of breaking ties.

    Columns ``without_positive`` (left out) and ``all_positive`` (kept) count the degenerate lists.
    """
    matrix, flags = as_matrices(scores, labels)
    rows = []
    for ties in TIES:
        result = ranking_metrics(matrix, flags, ks, ties)
        counts = {"without_positive": result.without_positive, "all_positive": result.all_positive}
        common = {"task": "response selection", "dataset": dataset, "protocol": PROTOCOLS[ties]}
        rows += tidy_rows(result.values, n=result.n, ties=ties, **common, **counts)
    return tidy_frame(rows)


def evaluate_selection(scorer: Scorer, groups: Sequence[SelectionGroup], *, dataset: str) -> pd.DataFrame:
    """:func:`selection_rows` for a model that scores whole groups (a cross-encoder's ``score``)."""
    return selection_rows(as_scorer(scorer)(groups), [group.labels for group in groups], dataset=dataset)


def response_loss(queries: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of raw dot products from each query to the responses of the batch, one direction (DSE's code)."""
    scores = (queries @ responses.T).float()
    return functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def finetune_responses(
    encoder: Any,
    train: Pairs,
    test: Pairs,
    *,
    dataset: str,
    shots: Iterable[int] = (500, 1000),
    seeds: Iterable[int] = range(5),
    ks: Sequence[int] = (1, 3, 5, 10),
    size: int = 100,
    recipe: FineTuning = RESPONSES,
) -> pd.DataFrame:
    """Few-shot fine-tuning on pairs (DSE T9), ranked by raw dot product in blocks of the shuffled test pairs.

    ``train`` must not share pairs with ``test``; each seed draws its training pairs and one validation block from it.
    The selection metric is the sum of Top-1, 3, 5 and 10 on the validation block.
    """
    encoder = as_trainable(encoder)
    pools = []
    for pairs in (train, test):
        sides = [list(side) for side in zip(*_text_pairs(pairs))]
        tokens = [encoder.tokenize(side, max_length=recipe.max_length) for side in sides]
        pools.append((*tokens, label_ids(sides[1])[1][0]))
    pool, held_out = pools

    def embed(model: Any, side: Sequence, rows: np.ndarray) -> torch.Tensor:
        return model.embed([side[row] for row in rows])

    def scores(model: Any, pool: tuple, blocks: np.ndarray, ks: Sequence[int]) -> dict[str, float]:
        rows = blocks.ravel()
        local = np.arange(blocks.size).reshape(blocks.shape)
        queries, responses = (in_batches(model.embed, [side[row] for row in rows]) for side in pool[:2])
        return top_k(block_ranks(queries, responses, local, pool[2][rows]), ks)

    seeds = list(seeds)
    blocks = response_blocks(len(test), size, seed=0)
    rows = []
    for k, seed in product(shots, seeds):
        split = response_split(len(train), k, seed, validation=size)
        model = encoder.clone()

        def loss(batch: np.ndarray, split=split, model=model) -> torch.Tensor:
            return response_loss(*(embed(model, side, split.train[batch]) for side in pool[:2]))

        def validate(split=split, model=model) -> float:
            return sum(scores(model, pool, split.validation[None], (1, 3, 5, 10)).values())

        finetune(model, k, loss, validate, recipe)
        settings = {"shots": k, "candidates": size, "method": "fine-tuning"}
        common = {"task": "response selection", "dataset": dataset, "protocol": "code", "seed": seed}
        rows += tidy_rows(scores(model, held_out, blocks, ks), n=blocks.size, **common, **settings)
    return tidy_frame(rows)


def _text_pairs(pairs: Pairs) -> list[tuple[str, str]]:
    """Pairs as (query, response) texts, from question-answer records or plain pairs."""
    if not len(pairs):
        raise DataError("response selection needs pairs of query and response, got none")
    return [(p.question, p.answer) if isinstance(p, QuestionAnswer) else (p[0], p[1]) for p in pairs]
