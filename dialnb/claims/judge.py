"""Judges claims: tidy rows in, verdicts out.

A verdict is *holds* or *fails* where the whole 95 % interval lies on one side of the line and the evidence carries it:

- both sides of a comparison learned: a trained model that is not above its floor (chance, TF-IDF, BM25, majority) on a
  test set is under-trained, and the comparison is not judged, whichever way it points;
- a difference between trained models rests on three trainings or more, else it is *undecided: one training*;
- the paper's own printed cells do not contradict the claim;
- where the paper leaves a choice open that decides the claim, all readings agree.

*Undecided* says what would decide it, if that can be had. *Not run* says what is missing; a claim is also not run where
fewer than half of its comparisons could be judged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from dialnb.claims import evidence
from dialnb.claims.definitions import Claim, load_claims
from dialnb.claims.evidence import Lacking
from dialnb.claims.papers import FLOORS, compare_table, load_cells, plain, select
from dialnb.claims.printed import CONTRADICTS, paper_checks
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
from dialnb.evaluation.intervals import (
    MANY,
    Interval,
    choice_interval,
    crossed_interval,
    mean_interval,
    trainings_to_decide,
    units_to_decide,
)

FLAT_SHARE = 0.25
"""A curve is flat after a point if it gains less than this share of what it gained up to there."""
TOP = 100.0
"""The most that a score in percent can be; scores up to one are fractions."""
TO_BE_HAD = ("draws", "seeds", "fine-tuned models")
"""Units of which more can be made; test items, groups of them and datasets are what they are."""


class Unjudged(Lacking):
    """Rows are there, but they cannot carry a verdict; `qualifier` says why in a word or two."""

    def __init__(self, qualifier: str, numbers: str) -> None:
        super().__init__(f"{qualifier} ({numbers})")
        self.qualifier = qualifier


@dataclass(frozen=True)
class Case:
    """What a claim is judged on: results, scores of single items, and what is known about how they were made.

    `training` holds the share of the printed training by model, `faults` rows that a known fault has spoiled
    ({rows: selectors, fault: word, reason: sentence}, and `claims` where it spoils only these).
    """

    results: pd.DataFrame
    slug: str = ""
    items: pd.DataFrame | None = None
    training: Mapping[str, float] = field(default_factory=dict)
    faults: tuple[Mapping[str, Any], ...] = ()
    held: dict[str, evidence.Floor] = field(default_factory=dict)
    """What came out when a side was held against its floors: claims ask for the same again and again."""
    as_given: pd.DataFrame = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "as_given", self.results)
        for name in ("results", "items"):
            if (rows := getattr(self, name)) is not None:
                object.__setattr__(self, name, evidence.prepared(plain(rows).reset_index(drop=True)))

    @cached_property
    def cells(self) -> Mapping[str, Any]:
        return load_cells(self.slug) if self.slug else {}

    def trained(self, rows: pd.DataFrame) -> bool:
        """Did any of these rows come from a model that was trained here?"""
        untrained = [select(rows, where).index for where in self.cells.get("untrained", ())]
        return len(rows.index.difference(untrained[0].append(untrained[1:]) if untrained else [])) > 0

    def unit(self, rows: pd.DataFrame, claim: Claim) -> str:
        """What the interval of a claim counts within one training."""
        if claim.paired_over == "datasets":
            return "datasets" if "dataset" in claim.by else "tasks"
        if claim.paired_over == "items" and self.items is not None:
            grouped = "group" in self.items and self.items.group.notna().any()
            return "conversations" if grouped else "test items"
        names, table = self.cells.get("units", {}), str(rows["table"].iloc[0]) if "table" in rows else ""
        return names.get(table, names.get("default", "seeds"))

    def share(self, models: Iterable[str]) -> float | None:
        """The least share of the printed training among models, as far as it is known."""
        known = [
            share
            for name, share in self.training.items()
            if any(name == model or name.startswith((f"{model} on ", f"{model}, ")) for model in models)
        ]
        return min(known, default=None)

    def against_floors(self, shown: Mapping[str, Any], side: Mapping[str, Any], by: Iterable[str]) -> evidence.Floor:
        """Hold the rows that show whether a side learned against their floors: by single items where both were kept."""
        model = {"model": name} if (name := side.get("model", shown.get("model"))) else {}
        for source in (self.items, self.results):
            if source is None:
                continue
            known = {name: value for name, value in shown.items() if name in source}
            rows, floors = select(source, known), evidence.floor_rows(source, known)
            if len(rows) and len(floors):
                return evidence.above_floor(rows, floors, model, tuple(by))
        return evidence.Floor()

    def check(self, rows: pd.DataFrame, claim: Claim) -> None:
        """Refuse rows that a known fault has spoiled for this claim."""
        for fault in self.faults:
            if claim.id in fault.get("claims", [claim.id]) and len(select(rows, fault["rows"])):
                raise Unjudged(fault["fault"], fault["reason"])


def training_shares(times: pd.DataFrame | None) -> dict[str, float]:
    """The share of the printed training that each model had, from a run's table of training times."""
    if times is None or "printed steps" not in times:
        return {}
    known = times.dropna(subset=["steps", "printed steps"])
    return {name: steps / printed for name, steps, printed in zip(known.model, known.steps, known["printed steps"])}


