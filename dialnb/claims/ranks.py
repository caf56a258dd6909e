"""Ranks of methods over tasks, and what can be said of them: Friedman's test and the critical difference of Nemenyi
(Demšar 2006).
"""

from math import inf, nan, sqrt

from pandas import DataFrame
from scipy import stats

from dialnb.errors import DataError


def ranks_of(scores: DataFrame) -> DataFrame:
    """Ranks [method, task] of scores [method, task], 1 for the highest; equal scores share the mean of their ranks.

    >>> ranks_of(DataFrame({"intents": [80, 90, 80]}, index=["a", "b", "c"]))["intents"].tolist()
    [2.5, 1.0, 2.5]
    """
    if scores.isna().any(axis=None):
        unknown = scores.index[scores.isna().any(axis=1)].tolist()
        raise DataError(f"ranks need a score of every method on every task; some are missing of {', '.join(unknown)}")
    return scores.rank(ascending=False)


def friedman(scores: DataFrame) -> tuple[float, float]:
    """Friedman's statistic with its correction for ties, and the probability of one as large if all methods were
    equal; (nan, nan) with fewer than three methods or two tasks."""
    methods, tasks = scores.shape
    if methods < 3 or tasks < 2:
        return nan, nan
    if (scores.nunique() == 1).all():  # equal everywhere: there is nothing to tell apart
        return 0.0, 1.0
    found = stats.friedmanchisquare(*scores.to_numpy())
    return float(found.statistic), float(found.pvalue)


def nemenyi_difference(methods: int, tasks: int) -> float:
    """How far the mean ranks of two methods must differ to be told apart: q sqrt(k (k + 1) / (6 N)).

    >>> round(nemenyi_difference(4, 14), 2)
    1.25
    """
    quantile = float(stats.studentized_range.ppf(0.95, methods, inf)) / sqrt(2)
    return quantile * sqrt(methods * (methods + 1) / (6 * tasks))
