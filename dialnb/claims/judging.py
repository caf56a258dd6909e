"""Judges claims: tidy rows in, verdicts out.

A verdict is *holds* or *fails* where the whole 95 % interval lies on one side of the line and the evidence carries it:

- both sides of a comparison learned: a trained model that is not above its floor (chance, TF-IDF, BM25, majority) on a
  test set is under-trained, and the comparison is not judged, whichever way it points;
- a difference between trained models rests on three trainings or more, else it is *undecided: one training*;
- the paper's own printed cells do not contradict the claim;
- where the paper leaves a choice open that decides the claim, all readings agree.

*Undecided* says what would decide it, if more of that is available. *Not run* says what is missing; a claim is also not
run where fewer than half of its comparisons could be judged.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from dialnb.claims import evidence
from dialnb.claims.case import Case, Floor, Unjudged
from dialnb.claims.comparison import printed_rows
from dialnb.claims.definitions import Claim, load_claims
from dialnb.claims.evidence import Lacking
from dialnb.claims.papers import FLOORS, compare_table, load_paper, matches, select
from dialnb.claims.verdicts import (
    CONTRADICTED,
    ENOUGH,
    FAILS,
    HALF,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    Judged,
    Verdict,
    encoder_kind,
    strength,
)
from dialnb.errors import DataError
from dialnb.evaluation.intervals import Interval, choice_interval, crossed_interval, mean_interval, to_decide
from dialnb.files import as_list, project_root, read_json, sha256

FLAT_SHARE = 0.25
"""A curve is flat after a point if it gains less than this share of what it gained up to there."""
TOP = 100.0
"""The most that a score in percent can be; scores up to one are fractions."""
TO_BE_HAD = ("trainings", "draws", "seeds", "fine-tuned models")
"""Units of which more can be made; test items, groups of them and datasets are what they are."""
UNPRINTED = ("protocol", "ties")
"""Columns on which no printed table differs from itself."""
ORDER = (FAILS, UNDECIDED, HOLDS)
"""Verdicts from the weakest to the strongest: all parts of a claim must hold."""
AGREES, CONTRADICTS, SILENT = "agree", "contradict it", "no numbers"
"""What the cells that a paper prints say of its claim."""


def judge_claims(
    slug: str,
    results: DataFrame,
    not_run: Iterable[Mapping[str, str]] = (),
    items: DataFrame | None = None,
    training: Mapping[str, float] | None = None,
) -> Judged:
    """Every claim of a paper with its verdict; a claim whose rows cannot be told apart is not run, and says so."""
    case = Case(results, slug, items, training or {})
    reasons = list(not_run)
    records = []
    for claim in load_claims(slug):
        try:
            verdict = _under_all_readings(claim, case) if claim.readings else judge(claim, case)
        except Unjudged as unjudged:
            verdict = Verdict(NOT_RUN, qualifier=unjudged.qualifier, reason=str(unjudged))
        except Lacking as lacking:
            verdict = Verdict(NOT_RUN, reason=_why_not(claim, reasons) or str(lacking))
        except DataError as error:
            verdict = Verdict(NOT_RUN, reason=str(error))
        paper = paper_checks(slug)["checks"][claim.id]
        if paper == CONTRADICTS:
            ours = f"here it {verdict.verdict}" if verdict.verdict in (HOLDS, FAILS) else f"here {verdict.verdict}"
            reason = f"{ours}; {verdict.reason}".strip("; ")
            verdict = replace(verdict, verdict=CONTRADICTED, qualifier="", reason=reason)
        record = {name: getattr(claim, name) for name in ("id", "statement", "where", "kind", "margin")}
        record |= asdict(verdict) | {"encoders": ", ".join(verdict.encoders), "paper": paper}
        for name in ("estimate", "low", "high"):
            record[name] = record[name] if isfinite(record[name]) else None
        record["encoder_kind"] = encoder_kind(slug, verdict.encoders)
        record["strength"], record["strength_words"] = ("", "") if verdict.verdict == NOT_RUN else strength(record)
        records.append(record)
    return Judged(DataFrame(records, dtype=object))


@cache
def paper_checks(slug: str) -> dict[str, dict[str, str]]:
    """What the printed cells of a paper say of each of its claims; known while its files are as they were."""
    folder = project_root() / "papers" / slug
    files = {path.name: sha256(path) for path in (folder / "paper.yaml", *folder.glob("c*.yaml"))}
    kept = read_json(folder / "printed.json")
    return kept if kept and kept["files"] == files else {"files": files, "checks": check_printed(slug)}


def check_printed(slug: str) -> dict[str, str]:
    """Judge the claims of a paper on its own cells: they agree with a claim, contradict it, or there are none."""
    case = Case(printed_rows(slug), printed=True)
    checks = {}
    for claim in load_claims(slug):
        asked = replace(claim, **claim.printed, paired_over="seeds")
        rows = {name: one for name, one in asked.rows.items() if name in case.results and name not in UNPRINTED}
        try:
            agrees = claim.kind == "value" or judge(replace(asked, rows=rows), case).verdict == HOLDS
            checks[claim.id] = AGREES if agrees else CONTRADICTS
        except DataError:
            checks[claim.id] = SILENT
    return checks


def _under_all_readings(claim: Claim, case: Case) -> Verdict:
    """The verdict on which all readings of what the paper leaves open agree, else that it depends on them."""
    verdicts = {}
    absent = {}
    for name, fields in claim.readings.items():
        try:
            verdicts[name] = judge(replace(claim, **fields, readings={}), case)
        except Lacking as error:
            absent[name] = error
    if not verdicts:
        raise max(absent.values(), key=lambda error: isinstance(error, Unjudged))
    weakest = min(verdicts.values(), key=_weakness)
    words = [f"{name}: {verdict.verdict}" for name, verdict in verdicts.items()]
    words += [f"{name}: not run" for name in absent]
    if len({verdict.verdict for verdict in verdicts.values()}) == 1 and not absent:
        return weakest
    reason = "; ".join([*words, weakest.reason]).rstrip("; ")
    return replace(weakest, verdict=UNDECIDED, qualifier="depends on the reading", needed=None, reason=reason)


def _weakness(verdict: Verdict) -> tuple[int, float]:
    return ORDER.index(verdict.verdict), verdict.low


def _why_not(claim: Claim, reasons: list[Mapping[str, str]]) -> str:
    """The recorded reason for a row that the claim needs, or for its whole table."""
    sides = [claim.rows, claim.better, claim.published or {}, *chain(*claim.sides)]
    models = {model for side in sides for model in as_list(side.get("model", []))}
    for entry in reasons:
        if entry.get("model") in models and (not claim.tables or entry.get("table") in (None, "", *claim.tables)):
            return f"{entry['model']}: {entry['reason']}"
    whole = [entry for entry in reasons if set(entry) == {"table", "reason"} and entry["table"] in claim.tables]
    return whole[0]["reason"] if whole else ""


def judge(claim: Claim, case: Case) -> Verdict:
    """Judge one claim; `Lacking` is raised where there is nothing to judge."""
    if case.results.empty:
        raise Lacking("nothing was measured")
    judging = _Judging(claim, case)
    if claim.kind == "value":
        return judging.value()
    rows = select(case.results, claim.rows)
    rows = rows[~rows["model"].isin(FLOORS)] if "model" in rows else rows
    if rows.empty:
        raise Lacking(f"not measured: {evidence.describe(claim.rows)}")
    if claim.each and claim.each not in rows:
        raise Lacking(f"the rows have no column {claim.each!r}")
    parts = []
    lacking = {}
    groups = rows.groupby(claim.each) if claim.each else [("", rows)]
    sides = claim.sides if claim.kind in ("gain", "ordering") else [(claim.better, {})]
    judge_part = getattr(judging, claim.kind)
    for value, part in groups:
        name = value if isinstance(value, str) else f"at {claim.each} {value:g}"
        for better, worse in sides:
            against = f"{evidence.describe(better)} against {evidence.describe(worse)}" if worse else ""
            label = f"{against} {name}".strip()
            try:
                found = list(judge_part(part, better, worse, len(sides) * len(groups)))
                parts += [(f"{label} {cell}".strip(), verdict) for cell, verdict in found]
            except Lacking as error:
                lacking[label] = error
    if not parts or (len(parts) < len(lacking) and not case.printed):
        raise _most_common(lacking, len(parts) + len(lacking))
    return _combine(parts, lacking, rows)


def _combine(parts: list[tuple[str, Verdict]], lacking: Mapping[str, Lacking], rows: DataFrame) -> Verdict:
    """All parts must hold; the verdict shows the weakest of them and names it."""
    label, weakest = min(parts, key=lambda part: _weakness(part[1]))
    words = [f"weakest of {len(parts)}: {label}"] if len(parts) > 1 else []
    words += [weakest.reason] if weakest.reason else []
    if lacking:
        absent = [f"{name} ({error})" if isinstance(error, Unjudged) else name for name, error in lacking.items()]
        every = len(parts) + len(lacking)
        words.append(f"judged on {len(parts)} of {every} comparisons, not run: {', '.join(absent)}")
    counted = all(verdict.method == "counted" for _, verdict in parts)
    encoders = rows["encoder"].unique() if "encoder" in rows and not counted else ()
    used = tuple(name for name in encoders if name not in ("", "none"))
    return replace(weakest, reason="; ".join(words), encoders=used)


def _most_common(lacking: Mapping[str, Lacking], every: int) -> Lacking:
    """One reason for comparisons that could not be judged: the most frequent word with the numbers of all, else what
    is missing."""
    unjudged = [error for error in lacking.values() if isinstance(error, Unjudged)]
    if not unjudged:
        return Lacking("; ".join(dict.fromkeys(map(str, lacking.values()))))
    if len(lacking) == 1:
        return unjudged[0]
    words = [error.qualifier for error in unjudged]
    word = max(dict.fromkeys(words), key=words.count)
    numbers = dict.fromkeys(error.numbers for error in unjudged if error.qualifier == word)
    found = Unjudged(word, "; ".join(numbers))
    found.args = (f"{found}, {words.count(word)} of {every} comparisons",)
    return found


Parts = Iterator[tuple[str, Verdict]]
"""What a part of a claim is called beyond its sides, and its verdict."""


def _of(rows: DataFrame, sides: list[Mapping]) -> DataFrame:
    """The rows of these sides."""
    return rows[np.any([matches(rows, side) for side in sides], axis=0)]


@dataclass(frozen=True)
class _Judging:
    """One claim before one case: a method for each kind of claim."""

    claim: Claim
    case: Case

    def gain(self, rows: DataFrame, better: Mapping, worse: Mapping, pairs: int) -> Parts:
        """One comparison. With several, all must hold at 95 %, and one fails the claim at 95 % over all of them."""
        claim = self.claim
        used = _of(rows, [better, worse])
        floor = self._floor(rows, [better, worse])
        gaps = self._gaps(rows, better, worse)
        if claim.margin and not claim.lower:  # it must fit above the floor of the better side and below the top
            scores, others = (select(rows, side)["value"] for side in (better, worse))
            best, room = float(scores.mean()), self._floor_of(rows, better).room
            top = 1.0 if max(scores.max(), others.max()) <= 1 else TOP
            if isfinite(room) and (others.mean() + claim.margin > top or room < claim.margin):
                between = f"between {best:.3g} and the floor {best - room:.3g}"
                raise Unjudged("no room", f"{claim.margin:g} do not fit {between}")
        strata = evidence.strata(gaps, claim.paired_over == "datasets")
        sign = -1 if claim.lower else 1
        found = self._known(crossed_interval(strata).scaled(sign))
        of_all = self._known(crossed_interval(strata, 1 - 0.05 / pairs).scaled(sign))
        verdict = HOLDS if found.low > claim.margin else FAILS if of_all.high < claim.margin else UNDECIDED
        joint = ""
        if verdict == UNDECIDED and found.high < claim.margin:  # alone it would fail: show what leaves it open
            found, joint = of_all, f" that covers all {pairs} comparisons at 95 %"
        yield "", self._worded(verdict, found, used, joint=joint, floor=floor)

    ordering = gain

    def _known(self, found: Interval) -> Interval:
        """The interval of what was measured; a printed value is what it is."""
        return replace(found, low=found.estimate, high=found.estimate) if self.case.printed else found

    def _floor(self, rows: DataFrame, sides: list[Mapping]) -> str:
        """The strongest floor that the trained sides are above; a side that is not above its floors is not judged."""
        strongest = ""
        for side in sides if self.claim.learned or not self.claim.lower else ():
            if self.case.trained(select(rows, side)):
                floor = self._floor_of(rows, side)
                if not floor.passed:
                    raise Unjudged("under-trained", floor.numbers)
                strongest = strongest or floor.strongest
        return strongest

    def _floor_of(self, rows: DataFrame, side: Mapping) -> Floor:
        where = {**self.claim.rows, **self._each(rows), **side, **self.claim.learned}
        return self.case.floor(where, side, self.claim.by)

    def _each(self, rows: DataFrame) -> dict[str, list]:
        """The value of the column in whose groups the claim is judged, where it names one."""
        return {self.claim.each: rows[self.claim.each].unique().tolist()} if self.claim.each else {}

    def _gaps(self, rows: DataFrame, better: Mapping, worse: Mapping) -> DataFrame:
        """Paired differences of a comparison: over test items where the claim asks for them and they were kept."""
        claim = self.claim
        source = rows
        if claim.paired_over == "items" and self.case.items is not None:
            where = {**claim.rows, **self._each(rows)}
            source = select(self.case.items, {name: one for name, one in where.items() if name in self.case.items})
        gaps = evidence.differences(source, better, worse, claim.by, claim.times)
        if claim.than is None:
            return gaps
        other = evidence.differences(source, claim.than["better"], claim.than["worse"], claim.by)
        places = [name for name in ("dataset", *evidence.REPEATED) if name in gaps]
        return evidence.minus(evidence.mean_within(gaps, places), evidence.mean_within(other, places))

    def trend(self, rows: DataFrame, *_: Any) -> Parts:
        """The shape of a curve, or of the gap between two."""
        claim = self.claim
        trend = claim.trend or {}
        over = trend["over"]
        shape = trend.get("shape", "rising")
        at: Any = trend.get("at")
        sides = [claim.better, claim.worse] if claim.worse else [claim.better]
        used = _of(rows, sides)
        floor = self._floor(rows, sides)
        reason = ""
        x, y = evidence.curves(rows, sides, over, claim.by, claim.paired_over)
        y = -y if claim.lower else y
        if shape in ("rising", "falling"):
            slope = evidence.slope(x, y, trend.get("scale") == "log")
            found = self._known(slope.scaled(1 if shape == "rising" else -1))
            verdict = _side(found, claim.margin)
        elif shape == "flat-after":
            turn = int(np.abs(x - at).argmin())
            steps = np.arange(len(x))
            if y.shape[:2] == (1, 1) or turn in (0, len(x) - 1):
                raise Lacking(f"two curves of {over} with points on both sides of {at} are needed")
            before = (steps == turn).astype(float) - (steps == 0)
            after = np.where(steps > turn, 1 / (len(x) - turn - 1), 0.0) - (steps == turn)
            rise = evidence.contrast(y, before)
            flat = evidence.contrast(y, FLAT_SHARE * before - after)
            found = min((rise, flat), key=lambda part: part.low)
            verdict = min(_side(rise, 0), _side(flat, 0), key=ORDER.index)
            reason = f"gains {rise.estimate:+.3g} up to {at}, {float((y @ after).mean()):+.3g} on average after it"
        else:
            peak = shape == "peak"
            places, options = (x, y) if peak else (x[1:], np.diff(y, axis=2))
            wanted = np.isin(places, np.atleast_1d(at) if peak else at[1])
            if not wanted.any():
                raise Lacking(f"not measured: {over} at {at}")
            found, verdict = choice_interval(options, places, wanted)
            if self.case.printed:
                verdict = HOLDS if found.estimate in places[wanted] else FAILS
            reason = f"{'peak at' if peak else 'largest step ends at'} {over} {found.estimate:g}"
            if verdict == UNDECIDED:
                reason += ", not clear of all others"
        yield "", self._worded(verdict, found, used, reason=reason, floor=floor)

    def statistic(self, rows: DataFrame, *_: Any) -> Parts:
        """A number of every cell, or the agreement of two rankings of the models, that must lie in a range."""
        claim = self.claim
        asked = claim.statistic or {}
        limits = asked["range"]
        sides = asked.get("between")
        if sides:
            if self.case.printed:
                raise Lacking("a correlation over the printed models is no check")
            found = evidence.rank_agreement(rows, sides, claim.by)
            verdict = _inside(found, *limits)
            reason = f"{found.n} models are too few to tell" if verdict == UNDECIDED else ""
            trainings = rows["training"].nunique() if self.case.trained(rows) else 0
            said = self._worded(verdict, found, rows, trained=False, reason=reason)
            yield "", replace(said, unit="models", train_seeds=trainings)
            return
        cells = evidence.measured(rows, claim.better, claim.by)
        keys = evidence.cell_names(cells)
        for name, part in cells.groupby(keys) if keys else [((), cells)]:
            values = part["value"].to_numpy()
            number = float(values[0])
            counted = Interval(number, number, number, 1, "counted", 0.0)
            found = mean_interval(values) if len(values) > 1 else counted
            label = " ".join(map(str, filter(None, name)))
            yield label, self._worded(_inside(found, *limits), found, rows, trained=False)

    def value(self) -> Verdict:
        """An absolute value, judged only where encoder and data are the paper's: within `margin` of what is printed."""
        published = self.claim.published or {}
        compared = compare_table(self.case.slug, published["table"], self.case.results).rows
        cell = select(compared, published).iloc[0]
        if cell.status != "ran":
            label = "substitute, so absolute values are not compared" if cell.status == "substitute" else "not measured"
            raise Lacking(f"{label}: {cell.note}")
        half = 0.0 if pd.isna(cell.half) else cell.half
        rows = select(self.case.results, {"table": cell.table, "model": cell.model})
        found = Interval(
            cell.difference,
            cell.difference - half,
            cell.difference + half,
            int(cell.seeds),
            "ours minus printed",
            trainings=rows["training"].nunique(),
        )
        kind = load_paper(self.case.slug).tables[cell.table].kind
        trained = kind in ("results", "in-text") and self.case.trained(rows)
        return self._worded(_inside(found, -self.claim.margin, self.claim.margin), found, rows, trained=trained)

    def _worded(
        self,
        verdict: str,
        found: Interval,
        rows: DataFrame,
        *,
        trained: bool | None = None,
        reason: str = "",
        joint: str = "",
        floor: str = "",
    ) -> Verdict:
        """The verdict that the evidence carries, with what limits it and what would decide it."""
        claim = self.claim
        unit = self.case.unit(rows, claim)
        needed = None
        qualifier = ""
        trained = self.case.trained(rows) if trained is None else trained
        share = self.case.share(rows["model"].unique()) if trained and "model" in rows else None
        if trained and not claim.one_model and found.trainings < ENOUGH:
            qualifier = "one training" if found.trainings == 1 else f"{found.trainings} trainings"
            if verdict != UNDECIDED:
                alone = f"over {unit} alone it would {verdict[:-1]}; {ENOUGH} trainings are needed"
                reason = f"{alone}; {reason}" if reason else alone
            verdict = UNDECIDED
        elif verdict == UNDECIDED and claim.kind in ("gain", "ordering", "trend") and not reason:
            reason = "one value has no interval"
            if isfinite(found.low):
                needed, more = self._what_would_decide(found, unit, trained)
                reason = f"the interval{joint} crosses the line; {more}"
        elif verdict == FAILS and share is not None and share < HALF:
            qualifier = f"{share:.2g} of the printed epochs"
        return Verdict(
            verdict,
            found.estimate,
            found.low,
            found.high,
            found.n,
            unit,
            found.trainings if trained else 0,
            found.method,
            needed,
            floor,
            share,
            qualifier,
            reason,
        )

    def _what_would_decide(self, found: Interval, unit: str, trained: bool) -> tuple[int | None, str]:
        """How many trainings or draws would decide, in words; nothing that is not available is offered."""
        what = "trainings" if trained and found.trainings >= ENOUGH else unit
        if what not in TO_BE_HAD:
            return None, f"there are no more {unit} to be had"
        needed = to_decide(found, self.claim.margin, what == "trainings")
        if needed:
            return needed, f"about {needed:,} {what} would decide"
        return None, f"more {what} would hardly decide it, so near is the effect to the line"


def _side(found: Interval, line: float) -> str:
    return HOLDS if found.low > line else FAILS if found.high < line else UNDECIDED


def _inside(found: Interval, low: float, high: float) -> str:
    if low <= found.low and found.high <= high:
        return HOLDS
    return FAILS if found.high < low or found.low > high else UNDECIDED