def judge_claims(
    slug: str,
    results: pd.DataFrame,
    not_run: Iterable[Mapping[str, str]] = (),
    items: pd.DataFrame | None = None,
    training: Mapping[str, float] | None = None,
    faults: Iterable[Mapping[str, Any]] = (),
) -> Judged:
    """Every claim of a paper with its verdict; a claim whose rows cannot be told apart is not run, and says so."""
    case = Case(results, slug, items, training or {}, tuple(faults))
    missing, records = list(not_run), []
    for claim in load_claims(slug):
        verdict, paper = _final(claim, case, missing), paper_checks(slug)[claim.id]
        if paper == CONTRADICTS:
            ours = f"here it {verdict.verdict}" if verdict.verdict in (HOLDS, FAILS) else f"here {verdict.verdict}"
            verdict = replace(
                verdict, verdict=CONTRADICTED, qualifier="", reason=f"{ours}; {verdict.reason}".strip("; ")
            )
        facts = asdict(verdict) | {"encoders": ", ".join(verdict.encoders), "paper": paper}
        facts |= {name: facts[name] if isfinite(facts[name]) else None for name in ("estimate", "low", "high")}
        facts["encoder_kind"] = encoder_kind(slug, verdict.encoders)
        facts["strength"], facts["strength_words"] = strength(facts) if verdict.verdict != NOT_RUN else ("", "")
        head = {name: getattr(claim, name) for name in ("id", "statement", "where", "kind", "margin")}
        records.append(head | facts)
    return Judged(pd.DataFrame(records, dtype=object))


def _final(claim: Claim, case: Case, missing: list[Mapping[str, str]]) -> Verdict:
    """The verdict of a claim, under all readings of what the paper leaves open."""
    try:
        if not claim.readings:
            return judge(claim, case)
        found, absent = {}, {}
        for name in claim.readings:
            try:
                found[name] = judge(claim.under(name), case)
            except Lacking as error:
                absent[name] = error
        if not found:
            raise max(absent.values(), key=lambda error: isinstance(error, Unjudged))
        weakest = min(found.values(), key=lambda verdict: (ORDER[verdict.verdict], verdict.low))
        if len({verdict.verdict for verdict in found.values()}) == 1 and not absent:
            return weakest
        words = [f"{name}: {verdict.verdict}" for name, verdict in found.items()]
        words += [f"{name}: not run" for name in absent]
        said = {"verdict": UNDECIDED, "qualifier": "depends on the reading", "needed": None}
        return replace(weakest, **said, reason="; ".join([*words, weakest.reason]).rstrip("; "))
    except Unjudged as unjudged:
        return Verdict(NOT_RUN, qualifier=unjudged.qualifier, reason=str(unjudged))
    except Lacking as lacking:
        return Verdict(NOT_RUN, reason=_why_not(claim, str(lacking), missing))
    except DataError as error:
        return Verdict(NOT_RUN, reason=str(error))


