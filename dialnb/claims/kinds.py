"""The kinds of claims: how each is asked of the rows, and what verdict its evidence carries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import isfinite, nan
from operator import itemgetter
from typing import Any

import numpy as np
from numpy import ndarray
from pandas import DataFrame

from dialnb.claims import evidence
from dialnb.claims.case import Case
from dialnb.claims.definitions import Claim
from dialnb.claims.evidence import Lacking, Unjudged
from dialnb.claims.floors import Floor
from dialnb.claims.intervals import (
    Interval,
    Prior,
    choice_interval,
    crossed_interval,
    mean_interval,
    slope_interval,
    to_decide,
)
from dialnb.claims.papers import OWN, Fields, matches, select
from dialnb.claims.printed import printed_gain
from dialnb.claims.verdict import (
    ENOUGH,
    FAILS,
    HALF,
    HOLDS,
    NEGATIVE,
    NO_EFFECT,
    NOT_AT_SIZE,
    ORDER,
    QUARTER,
    UNDECIDED,
    UNKNOWN,
    Verdict,
    size_of,
)
from dialnb.errors import DataError
from dialnb.files import as_list

FLAT_SHARE = 0.25
"""A curve is flat after a point if it gains less than this share of what it gained up to there."""
TOP = 100.0
"""The most that a score in percent can be; scores up to one are fractions."""
MORE_OF = ("draws", "seeds", "fine-tuned models")
"""Units of which more can be made; test items, groups of them and datasets are what they are."""


@dataclass(frozen=True)
class Question:
    """One claim before the rows of one case, those of one value of the column `each` where the claim names one."""

    claim: Claim
    case: Case
    rows: DataFrame
    each: Mapping[str, list[Any]] = field(default_factory=dict)

    def of(self, sides: Sequence[Fields]) -> DataFrame:
        """The rows of these sides."""
        return self.rows[np.any([matches(self.rows, side) for side in sides], axis=0)]

    def source(self, every: bool = False) -> DataFrame:
        """Rows of single items where the claim asks for them and they were kept, else those of results; of `every`
        value of the column `each`."""
        claim, items = self.claim, self.case.items
        where = {**claim.rows, **({} if every else self.each)}
        if claim.paired_over == "items" and items is not None:
            where = {name: one for name, one in where.items() if name in items}
            return self.case.kept("items", where, lambda: select(items, where))
        return select(self.case.results, claim.rows) if every else self.rows

    def floor_of(self, side: Fields) -> Floor:
        """Where the floors of a side lie."""
        where = {**self.claim.rows, **self.each, **side, **self.claim.learned}
        return self.case.floor(where, side, self.claim.by)

    def above_floors(self, sides: Sequence[Fields]) -> tuple[str, str]:
        """The strongest floor that the trained sides are above, and in words where word overlap is better; a side that
        is not above its floors is not judged."""
        floors = [(side, self.floor_of(side)) for side in sides if self.claim.learned or not self.claim.lower]
        strongest = ""
        for side, floor in floors:
            if self.case.trained(select(self.rows, side)):
                if not floor.passed:
                    raise Unjudged("under-trained", floor.numbers)
                strongest = strongest or floor.strongest
        words = "; ".join(floor.words for _, floor in floors if floor.words)
        return strongest, f"word overlap is better ({words})" if words else ""

    def prior(self, gaps: DataFrame, terms: Sequence[evidence.Term]) -> tuple[Prior | None, int]:
        """What all trained models of the table say of the variance between trainings, and how often the model of the
        comparison was trained that was trained least; 0 if none was."""
        claim, case = self.claim, self.case
        each = [claim.each] if claim.each and claim.each not in gaps else []
        asked = [claim.paired_over, claim.rows, each or self.each]
        every = case.kept("lean", asked, lambda: case.trained_rows(evidence.lean(self.source(bool(each)))))
        here = select(every, self.each) if each else every
        variances: list[float] = []
        counts: list[int] = []
        freedom = 0
        for name, group in groupby(sorted(terms, key=itemgetter(0)), itemgetter(0)):
            of_side = list(group)
            rows = [select(here, where) for *_, where in of_side]
            if not any(map(len, rows)):
                variances.append(nan)
                continue
            side = gaps[gaps["side"] == name]
            counts.append(side["training"].nunique())
            cells = side[evidence.cell_names(side)].drop_duplicates().astype(str)
            of = each
            if len({str(where.get("model")) for *_, where in of_side}) == 1:  # any model may stand in their place
                of_side = [
                    (name, factor, {key: one for key, one in where.items() if key != "model"})
                    for _, factor, where in of_side
                ]
                of = list(dict.fromkeys(["model", *each]))
            variance, known = evidence.spread(every, of_side, cells, of)
            variances.append(variance / max(part["model"].nunique() for part in rows))
            freedom = max(freedom, known)  # both sides ask the same trainings of the table
        return (Prior(variances, freedom) if freedom else None), min(counts, default=0)

    def known(self, found: Interval) -> Interval:
        """The interval of what was measured; a printed value is what it is."""
        return replace(found, low=found.estimate, high=found.estimate) if self.case.printed else found

    def answer(
        self,
        verdict: str,
        found: Interval,
        rows: DataFrame,
        *,
        trained: bool | None = None,
        reason: str = "",
        joint: str = "",
        floor: str = "",
        overlap: str = "",
    ) -> Verdict:
        """The verdict that the evidence carries, with what limits it and what would decide it."""
        claim = self.claim
        unit = self.case.unit(rows, claim)
        trained = self.case.trained(rows) if trained is None else trained
        share = self.case.share(rows) if trained and "model" in rows else None
        needed, limit, qualifier = None, "", ""
        if trained and not claim.one_model and found.trainings < ENOUGH:
            qualifier = "one training" if found.trainings == 1 else f"{found.trainings} trainings"
            if verdict != UNDECIDED:
                word = {HOLDS: "hold", FAILS: "fail"}.get(verdict, f"be {verdict}")
                alone = f"over {unit} alone it would {word}; {ENOUGH} trainings are needed"
                reason = "; ".join(filter(None, (alone, reason)))
            verdict = UNDECIDED
        elif verdict == UNDECIDED and claim.kind in ("gain", "ordering", "trend") and not reason:
            reason = "one value has no interval"
            if isfinite(found.low):
                limit, needed, more = self.what_would_decide(found, unit, trained)
                line = f"{claim.margin:g}" if claim.margin else "zero"
                reason = f"{line} lies inside the interval{joint}; {more}"
        elif verdict in NEGATIVE and trained and not (claim.ours or self.case.slug in OWN or (share or 0) >= HALF):
            qualifier = f"{UNKNOWN if share is None else f'{share:.2g}'} of the printed training"
        return Verdict(
            verdict,
            found.estimate,
            found.low,
            found.high,
            n=found.n,
            unit=unit,
            train_seeds=found.trainings if trained else 0,
            method=found.method,
            limit=limit,
            needed=needed,
            floor=floor,
            share=share,
            qualifier=qualifier,
            reason="; ".join(filter(None, (reason, overlap))),
        )

    def what_would_decide(self, found: Interval, unit: str, trained: bool) -> tuple[str, int | None, str]:
        """What limits a verdict, how many of it would decide it, and both in words; nothing is offered of which no more
        can be made."""
        enough = trained and found.trainings >= ENOUGH
        limit, needed = to_decide(found, self.claim.margin, enough, unit in MORE_OF)
        named = "trainings" if limit == "trainings" else unit
        if needed:
            return named, needed, f"about {needed:,} {named} would decide it"
        if named == "trainings" or named in MORE_OF:
            return named, None, "the effect is too close to it for more runs to settle it"
        return named, None, f"the {found.n or 'few'} {named} limit it, and there are no more of them"


Parts = Iterator[tuple[str, Verdict]]
"""What a part of a claim is called beyond its sides, and its verdict."""


def gain(asked: Question, better: Fields, worse: Fields, pairs: int) -> Parts:
    """One comparison. With several, all must hold at 95 %, and one fails the claim at 95 % over all of them."""
    claim = asked.claim
    used, (floor, overlap) = asked.of([better, worse]), asked.above_floors([better, worse])
    terms = evidence.terms_of(claim, better, worse)
    gaps = evidence.gains(asked.source(), terms, claim.by)
    if claim.margin and not claim.lower:
        check_room(asked, better, worse)
    strata = evidence.strata(gaps, claim.paired_over == "datasets")
    prior, trainings = (None, 0) if asked.case.printed else asked.prior(gaps, terms)
    sign = -1 if claim.lower else 1
    found, of_all = (
        replace(asked.known(crossed_interval(strata, level, prior).scaled(sign)), trainings=trainings)
        for level in (0.95, 1 - 0.05 / pairs)
    )
    printed = printed_gain(claim, asked.case, asked.rows, better, worse)
    verdict = HOLDS if found.low > claim.margin else FAILS if of_all.high < claim.margin else UNDECIDED
    if verdict == UNDECIDED and printed and not claim.margin:
        within = max(abs(of_all.low), abs(of_all.high)) < QUARTER * printed
        verdict = NO_EFFECT if within else NOT_AT_SIZE if of_all.high < HALF * printed else UNDECIDED
    joint = ""
    if verdict != FAILS and found.high < claim.margin:  # alone it would fail: show what leaves it open
        found, joint = of_all, f" that covers all {pairs} comparisons at 95 %"
    answer = asked.answer(verdict, found, used, joint=joint, floor=floor, overlap=overlap)
    yield "", replace(answer, printed=printed, size=size_of(found, printed))


def check_room(asked: Question, better: Fields, worse: Fields) -> None:
    """Refuse a margin that does not fit above the floor of the better side, or below the top of the scale."""
    margin = asked.claim.margin
    scores, others = (select(asked.rows, side)["value"] for side in (better, worse))
    best, room = float(scores.mean()), asked.floor_of(better).room
    top = 1.0 if max(scores.max(), others.max()) <= 1 else TOP
    if isfinite(room) and (others.mean() + margin > top or room < margin):
        raise Unjudged("no room", f"{margin:g} do not fit between {best:.3g} and the floor {best - room:.3g}")


Shape = tuple[Interval, str, str]
"""The interval of what a shape says of a curve, its verdict, and the reason."""


def trend(asked: Question, better: Fields, worse: Fields, pairs: int) -> Parts:
    """The shape of a curve, or of the gap between two."""
    claim = asked.claim
    sides = [claim.better, claim.worse] if claim.worse else [claim.better]
    used, (floor, overlap) = asked.of(sides), asked.above_floors(sides)
    x, curves = curves_of(asked, sides)
    shape = SHAPES[claim.trend.get("shape", "rising")]
    found, verdict, reason = shape(asked, x, [-y if claim.lower else y for y in curves])
    yield "", asked.answer(verdict, found, used, reason=reason, floor=floor, overlap=overlap)


def curves_of(asked: Question, sides: Sequence[Fields]) -> tuple[ndarray, list[ndarray]]:
    """The curves of one side, or of two, over the column that the claim names."""
    claim = asked.claim
    return evidence.curves(asked.rows, sides, claim.trend["over"], claim.by, claim.paired_over)


def slope(asked: Question, x: ndarray, curves: list[ndarray]) -> Shape:
    """The curve rises, or falls."""
    wanted = asked.claim.trend
    logarithmic = wanted.get("scale") == "log"
    if alone(curves):
        found = slope_interval(np.log(x) if logarithmic else x, curves[0][0, 0])
    else:
        weights = evidence.slope_weights(x, logarithmic)
        found = evidence.contrast(curves, weights, other_curves(asked, x))
    found = asked.known(found.scaled(-1 if wanted.get("shape") == "falling" else 1))
    return found, side_of(found, asked.claim.margin), ""


def flat_after(asked: Question, x: ndarray, curves: list[ndarray]) -> Shape:
    """The curve rises up to a point and gains little after it."""
    over, at = (asked.claim.trend[name] for name in ("over", "at"))
    turn = int(np.abs(x - at).argmin())
    if alone(curves) or turn in (0, len(x) - 1):
        raise Lacking(f"two curves of {over} with points on both sides of {at} are needed")
    steps = np.arange(len(x))
    before = (steps == turn).astype(float) - (steps == 0)
    after = np.where(steps > turn, 1 / (len(x) - turn - 1), 0.0) - (steps == turn)
    others = other_curves(asked, x)
    parts = [evidence.contrast(curves, weights, others) for weights in (before, FLAT_SHARE * before - after)]
    verdict = min((side_of(part, 0) for part in parts), key=ORDER.index)
    later = float((curves[0] @ after).mean())
    reason = f"gains {parts[0].estimate:+.3g} up to {at}, {later:+.3g} on average after it"
    return min(parts, key=lambda part: part.low), verdict, reason


def place(asked: Question, x: ndarray, curves: list[ndarray]) -> Shape:
    """The curve has its peak at one of some places, or its largest step ends there."""
    over, at, shape = (asked.claim.trend[name] for name in ("over", "at", "shape"))
    if shape == "peak":
        words, places, options, wanted = "peak at", x, curves[0], np.isin(x, np.atleast_1d(at))
    else:
        words, places, options, wanted = "largest step ends at", x[1:], np.diff(curves[0], axis=2), x[1:] == at[1]
    if not wanted.any():
        raise Lacking(f"not measured: {over} at {at}")
    found, verdict = choice_interval(options, places, wanted)
    if asked.case.printed:
        verdict = HOLDS if found.estimate in places[wanted] else FAILS
    unclear = ", not clear of all others" if verdict == UNDECIDED else ""
    return found, verdict, f"{words} {over} {found.estimate:g}{unclear}"


SHAPES: dict[str, Callable[[Question, ndarray, list[ndarray]], Shape]] = {
    "rising": slope,
    "falling": slope,
    "peak": place,
    "largest-step": place,
    "flat-after": flat_after,
}


def alone(curves: list[ndarray]) -> bool:
    """Is there one curve only, of one training and one unit?"""
    return len(curves) == 1 and curves[0].shape[:2] == (1, 1)


def other_curves(asked: Question, x: ndarray) -> list[ndarray]:
    """The curves of the other trained models of these rows, as far as they have the same places."""
    claim, rows = asked.claim, asked.rows
    named = {name for side in (claim.better, claim.worse) for name in as_list(side.get("model", []))}
    found: list[ndarray] = []
    for model in rows["model"].unique() if named else ():
        where = {**claim.better, "model": model}
        if model in named or not asked.case.trained(select(rows, where)):
            continue
        try:
            places, curves = curves_of(asked, [where])
        except DataError:
            continue
        found += curves if np.array_equal(places, x) else []
    return found


def statistic(asked: Question, better: Fields, worse: Fields, pairs: int) -> Parts:
    """A number of every cell, or the agreement of two rankings of the models, that must lie in a range."""
    claim, rows = asked.claim, asked.rows
    wanted = claim.statistic
    if sides := wanted.get("between"):
        if asked.case.printed:
            raise Lacking("a correlation over the printed models is no check")
        found = evidence.rank_agreement(rows, sides, claim.by)
        verdict = inside(found, *wanted["range"])
        reason = f"{found.n} models are too few to tell" if verdict == UNDECIDED else ""
        trainings = rows["training"].nunique() if asked.case.trained(rows) else 0
        answer = asked.answer(verdict, found, rows, trained=False, reason=reason)
        yield "", replace(answer, unit="models", train_seeds=trainings)
        return
    cells = evidence.measured(rows, claim.better, claim.by)
    keys = evidence.cell_names(cells)
    for name, part in cells.groupby(keys) if keys else [((), cells)]:
        values = part["value"].to_numpy()
        number = float(values[0])
        found = mean_interval(values) if len(values) > 1 else Interval(number, number, number, 1, "counted")
        answer = asked.answer(inside(found, *wanted["range"]), found, rows, trained=False)
        yield " ".join(map(str, filter(None, name))), answer


KINDS = {"gain": gain, "ordering": gain, "trend": trend, "statistic": statistic}
"""What judges a part of a claim of each kind but a value."""


def side_of(found: Interval, line: float) -> str:
    """The verdict on what must lie above a line."""
    return HOLDS if found.low > line else FAILS if found.high < line else UNDECIDED


def inside(found: Interval, low: float, high: float) -> str:
    """The verdict on what must lie in a range."""
    if low <= found.low and found.high <= high:
        return HOLDS
    return FAILS if found.high < low or found.low > high else UNDECIDED
