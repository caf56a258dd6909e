"""What became of a claim, in words: the verdict, what it rests on, and how far to trust it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import pandas as pd

from dialnb.claims.papers import Fields, load_cells
from dialnb.claims.rendering import render
from dialnb.evaluation.intervals import PLACE

VERDICTS = ("holds", "fails", "undecided", "contradicted", "not run")
HOLDS, FAILS, UNDECIDED, CONTRADICTED, NOT_RUN = VERDICTS
MARKS = dict(zip(VERDICTS, "✓✗?≠○"))

ENOUGH = 3
"""Trainings from which a difference between trained models may be called a result."""
HALF = 0.5
"""Share of the printed epochs below which a failure says little about the paper."""

OWN_KIND, PRETRAINED, FROM_SCRATCH = "the paper's own", "pretrained elsewhere", "ours, from scratch"
MADE_HERE = re.compile(r"(^|[ (])mini\b(?!-?lm)|^(small|medium)$|from scratch", re.IGNORECASE)
"""Names of the encoders that this project pretrains itself."""


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: the estimate and its interval (of the weakest part, where it has several), and why.

    `n` counts the `unit` of the interval, `train_seeds` the trainings (0 where no training is involved), `floor` is the
    strongest one the compared models were held against, `share` how much of the printed epochs the least trained
    of them had, `qualifier` what limits the verdict, in a few words.
    """

    verdict: str
    estimate: float = nan
    low: float = nan
    high: float = nan
    n: int = 0
    unit: str = ""
    train_seeds: int = 0
    method: str = ""
    needed: int | None = None
    floor: str = ""
    share: float | None = None
    qualifier: str = ""
    reason: str = ""
    encoders: tuple[str, ...] = ()


def verdict_text(record: Fields) -> str:
    """A verdict with what limits it.

    >>> verdict_text({"verdict": "undecided", "qualifier": "one training"})
    'undecided: one training'
    >>> verdict_text({"verdict": "fails", "qualifier": "0.13 of the printed epochs"})
    'fails here (0.13 of the printed epochs)'
    """
    verdict = record["verdict"]
    qualifier = record.get("qualifier") or ""
    if verdict == CONTRADICTED:
        return "contradicted by the paper"
    if verdict == FAILS and qualifier:
        return f"fails here ({qualifier})"
    return f"{verdict}: {qualifier}" if qualifier else verdict


def interval_text(record: Fields) -> str:
    """Estimate, interval and what they stand on, in one line; empty where nothing was measured.

    >>> found = {"estimate": 1.234, "low": 0.5, "high": 2.0, "n": 10, "unit": "draws", "train_seeds": 3, "margin": 0}
    >>> interval_text(found | {"method": "Student's t"})
    "+1.23 [+0.50, +2.00], 3 trainings, 10 draws, Student's t"
    """
    numbers = [record[name] for name in ("estimate", "low", "high")]
    if numbers[0] is None:
        return ""
    size = abs(numbers[0])
    form = ",g" if record["method"] == PLACE else "+,.0f" if size >= 1000 else "+.2f" if size >= 1 else "+.3f"
    estimate, low, high = (f"{number:{form}}".replace("-", "−") if number is not None else "" for number in numbers)
    parts = [f"{estimate} [{low}, {high}]" if low and high and low != high else estimate]
    if record["margin"]:
        value = record.get("kind") == "value"
        parts.append(f"allowed ±{record['margin']:g}" if value else f"line at {record['margin']:+g}")
    trainings = record.get("train_seeds") or 0
    parts += [f"{trainings} training{'s' * (trainings > 1)}"] if trainings else []
    parts += [f"{record['n']:,} {record.get('unit') or 'units'}"] if record["n"] > 1 else []
    return ", ".join([*parts, record["method"]])


def encoder_kind(slug: str, names: Sequence[str]) -> str:
    """The weakest kind among the encoders behind a verdict: the paper's own, pretrained elsewhere, or made here."""
    own = load_cells(slug).get("encoders", [])
    kinds = [FROM_SCRATCH if MADE_HERE.search(name) else OWN_KIND if name in own else PRETRAINED for name in names]
    return min(kinds, key=(FROM_SCRATCH, PRETRAINED, OWN_KIND).index, default="")


def strength(record: Fields) -> tuple[str, str]:
    """How far to trust a verdict: three marks (encoder, trainings, share of the printed epochs), and the words.

    >>> strength({"encoder_kind": "pretrained elsewhere", "train_seeds": 3, "share": 0.2, "encoders": "minilm"})[0]
    '●●○'
    """
    trainings = record.get("train_seeds") or 0
    share = record.get("share")
    kind = record.get("encoder_kind") or ""
    if not trainings and not kind:
        return "●●●", "no training is involved"
    solid = [kind != FROM_SCRATCH, not trainings or trainings >= ENOUGH, share is None or share >= HALF]
    words = [f"encoder {record['encoders']} ({kind})"] if kind else []
    words += [f"{trainings} training{'s' * (trainings > 1)} each"] if trainings else ["no training is involved"]
    whole = share is not None and share >= 1
    words += [f"{'all' if whole else f'{share:.2g}'} of the printed epochs"] if share is not None else []
    return "".join("●" if one else "○" for one in solid), ", ".join(words)


@dataclass(frozen=True)
class Judged:
    """A paper's claims with their verdicts, one row each; shows itself in a notebook."""

    frame: pd.DataFrame

    def to_dict(self) -> list[Fields]:
        """Plain records, as `claims.json` holds them."""
        return self.frame.to_dict("records")

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict, in the order of `VERDICTS`."""
        return {verdict: int((self.frame.verdict == verdict).sum()) for verdict in VERDICTS}

    def _repr_html_(self) -> str:
        words = {"MARKS": MARKS, "verdict_text": verdict_text, "interval_text": interval_text}
        return render("claims.html.j2", claims=self.to_dict(), counts=self.counts, **words)