def judge(claim: Claim, case: Case) -> Verdict:
    """Judge one claim; `Lacking` is raised where there is nothing to judge."""
    if case.results.empty:
        raise Lacking("nothing was measured")
    if claim.kind == "value":
        return _judge_value(claim, case)
    rows = select(case.results, claim.rows)
    rows = rows[~rows.model.isin(FLOORS)] if "model" in rows else rows
    if rows.empty:
        raise Lacking(f"not measured: {evidence.describe(claim.rows)}")
    if claim.each and claim.each not in rows:
        raise Lacking(f"the rows have no column {claim.each!r}")
    groups = [("", rows)]
    if claim.each:
        named = rows.groupby(claim.each)
        groups = [(name if isinstance(name, str) else f"at {claim.each} {name:g}", part) for name, part in named]
    parts: list[tuple[str, Verdict]] = []
    lacking: dict[str, Lacking] = {}
    judges = {"trend": _judge_trend, "statistic": _judge_statistic}
    for name, part in groups:
        sides = claim.sides if claim.kind not in judges else [(claim.better, {})]
        for better, worse in sides:
            against = f"{evidence.describe(better)} against {evidence.describe(worse)}" if worse else ""
            label = " ".join(filter(None, [against, name]))
            try:
                if claim.kind in judges:
                    parts += [
                        (" ".join(filter(None, [name, inner])), v) for inner, v in judges[claim.kind](claim, case, part)
                    ]
                else:
                    parts.append((label, _judge_pair(claim, case, part, better, worse, len(sides) * len(groups))))
            except Lacking as error:
                lacking[label] = error
    if len(parts) < len(lacking) or not parts:
        unjudged = [error for error in lacking.values() if isinstance(error, Unjudged)]
        if unjudged:
            raise unjudged[0] if len(lacking) == 1 else _most_common(unjudged, len(parts) + len(lacking))
        raise Lacking("; ".join(dict.fromkeys(map(str, lacking.values()))))
    counted = all(verdict.method == "counted" for _, verdict in parts)
    used = rows.encoder.unique() if "encoder" in rows and not counted else ()
    return _combine(parts, lacking, tuple(str(name) for name in used if name))


def _judge_pair(claim: Claim, case: Case, rows: pd.DataFrame, better: Mapping, worse: Mapping, pairs: int) -> Verdict:
    """One comparison. With several, all must hold at 95 %, and one fails the claim at 95 % over all of them."""
    sides = [(side, select(rows, side)) for side in (better, worse)]
    used = pd.concat([part for _, part in sides])
    case.check(used, claim)
    floors, floor = _floor(claim, case, rows, sides)
    gaps = _gaps(claim, case, rows, better, worse)
    _check_room(claim, sides, floors)
    strata, sign = evidence.strata(gaps, claim.paired_over == "datasets"), -1 if claim.lower else 1
    one, all_of_them = (crossed_interval(strata, level).scaled(sign) for level in (0.95, 1 - 0.05 / pairs))
    verdict = HOLDS if one.low > claim.margin else FAILS if all_of_them.high < claim.margin else UNDECIDED
    below = verdict == UNDECIDED and one.high < claim.margin  # alone it would fail: show what leaves it open
    joint = f" that covers all {pairs} comparisons at 95 %" if below else ""
    trained = any(case.trained(part) for _, part in sides)
    return _worded(verdict, all_of_them if below else one, claim, case, used, trained, joint=joint, floor=floor)


def _floor(
    claim: Claim, case: Case, rows: pd.DataFrame, sides: list[tuple[Mapping, pd.DataFrame]]
) -> tuple[pd.DataFrame, str]:
    """Rows of floors, and the strongest that the trained sides are above; a side that is not above its is not judged.

    Scores of single items are compared where both sides kept them, else means.
    """
    each = {claim.each: rows[claim.each].unique().tolist()} if claim.each else {}
    floors = evidence.floor_rows(case.results, {**claim.rows, **each})
    if claim.lower and not claim.learned:
        return floors, ""
    strongest = ""
    for side, part in sides:
        if part.empty or not case.trained(part):
            continue
        shown = {**claim.rows, **each, **side, **claim.learned}
        shown = {name: one[0] if isinstance(one, list) and len(one) == 1 else one for name, one in shown.items()}
        key = json.dumps([shown, claim.by], sort_keys=True)
        found = case.held[key] = case.held.get(key) or case.against_floors(shown, side, claim.by)
        if not found.passed:
            raise Unjudged("under-trained", found.numbers)
        strongest = strongest or found.strongest
    return floors, strongest


