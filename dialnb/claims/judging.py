"""Judges claims: tidy rows in, verdicts out.

A verdict is *holds* or *fails* where the whole 95 % interval lies on one side of the line and the evidence carries it:

- both sides of a comparison learned: a trained model that is not above its floor (chance or the most frequent label;
  word overlap too, if it was trained for the task) on a test set is under-trained, and the comparison is not judged,
  whichever way it points;
- a difference between trained models rests on three trainings or more, else it is *undecided: one training*;
- the paper's own printed cells do not contradict the claim;
- where the paper leaves a choice open that decides the claim, all readings agree.

A gain that does not exclude zero and excludes half of the printed one is *not at the printed size*; one that is surely
within a quarter of it is *no effect*. *Undecided* says what would decide it, if more of that can be made. *Not run*
says what is missing; a claim is also not run where fewer than half of its comparisons could be judged.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from math import isfinite, nan
from typing import Any

import numpy as np
import pandas as pd
from numpy import ndarray
from pandas import DataFrame

from dialnb.claims import evidence
from dialnb.claims.case import Case, Floor, Unjudged
from dialnb.claims.comparison import printed_rows
from dialnb.claims.definitions import Claim, load_claims
from dialnb.claims.evidence import Lacking
from dialnb.claims.intervals import (
    Interval,
    Prior,
    choice_interval,
    crossed_interval,
    mean_interval,
    slope_interval,
    to_decide,
)
from dialnb.claims.papers import FLOORS, OWN, compare_table, dataset_name, load_cells, load_paper, matches, select
from dialnb.claims.verdict import (
    CONTRADICTED,
    ENOUGH,
    FAILS,
    HALF,
    HOLDS,
    NEGATIVE,
    NO_EFFECT,
    NOT_AT_SIZE,
    NOT_RUN,
    QUARTER,
    SCHEMA,
    UNDECIDED,
    UNKNOWN,
    Judged,
    Verdict,
    encoder_kind,
    size_of,
    strength,
)
from dialnb.errors import DataError
from dialnb.files import as_list, project_root, read_json, sha256

FLAT_SHARE = 0.25
"""A curve is flat after a point if it gains less than this share of what it gained up to there."""
TOP = 100.0
"""The most that a score in percent can be; scores up to one are fractions."""
MORE_OF = ("draws", "seeds", "fine-tuned models")
"""Units of which more can be made; test items, groups of them and datasets are what they are."""
UNPRINTED = ("protocol", "ties")
"""Columns on which no printed table differs from itself."""
ORDER = (FAILS, NO_EFFECT, NOT_AT_SIZE, UNDECIDED, HOLDS)
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
            if claim.lacking:
                verdict = Verdict(NOT_RUN, reason=claim.lacking)
            else:
                verdict = Verdict(NOT_RUN, qualifier=unjudged.qualifier, reason=str(unjudged))
        except Lacking as lacking:
            verdict = Verdict(NOT_RUN, reason=claim.lacking or _why_not(claim, reasons) or str(lacking))
        except DataError as error:
            verdict = Verdict(NOT_RUN, reason=str(error))
        paper = paper_checks(slug)["checks"][claim.id]
        if paper == CONTRADICTS:
            ours = f"here it {verdict.verdict}" if verdict.verdict in (HOLDS, FAILS) else f"here: {verdict.verdict}"
            reason = f"{ours}; {verdict.reason}".strip("; ")
            verdict = replace(verdict, verdict=CONTRADICTED, qualifier="", reason=reason)
        record = {name: getattr(claim, name) for name in ("id", "statement", "where", "kind", "headline", "margin")}
        record |= asdict(verdict) | {"encoders": ", ".join(verdict.encoders), "paper": paper}
        record["ours"] = claim.ours or slug in OWN
        for name in ("estimate", "low", "high"):
            record[name] = record[name] if isfinite(record[name]) else None
        record["encoder_kind"] = encoder_kind(slug, verdict.encoders)
        record["strength"], record["strength_words"] = ("", "") if verdict.verdict == NOT_RUN else strength(record)
        records.append({name: record[name] for name in SCHEMA})
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
    checks = {}
    for claim in load_claims(slug):
        try:
            agrees = claim.kind == "value" or _as_printed(claim, slug).verdict == HOLDS
            checks[claim.id] = AGREES if agrees else CONTRADICTS
        except DataError:
            checks[claim.id] = SILENT
    return checks


@cache
def _printed_case(slug: str) -> Case:
    return Case(printed_rows(slug), slug, printed=True)


def _as_printed(claim: Claim, slug: str, **changes: Any) -> Verdict:
    """The verdict on what the paper's cells say of a claim."""
    case = _printed_case(slug)
    asked = replace(claim, **{**claim.printed, **changes}, paired_over="seeds", readings={})
    rows = {name: one for name, one in asked.rows.items() if name in case.results and name not in UNPRINTED}
    return judge(replace(asked, rows=rows), case)


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
    said = {verdict.verdict for verdict in verdicts.values()}
    if len(said) == 1 and not absent:
        return weakest
    if said <= {*NEGATIVE} and not absent:  # none of them has the printed size, whichever way it points
        mildest = max(verdicts.values(), key=_weakness)
        return replace(mildest, reason="; ".join([*words, mildest.reason]).rstrip("; "))
    reason = "; ".join([*words, weakest.reason]).rstrip("; ")
    return replace(weakest, verdict=UNDECIDED, qualifier="depends on the reading", limit="", needed=None, reason=reason)


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


