"""What became of a claim, in words: the verdict, what it rests on, and how far to trust it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import pandas as pd

from dialnb.claims.intervals import PLACE, Interval
from dialnb.claims.papers import Fields, load_cells
from dialnb.claims.rendering import render

MEANINGS = {
    "holds": "The whole 95 % interval lies on the claimed side of the line.",
    "fails": "The whole interval lies on the other side.",
    "not at the printed size": "The interval holds zero, and excludes half of the printed gain or more.",
    "no effect": "The whole interval lies within a quarter of the printed gain on either side of zero.",
    "undecided": "The interval leaves it open. The reason says what would decide it.",
    "contradicted": "The paper's own printed cells contradict the claim. The reason says what came out here.",
    "not run": "It was not measured, or cannot be judged. The reason says why.",
}
"""Every word that the judge says of a claim, and what it means. *Here*, after a negative one, says that the models saw
less than half of the printed training, or a share that nobody knows: that says nothing against the paper."""
VERDICTS = tuple(MEANINGS)
HOLDS, FAILS, NOT_AT_SIZE, NO_EFFECT, UNDECIDED, CONTRADICTED, NOT_RUN = VERDICTS
MARKS = dict(zip(VERDICTS, "✓✗↓=?≠○"))
SIZES = {
    "as printed": "The interval holds the printed gain.",
    "larger": "The whole interval lies above the printed gain.",
    "smaller than printed": "The whole interval lies below the printed gain, and holds half of it.",
    "less than half of it": "The whole interval lies below half of the printed gain.",
}
"""How a gain lies to the one that the paper's own cells give, beside any verdict."""
AS_PRINTED, LARGER, SMALLER, LESS_THAN_HALF = SIZES
NEGATIVE = (FAILS, NOT_AT_SIZE, NO_EFFECT)
"""Verdicts against a claim: the whole interval excludes what is claimed, or half of what is printed."""
DECIDED = (HOLDS, *NEGATIVE)
ORDER = (FAILS, NO_EFFECT, NOT_AT_SIZE, UNDECIDED, HOLDS)
"""Verdicts from the weakest to the strongest: all parts of a claim must hold."""
AGREES, CONTRADICTS, SILENT = "agree", "contradict it", "no numbers"
"""What the cells that a paper prints say of its claim."""

ENOUGH = 3
"""Trainings from which a difference between trained models may be called a result."""
HALF = 0.5
"""Share of the printed training below which a failure says little about the paper, and of a printed gain."""
QUARTER = 0.25
"""Share of a printed gain within which there is no effect."""

