"""Test text that was read in training: how much of a test set lies in a corpus, and which result rows it touches.

What a bundled encoder has read is in its ``training.json`` (``read``: the parts of corpora, ``DATASET/VARIANT:SPLIT``;
without a split, all of them). Overlaps that are known are listed in ``registry/leaks.yaml``, each with its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    import pandas as pd

STOCK = 0.05
"""A smaller share of a test set is stock phrases, which every corpus holds."""

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def telling(texts: Iterable[str]) -> set[str]:
    """The distinct texts, without case and punctuation, that are too long to be said twice by chance.

    >>> sorted(telling(["Yes, please!", "it boots from the old kernel only", "It boots from the old kernel, only."]))
    ['it boots from the old kernel only']
    """
    plain = {" ".join(re.findall(r"\w+", text.casefold())) for text in texts}
    return {text for text in plain if (len(text) >= 12 if CHINESE.search(text) else text.count(" ") >= 5)}


def overlap(test: set[str], read: set[str]) -> float:
    """The share of a test's telling texts that were read."""
    return len(test & read) / max(1, len(test))


@cache
def known_overlaps() -> tuple[dict[str, Any], ...]:
    """The entries of ``registry/leaks.yaml``."""
    return tuple(yaml.safe_load((files("dialnb") / "data" / "registry" / "leaks.yaml").read_text("utf-8")))


@cache
def earlier_encoders() -> dict[str, list[str]]:
    """What encoders that were bundled before had read, by the hash of their weights (``registry/earlier.yaml``)."""
    return yaml.safe_load((files("dialnb") / "data" / "registry" / "earlier.yaml").read_text("utf-8"))


@cache
def read_by(encoder: str, weights: str = "") -> tuple[str, ...]:
    """The parts of corpora that a bundled encoder, of now or of these earlier weights, has read; of others nothing is
    known."""
    if weights in earlier_encoders():
        return tuple(earlier_encoders()[weights])
    path = files("dialnb") / "assets" / "encoders" / encoder / "training.json"
    return tuple(json.loads(path.read_text("utf-8")).get("read", ())) if path.is_file() else ()


def leaks(encoder: str, test: str, weights: Mapping[str, str] = MappingProxyType({})) -> str:
    """A sentence that says what an encoder has read of a test set, empty where it has not.

    The encoder may be described by the one that it started from, as result rows do; ``weights`` are the hashes of the
    encoders of a run, where they may be earlier ones.

    >>> leaks("mini", "UbuntuIRC")
    ''
    >>> leaks("English ELECTRA (from mini)", "UbuntuIRC", {"mini": next(iter(earlier_encoders()))})
    'mini has read the lines of Ubuntu IRC that this test is made of'
    """
    start = re.fullmatch(r".*\(from (.+)\)|(.*)", encoder)
    start = start[1] or start[2]
    for entry in known_overlaps():
        if (
            entry["test"] == test
            and "said" in entry
            and set(entry["corpora"]) & set(read_by(start, weights.get(start, "")))
        ):
            return f"{start} {entry['said']}"
    return ""


def leak_notes(rows: pd.DataFrame, encoder: str = "") -> pd.Series:
    """For each tidy row the sentence of `leaks`, by the encoder of the row or, where it names none, the run's.

    Rows that `dialnb.files.read_rows` read from a run know the weights of its encoders.
    """
    import pandas as pd

    from dialnb.claims.papers import select

    weights, index = rows.attrs.get("weights", {}), rows.index
    rows = rows.reset_index(drop=True)  # two measurements of one cell may share a number
    notes = pd.Series("", index=rows.index, dtype=object)
    start = rows["encoder"].fillna(encoder) if "encoder" in rows else pd.Series(encoder, index=rows.index)
    for entry in known_overlaps():
        for where in entry.get("rows", ()):
            touched = select(rows, where).index
            notes[touched] = start[touched].map(lambda name, test=entry["test"]: leaks(str(name), test, weights))
    return notes.set_axis(index)