NO_FLOOR = Floor()
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
        prior, trainings = (None, 0) if self.case.printed else self._prior(rows, gaps, better, worse)
        found, of_all = (
            replace(self._known(crossed_interval(strata, level, prior).scaled(sign)), trainings=trainings)
            for level in (0.95, 1 - 0.05 / pairs)
        )
        printed = None if self.case.printed else self._printed_gain(rows, better, worse)
        verdict = HOLDS if found.low > claim.margin else FAILS if of_all.high < claim.margin else UNDECIDED
        if verdict == UNDECIDED and printed and not claim.margin:
            within = max(abs(of_all.low), abs(of_all.high)) < QUARTER * printed
            verdict = NO_EFFECT if within else NOT_AT_SIZE if of_all.high < HALF * printed else UNDECIDED
        joint = ""
        if verdict != FAILS and found.high < claim.margin:  # alone it would fail: show what leaves it open
            found, joint = of_all, f" that covers all {pairs} comparisons at 95 %"
        yield (
            "",
            replace(
                self._worded(verdict, found, used, joint=joint, floor=floor),
                printed=printed,
                size=size_of(found, printed),
            ),
        )

    ordering = gain

    def _known(self, found: Interval) -> Interval:
        """The interval of what was measured; a printed value is what it is."""
        return replace(found, low=found.estimate, high=found.estimate) if self.case.printed else found

    def _terms(self, better: Mapping, worse: Mapping) -> dict[str, list[tuple[float, Mapping]]]:
        """What each side of a comparison adds up, as factors and selectors, by the name of the side."""
        claim = self.claim
        terms = [(claim.times, better), (-1.0, worse)]
        terms += [(-1.0, claim.than["better"]), (1.0, claim.than["worse"])] if claim.than else []
        sides: dict[str, list[tuple[float, Mapping]]] = {}
        for factor, where in terms:
            name = "one model" if claim.one_model else evidence.side_name(where)
            sides.setdefault(name, []).append((factor, where))
        return dict(sorted(sides.items()))

    def _prior(self, rows: DataFrame, gaps: DataFrame, better: Mapping, worse: Mapping) -> tuple[Prior | None, int]:
        """What all trained models of the table say of the variance between trainings, and how often the model of the
        comparison was trained that was trained least; 0 if none was."""
        each = [self.claim.each] if self.claim.each and self.claim.each not in gaps else []
        every = self._lean(rows, *each)
        variances, counts = [], []
        freedoms: dict[Any, Any] = {}
        for name, terms in self._terms(better, worse).items():
            here = select(every, self._each(rows)) if each else every
            if not any(matches(here, where).any() for _, where in terms):
                variances.append(nan)
                continue
            side = gaps[gaps["side"] == name]
            counts.append(side["training"].nunique())
            cells = side[evidence.cell_names(side)].drop_duplicates().astype(str)
            several = max(select(here, where)["model"].nunique() for _, where in terms)
            if len({str(where.get("model")) for _, where in terms}) == 1:  # any model may stand in their place
                terms = [
                    (factor, {key: one for key, one in where.items() if key != "model"}) for factor, where in terms
                ]
                of = list(dict.fromkeys(["model", *each]))
            else:
                of = each
            found = evidence.spreads(every, terms, cells, of)
            weights = found["freedom"].sum()
            variance = (found["variance"] * found["freedom"]).sum() / weights / several if weights else nan
            variances.append(float(variance))
            freedoms |= {f"{terms} {key}": freedom for key, freedom in found["freedom"].items()}
        known = any(variance == variance for variance in variances)
        return (Prior(variances, sum(freedoms.values())) if known else None), min(counts, default=0)

    def _floor(self, rows: DataFrame, sides: list[Mapping]) -> Floor:
        """The strongest floor that the trained sides are above; a side that is not above its floors is not judged."""
        strongest, words = "", []
        for side in sides if self.claim.learned or not self.claim.lower else ():
            floor = self._floor_of(rows, side)
            words += [floor.words] if floor.words else []
            if self.case.trained(select(rows, side)):
                if not floor.passed:
                    raise Unjudged("under-trained", floor.numbers)
                strongest = strongest or floor.strongest
        return Floor(strongest, words=f"word overlap is better ({'; '.join(words)})" if words else "")

    def _floor_of(self, rows: DataFrame, side: Mapping) -> Floor:
        where = {**self.claim.rows, **self._each(rows), **side, **self.claim.learned}
        return self.case.floor(where, side, self.claim.by)

    def _each(self, rows: DataFrame) -> dict[str, list]:
        """The value of the column in whose groups the claim is judged, where it names one."""
        return {self.claim.each: rows[self.claim.each].unique().tolist()} if self.claim.each else {}

    def _source(self, rows: DataFrame, each: str = "") -> DataFrame:
        """Rows of single items where the claim asks for them and they were kept, else those of results; of every value
        of the column `each`."""
        claim, items = self.claim, self.case.items
        where = {**claim.rows, **({} if each else self._each(rows))}
        if claim.paired_over == "items" and items is not None:
            where = {name: one for name, one in where.items() if name in items}
            return self.case.kept("items", where, lambda: select(items, where))
        return select(self.case.results, claim.rows) if each else rows

    def _lean(self, rows: DataFrame, each: str = "") -> DataFrame:
        """The means of the trained models in the rows of `_source`."""
        where = [self.claim.paired_over, self.claim.rows, each, {} if each else self._each(rows)]
        make = lambda: self.case.trained_rows(evidence.lean(self._source(rows, each)))  # noqa: E731
        return self.case.kept("lean", where, make)

    def _gaps(self, rows: DataFrame, better: Mapping, worse: Mapping) -> DataFrame:
        """The signed values of both sides of a comparison, or of the four of two gains."""
        claim = self.claim
        source = self._source(rows)
        gaps = evidence.differences(source, better, worse, claim.by, claim.times, claim.one_model)
        if claim.than is None:
            return gaps
        other = evidence.differences(source, claim.than["better"], claim.than["worse"], claim.by)
        parts = []
        for found, sign in ((gaps, 1), (other, -1)):
            places = [name for name in ("side", "dataset", *evidence.REPEATED) if name in found]
            means = evidence.mean_within(found, places)
            parts += [side.assign(value=sign * side["value"]) for _, side in means.groupby("side")]
        return evidence.added(parts)

    def _printed_gain(self, rows: DataFrame, better: Mapping, worse: Mapping) -> float | None:
        """The gain that the paper's cells give for a comparison, on those of its datasets that were measured here."""
        claim, slug = self.claim, self.case.slug
        if not slug or paper_checks(slug)["checks"].get(claim.id) == SILENT:
            return None
        try:
            if "pairs" in claim.printed:  # of other models than ours: the weakest of them
                return _as_printed(claim, slug).estimate
            changes = {"pairs": ((better, worse),), "each": "", "order": (), "margin": 0.0}
            asked = {**replace(claim, **claim.printed).rows, **self._each(rows)}
            if "dataset" in rows:
                here = {dataset_name(name) for name in rows["dataset"].unique()}
                names = [name for name, all_of in stands_for(slug).items() if here & all_of]
                asked = asked | {"dataset": [*names, None]}
            return _as_printed(replace(claim, printed={}), slug, rows=asked, **changes).estimate
        except DataError:
            return None

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
        x, curves = evidence.curves(rows, sides, over, claim.by, claim.paired_over)
        curves = [-y if claim.lower else y for y in curves]
        y = curves[0]
        single = len(curves) == 1 and y.shape[:2] == (1, 1)
        others = self._other_curves(rows, x)
        if shape in ("rising", "falling"):
            logarithmic = trend.get("scale") == "log"
            if single:
                slope = slope_interval(np.log(x) if logarithmic else x, y[0, 0])
            else:
                slope = evidence.contrast(curves, evidence.slope_weights(x, logarithmic), others)
            found = self._known(slope.scaled(1 if shape == "rising" else -1))
            verdict = _side(found, claim.margin)
        elif shape == "flat-after":
            turn = int(np.abs(x - at).argmin())
            steps = np.arange(len(x))
            if single or turn in (0, len(x) - 1):
                raise Lacking(f"two curves of {over} with points on both sides of {at} are needed")
            before = (steps == turn).astype(float) - (steps == 0)
            after = np.where(steps > turn, 1 / (len(x) - turn - 1), 0.0) - (steps == turn)
            rise = evidence.contrast(curves, before, others)
            flat = evidence.contrast(curves, FLAT_SHARE * before - after, others)
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

    def _other_curves(self, rows: DataFrame, x: ndarray) -> list[ndarray]:
        """The curves of the other trained models of these rows, as far as they have the same places."""
        claim, found = self.claim, list[ndarray]()
        over = (claim.trend or {})["over"]
        named = {name for side in (claim.better, claim.worse or {}) for name in as_list(side.get("model", []))}
        for model in rows["model"].unique() if named else ():
            where = {**claim.better, "model": model}
            if model in named or not self.case.trained(select(rows, where)):
                continue
            try:
                places, curves = evidence.curves(rows, [where], over, claim.by, claim.paired_over)
            except DataError:
                continue
            found += curves if np.array_equal(places, x) else []
        return found

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
            counted = Interval(number, number, number, 1, "counted")
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
        floor: Floor = NO_FLOOR,
    ) -> Verdict:
        """The verdict that the evidence carries, with what limits it and what would decide it."""
        claim = self.claim
        unit = self.case.unit(rows, claim)
        needed, limit = None, ""
        qualifier = ""
        trained = self.case.trained(rows) if trained is None else trained
        share = self.case.share(rows) if trained and "model" in rows else None
        if trained and not claim.one_model and found.trainings < ENOUGH:
            qualifier = "one training" if found.trainings == 1 else f"{found.trainings} trainings"
            if verdict != UNDECIDED:
                word = {HOLDS: "hold", FAILS: "fail"}.get(verdict, f"be {verdict}")
                alone = f"over {unit} alone it would {word}; {ENOUGH} trainings are needed"
                reason = f"{alone}; {reason}" if reason else alone
            verdict = UNDECIDED
        elif verdict == UNDECIDED and claim.kind in ("gain", "ordering", "trend") and not reason:
            reason = "one value has no interval"
            if isfinite(found.low):
                limit, needed, more = self._what_would_decide(found, unit, trained)
                line = f"{claim.margin:g}" if claim.margin else "zero"
                reason = f"{line} lies inside the interval{joint}; {more}"
        elif verdict in NEGATIVE and trained and not claim.ours and self.case.slug not in OWN:
            if share is None:
                qualifier = f"{UNKNOWN} of the printed training"
            elif share < HALF:
                qualifier = f"{share:.2g} of the printed training"
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
            floor=floor.strongest,
            share=share,
            qualifier=qualifier,
            reason="; ".join(filter(None, (reason, floor.words))),
        )

    def _what_would_decide(self, found: Interval, unit: str, trained: bool) -> tuple[str, int | None, str]:
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


@cache
def stands_for(slug: str) -> dict[str, set[str]]:
    """For each dataset of a paper itself and what stands in for it here, as names are compared."""
    found: dict[str, set[str]] = {}
    for table in load_cells(slug).get("tables", {}).values():
        for where in ((table or {}).get("where", {}), *(table or {}).get("columns", {}).values()):
            names = [dataset_name(name) for name in as_list(where.get("dataset", []))]
            if names:
                found.setdefault(as_list(where["dataset"])[0], set()).update(names)
    for name in printed_rows(slug).get("dataset", pd.Series(dtype=object)).dropna().unique():
        found.setdefault(name, {dataset_name(name)})
    return found


def _side(found: Interval, line: float) -> str:
    return HOLDS if found.low > line else FAILS if found.high < line else UNDECIDED


def _inside(found: Interval, low: float, high: float) -> str:
    if low <= found.low and found.high <= high:
        return HOLDS
    return FAILS if found.high < low or found.low > high else UNDECIDED
