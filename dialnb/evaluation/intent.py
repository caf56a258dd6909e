"""Intent classification: prototypes (DSE), nearest neighbours (TaDSE) and few-shot fine-tuning (DSE)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy import ndarray
from scipy import sparse

from dialnb.evaluation.finetuning import INTENTS, FineTuning, few_shot_logits
from dialnb.evaluation.foreign import as_trainable
from dialnb.evaluation.metrics import Scores, accuracy, evaluator, top_accuracy
from dialnb.evaluation.sampling import FewShotSplit, few_shot_splits, parts_of
from dialnb.evaluation.vectors import Examples, SupportsEncode, encode, labelled, nearest, normalise
from dialnb.examples.readings import Limit

Form = Literal["code", "cosine"]
PROTOCOL_OF_FORM = {"code": "code", "cosine": "paper"}


def train_and_test(
    records: Any, limit: Limit = None, split: str = "test", train_limit: Limit = None
) -> Sequence[Examples]:
    """In-scope utterances to learn from, and those of the test (or another) split, of which ``limit`` are kept."""
    return parts_of(records, ("train", split), limit, train_limit, lambda record: record.intent != "oos")


def class_prototypes(support: ndarray, labels: ndarray, form: Form = "code") -> tuple[ndarray, ndarray]:
    """The classes of the support set and the mean of their normalised vectors.

    The authors' code leaves the means as they are, so that a class of scattered examples scores lower ("code"); the
    paper speaks of cosine, which normalises them again ("cosine"). With one shot the two are the same.
    """
    classes, members = np.unique(labels, return_inverse=True)
    member_of = sparse.csr_matrix((np.ones(len(members)), (members, np.arange(len(members)))))
    sums = member_of @ normalise(support)
    means = (sums.toarray() if sparse.issparse(sums) else sums) / np.bincount(members)[:, None]
    return classes, normalise(means) if form == "cosine" else means


def prototype_predictions(queries: ndarray, support: ndarray, labels: ndarray, form: Form = "code") -> ndarray:
    """The class whose prototype has the largest dot product with the normalised query."""
    classes, means = class_prototypes(support, labels, form)
    return classes[(normalise(queries) @ means.T).argmax(1)]


def few_shot_vectors(
    encoder: SupportsEncode,
    texts: Sequence[str],
    splits: Iterable[FewShotSplit],
    parts: Sequence[str] = ("train",),
    **encoding: Any,
) -> Iterator[list[ndarray]]:
    """The vectors of the named parts of every split, with one encoding pass over the texts that any of them holds."""
    drawn = [[getattr(split, part) for part in parts] for split in splits]
    used = np.unique(np.concatenate([rows for split in drawn for rows in split]))
    vectors = encode(encoder, [texts[row] for row in used], **encoding)
    for split in drawn:
        yield [vectors[np.searchsorted(used, rows)] for rows in split]


@evaluator("intent")
def evaluate_prototypes(
    encoder: SupportsEncode,
    records: Any,
    *,
    dataset: str,
    limit: Limit = None,
    train_limit: Limit = None,
    shots: Iterable[int] = (1, 5),
    seeds: Iterable[int] = range(10),
    forms: Iterable[Form] = ("code",),
    **encoding: Any,
) -> Scores:
    """Few-shot prototype accuracy (DSE T2) for every number of shots, seed and form."""
    known, asked = labelled(*train_and_test(records, limit, train_limit=train_limit))
    splits = few_shot_splits(known.labels, shots, seeds)
    support = few_shot_vectors(encoder, known.texts, splits.values(), **encoding)
    queries = normalise(encode(encoder, asked.texts, **encoding))
    for ((k, seed), split), (vectors,) in zip(splits.items(), support):
        for form in forms:
            predictions = prototype_predictions(queries, vectors, known.ids[split.train], form)
            settings = {"protocol": PROTOCOL_OF_FORM[form], "seed": seed, "shots": k, "method": f"prototype-{form}"}
            yield {"Accuracy": accuracy(predictions, asked.ids)}, {"n": len(asked.ids), **settings}


def knn_predictions(
    queries: ndarray, references: ndarray, labels: ndarray, ks: Sequence[int] = (1,)
) -> dict[int, ndarray]:
    """Most frequent label among the k most similar references (cosine), for each k of a grid and one search.

    Labels that are equally frequent are decided by their most similar member.
    """
    _, indices = nearest(queries, references, max(ks))
    neighbours = np.asarray(labels)[indices]
    votes = {}
    for k in ks:
        part = neighbours[:, :k]
        counts = sum((part == part[:, [j]]).astype(np.int32) for j in range(k))
        votes[k] = np.take_along_axis(part, counts.argmax(1)[:, None], 1)[:, 0]
    return votes


@evaluator("intent")
def evaluate_knn(encoder: SupportsEncode, records: Any, *, dataset: str, **encoding: Any) -> Scores:
    """Accuracy of the nearest neighbour over the full training set (TaDSE)."""
    known, asked = labelled(*parts_of(records))
    references, queries = (encode(encoder, part.texts, **encoding) for part in (known, asked))
    predictions = knn_predictions(queries, references, known.ids)[1]
    settings = {"protocol": "paper", "n": len(asked.ids), "method": "kNN", "k": 1}
    yield {"Accuracy": accuracy(predictions, asked.ids)}, settings


@evaluator("intent")
def finetune_intents(
    encoder: Any,
    records: Any,
    *,
    dataset: str,
    limit: Limit = None,
    shots: Iterable[int] = (1, 5),
    seeds: Iterable[int] = range(10),
    recipe: FineTuning = INTENTS,
) -> Scores:
    """Few-shot fine-tuning (DSE T7): test accuracy of the weights that were best on each split's validation half."""
    encoder = as_trainable(encoder)
    known, asked = labelled(*train_and_test(records, limit))
    parts = (known.texts, known.ids), known.labels, asked.texts
    for logits, settings in few_shot_logits(encoder, *parts, top_accuracy, (shots, seeds), recipe):
        del settings["train_size"]
        yield {"Accuracy": top_accuracy(logits, asked.ids)}, settings


@evaluator("intent")
def guess_intents(
    encoder: Any,
    records: Any,
    *,
    dataset: str,
    shots: Iterable[int],
    seeds: Sequence[int],
    limit: Limit = None,
    **_: Any,
) -> Scores:
    """The floor of few-shot intents (DSE T2 and T7): one drawn blindly, in every draw of the few examples."""
    known, asked = train_and_test(records, limit)
    values = {"Accuracy": 100 / len({example.intent for example in known})}
    for protocol, k, seed in product(PROTOCOL_OF_FORM.values(), shots, seeds):
        yield values, {"protocol": protocol, "seed": seed, "n": len(asked), "shots": k, "method": "guess"}
