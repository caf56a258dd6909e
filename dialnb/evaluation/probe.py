"""The NLI probe of DSE: is the entailed sentence closer to its anchor than the contradicting one?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dialnb.errors import DataError
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.evaluation.vectors import SupportsEncode, encode_unique, normalise, pair_scores


def entailment_wins(vectors: np.ndarray, triples: np.ndarray) -> np.ndarray:
    """For each row (anchor, entailment, contradiction) of ``triples``: is the entailment strictly closer by cosine?"""
    unit = normalise(vectors)
    anchor, entailment, contradiction = np.asarray(triples).T
    return pair_scores(unit, unit, anchor, entailment) > pair_scores(unit, unit, anchor, contradiction)


def evaluate_nli_probe(
    encoder: SupportsEncode, triples: Sequence[tuple[str, str, str]], *, dataset: str = "NLI", **encoding: Any
) -> pd.DataFrame:
    """Accuracy in percent over (anchor, entailment, contradiction) texts; chance is 50, a tie is a loss."""
    if not len(triples):
        raise DataError("the NLI probe needs at least one (anchor, entailment, contradiction) triple")
    texts = [text for triple in triples for text in triple]
    vectors, rows = encode_unique(encoder, texts, **{"max_length": 50} | encoding)
    values = {"Accuracy": 100 * float(entailment_wins(vectors, rows.reshape(-1, 3)).mean())}
    return tidy_frame(tidy_rows(values, task="NLI probe", dataset=dataset, protocol="paper", n=len(triples)))