def _check_room(claim: Claim, sides: list[tuple[Mapping, pd.DataFrame]], floors: pd.DataFrame) -> None:
    """A margin must fit between what the better side has and the floor of the other, and below the top of the scale."""
    if not claim.margin or claim.lower or floors.empty:
        return
    (_, better), (_, worse) = sides
    top = 1.0 if max(better.value.max(), worse.value.max()) <= 1 else TOP
    best, baseline = float(better.value.mean()), float(worse.value.mean())
    line = float(floors[floors.metric.isin(worse.metric)].value.mean()) if "metric" in floors else 0.0
    if baseline + claim.margin > top or best - claim.margin < line:
        raise Unjudged("no room", f"{claim.margin:g} do not fit between {best:.3g} and the floor {line:.3g}")


def _gaps(claim: Claim, case: Case, rows: pd.DataFrame, better: Mapping, worse: Mapping) -> pd.DataFrame:
    """Paired differences of a comparison: over test items where the claim asks for them and they were kept."""
    source = rows
    if claim.paired_over == "items" and case.items is not None:
        source = select(case.items, {name: value for name, value in claim.rows.items() if name in case.items})
        if claim.each and claim.each in source:
            source = select(source, {claim.each: rows[claim.each].unique().tolist()})
    gaps = evidence.differences(source, better, worse, claim.by, claim.times)
    if claim.than is None:
        return gaps
    other = evidence.differences(source, claim.than["better"], claim.than["worse"], claim.by)
    levels = [name for name in ("dataset", "training", "unit") if name in gaps.index.names]
    means = [part.groupby(levels)[["value", "variance"]].mean() for part in (gaps, other)]
    both = means[0].join(means[1].add_suffix("_other"), how="inner")
    return both.assign(
        value=both.value - both.value_other,
        variance=both.variance + both.variance_other,
        cluster=gaps.groupby(levels).cluster.first(),
    )


def _judge_trend(claim: Claim, case: Case, rows: pd.DataFrame) -> list[tuple[str, Verdict]]:
    over, shape, at = claim.trend["over"], claim.trend.get("shape", "rising"), claim.trend.get("at")
    sides = [claim.better, claim.worse] if claim.worse else [claim.better]
    used = pd.concat([select(rows, side) for side in sides])
    case.check(used, claim)
    named = [(side, select(rows, side)) for side in sides]
    _, floor = _floor(claim, case, rows, named)
    x, y = evidence.curves(rows, sides, over, claim.by, claim.paired_over)
    y = -y if claim.lower else y
    reason = ""
    if shape in ("rising", "falling"):
        found = evidence.slope(x, y, claim.trend.get("scale") == "log").scaled(1 if shape == "rising" else -1)
        verdict = _side(found, claim.margin)
    elif shape == "flat-after":
        turn = int(np.abs(x - at).argmin())
        if y.shape[:2] == (1, 1) or turn in (0, len(x) - 1):
            raise Lacking(f"two curves of {over} with points on both sides of {at} are needed")
        steps = np.arange(len(x))
        before = (steps == turn).astype(float) - (steps == 0)
        after = np.where(steps > turn, 1 / (len(x) - turn - 1), 0.0) - (steps == turn)
        rise, flat = evidence.contrast(y, before), evidence.contrast(y, FLAT_SHARE * before - after)
        both = {_side(rise, 0), _side(flat, 0)}
        verdict = HOLDS if both == {HOLDS} else FAILS if FAILS in both else UNDECIDED
        reason = f"gains {rise.estimate:+.3g} up to {at}, {float((y @ after).mean()):+.3g} on average after it"
        found = min((rise, flat), key=lambda part: part.low)
    else:
        places, options = (x, y) if shape == "peak" else (x[1:], np.diff(y, axis=2))
        wanted = np.isin(places, [at[1]] if shape == "largest-step" else np.atleast_1d(at))
        if not wanted.any():
            raise Lacking(f"not measured: {over} at {at}")
        found, verdict = choice_interval(options, places, wanted)
        what = "peak at" if shape == "peak" else "largest step ends at"
        reason = f"{what} {over} {found.estimate:g}"
    return [("", _worded(verdict, found, claim, case, used, case.trained(used), reason, floor=floor))]


