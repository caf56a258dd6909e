"""Intervals behind the verdicts.

**Over trainings and test units** (`crossed_interval`): the one estimator of a difference between models. All models are
scored on the same test units (conversations, draws, groups, items), which are paired; their trainings are not. The
variance of a mean is that of a two-way random-effects model (Hillis, Statistics in Medicine 2007): between trainings +
between units - their interaction.

- *Trainings.* The variance between the trainings of each model is shrunk towards that of all models of the table,
  which counts as much as `PRIOR` degrees of freedom (Smyth 2004). The degrees of freedom of the difference are
  Satterthwaite's, and never more than all trainings of the table have.
- *Units.* Those that belong together enter as one cluster, and the variance is that of the paired differences.
- Each part keeps the quantile of Student's t with its own degrees of freedom, and the half-lengths are combined as the
  root of the sum of their squares (Howe, JASA 1974).

What it costs and finds is in `papers/JUDGE.md`; the tests simulate it.

**Over one kind of unit** (`mean_interval`): under six an exact test can never reach 95 %, so Student's t is used; from
six to twelve, the exact interval that inverts the sign-flip permutation test; beyond that, the bootstrap with the
percentiles widened for the sample size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import floor, inf, isfinite, nan, sqrt

import numpy as np
from numpy import ndarray
from scipy.special import ndtr, ndtri, stdtrit

from dialnb.evaluation.metrics import student_half

FEWEST_EXACT, MOST_EXACT, RESAMPLES = 6, 12, 10_000
PLACE = "bootstrap of the place"
PRIOR = 4.0
"""Degrees of freedom that the variance between the trainings of all models of a table counts for."""
MANY = 1000
"""Trainings or draws that nobody runs to decide a claim."""


@dataclass(frozen=True)
class Part:
    """A part of the variance of an estimate, and its degrees of freedom."""

    variance: float = 0.0
    freedom: float = inf

    def squared(self, level: float = 0.95) -> float:
        """The square of the half-length of its interval."""
        return float(stdtrit(self.freedom, (1 + level) / 2)) ** 2 * self.variance if self.variance else 0.0


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, how many units it stands on and how it was made."""

    estimate: float
    low: float
    high: float
    n: int
    method: str
    trainings: int = 1
    between: Part = Part()
    """What trainings leave open; more of them would take it away."""
    within: Part = Part()
    """What units leave open."""

    def scaled(self, sign: int) -> Interval:
        """The same for the negated quantity where `sign` is -1."""
        if sign > 0:
            return self
        return replace(self, estimate=-self.estimate, low=-self.high, high=-self.low)


@dataclass(frozen=True)
class Stratum:
    """One test set, of whose estimates the whole is a weighted mean.

    Each of the `sides` [trainings, clusters] holds sums of signed scores, so that the sides add up to the difference
    (a single one is of one model, or of paired trainings); `sizes` [clusters] says how many units a cluster has;
    `variance` is that of the mean where it is known from the number of items alone.
    """

    sides: Sequence[ndarray]
    sizes: ndarray
    weight: float = 1.0
    variance: float = 0.0


@dataclass(frozen=True)
class Prior:
    """What all trained models of a table say of the variance between the trainings of each side: `variances`, NaN for a
    side that is not trained, and the degrees of freedom of all of them together."""

    variances: Sequence[float]
    freedom: float


def crossed_interval(strata: Sequence[Stratum], level: float = 0.95, prior: Prior | None = None) -> Interval:
    """Interval of a mean difference over trainings and the units of one or several test sets.

    >>> alike = np.array([[1.0, 2.0, 3.0, 2.0], [1.1, 2.0, 3.1, 1.8], [0.9, 2.0, 2.9, 2.2]])  # trainings x dialogues
    >>> found = crossed_interval([Stratum([alike], np.ones(4))])
    >>> round(found.estimate, 3), found.trainings, found.n
    (2.0, 3, 4)
    """
    counts = [len(totals) for totals in strata[0].sides]
    n = sum(len(part.sizes) for part in strata if len(part.sizes) > 1)
    if max(counts) == 1 and len(strata) == 1 and 1 < n <= MOST_EXACT and np.ptp(strata[0].sizes) == 0:
        alone = sum(totals[0] for totals in strata[0].sides) / strata[0].sizes
        return mean_interval(alone * strata[0].weight, level)
    means = [np.zeros(count) for count in counts]
    crossed = 0.0
    terms = []
    for part in strata:
        clusters = len(part.sizes)
        average = np.zeros(clusters)
        for mean, totals, count in zip(means, part.sides, counts):
            here = totals.sum(1) / part.sizes.sum()
            mean += part.weight * here
            # what each cluster adds to the mean, so that large clusters count as much as they have items
            added = part.weight * (totals - here[:, None] * part.sizes) * clusters / part.sizes.sum()
            average += added.mean(0)
            if clusters > 1 and count > 1:
                rest = float(((added - added.mean(0)) ** 2).sum()) / ((count - 1) * (clusters - 1))
                crossed += rest / (count * clusters)
        if clusters == 1:
            terms.append(Part(part.weight**2 * part.variance, inf))
        else:
            terms.append(Part(float(average @ average) / (clusters * (clusters - 1)), clusters - 1))
    units, between = _together(terms), _between(means, prior)
    estimate = float(sum(mean.mean() for mean in means))
    if between.variance + units.variance == 0:  # repetitions that change nothing are no evidence
        return Interval(estimate, -inf, inf, n, "one value", min(counts))
    within = replace(units, variance=max(units.variance - crossed, 0.0))
    half = sqrt(max(between.squared(level) + within.squared(level), units.squared(level)))
    method = "moderated t" if prior else "Student's t" if n or max(counts) > 1 else "normal, unpaired"
    return Interval(estimate, estimate - half, estimate + half, n, method, min(counts), between, within)