OWN_KIND, PRETRAINED, FROM_SCRATCH = "the paper's own", "pretrained elsewhere", "ours, from scratch"
MADE_HERE = re.compile(r"(^|[ (])mini\b(?!-?lm)|^(small|medium)$|from scratch", re.IGNORECASE)
"""Names of the encoders that this project pretrains itself."""
UNKNOWN = "an unknown share"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: the estimate and its interval (of the weakest part, where it has several), and why.
    `SCHEMA` says what each field holds."""

    verdict: str
    estimate: float = nan
    low: float = nan
    high: float = nan
    n: int = 0
    unit: str = ""
    train_seeds: int = 0
    method: str = ""
    limit: str = ""
    needed: int | None = None
    floor: str = ""
    share: float | None = None
    printed: float | None = None
    size: str = ""
    qualifier: str = ""
    reason: str = ""
    encoders: tuple[str, ...] = ()


SCHEMA = {
    "id": "name of the claim, unique within the paper",
    "statement": "the claim in our words",
    "where": "where the paper says so",
    "kind": "gain, ordering, trend, statistic or value",
    "ours": "whether it is a claim of ours, beyond the paper",
    "headline": "a few words, where the paper's abstract or conclusion rests on the claim",
    "margin": "the line that a gain must be above, or how far a value may be from the printed one",
    "verdict": "one of the words in papers/JUDGE.md, which says what each means",
    "estimate": "what was measured, of the weakest comparison where the claim has several; null where nothing was",
    "low": "lower end of its 95 % interval",
    "high": "upper end of its 95 % interval",
    "n": "how many units the interval stands on within one training",
    "unit": "what is counted there: draws, groups, test items, conversations, datasets, tasks, models",
    "train_seeds": "trainings of the model that has fewest; 0 where none is involved",
    "method": "how the interval was made",
    "limit": "what leaves an undecided claim open: trainings, or the unit",
    "needed": "how many of these would decide it; null where no number would, or no more can be made",
    "floor": "the strongest floor that the compared models are above",
    "share": "training examples that the least trained model saw, as a share of the printed ones; null if unknown",
    "printed": "the gain that the paper's own cells give for the same comparison; null where it prints none",
    "size": "how the measured gain lies to the printed one",
    "qualifier": "what limits the verdict, in a few words",
    "reason": "why, in words",
    "encoders": "encoders behind the numbers",
    "paper": "what the paper's own cells say of the claim: agree, contradict it, no numbers",
    "encoder_kind": "the weakest kind of these encoders",
    "strength": "three dots that rate the evidence: encoder, number of trainings, length of training",
    "strength_words": "the same in words",
}
"""The fields of a claim in `claims.json`, in order."""


def size_of(found: Interval, printed: float | None) -> str:
    """How a measured gain lies to the printed one; empty where none is printed.

    >>> size_of(Interval(1.0, 0.5, 1.4, 3, ""), 4.0), size_of(Interval(1.0, 0.5, 3.0, 3, ""), 4.0)
    ('less than half of it', 'smaller than printed')
    """
    if printed is None or printed <= 0:
        return ""
    if found.low > printed:
        return LARGER
    if found.high < HALF * printed:
        return LESS_THAN_HALF
    return SMALLER if found.high < printed else AS_PRINTED


def verdict_text(record: Fields) -> str:
    """A verdict with what limits it.

    >>> verdict_text({"verdict": "undecided", "qualifier": "one training"})
    'undecided: one training'
    >>> verdict_text({"verdict": "fails", "qualifier": "0.13 of the printed training"})
    'fails here (0.13 of the printed training)'
    """
    verdict = record["verdict"]
    qualifier = record.get("qualifier") or ""
    if verdict == CONTRADICTED:
        return "contradicted by the paper"
    if verdict in NEGATIVE and qualifier:
        return f"{verdict} here ({qualifier})"
    return f"{verdict}: {qualifier}" if qualifier else verdict


def interval_text(record: Fields) -> str:
    """Estimate, interval and what they stand on, in one line; empty where nothing was measured.

    >>> found = {"estimate": 1.234, "low": 0.5, "high": 2.0, "n": 10, "unit": "draws", "train_seeds": 3, "margin": 0}
    >>> interval_text(found | {"method": "moderated t", "printed": 4.0, "size": "smaller than printed"})
    '+1.23 [+0.50, +2.00], smaller than printed (+4.00), 3 trainings, 10 draws, moderated t'
    """
    numbers = [record[name] for name in ("estimate", "low", "high")]
    if numbers[0] is None:
        return ""
    size = abs(numbers[0])
    form = ",g" if record["method"] == PLACE else "+,.0f" if size >= 1000 else "+.2f" if size >= 1 else "+.3f"
    numbers.append(record.get("printed"))
    texts = (f"{number:{form}}".replace("-", "−") if number is not None else "" for number in numbers)
    estimate, low, high, printed = texts
    parts = [f"{estimate} [{low}, {high}]" if low and high and low != high else estimate]
    if record.get("size"):
        parts.append(f"{record['size']} ({printed})")
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
    """How far to trust a verdict: three dots (encoder, trainings, share of the printed training), and the words. What
    nobody printed, of a claim of ours, is no share.

    >>> strength({"encoder_kind": "pretrained elsewhere", "train_seeds": 3, "share": 0.2, "encoders": "minilm"})[0]
    '●●○'
    """
    trainings = record.get("train_seeds") or 0
    share = record.get("share")
    kind = record.get("encoder_kind") or ""
    if not trainings and not kind:
        return "●●●", "no training is involved"
    long_enough = record.get("ours") if share is None else share >= HALF
    solid = [kind != FROM_SCRATCH, not trainings or trainings >= ENOUGH, not trainings or long_enough]
    words = [f"encoder {record['encoders']} ({kind})"] if kind else []
    words += [f"{trainings} training{'s' * (trainings > 1)} each"] if trainings else ["no training is involved"]
    if share is not None:
        words.append(f"{'all' if share >= 1 else f'{share:.2g}'} of the printed training")
    elif trainings:
        words.append(
            "nothing printed to compare the training with"
            if record.get("ours")
            else f"{UNKNOWN} of the printed training"
        )
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

    def of(self, ours: bool) -> "Judged":
        """The claims of ours, or the paper's own."""
        return Judged(self.frame[self.frame["ours"].astype(bool) == ours])

    def _repr_html_(self) -> str:
        words = {"MARKS": MARKS, "verdict_text": verdict_text, "interval_text": interval_text}
        return render("claims.html.j2", claims=self.to_dict(), counts=self.counts, **words)
