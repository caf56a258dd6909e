"""Tidy rows made ready to be compared many times, the check that they can be told apart, and what has leaked into them:
test text that was read in training.

What a bundled encoder has read is in its ``training.json`` (``read``: the parts of corpora, ``DATASET/VARIANT:SPLIT``;
without a split, all of them). Overlaps that are known are listed in ``registry/leaks.yaml``, each with its reason.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from pandas import DataFrame

from dialnb.claims.papers import matches
from dialnb.data.sources import read_registry
from dialnb.errors import DataError
from dialnb.files import read_json

REPLICATES = ("train_seed", "seed")
"""Columns that tell repetitions of one measurement apart."""

MEASURES = ("value", "n", *REPLICATES, "item", "group")
"""Columns that are no labels."""

ADDED = ("training", "unit", "cluster", "variance", "leak")
"""Columns that `prepared` adds."""

PERCENT_SHARES = ("Accuracy", "Top-", "TOP@", "OOS-", "In-Accuracy")
FRACTION_SHARES = ("R10@", "P@1", "Original R", "Adversarial R", "Adversarial first")
"""Metrics that are shares of test items: where there is one seed, n gives their interval."""


def prepared(rows: DataFrame) -> DataFrame:
    """Tidy rows with their labels as categories, which are quick to select, absent ones as empty texts.

    Five columns are added: the `training` and the `unit` of a value, the `cluster` of the unit, the `variance` of the
    value over test items, and the sentence about a `leak` into its test set.
    """
    if rows.empty or "training" in rows:
        return rows
    rows = rows.reset_index(drop=True)
    rows["leak"] = leak_notes(rows)
    rows.attrs = {}  # which every selection would copy
    scored = "item" in rows
    unit = rows.get("item" if scored else "seed", pd.Series(0, rows.index))
    group = rows["group"] if scored and "group" in rows else unit
    columns = {
        "variance": np.nan if scored else item_variances(rows),
        "unit": unit.fillna(0),
        "training": rows.get("train_seed", pd.Series(0, rows.index)).fillna(0),
        "cluster": pd.factorize(group.where(group.notna(), unit), sort=True)[0],
    }
    for name in rows:
        if name not in MEASURES:
            codes, values = pd.factorize(rows[name], use_na_sentinel=False)
            columns[name] = pd.Categorical(values.astype(object).where(values.notna(), ""))[codes]
    return rows.assign(**columns)


def item_variances(rows: DataFrame) -> pd.Series:
    """Sampling variance of shares of n test items, in the unit of their values; NaN where the metric is no share."""
    if "metric" not in rows or "n" not in rows:
        return pd.Series(np.nan, rows.index)
    metric = rows["metric"].astype(str)
    n = pd.to_numeric(rows["n"], errors="coerce")
    top = pd.Series(np.where(metric.str.startswith(FRACTION_SHARES), 1.0, 100.0), rows.index)
    share = (rows["value"] / top).clip(0, 1)
    variance = top**2 * np.maximum(share * (1 - share), 0.25 / n) / n
    return variance.where(metric.str.startswith(PERCENT_SHARES + FRACTION_SHARES) & (n > 0))


def check_unambiguous(rows: DataFrame, within: Iterable[str] = ()) -> None:
    """Refuse rows that repeat a model and seed: they are two measurements, and averaging them would hide it."""
    keys = [name for name in ("model", *REPLICATES, *within) if name in rows]
    doubled = rows[rows.duplicated(keys, keep=False)]
    if doubled.empty:
        return
    others = [name for name in doubled if name not in (*ADDED, "value", "n", *keys)]
    differ = [name for name in others if doubled[name].nunique(dropna=False) > 1]
    raise DataError(
        f"expected one row per seed of {doubled.iloc[0].get('model', 'a model')!r}, found {len(doubled)} rows "
        f"that differ in {', '.join(differ) or 'nothing but their value'}; say which is meant in the paper's "
        "cells.yaml or claims.yaml"
    )


registry = cache(read_registry)
"""``leaks``, the known overlaps, or ``earlier``: what encoders that were bundled before had read, by the hash of their
weights."""


@cache
def read_by(encoder: str, weights: str = "") -> tuple[str, ...]:
    """The parts of corpora that a bundled encoder, of now or of these earlier weights, has read; of others nothing is
    known."""
    if weights in registry("earlier"):
        return tuple(registry("earlier")[weights])
    path = Path(__file__).parents[1] / "assets" / "encoders" / encoder / "training.json"
    return tuple((read_json(path) or {}).get("read", ()))


def leaks(encoder: str, test: str, weights: Mapping[str, str] = {}) -> str:
    """A sentence that says what an encoder has read of a test set, empty where it has not.

    The encoder may be described by the one that it started from, as result rows do; ``weights`` are the hashes of the
    encoders of a run, where they may be earlier ones.

    >>> leaks("mini", "UbuntuIRC")
    ''
    >>> leaks("English ELECTRA (from mini)", "UbuntuIRC", {"mini": next(iter(registry("earlier")))})
    'mini has read the lines of Ubuntu IRC that this test is made of'
    """
    derived = re.fullmatch(r".*\(from (.+)\)", encoder)
    start = derived[1] if derived else encoder
    read = read_by(start, weights.get(start, ""))
    for entry in registry("leaks"):
        if entry["test"] == test and "said" in entry and not set(read).isdisjoint(entry["corpora"]):
            return f"{start} {entry['said']}"
    return ""


def leak_notes(rows: DataFrame) -> pd.Series:
    """For each tidy row the sentence of `leaks` about its encoder; no two rows may share a number.

    Rows that `dialnb.files.read_rows` read from a run know the weights of its encoders.
    """
    weights = rows.attrs.get("weights", {})
    notes = pd.Series("", rows.index, dtype=object)
    encoders = rows.get("encoder", notes).astype(object).fillna("")
    for entry in registry("leaks"):
        for where in entry.get("rows", ()):
            touched = encoders[matches(rows, where)]
            sentences = {name: leaks(str(name), entry["test"], weights) for name in touched.unique()}
            notes[touched.index] = touched.map(sentences)
    return notes
