"""The verdicts that the repository keeps, as data frames: `papers/<slug>/results/<profile>/claims.json`."""

from __future__ import annotations

import pandas as pd

from dialnb.claims.papers import STUDIES
from dialnb.errors import DataError, check_known
from dialnb.files import project_root, read_json

EFFECT = ["slug", "id", "statement", "headline", "ours", "verdict", "size", "train_seeds"]
NUMBERS = ["printed", "estimate", "low", "high"]


def verdicts(slug: str = "", profile: str = "gpu") -> pd.DataFrame:
    """Every claim of the recorded runs with its verdict, one row each, of one paper or of all; `dialnb.claims.SCHEMA`
    says what each column holds.

    >>> frame = verdicts("dse")
    >>> frame.loc[frame["id"] == "raw-intents", "verdict"].item()
    'holds'
    """
    if slug:
        check_known("paper", slug, STUDIES)
    found = []
    for each in [slug] if slug else STUDIES:
        records = read_json(project_root() / "papers" / each / "results" / profile / "claims.json")
        found += [{"slug": each} | record for record in records or ()]
    if not found:
        raise DataError(f"nothing is recorded of {slug or 'any paper'} with the profile {profile!r}")
    return pd.DataFrame(found)


def effects(slug: str = "", profile: str = "gpu") -> pd.DataFrame:
    """Measured gains next to those that the papers' own cells give, one row for each claim of a gain that was measured;
    all in points of a hundred.

    >>> frame = effects("dse").set_index("id")
    >>> frame.loc["headline-13", ["printed", "size"]].tolist()
    [12.915, 'smaller than printed']
    """
    frame = verdicts(slug, profile)
    frame = frame[frame["printed"].notna() & frame["estimate"].notna()][[*EFFECT, *NUMBERS]].reset_index(drop=True)
    points = (frame["slug"] == "ums").map({True: 100.0, False: 1.0})  # its scores are fractions
    frame[NUMBERS] = frame[NUMBERS].astype(float).mul(points, axis=0).round(4)
    return frame
