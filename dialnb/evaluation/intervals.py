"""Intervals behind the verdicts.

**Over trainings and test units** (`crossed_interval`): every training is scored on the same test units (conversations,
draws, groups, items), so that the two are crossed, as readers and cases are where radiology compares them (Hillis,
Statistics in Medicine 2007). The variance of the mean is that of a two-way random-effects model: between trainings +
between units - their interaction. Each part keeps the quantile of Student's t with its own degrees of freedom, and the
half-lengths are combined as the root of the sum of their squares (Howe, JASA 1974), which holds the promised error with
three trainings, where pooled degrees of freedom do not. Units that belong together enter as one cluster. Where units do
not vary it is Student's t over trainings, where trainings do not, the clustered interval over units.

**Over one kind of unit** (`mean_interval`): under six an exact test can never reach 95 %, so Student's t is used; from
six to twelve, the exact interval that inverts the sign-flip permutation test; beyond that, the bootstrap with the
percentiles widened for the sample size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import floor, inf, nan, sqrt

import numpy as np
from numpy import ndarray
from scipy.special import ndtr, ndtri, stdtrit

FEWEST_EXACT, MOST_EXACT, RESAMPLES = 6, 12, 10_000
PLACE = "bootstrap of the place"
MANY = 1000
"""Trainings or draws that nobody runs to decide a claim."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, how many units it stands on and how it was made."""

    estimate: float
    low: float
    high: float
    n: int
    method: str
    spread: float = nan
    trainings: int = 1
    within: float = 0.0
    """Variance of the estimate that further trainings do not take away; `spread` is what one training adds to it."""

    def scaled(self, sign: int) -> Interval:
        """The same for the negated quantity where `sign` is -1."""
        if sign > 0:
            return self
        return replace(self, estimate=-self.estimate, low=-self.high, high=-self.low)


@dataclass(frozen=True)
class Stratum:
    """Paired differences on one test set, of which the whole is a weighted mean.

    `totals` [trainings, clusters] holds the sums of differences, `sizes` [clusters] how many units each cluster has;
    `variance` is that of the mean where it is known from the number of items alone.
    """

    totals: ndarray
    sizes: ndarray
    weight: float = 1.0
    variance: float = 0.0


def crossed_interval(strata: Sequence[Stratum], level: float = 0.95) -> Interval:
    """Interval of a mean difference over trainings and the units of one or several test sets.

    >>> alike = np.array([[1.0, 2.0, 3.0, 2.0], [1.1, 2.0, 3.1, 1.8], [0.9, 2.0, 2.9, 2.2]])  # trainings x dialogues
    >>> found = crossed_interval([Stratum(alike, np.ones(4))])
    >>> round(found.estimate, 3), found.trainings, found.n
    (2.0, 3, 4)
    """
    trainings = len(strata[0].totals)
    n = sum(part.totals.shape[1] for part in strata if part.totals.shape[1] > 1)
    if trainings == 1 and len(strata) == 1 and 1 < n <= MOST_EXACT and np.ptp(strata[0].sizes) == 0:
        alone = strata[0].totals[0] / strata[0].sizes
        found = mean_interval(alone * strata[0].weight, level)
        return replace(found, within=float(np.var(alone, ddof=1)) / n)
    means = np.zeros(trainings)
    crossed = 0.0
    terms = []
    for part in strata:
        clusters = part.totals.shape[1]
        mean = part.totals.sum(1) / part.sizes.sum()
        means += part.weight * mean
        if clusters == 1:
            terms.append((part.weight**2 * part.variance, inf))
            continue
        # what each cluster adds to the mean, so that large clusters count as much as they have items
        added = part.weight * (part.totals - mean[:, None] * part.sizes) * clusters / part.sizes.sum()
        average = added.mean(0)
        terms.append((float(average @ average) / (clusters * (clusters - 1)), clusters - 1))
        if trainings > 1:
            rest = float(((added - average) ** 2).sum()) / ((trainings - 1) * (clusters - 1))
            crossed += rest / (trainings * clusters)
    units = sum(variance for variance, _ in terms)
    between = float(means.var(ddof=1)) / trainings if trainings > 1 else 0.0
    estimate = float(means.mean())
    alone = max(units - crossed, 0.0)
    if between + units == 0:  # repetitions that change nothing are no evidence
        return Interval(estimate, -inf, inf, n, "one value", nan, trainings)
    squares = sum(part**2 / freedom for part, freedom in terms)
    of_units = float(stdtrit(units**2 / squares if squares else inf, (1 + level) / 2))
    of_trainings = float(stdtrit(max(1, trainings - 1), (1 + level) / 2))
    half = sqrt(max(of_trainings**2 * between + of_units**2 * alone, of_units**2 * units))
    spread = sqrt(between * trainings) if trainings > 1 else nan
    method = "Student's t" if n or trainings > 1 else "normal, unpaired"
    return Interval(estimate, estimate - half, estimate + half, n, method, spread, trainings, alone)


