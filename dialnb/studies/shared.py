"""What several studies have in common: names of rows, rows of counts, the shape of a space, a batch as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from pandas import DataFrame

from dialnb.data.datasets import measure
from dialnb.evaluation import geometry, tidy_frame, tidy_rows
from dialnb.examples.readings import Reading
from dialnb.files import Fields, Values, read_yaml
from dialnb.runs.grid import Model
from dialnb.training.pretrain import PretrainingRecipe
from dialnb.training.settings import PRINTED

NAMES = read_yaml(__file__, "names.yaml")
"""By paper: checkpoints by row, and the names that datasets have in its tables."""


def changed(model: Model, settings: Fields, **fields: Any) -> Model:
    """A model with other settings of its training, or other fields."""
    return replace(model, settings={**model.settings, **settings}, **fields)


def from_scratch(shape: str, data: Reading | None, settings: Fields, kind: str = "bert", **words: Any) -> Model:
    """An encoder of this shape that is pretrained here; ``words`` are further fields of its recipe."""
    return Model(PretrainingRecipe(shape, kind, settings=PRINTED[f"pretraining {shape}"], **words), "", data, settings)


def count_rows(
    by: str, numbers: Mapping[str, float], substitute: str = "", n: int | None = None, **labels: Any
) -> list[Values]:
    """A row for each number, whose name goes to the column ``by``; ``n`` is the number itself unless it is given."""
    common = {"task": "statistics", "metric": "count", "substitute": substitute, **labels}
    rows = []
    for name, number in numbers.items():
        rows.append(common | {by: name, "value": float(number), "n": int(number if n is None else n)})
    return rows


def count_table(run, table: str) -> list[Values]:
    """The rows that `names.yaml` lists for a table, of the data that can be had."""
    rows = []
    for entry in NAMES[run.slug]["counts"][table]:
        for dataset, records in run.data(entry["data"]).items():
            if entry.get("dataset", dataset) != dataset:
                continue
            number = measure(records, entry)
            if "most" in entry:
                number = min(number, run.settings[entry["most"]] or number)
            instead = entry.get("instead", {}).get(records.variant, "")
            rows += count_rows("model", {entry["model"]: number}, instead, column=entry.get("column", "value"))
    return rows


def for_all(rows: DataFrame, **values: Sequence[Any]) -> DataFrame:
    """The same rows for every combination of ``values``, which become columns."""
    combinations = DataFrame(list(product(*values.values())), columns=list(values))
    return rows.drop(columns=list(values), errors="ignore").merge(combinations, how="cross")


def shape_of(vectors: np.ndarray, labels: Sequence, dataset: str) -> DataFrame:
    """Uniformity of vectors, and alignment of those with equal label (lower is better for both)."""
    values = {"uniformity": geometry.uniformity(vectors), "alignment": geometry.alignment(vectors, labels)}
    return tidy_frame(tidy_rows(values, task="geometry", dataset=dataset, protocol="clean", n=len(vectors)))


def no_projection(run, method: str) -> str:
    """Why a projection is not drawn in this run; empty where it is."""
    if method != "umap":
        return ""
    if not run.settings.umap:
        return f"left out of the {run.profile} profile"
    return "" if find_spec("umap") else "the package umap-learn is not installed: pip install umap-learn"


def show_batch(batch: Mapping[str, Sequence[str]], cosines, other: str, **weights) -> DataFrame:
    """A batch as a table: two texts in each row with their cosine, and the second text of another row that is closest
    to the first, in the column ``other``. ``cosines`` [n, n] compare first texts with second ones; ``weights`` are
    further columns of what that closest one has, of matrices [n, n]."""
    (first, firsts), (second, seconds) = batch.items()
    cosines, rows = np.asarray(cosines, float), np.arange(len(firsts))
    nearest = np.where(np.eye(len(rows), dtype=bool), -np.inf, cosines).argmax(1)
    table = {first: firsts, second: seconds, "cosine": cosines.diagonal()}
    table |= {other: [seconds[place] for place in nearest], "its cosine": cosines[rows, nearest]}
    table |= {f"its {name}": np.asarray(matrix, float)[rows, nearest] for name, matrix in weights.items()}
    return DataFrame(table).round(2)
