"""Test text that was read in training: what an encoder has read of a test set, and which result rows that touches.

What a bundled encoder has read is in its ``training.json`` (``read``: the parts of corpora, ``DATASET/VARIANT:SPLIT``;
without a split, all of them). Overlaps that are known are listed in ``registry/leaks.yaml``, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

from dialnb.data.sources import read_registry
from dialnb.files import read_json

if TYPE_CHECKING:
    import pandas as pd


registry = cache(read_registry)
"""``leaks``, the known overlaps, or ``earlier``: what encoders that were bundled before had read, by the hash of their
weights."""


@cache
def read_by(encoder: str, weights: str = "") -> tuple[str, ...]:
    """The parts of corpora that a bundled encoder, of now or of these earlier weights, has read; of others nothing is
    known."""
    if weights in registry("earlier"):
        return tuple(registry("earlier")[weights])
    path = files("dialnb") / "assets" / "encoders" / encoder / "training.json"
    return tuple((read_json(path) or {}).get("read", ()))


def leaks(encoder: str, test: str, weights: Mapping[str, str] = MappingProxyType({})) -> str:
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


def leak_notes(rows: pd.DataFrame) -> pd.Series:
    """For each tidy row the sentence of `leaks` about its encoder; no two rows may share a number.

    Rows that `dialnb.files.read_rows` read from a run know the weights of its encoders.
    """
    import pandas as pd

    from dialnb.claims.papers import select

    weights = rows.attrs.get("weights", {})
    notes = pd.Series("", rows.index, dtype=object)
    encoders = rows.get("encoder", notes).astype(object).fillna("")
    for entry in registry("leaks"):
        for where in entry.get("rows", ()):
            touched = encoders[select(rows, where).index]
            sentences = {name: leaks(str(name), entry["test"], weights) for name in touched.unique()}
            notes[touched.index] = touched.map(sentences)
    return notes
