"""Floors of runs that were recorded without them: the same questions, from the data and the recorded settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from dialnb.models.encoder import load_encoder
from dialnb.runs.files import read_json
from dialnb.studies import selectors, ums


def recorded_floors(slug: str, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows and items of the floors of a recorded run, as the study itself would add them; empty where it has none."""
    s = SimpleNamespace(**read_json(folder / "run.json")["parameters"])
    return FLOORS_OF[slug](s) if slug in FLOORS_OF else (pd.DataFrame(), pd.DataFrame())


def _ums(s) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ubuntu only: the Chinese word pieces of a run were its own."""
    parts = [ums.find(s.data, *ums.CORPORA["Ubuntu"])]
    found = selectors.answer_by_words(
        load_encoder(s.encoder),
        s.max_length,
        parts,
        ums.label(parts),
        s.groups,
        tuple(s.adversarial_seeds),
        ("random", *s.adversaries),
    )
    rows, items = ums.floor_rows(found)
    return rows.assign(encoder="none"), items


FLOORS_OF = {"ums": _ums}
