"""Data of one's own on the tour: small files that come with the package, and how every method does on a file."""

from importlib.resources import as_file, files
from pathlib import Path

import pandas as pd
from pandas.io.formats.style import Styler

from dialnb.data import Dataset
from dialnb.errors import check_known
from dialnb.evaluation.own import evaluate_own, summary_own
from dialnb.examples.own import count_examples
from dialnb.explore.methods import Methods
from dialnb.explore.panel import BEST, table

SHOWN = ("R10@1", "R10@5", "MRR", "Accuracy")


def example(name: str) -> Path:
    """The path of an example: ``utterances.csv`` (with intents and slots) or ``dialogues.csv`` (with speakers)."""
    folder = files("dialnb") / "assets" / "examples"
    known = [entry.name for entry in folder.iterdir()]
    check_known("example", name, known)
    with as_file(folder / name) as path:
        return path


def examples_of(file: Dataset) -> Styler:
    """How many examples each method makes of the dialogues of a file."""
    return table(pd.DataFrame({"examples": count_examples(file)}), index=True)


def score_own(methods: Methods, *files: Dataset) -> Styler:
    """What every sentence encoder reaches on one's own files: a row for each test, a column for each method."""
    rows = [evaluate_own(own, file).assign(encoder=name) for name, own in methods.encoders.items() for file in files]
    found = pd.concat(rows, ignore_index=True)
    found = found[found["metric"].isin(SHOWN)]
    return table(summary_own(found), index=True, formats="{:.3g}").highlight_max(axis=1, props=BEST)