def _judge_statistic(claim: Claim, case: Case, rows: pd.DataFrame) -> list[tuple[str, Verdict]]:
    low, high = claim.statistic["range"]
    if "between" in claim.statistic:
        case.check(pd.concat([select(rows, side) for side in claim.statistic["between"]]), claim)
        found = evidence.rank_agreement(rows, *claim.statistic["between"], claim.by)
        reason = "" if _inside(found, low, high) != UNDECIDED else f"{found.n} models are too few to tell"
        verdict = _worded(_inside(found, low, high), found, claim, case, rows, False, reason)
        return [("", replace(verdict, unit="models"))]
    parts = []
    cells = evidence.measured(rows, claim.better, claim.by)
    keys = [name for name in cells.index.names if name not in ("training", "unit")]
    for name, part in cells.groupby(keys) if keys else [("", cells)]:
        values = part.value.to_numpy()
        exact = Interval(float(values[0]), float(values[0]), float(values[0]), 1, "counted", 0.0)
        found = mean_interval(values) if len(values) > 1 else exact
        label = " ".join(str(piece) for piece in (name if isinstance(name, tuple) else (name,)) if piece)
        parts.append((label, _worded(_inside(found, low, high), found, claim, case, rows, False)))
    return parts


def _judge_value(claim: Claim, case: Case) -> Verdict:
    """An absolute value: judged only where encoder and data are the paper's; within `margin` of what is printed."""
    wanted = dict(claim.published)
    table = wanted.pop("table")
    compared = compare_table(case.slug, table, case.as_given)
    frame = compared.rows
    for name, text in wanted.items():
        frame = frame[frame[name] == text]
    cell = frame.iloc[0]
    if cell.status != "ran":
        label = "substitute, so absolute values are not compared" if cell.status == "substitute" else "not measured"
        raise Lacking(f"{label}: {cell.note}")
    half = 0.0 if pd.isna(cell.half) else cell.half
    rows = select(case.results, {"table": table, "model": cell.model})
    trainings = rows.train_seed.nunique() if "train_seed" in rows else 1
    counted = compared.table.kind not in ("results", "in-text") or not case.trained(rows)
    found = Interval(
        cell.difference, cell.difference - half, cell.difference + half, int(cell.seeds), "ours minus printed"
    )
    found = replace(found, trainings=trainings)
    return _worded(_inside(found, -claim.margin, claim.margin), found, claim, case, rows, not counted)


def _side(found: Interval, line: float) -> str:
    return HOLDS if found.low > line else FAILS if found.high < line else UNDECIDED


def _inside(found: Interval, low: float, high: float) -> str:
    if low <= found.low and found.high <= high:
        return HOLDS
    return FAILS if found.high < low or found.low > high else UNDECIDED


