"""How close two sentences are: correlation with human scores (D-STS of DialogueCSE), and the NLI probe of DSE."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dialnb.data.records import ScoredPair
from dialnb.errors import DataError
from dialnb.evaluation.metrics import Scores, evaluator
from dialnb.evaluation.vectors import SupportsEncode, cosines


def spearman(gold: Sequence[float], model: Sequence[float]) -> float:
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
    encoder: SupportsEncode, pairs: Sequence[ScoredPair], *, max_length: int = 64, **encoding: Any
) -> Scores:
    """Spearman between the cosine of two sentences and their human score, as ``Corr`` in percent."""
    first, second = ([getattr(pair, side) for pair in pairs] for side in ("first", "second"))
    (found,) = cosines(encoder, first, second, max_length=max_length, **encoding)
    yield {"Corr": spearman([pair.score for pair in pairs], found)}, {"protocol": "paper", "n": len(pairs)}


@evaluator("NLI probe")
def evaluate_nli_probe(encoder: SupportsEncode, triples: Sequence[tuple[str, str, str]]) -> Scores:
    """Is the entailed sentence closer to its anchor than the contradicting one? Accuracy in percent over (anchor,
    entailment, contradiction) texts; chance is 50, a tie is a loss."""
    if not len(triples):
        raise DataError("the NLI probe needs at least one (anchor, entailment, contradiction) triple")
    entailed, contradicting = cosines(encoder, *zip(*triples), max_length=50)
    yield {"Accuracy": 100 * np.mean(entailed > contradicting)}, {"protocol": "paper", "n": len(triples)}