def to_decide(found: Interval, line: float, trainings: bool = False) -> int | None:
    """How many units (or trainings) would clear the line in four cases of five, if effect and spread are as seen.

    None where no number would, since the test set alone leaves too much open, or where nobody would run so many.

    >>> to_decide(Interval(0.5, -0.2, 1.2, 8, "", spread=1.0), 0.0)
    34
    """
    least, within = (found.trainings, found.within) if trainings else (found.n, 0.0)
    counts = np.arange(least + 1, MANY + 1)
    between = found.spread**2 / counts
    half = np.sqrt(stdtrit(counts - 1, 0.975) ** 2 * between + ndtri(0.975) ** 2 * within)
    decided = abs(found.estimate - line) >= half + ndtri(0.8) * np.sqrt(between + within)
    return int(counts[decided.argmax()]) if decided.any() else None


def mean_interval(values: ndarray, level: float = 0.95) -> Interval:
    """Interval of the mean of paired differences (or of any independent units).

    >>> mean_interval(np.array([1.0, 2.0, 1.5, 2.5, 2.0, 1.0])).method
    'exact sign flips'
    """
    values = np.asarray(values, np.float64)
    n = len(values)
    mean = float(np.mean(values))
    tail = (1 - level) / 2
    spread = float(np.std(values, ddof=1)) if n > 1 else nan
    if n == 1:
        return Interval(mean, -inf, inf, 1, "one value")
    if n < FEWEST_EXACT or (n <= MOST_EXACT and floor(tail * 2**n) < 1):
        half = student_half(values, level)
        return Interval(mean, mean - half, mean + half, n, "Student's t", spread)
    if n <= MOST_EXACT:
        low, high = _sign_flip_bounds(values, tail)
        return Interval(mean, low, high, n, "exact sign flips", spread)
    means = bootstrap_means(values)
    widened = float(ndtr(sqrt(n / (n - 1)) * stdtrit(n - 1, tail)))
    low, high = np.quantile(means, [widened, 1 - widened])
    return Interval(mean, float(low), float(high), n, "paired bootstrap", spread)


def student_half(values: ndarray, level: float = 0.95) -> float:
    """Half the length of Student's t interval of the mean of independent values; no number for one value."""
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return nan
    quantile = float(stdtrit(len(values) - 1, (1 + level) / 2))
    return quantile * float(np.std(values, ddof=1)) / sqrt(len(values))


def _sign_flip_bounds(values: ndarray, tail: float) -> tuple[float, float]:
    """Bounds of the mean by inverting the exact sign-flip test.

    For differences symmetric about their mean, the mean is equally likely to fall into any of the 2^n gaps between the
    averages of all non-empty subsets (Hartigan's typical values), so the bounds are two of those averages.
    """
    patterns = np.array(list(product((0, 1), repeat=len(values))), np.float64)[1:]
    averages = np.sort(patterns @ values / patterns.sum(1))
    rank = floor(tail * 2 ** len(values))
    return float(averages[rank - 1]), float(averages[-rank])


def bootstrap_means(values: ndarray) -> ndarray:
    """Means over seeded resamples of the rows of `values`, in pieces that keep memory small: [resamples, ...]."""
    values = np.asarray(values, np.float64)
    generator = np.random.default_rng(0)
    step = max(1, 2_000_000 // values.size)
    means = []
    for start in range(0, RESAMPLES, step):
        drawn = generator.integers(0, len(values), (min(step, RESAMPLES - start), len(values)))
        means.append(values[drawn].mean(1))
    return np.concatenate(means)


def choice_interval(options: ndarray, places: ndarray, wanted: ndarray) -> tuple[Interval, str]:
    """Where the mean of [trainings, units, options] is largest, with a bootstrap interval, and whether that is a
    `wanted` place.

    It "holds" where the best wanted place beats every other one, "fails" where some other place beats the best wanted
    one, at 95 % after correction for having picked the best; "undecided" otherwise, and always with one unit.
    """
    trainings, n, _ = options.shape
    means = options.mean((0, 1))
    chosen = places[bootstrap_means(options.mean(1) if trainings > 1 else options[0]).argmax(1)]
    low, high = np.quantile(chosen, [0.025, 0.975], method="nearest")
    found = Interval(float(places[means.argmax()]), float(low), float(high), n, PLACE, trainings=trainings)
    best = int(np.where(wanted, means, -inf).argmax())
    others = [options[..., best] - options[..., place] for place in np.flatnonzero(~wanted)]

    def gap_interval(gaps: ndarray, comparisons: int) -> Interval:
        return crossed_interval([Stratum(gaps, np.ones(n))], 1 - 0.05 / comparisons)

    above = [gap_interval(gaps, int(wanted.sum())).low > 0 for gaps in others]
    below = [gap_interval(gaps, len(others)).high < 0 for gaps in others]
    return found, "holds" if all(above) else "fails" if any(below) else "undecided"


def slope_interval(x: ndarray, y: ndarray) -> Interval:
    """Theil-Sen slope of one curve with the interval that inverts Kendall's test; needs five points to decide."""
    from scipy.stats import theilslopes  # takes seconds to import

    slope, _, low, high = map(float, theilslopes(y, x, 0.95))
    if len(x) < 5:
        return Interval(slope, -inf, inf, 1, f"one curve of {len(x)} points")
    return Interval(slope, low, high, 1, f"Theil-Sen over {len(x)} points")