def _worded(
    verdict: str,
    found: Interval,
    claim: Claim,
    case: Case,
    rows: pd.DataFrame,
    trained: bool,
    reason: str = "",
    joint: str = "",
    floor: str = "",
) -> Verdict:
    """The verdict that the evidence carries, with what limits it and what would decide it."""
    unit, needed, qualifier = case.unit(rows, claim), None, ""
    share = case.share(rows.model.unique()) if trained and "model" in rows else None
    if trained and not claim.one_model and found.trainings < ENOUGH:
        qualifier = "one training" if found.trainings == 1 else f"{found.trainings} trainings"
        if verdict != UNDECIDED:
            alone = "hold" if verdict == HOLDS else "fail"
            reason = "; ".join(
                filter(None, [f"over {unit} alone it would {alone}; {ENOUGH} trainings are needed", reason])
            )
        verdict = UNDECIDED
    elif verdict == UNDECIDED and claim.kind in ("gain", "ordering", "trend") and not reason:
        reason = "one value has no interval" if not isfinite(found.low) else f"the interval{joint} crosses the line"
        needed, more = _what_would_decide(found, claim, unit, trained)
        reason += more
    elif verdict == FAILS and share is not None and share < HALF:
        qualifier = f"{share:.2g} of the printed training"
    numbers = (found.estimate, found.low, found.high, found.n, unit, found.trainings if trained else 0, found.method)
    return Verdict(verdict, *numbers, needed, floor, share, qualifier, reason)


def _what_would_decide(found: Interval, claim: Claim, unit: str, trained: bool) -> tuple[int | None, str]:
    """How many trainings or draws would decide, in words; nothing that cannot be had is offered."""
    if not isfinite(found.low):
        return None, ""
    if trained and found.trainings >= ENOUGH:
        needed = trainings_to_decide(found, claim.margin)
        small = "; more trainings would not decide it: the test set is too small for the effect"
        return needed, f"; about {needed:,} trainings would decide" if needed else small
    if unit not in TO_BE_HAD:
        return None, f"; there are no more {unit} to be had"
    needed = units_to_decide(found, claim.margin)
    return needed, f"; about {needed:,} {unit} would decide" if needed and needed <= MANY else ""


ORDER = {FAILS: 0, UNDECIDED: 1, HOLDS: 2}


def _combine(parts: list[tuple[str, Verdict]], lacking: Mapping[str, Lacking], encoders: tuple[str, ...]) -> Verdict:
    """All parts must hold; the verdict shows the weakest of them and names it."""
    label, weakest = min(parts, key=lambda part: (ORDER[part[1].verdict], part[1].low))
    words = [f"weakest of {len(parts)}: {label}"] if len(parts) > 1 else []
    words += [weakest.reason] if weakest.reason else []
    every = len(parts) + len(lacking)
    absent = [f"{name} ({error})" if isinstance(error, Unjudged) else name for name, error in lacking.items()]
    words += [f"judged on {len(parts)} of {every} comparisons, not run: {', '.join(absent)}"] if lacking else []
    return replace(weakest, reason="; ".join(words), encoders=encoders)


def _most_common(unjudged: list[Unjudged], every: int) -> Unjudged:
    """One reason for several comparisons that could not be judged: the most frequent word, and the numbers of all."""
    words = [error.qualifier for error in unjudged]
    word = max(dict.fromkeys(words), key=words.count)
    numbers = dict.fromkeys(str(error).partition("(")[2].rstrip(")") for error in unjudged if error.qualifier == word)
    found = Unjudged(word, "; ".join(numbers))
    found.args = (f"{found.args[0]}, {words.count(word)} of {every} comparisons",)
    return found


def _why_not(claim: Claim, lacking: str, not_run: list[Mapping[str, str]]) -> str:
    """The recorded reason for a row that the claim needs, or for its whole table; else what is lacking."""
    worse = claim.worse if isinstance(claim.worse, list) else [claim.worse or {}]
    sides = [claim.rows, claim.better, *claim.order, *worse, *(side for pair in claim.pairs for side in pair)]
    sides.append(claim.published or {})
    models = {model for side in sides for model in np.atleast_1d(side.get("model", [])).tolist()}
    tables = np.atleast_1d((claim.published or claim.rows).get("table", [])).tolist()
    general = []
    for entry in not_run:
        if entry.get("model") in models and (not tables or entry.get("table") in tables):
            return f"{entry['model']}: {entry['reason']}"
        if entry.get("model") in models and not entry.get("table"):
            general.append(f"{entry['model']}: {entry['reason']}")
    whole = [entry for entry in not_run if not entry.get("model") and not entry.get("column")]
    return next((entry["reason"] for entry in whole if entry.get("table") in tables), (general or [lacking])[0])
