"""Response selection: blocks of 100 pairs, listed candidates, labelled candidate lists, and fine-tuning.

Ties count against the true response. Where file order decides instead (the papers' stable sorts), it is reported
beside it as ``ties="file"``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, pairwise, product
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from pandas import DataFrame
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from dialnb.data.records import QuestionAnswer, SelectionGroup, Texts
from dialnb.errors import DataError
from dialnb.evaluation.finetuning import RESPONSES, FineTuning, finetune, in_batches
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.metrics import (
    Scores,
    Ties,
    evaluator,
    pad_lists,
    ranked_labels,
    ranking_metrics,
    tidy_frame,
    tidy_rows,
    top_k,
)
from dialnb.evaluation.sampling import response_blocks, response_split
from dialnb.evaluation.vectors import EncodeOnce, SupportsEncode, encode, label_ids, listed_scores, normalise
from dialnb.examples.pairs import enough_words
from dialnb.examples.readings import Dialogues, Limit, thin

Pairs = Sequence[QuestionAnswer]
Groups = Sequence[SelectionGroup]
Scorer = Callable[[Groups], Sequence[Sequence[float]]]
PROTOCOLS: dict[Ties, str] = {"against": "paper", "file": "code"}
POOL = 5000
"""Pairs that fine-tuning on responses draws its 500 or 1000 from; the others are for testing."""


def question_answers(records: Any, limit: Limit = None) -> list[QuestionAnswer]:
    """The pairs of a question-answer dataset, or of a dialogue corpus: every question with the reply to it.

    A dialogue has about two of them; where ``limit`` are wanted, four dialogues for each are looked into.
    """
    if not len(records) or isinstance(records[0], QuestionAnswer):
        return thin(records, limit)
    pairs = {}
    for talk in Dialogues([records], 4 * limit if limit else None).read():
        for first, second in pairwise(talk.utterances):
            if first.endswith("?") and enough_words(first) and enough_words(second):
                pairs[first, second] = QuestionAnswer(first, second)
    return thin(list(pairs.values()), limit)


def learned_and_ranked(records: Any, limit: Limit) -> tuple[Pairs, Pairs]:
    """The pairs that fine-tuning learns from and those that it ranks, drawn once; or the parts that were given."""
    if isinstance(records, tuple):
        return records
    pairs = question_answers(records, limit)
    order = np.random.default_rng(24).permutation(len(pairs))
    shuffled, half = [pairs[i] for i in order], min(POOL, len(pairs) // 2)
    return shuffled[:half], shuffled[half:]


def block_ranks(queries: ndarray, responses: ndarray, blocks: ndarray, texts: ndarray) -> ndarray:
    """Rank of every query's own response among the responses of its block, by dot product, ties against it.

    ``blocks`` holds pair numbers [blocks, size]; responses with the same number in ``texts`` are equal texts and tie
    exactly, whatever the rounding.
    """
    ranks = []
    for block in blocks:
        scores = queries[block] @ responses[block].T
        scores = scores.toarray() if sparse.issparse(scores) else scores
        same = texts[block] == texts[block][:, None]
        ranks.append(((scores >= np.diagonal(scores)[:, None]) | same).sum(1))
    return np.concatenate(ranks)


def _sides(pairs: Pairs) -> tuple[list[str], list[str], ndarray]:
    """Questions, answers, and a number for each answer that equal ones share."""
    if not len(pairs):
        raise DataError("response selection needs pairs of query and response, got none")
    answers = [pair.answer for pair in pairs]
    return [pair.question for pair in pairs], answers, label_ids(answers)[1][0]


@evaluator("response selection")
def evaluate_blocks(
    encoder: SupportsEncode,
    records: Any,
    *,
    dataset: str,
    limit: Limit = None,
    seeds: Iterable[int] = (0, 1, 2),
    size: int = 100,
) -> Scores:
    """Utterance-level selection (DSE T4): Top-k of each query against the responses of its block.

    The pairs are shuffled once per seed before blocks are cut; all shuffles share one encoding pass.
    """
    pairs = question_answers(records, limit)
    *sides, texts = _sides(pairs)
    queries, responses = (normalise(encode(encoder, side, max_length=128)) for side in sides)
    for seed in seeds:
        ranks = block_ranks(queries, responses, response_blocks(len(pairs), size, seed), texts)
        yield top_k(ranks), {"protocol": "paper", "seed": seed, "n": len(ranks), "candidates": size}


@evaluator("response selection")
def evaluate_candidates(
    encoder: SupportsEncode,
    records: Groups,
    *,
    dataset: str,
    protocol: str = "paper",
    response_length: int = 32,
    truncate: str = "right",
) -> Scores:
    """Dialogue-level selection: Top-k of the true response among listed candidates, by cosine with the joined context.

    ``paper`` ranks the listed candidates (100). ``code`` puts the true response in front of them once more (101), as
    DSE's code does: where it is also listed, the copy ties with it, so ``ties="against"`` and ``ties="file"`` bound
    what an unstable sort prints. DSE truncates contexts on the right (oldest turns stay), DiaEval on the left.
    """
    ranked = candidate_ranks(encoder, records, protocol, response_length, truncate)
    for ties, ranks in ranked.items():
        size = max(len(group.candidates) for group in records) + (protocol == "code")
        settings = {"candidates": size, "truncate": truncate, "ties": ties}
        yield top_k(ranks), {"protocol": protocol, "n": len(records), **settings}


def candidate_ranks(
    encoder: SupportsEncode, groups: Groups, protocol: str, response_length: int = 32, truncate: str = "right"
) -> dict[Ties, ndarray]:
    """Rank the true response of every dialogue, for both ways of breaking ties; see :func:`evaluate_candidates`."""
    asked = []
    for group in groups:
        if sum(group.labels) != 1:
            raise DataError(f"dialogue {group.id} has {sum(group.labels)} true responses, expected exactly one")
        if protocol == "code":
            listed = (group.candidates[group.labels.index(1)], *group.candidates)
            group = replace(group, candidates=listed, labels=(1, *(0 for _ in group.candidates)))
        asked.append(group)
    score = cosine_scorer(encoder, 128, response_length, truncate)
    scores, labels = as_matrices(score(asked), [group.labels for group in asked])
    return {ties: ranked_labels(scores, labels, ties).argmax(1) + 1 for ties in PROTOCOLS}


def cosine_scorer(
    encoder: SupportsEncode,
    max_length: int = 128,
    response_length: int | None = None,
    truncate: str = "left",
) -> Scorer:
    """Candidates by cosine with the joined context, whose latest words count: a sentence encoder as a selector."""

    def score(groups: Groups) -> list[list[float]]:
        contexts = [" ".join(" ".join(group.context).split()) for group in groups]
        sizes = [len(group.candidates) for group in groups]
        listed = [text for group in groups for text in group.candidates]
        asked = {"max_length": max_length, "truncate": truncate}
        scores = listed_scores(encoder, contexts, listed, sizes, asked, {"max_length": response_length or max_length})
        return [part.tolist() for part in np.split(scores, np.cumsum(sizes)[:-1])]

    return score


def as_scorer(model: Any) -> Scorer:
    """Make a scorer of an encoder; a function or another callable object scores groups already."""
    is_scorer = callable(model) and not isinstance(model, torch.nn.Module)
    return model if is_scorer else cosine_scorer(EncodeOnce(model))


def as_matrices(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]]) -> tuple[ndarray, ndarray]:
    """Scores and labels of candidate lists as matrices [n, candidates], shorter lists filled up."""
    sizes = [len(row) for row in labels]
    if [len(row) for row in scores] != sizes:
        raise DataError("every candidate needs one score and one label: the lists differ in length")
    flat = np.concatenate([np.asarray(row, np.float64) for row in scores])
    return pad_lists(flat, sizes, -np.inf), pad_lists(np.concatenate(labels), sizes, 0)


class ScoreOnce:
    """A scorer that remembers: a candidate that was scored before after the same context is not scored again."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.known: dict[tuple[Texts, str], float] = {}

    def __call__(self, groups: Groups) -> list[list[float]]:
        new: dict[Texts, dict[str, None]] = {}
        for context, text in chain(*map(_pairs, groups)):
            if (context, text) not in self.known:
                new.setdefault(context, {})[text] = None
        asked = [SelectionGroup("", context, tuple(texts), (0,) * len(texts)) for context, texts in new.items()]
        scores = self.scorer(asked) if asked else ()
        self.known.update(zip(chain(*map(_pairs, asked)), chain(*scores), strict=True))
        return [[self.known[pair] for pair in _pairs(group)] for group in groups]


