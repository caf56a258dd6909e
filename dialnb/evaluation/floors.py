"""What is reached without training: by chance, by the most frequent label, and by shared words (TF-IDF, BM25).

A model that is not above its floor has learned nothing, whatever it is compared with. Floors answer the same questions
as the models do: :class:`Lexical` reads the same word pieces, cut in the same place, wherever an encoder is asked for;
their rows carry the names of `FLOORS` as ``model`` and are otherwise those of a model.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pandas import DataFrame
from scipy import sparse

from dialnb.data.records import SelectionGroup
from dialnb.evaluation.vectors import normalise
from dialnb.examples.manipulations import bare_pieces, manipulation_examples
from dialnb.examples.readings import thin
from dialnb.models.selector import add_marks
from dialnb.tokens import Integers, joined, offsets_of

WEIGHTINGS = ("TF-IDF", "BM25")
SATURATION, LENGTH = 1.2, 0.75
"""The two constants of BM25: how soon further occurrences of a word count less, and how much long texts pay."""
ENOUGH_TEXTS = 20_000
"""How many texts tell how rare a piece is; a larger source is thinned to them."""


@dataclass(frozen=True, eq=False)
class Lexical:
    """Texts as weighted counts of the word pieces that an encoder would see; anywhere an encoder is asked for.

    Document frequencies are those of the ``source``: a dataset, texts, or records that have one. It should be all that
    is compared; no label is looked at. Special tokens (the marks between utterances) do not count.
    """

    encoder: Any
    source: Any
    weighting: str = "TF-IDF"

    @property
    def tokenizer(self) -> Any:
        return self.encoder.tokenizer

    @property
    def pooling(self) -> str:
        return self.encoder.pooling

    @cached_property
    def known(self) -> sparse.csr_matrix:
        """Counts of the pieces in the texts of the source."""
        texts = self.source.texts() if hasattr(self.source, "texts") else self.source
        distinct = dict.fromkeys(getattr(text, "text", text) for text in texts)
        return self.counts(bare_pieces(self.encoder, thin(list(distinct), ENOUGH_TEXTS)))

    @cached_property
    def weights(self) -> np.ndarray:
        """How rare each piece is [vocabulary]."""
        present = np.asarray((self.known > 0).sum(0)).ravel()
        weights = np.log((1 + self.known.shape[0]) / (1 + present))
        weights[list(self.tokenizer.get_added_vocab().values())] = 0
        return weights

    def counts(self, ids: Sequence[Integers]) -> sparse.csr_matrix:
        """How often each piece occurs in each sequence [n, vocabulary]."""
        flat, starts = joined(ids, np.int64), offsets_of([len(row) for row in ids])
        matrix = sparse.csr_matrix((np.ones(len(flat)), flat, starts), (len(ids), len(self.tokenizer)))
        matrix.sum_duplicates()
        return matrix

    def documents(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """Counts as vectors of what is looked for; a dot product with :meth:`queries` is the score."""
        weighted = counts.multiply(self.weights != 0).tocsr()
        weighted.eliminate_zeros()
        if self.weighting == "TF-IDF":
            return normalise(weighted.multiply(self.weights).tocsr())
        lengths = np.repeat(np.asarray(weighted.sum(1)).ravel(), np.diff(weighted.indptr))
        usual = float(self.known.sum() / max(1, self.known.shape[0]))
        pay = SATURATION * (1 - LENGTH + LENGTH * lengths / usual)
        weighted.data = weighted.data * (SATURATION + 1) / (weighted.data + pay)
        return weighted.multiply(self.weights).tocsr()

    def queries(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """Counts as vectors of what is asked for."""
        return self.documents(counts) if self.weighting == "TF-IDF" else counts

    def encode(self, texts: Sequence[str], **reading: Any) -> sparse.csr_matrix:
        """Vectors of texts [n, vocabulary], as an encoder gives them, but sparse."""
        return self.documents(self._counted(texts, **reading))

    def asking(self, texts: Sequence[str], **reading: Any) -> sparse.csr_matrix:
        """Vectors of queries; those of BM25 are other ones than its vectors of texts."""
        return self.queries(self._counted(texts, **reading))

    def _counted(self, texts: Sequence[str], max_length: int = 64, truncate: str = "right", **_: Any) -> Any:
        return self.counts(list(self.encoder.tokenize(list(texts), max_length, truncate)))


def ask_words(evaluate: Callable[..., Any], floor: str, encoder: Any, records: Any, **settings: Any) -> Any:
    """Ask a floor what models are asked: words in place of an encoder, the word pieces of ``encoder``, weighted as the
    floor is called."""
    weighting = floor if floor in WEIGHTINGS else WEIGHTINGS[0]
    return evaluate(Lexical(encoder, records, weighting), records, **settings)


def lexical_scorer(encoder: Any, groups: Sequence[SelectionGroup], max_length: int):
    """Candidates by TF-IDF with their context, both cut as the input of a cross-encoder is (`Layout.selection`)."""
    marked = add_marks(encoder)
    words = Lexical(marked, [text for group in groups for text in (*group.context, *group.candidates)])

    def score(asked: Sequence[SelectionGroup]) -> list[list[float]]:
        examples = manipulation_examples(marked, asked, max_length, tasks=())
        contexts = []
        replies = []
        for ids in examples.selections(range(len(examples))):
            middle = ids.tolist().index(examples.layout.sep)
            contexts.append(ids[:middle])
            replies.append(ids[middle:])
        first = words.queries(words.counts(contexts))
        second = words.documents(words.counts(replies))
        scores = np.asarray(first.multiply(second).sum(1)).ravel()
        sizes = [len(group.candidates) for group in asked]
        return [part.tolist() for part in np.split(scores, np.cumsum(sizes)[:-1])]

    return score


def chance_of(metric: str, row: Mapping[str, Any]) -> float:
    """What guessing gives on average, NaN where the row does not tell.

    >>> chance_of("R10@2", {}), chance_of("Top-3", {"candidates": 100}), chance_of("Accuracy", {"task": "NLI probe"})
    (0.2, 3.0, 50.0)
    """
    if match := re.fullmatch(r"(?:(?:Original|Adversarial) )?R(\d+)@(\d+)", metric):
        return int(match[2]) / int(match[1])
    if match := re.fullmatch(r"Top-(\d+)", metric):
        return 100 * int(match[1]) / float(row.get("candidates") or np.nan)
    if row.get("task") in ("response selection", "adversarial selection"):  # lists of ten with one true reply
        if metric in ("Original MRR", "Adversarial MRR", "MRR", "MAP"):
            return float(np.mean(1 / np.arange(1, 11)))
        return {"P@1": 0.1, "Adversarial first": 0.1}.get(metric, 0.0 if metric.startswith("Drop") else np.nan)
    return {"NLI probe": 50.0, "similarity": 0.0}.get(str(row.get("task")), np.nan)


def chance_rows(rows: DataFrame) -> DataFrame:
    """The rows (or items) of one model as those of guessing, where metric and settings tell what that gives."""
    if rows.empty:
        return rows
    values = [chance_of(str(row["metric"]), row) for row in rows.to_dict("records")]
    named = rows.assign(value=values, model="Chance", **({"encoder": "none"} if "encoder" in rows else {}))
    return named[named["value"].notna()]