def _between(means: Sequence[ndarray], prior: Prior | None) -> Part:
    """The variance of a sum of means over trainings, each side's shrunk towards the prior."""
    parts = []
    for number, values in enumerate(means):
        variance, freedom = (values.var(ddof=1), len(values) - 1.0) if len(values) > 1 else (0.0, 0.0)
        expected = prior.variances[number] if prior else nan
        if isfinite(expected):
            variance = (PRIOR * expected + freedom * variance) / (PRIOR + freedom)
            freedom += PRIOR
        parts.append(Part(float(variance) / len(values), freedom))
    found = _together(parts)
    return replace(found, freedom=min(found.freedom, prior.freedom)) if prior else found


def _together(parts: Sequence[Part]) -> Part:
    """The sum of independent parts, with Satterthwaite's degrees of freedom."""
    variance = sum(part.variance for part in parts)
    squares = sum(part.variance**2 / part.freedom for part in parts if part.variance)
    return Part(variance, variance**2 / squares if squares else inf)


def to_decide(found: Interval, line: float, trainings: bool = True, units: bool = True) -> tuple[str, int | None]:
    """What limits a verdict, "trainings" or "units", and how many of it would clear the line in four cases of five, if
    effect and spread are as seen; None where no number would, or where nobody would make so many.

    More `trainings` are asked for first, then more `units`, where more of them can be made.

    >>> to_decide(Interval(0.5, -0.2, 1.2, 8, "", trainings=8, between=Part(1 / 8, 7)), 0.0)
    ('trainings', 34)
    """
    parts = {"trainings": (found.between, found.trainings), "units": (found.within, found.n)}
    for limit, possible in (("trainings", trainings), ("units", units)):
        part, count = parts[limit]
        if not possible or not part.variance or not count:
            continue
        (other,) = (each for name, (each, _) in parts.items() if name != limit)
        counts = np.arange(count + 1, MANY + 1)
        variance = part.variance * count / counts
        # more trainings add to the degrees of freedom, as more units do
        half = np.sqrt(stdtrit(part.freedom * counts / count, 0.975) ** 2 * variance + other.squared())
        decided = abs(found.estimate - line) >= half + ndtri(0.8) * np.sqrt(variance + other.variance)
        if decided.any():
            return limit, int(counts[decided.argmax()])
    return ("trainings" if found.between.squared() >= found.within.squared() else "units"), None


def mean_interval(values: ndarray, level: float = 0.95) -> Interval:
    """Interval of the mean of paired differences (or of any independent units).

    >>> mean_interval(np.array([1.0, 2.0, 1.5, 2.5, 2.0, 1.0])).method
    'exact sign flips'
    """
    values = np.asarray(values, np.float64)
    n = len(values)
    mean = float(np.mean(values))
    tail = (1 - level) / 2
    if n == 1:
        return Interval(mean, -inf, inf, 1, "one value")
    within = Part(float(np.var(values, ddof=1)) / n, n - 1)
    if n < FEWEST_EXACT or (n <= MOST_EXACT and floor(tail * 2**n) < 1):
        half = student_half(values, level)
        return Interval(mean, mean - half, mean + half, n, "Student's t", within=within)
    if n <= MOST_EXACT:
        low, high = _sign_flip_bounds(values, tail)
        return Interval(mean, low, high, n, "exact sign flips", within=within)
    means = bootstrap_means(values)
    widened = float(ndtr(sqrt(n / (n - 1)) * stdtrit(n - 1, tail)))
    low, high = np.quantile(means, [widened, 1 - widened])
    return Interval(mean, float(low), float(high), n, "paired bootstrap", within=within)


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
        return crossed_interval([Stratum([gaps], np.ones(n))], 1 - 0.05 / comparisons)

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
