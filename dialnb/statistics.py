"""Intervals and tests behind the verdicts: exact where pairs are few, bootstrap where they are many.

Under six pairs an exact test can never reach 95 %, so Student's t is used; from six to twelve, the exact interval that
inverts the sign-flip permutation test; beyond that, the bootstrap with the percentiles widened for the sample size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, floor, inf, nan, sqrt

import numpy as np
from scipy import stats

FEWEST_EXACT, MOST_EXACT, RESAMPLES = 6, 12, 10_000
PLACE = "bootstrap of the place"


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, how many units it stands on and how it was made."""

    estimate: float
    low: float
    high: float
    n: int
    method: str
    spread: float = nan

    def scaled(self, sign: int) -> Interval:
        """The same for the negated quantity where `sign` is -1."""
        if sign > 0:
            return self
        return Interval(-self.estimate, -self.high, -self.low, self.n, self.method, self.spread)


def mean_interval(values: np.ndarray, level: float = 0.95, seed: int = 0) -> Interval:
    """Interval of the mean of paired differences (or of any independent units).

    >>> mean_interval(np.array([1.0, 2.0, 1.5, 2.5, 2.0, 1.0])).method
    'exact sign flips'
    """
    values = np.asarray(values, np.float64)
    n, mean, tail = len(values), float(np.mean(values)), (1 - level) / 2
    spread = float(np.std(values, ddof=1)) if n > 1 else nan
    if n == 1:
        return Interval(mean, -inf, inf, 1, "one value")
    if n < FEWEST_EXACT or (n <= MOST_EXACT and floor(tail * 2**n) < 1):
        half = float(stats.t.ppf(1 - tail, n - 1)) * spread / sqrt(n)
        return Interval(mean, mean - half, mean + half, n, "Student's t", spread)
    if n <= MOST_EXACT:
        low, high = _sign_flip_bounds(values, tail)
        return Interval(mean, low, high, n, "exact sign flips", spread)
    means = bootstrap_means(values, seed)
    widened = float(stats.norm.cdf(sqrt(n / (n - 1)) * stats.t.ppf(tail, n - 1)))
    low, high = np.quantile(means, [widened, 1 - widened])
    return Interval(mean, float(low), float(high), n, "paired bootstrap", spread)


def _sign_flip_bounds(values: np.ndarray, tail: float) -> tuple[float, float]:
    """Bounds of the mean by inverting the exact sign-flip test.

    For differences symmetric about their mean, the mean is equally likely to fall into any of the 2^n gaps between the
    averages of all non-empty subsets (Hartigan's typical values), so the bounds are two of those averages.
    """
    patterns = np.array(list(product((0, 1), repeat=len(values))), np.float64)[1:]
    averages = np.sort(patterns @ values / patterns.sum(1))
    rank = floor(tail * 2 ** len(values))
    return float(averages[rank - 1]), float(averages[-rank])


def bootstrap_means(values: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> np.ndarray:
    """Means over seeded resamples of the rows of `values`, in pieces that keep memory small: [resamples, ...]."""
    values = np.ascontiguousarray(values, np.float64)
    return _bootstrap_means(values.tobytes(), values.shape, seed, resamples)


@lru_cache(maxsize=2)  # a claim asks for the same values at two levels
def _bootstrap_means(content: bytes, shape: tuple[int, ...], seed: int, resamples: int) -> np.ndarray:
    values, generator = np.frombuffer(content).reshape(shape), np.random.default_rng(seed)
    step = max(1, 2_000_000 // values.size)
    sizes = [min(step, resamples - start) for start in range(0, resamples, step)]
    return np.concatenate([values[generator.integers(0, len(values), (size, len(values)))].mean(1) for size in sizes])


def choice_interval(options: np.ndarray, places: np.ndarray, wanted: np.ndarray) -> tuple[Interval, str]:
    """Where the mean of [units, options] is largest, with a bootstrap interval, and whether that is a `wanted` place.

    It "holds" where the best wanted place beats every other one, "fails" where some other place beats the best wanted
    one, at 95 % after correction for having picked the best; "undecided" otherwise, and always with one unit.
    """
    means = options.mean(0)
    chosen = places[bootstrap_means(options).argmax(1)]
    low, high = np.quantile(chosen, [0.025, 0.975], method="nearest")
    found = Interval(float(places[means.argmax()]), float(low), float(high), len(options), PLACE)
    best = int(np.where(wanted, means, -inf).argmax())
    gaps = options[:, [best]] - options[:, ~wanted]
    above = [mean_interval(gap, 1 - 0.05 / wanted.sum()).low > 0 for gap in gaps.T]
    below = [mean_interval(gap, 1 - 0.05 / gaps.shape[1]).high < 0 for gap in gaps.T]
    return found, "holds" if all(above) else "fails" if any(below) else "undecided"


def combined_interval(means: list[float], variances: list[float], n: int, method: str, level: float = 0.95) -> Interval:
    """Interval of the mean of independent estimates with known sampling variances (normal)."""
    mean = float(np.mean(means))
    error = sqrt(sum(variances)) / len(means)
    half = float(stats.norm.ppf((1 + level) / 2)) * error
    return Interval(mean, mean - half, mean + half, n, method, error * sqrt(n))


def units_to_decide(interval: Interval, line: float, power: float = 0.8) -> int | None:
    """How many units would clear the line with the given chance, if the effect and spread are as seen.

    >>> units_to_decide(Interval(0.5, -0.2, 1.2, 8, "", spread=1.0), 0.0)
    34
    """
    effect = abs(interval.estimate - line)
    if not np.isfinite(interval.spread) or effect == 0:
        return None
    if interval.spread == 0:
        return interval.n
    n = max(2, interval.n)
    for _ in range(50):  # fixed point of the t-test's sample size
        critical = float(stats.t.ppf(0.975, n - 1) + stats.norm.ppf(power))
        ratio = min(critical * float(interval.spread) / float(effect), 1e6)
        wanted = ceil(ratio**2)
        if wanted in (n, 0):
            break
        n = max(2, wanted)
    return max(n, interval.n + 1)


def slope_interval(x: np.ndarray, y: np.ndarray, level: float = 0.95) -> Interval:
    """Theil-Sen slope of one curve with the interval that inverts Kendall's test; needs five points to decide."""
    if len(x) < 5:
        slope = float(np.median([(y[j] - y[i]) / (x[j] - x[i]) for i in range(len(x)) for j in range(i + 1, len(x))]))
        return Interval(slope, -inf, inf, 1, f"one curve of {len(x)} points")
    slope, _, low, high = stats.theilslopes(y, x, level)
    return Interval(float(slope), float(low), float(high), 1, f"Theil-Sen over {len(x)} points")