def _pairs(group: SelectionGroup) -> list[tuple[Texts, str]]:
    return [(group.context, text) for text in group.candidates]


def selection_rows(scores: Sequence[Sequence[float]], labels: Sequence[Sequence[int]], *, dataset: str) -> DataFrame:
    """R_n@k, MRR, MAP and P@1 (fractions) of labelled candidate lists under both ways of breaking ties.

    Columns ``without_positive`` (left out) and ``all_positive`` (kept) count the degenerate lists.
    """
    matrices = as_matrices(scores, labels)
    rows = []
    for ties, protocol in PROTOCOLS.items():
        values, counts = ranking_metrics(*matrices, ties=ties)
        rows += tidy_rows(values, task="response selection", dataset=dataset, protocol=protocol, ties=ties, **counts)
    return tidy_frame(rows)


def response_loss(queries: Tensor, responses: Tensor) -> Tensor:
    """Cross-entropy of raw dot products from each query to the responses of the batch, one direction (DSE's code)."""
    scores = (queries @ responses.T).float()
    return functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


@evaluator("response selection")
def finetune_responses(
    encoder: Any,
    records: Any,
    *,
    dataset: str,
    limit: Limit = None,
    shots: Iterable[int] = (500, 1000),
    seeds: Iterable[int] = range(5),
    size: int = 100,
    recipe: FineTuning = RESPONSES,
) -> Scores:
    """Few-shot fine-tuning on pairs (DSE T9), ranked by raw dot product in blocks of the shuffled test pairs.

    What is learned is not ranked; each seed draws training pairs and one validation block from its half.
    The selection metric is the sum of Top-1, 3, 5 and 10 on the validation block.
    """
    encoder = as_trainable(encoder)
    train, test = learned_and_ranked(records, limit)
    pools = []
    for pairs in (train, test):
        *sides, texts = _sides(pairs)
        pools.append([*(encoder.tokenize(side, max_length=recipe.max_length) for side in sides), texts])

    def scores(model: Any, pool: list, blocks: ndarray) -> dict[str, float]:
        rows = blocks.ravel()
        queries, responses = (in_batches(model.embed, side[rows]) for side in pool[:2])
        return top_k(block_ranks(queries, responses, np.arange(blocks.size).reshape(blocks.shape), pool[2][rows]))

    def tuned(k: int, seed: int) -> Any:
        model, split = encoder.clone(), response_split(len(train), k, seed, validation=size)
        finetune(
            model,
            k,
            lambda rows: response_loss(*(model.embed(side[split.train[rows]]) for side in pools[0][:2])),
            lambda: sum(scores(model, pools[0], split.validation[None]).values()),
            recipe,
        )
        return model

    blocks = response_blocks(len(test), size)
    for k, seed in product(shots, seeds):
        settings = {"seed": seed, "shots": k, "candidates": size, "method": "fine-tuning"}
        yield scores(tuned(k, seed), pools[1], blocks), {"protocol": "code", "n": blocks.size, **settings}


@evaluator("response selection")
def rank_unlearned(
    encoder: SupportsEncode,
    records: Any,
    *,
    dataset: str,
    shots: Iterable[int],
    seeds: Iterable[int],
    limit: Limit = None,
    **_: Any,
) -> Scores:
    """The floor of T9: the same pairs in the same blocks, ranked by an encoder as it is, such as shared words."""
    rows = evaluate_blocks(encoder, learned_and_ranked(records, limit)[1], dataset=dataset, seeds=(0,))
    values, (n, size) = rows.set_index("metric")["value"].to_dict(), rows.loc[0, ["n", "candidates"]]
    for k, seed in product(shots, seeds):
        yield values, {"protocol": "code", "seed": seed, "n": n, "candidates": size, "shots": k}
