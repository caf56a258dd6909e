"""The papers' claims as executable checks: `papers/<slug>/claims.yaml` and tidy rows in, verdicts out.

    - id: dse-over-raw                       # unique within the paper
      statement: DSE beats its raw encoder.  # in our words
      where: Section 4.3, Table 2            # where the paper says so
      kind: gain                             # gain | ordering | trend | statistic | value
      rows: {table: T2, metric: Accuracy}    # tidy rows that it speaks of
      better: {model: DSE}                   # gain: one side against one or several others
      worse: [{model: BERT}, {model: TOD-BERT}]

Other fields: `order` (best first, for an ordering); `pairs` (of better and worse, all of which must hold); `than` (a
second better and worse, whose gain must be smaller); `trend` {over, shape: rising | falling | peak | largest-step |
flat-after, at, scale: log}; `statistic` {range} or {between, range}; `published` {table, column, row labels}; `each`
(must hold for every value of a column); `by` (columns that are compared like with like); `paired_over` (seeds |
datasets | items); `margin`; `lower` (less is better).

A verdict is *holds* or *fails* where the whole 95 % interval lies on one side of the line, *undecided* where it does
not (and then it says how many seeds would decide), *not run* where rows are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from math import isfinite, nan
from typing import Any

import numpy as np
import pandas as pd
import yaml

from dialnb import evidence
from dialnb.errors import DataError, UnknownName
from dialnb.evidence import BY, Lacking
from dialnb.papers import compare_table, load_paper, plain, project_root, select
from dialnb.statistics import PLACE, Interval, choice_interval, mean_interval, units_to_decide

HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "fails", "undecided", "not run"
VERDICTS = (HOLDS, FAILS, UNDECIDED, NOT_RUN)
MARKS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "?", NOT_RUN: "○"}
NEEDED = {"gain": "worse", "ordering": "order", "trend": "trend", "statistic": "statistic", "value": "published"}
"""Kinds of claims, and the field that each needs (a gain may have `pairs` instead)."""

SHAPES = ("rising", "falling", "peak", "largest-step", "flat-after")
MANY = 1000
"""Seeds or datasets that nobody runs to decide a claim; of test items it is the square."""
FLAT_SHARE = 0.25
"""A curve is flat after a point if it gains less than this share of what it gained up to there."""


@dataclass(frozen=True)
class Claim:
    """One claim; see the module's docstring for the fields."""

    id: str
    statement: str
    where: str
    kind: str
    rows: Mapping[str, Any] = field(default_factory=dict)
    better: Mapping[str, Any] = field(default_factory=dict)
    worse: Any = None
    order: tuple = ()
    pairs: tuple = ()
    than: Mapping[str, Any] | None = None
    trend: Mapping[str, Any] | None = None
    statistic: Mapping[str, Any] | None = None
    published: Mapping[str, Any] | None = None
    each: str = ""
    by: tuple[str, ...] = BY
    paired_over: str = "seeds"
    margin: float = 0.0
    lower: bool = False


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: the estimate and its interval (of the weakest part, where it has several), and why."""

    verdict: str
    estimate: float = nan
    low: float = nan
    high: float = nan
    n: int = 0
    method: str = ""
    needed: int | None = None
    reason: str = ""
    encoders: tuple[str, ...] = ()


@cache
def load_claims(slug: str) -> tuple[Claim, ...]:
    """A paper's claims, checked: unknown fields, kinds, shapes or tables, and doubled ids are errors that say where."""
    load_paper(slug)
    path = project_root() / "papers" / slug / "claims.yaml"
    return parse_claims(slug, yaml.safe_load(path.read_text(encoding="utf-8")), str(path))


def parse_claims(slug: str, raw: list[Mapping[str, Any]], where: str) -> tuple[Claim, ...]:
    """Turn parsed YAML into claims."""
    known_tables = [*load_paper(slug).tables, *(figure["id"] for figure in load_paper(slug).figures)]
    found: list[Claim] = []
    for entry in raw:
        here = f"{where}, claim {entry.get('id', len(found) + 1)!r}"
        known = Claim.__dataclass_fields__
        for name in entry:
            if name not in known:
                raise DataError(f"{here}: {UnknownName('field', name, known)}")
        missing = [name for name in ("id", "statement", "where", "kind") if not entry.get(name)]
        if not missing and entry["kind"] not in NEEDED:
            raise DataError(f"{here}: {UnknownName('kind', entry['kind'], NEEDED)}")
        needed = missing[0] if missing else NEEDED[entry["kind"]]
        if not entry.get(needed) and not (needed == "worse" and entry.get("pairs")):
            raise DataError(f"{here}: expected the field {needed!r}, found none; add it")
        named = [entry.get("rows", {}).get("table"), (entry.get("published") or {}).get("table")]
        for table in (t for name in named for t in (name if isinstance(name, list) else [name]) if t):
            if table not in known_tables and not table.startswith("X-"):
                raise DataError(f"{here}: {UnknownName('table', table, known_tables)}")
        if (shape := (entry.get("trend") or {}).get("shape", "rising")) not in SHAPES:
            raise DataError(f"{here}: {UnknownName('shape', shape, SHAPES)}")
        lists = {name: tuple(entry[name]) for name in ("order", "pairs", "by") if name in entry}
        found.append(Claim(**{**entry, **lists}))
    ids = [claim.id for claim in found]
    if len(set(ids)) < len(ids):
        raise DataError(
            f"{where}: claim ids must be unique, found {', '.join(sorted({i for i in ids if ids.count(i) > 1}))} twice"
        )
    return tuple(found)


@dataclass(frozen=True)
class Judged:
    """A paper's claims with their verdicts, one row each; shows itself in a notebook."""

    frame: pd.DataFrame

    def to_dict(self, orient: str = "records") -> list[dict[str, Any]]:
        """Plain records, as `claims.json` holds them."""
        return self.frame.to_dict(orient)

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict, in the order of `VERDICTS`."""
        return {verdict: int((self.frame.verdict == verdict).sum()) for verdict in VERDICTS}

    def _repr_html_(self) -> str:
        shown = pd.DataFrame(
            {
                "verdict": [f"{MARKS[verdict]} {verdict}" for verdict in self.frame.verdict],
                "claim": self.frame.statement,
                "where": self.frame["where"],
                "estimate [95 % interval]": [interval_text(row) for row in self.to_dict()],
                "why": self.frame.reason,
            }
        )
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        look = {"text-align": "left", "vertical-align": "top", "white-space": "normal"}
        style = shown.style.hide(axis="index").set_properties(**look).set_caption(f"Claims: {counts}")
        left = [("text-align", "left")]
        return style.set_table_styles([{"selector": part, "props": left} for part in ("th", "caption")]).to_html()


def judge_claims(
    slug: str, results: pd.DataFrame, not_run: Iterable[Mapping[str, str]] = (), items: pd.DataFrame | None = None
) -> Judged:
    """Every claim of a paper with its verdict; a claim whose rows cannot be told apart is not run, and says so."""
    results, missing, rows = plain(results), list(not_run), []
    for claim in load_claims(slug):
        try:
            verdict = judge(claim, results, slug=slug, items=items)
        except Lacking as lacking:
            verdict = Verdict(NOT_RUN, reason=_why_not(claim, str(lacking), missing))
        except DataError as error:
            verdict = Verdict(NOT_RUN, reason=str(error))
        facts = asdict(verdict) | {"encoders": ", ".join(verdict.encoders)}
        facts |= {name: facts[name] if isfinite(facts[name]) else None for name in ("estimate", "low", "high")}
        head = {name: getattr(claim, name) for name in ("id", "statement", "where", "kind", "margin")}
        rows.append(head | facts)
    return Judged(pd.DataFrame(rows, dtype=object))


def interval_text(verdict: Mapping[str, Any]) -> str:
    """Estimate, interval and what they stand on, in one line; empty where nothing was measured.

    >>> interval_text({"estimate": 1.234, "low": 0.5, "high": 2.0, "n": 10, "method": "exact sign flips", "margin": 0})
    '+1.23 [+0.50, +2.00], n = 10, exact sign flips'
    """
    numbers = [verdict[name] for name in ("estimate", "low", "high")]
    if numbers[0] is None:
        return ""
    size = abs(numbers[0])
    form = ",g" if verdict["method"] == PLACE else "+,.0f" if size >= 1000 else "+.2f" if size >= 1 else "+.3f"
    estimate, low, high = (f"{number:{form}}".replace("-", "−") if number is not None else "" for number in numbers)
    parts = [f"{estimate} [{low}, {high}]" if low and high and low != high else estimate]
    if verdict["margin"]:
        value = verdict.get("kind") == "value"
        parts.append(f"allowed ±{verdict['margin']:g}" if value else f"line at {verdict['margin']:+g}")
    parts += [f"n = {verdict['n']}"] if verdict["n"] > 1 else []
    return ", ".join([*parts, verdict["method"]])


def judge(claim: Claim, results: pd.DataFrame, slug: str = "", items: pd.DataFrame | None = None) -> Verdict:
    """Judge one claim on tidy rows; `Lacking` is raised where there is nothing to judge."""
    if results.empty:
        raise Lacking("nothing was measured")
    if claim.kind == "value":
        return _judge_value(claim, results, slug)
    rows = select(results, claim.rows)
    if rows.empty:
        raise Lacking(f"not measured: {evidence.describe(claim.rows)}")
    if claim.each and claim.each not in rows:
        raise Lacking(f"the rows have no column {claim.each!r}")
    groups = [("", rows)]
    if claim.each:
        groups = [(name if isinstance(name, str) else f"at {claim.each} {name:g}", part)
                  for name, part in rows.groupby(claim.each)]  # fmt: skip
    parts: list[tuple[str, Verdict]] = []
    lacking: dict[str, str] = {}
    judges = {"trend": _judge_trend, "statistic": _judge_statistic}
    for name, part in groups:
        if claim.kind in judges:
            parts.append((name, judges[claim.kind](claim, part)))
            continue
        sides = _pairs(claim)
        paired = bool(claim.each) and items is not None and claim.each in items
        own = select(items, {claim.each: part[claim.each].unique().tolist()}) if paired else items
        for better, worse in sides:
            label = " ".join(filter(None, [f"{evidence.describe(better)} against {evidence.describe(worse)}", name]))
            try:
                parts.append((label, _judge_pair(claim, part, better, worse, len(sides) * len(groups), own)))
            except Lacking as error:
                lacking[label] = str(error)
    if not parts:
        raise Lacking("; ".join(dict.fromkeys(lacking.values())))
    used = rows.encoder.dropna().unique() if "encoder" in rows else ()
    return _combine(parts, list(lacking), tuple(map(str, used)))


def _pairs(claim: Claim) -> list[tuple[Mapping, Mapping]]:
    """The comparisons a gain or an ordering consists of."""
    if claim.order or claim.pairs:
        return list(claim.pairs) or list(zip(claim.order[:-1], claim.order[1:]))
    return [(claim.better, worse) for worse in (claim.worse if isinstance(claim.worse, list) else [claim.worse])]


def _judge_pair(
    claim: Claim, rows: pd.DataFrame, better: Mapping, worse: Mapping, pairs: int, items: pd.DataFrame | None
) -> Verdict:
    """One comparison. With several, all must hold at 95 %, and one fails the claim at 95 % over all of them."""
    levels = (0.95, 1 - 0.05 / pairs)
    if claim.paired_over == "items" and items is not None and claim.than is None:
        chosen = select(items, {name: value for name, value in claim.rows.items() if name in items})
        found = [evidence.item_interval(chosen, better, worse, claim.by, level) for level in levels]
    else:
        gaps = evidence.differences(rows, better, worse, claim.by)
        if claim.than is not None:
            gaps = _gain_over(gaps, evidence.differences(rows, claim.than["better"], claim.than["worse"], claim.by))
        found = [evidence.interval(gaps, claim.paired_over, level) for level in levels]
    one, all_of_them = (part.scaled(-1 if claim.lower else 1) for part in found)
    verdict = HOLDS if one.low > claim.margin else FAILS if all_of_them.high < claim.margin else UNDECIDED
    below = verdict == UNDECIDED and one.high < claim.margin  # alone it would fail: show what leaves it open
    return _verdict(verdict, all_of_them if below else one, claim, level=f"{pairs} comparisons" if below else "")


def _gain_over(gaps: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Difference of two gains, per seed, each averaged over its cells."""
    means = [frame.groupby(lambda _: 0).mean() for frame in (gaps, other)]
    repeats = means[0].columns.intersection(means[1].columns)
    values = means[0]["value"] - means[1]["value"]
    variances = means[0]["variance"] / len(gaps) + means[1]["variance"] / len(other)
    return pd.concat({"value": values, "variance": variances}, axis=1)[repeats]


def _judge_trend(claim: Claim, rows: pd.DataFrame) -> Verdict:
    over, shape, at = claim.trend["over"], claim.trend.get("shape", "rising"), claim.trend.get("at")
    if claim.worse:
        x, y = evidence.difference_curves(rows, claim.better, claim.worse, over, claim.by, claim.paired_over)
    else:
        x, y = evidence.curves(rows, claim.better, over, claim.by, claim.paired_over)
    y = -y if claim.lower else y
    if shape in ("rising", "falling"):
        found = evidence.slope(x, y, claim.trend.get("scale") == "log").scaled(1 if shape == "rising" else -1)
        return _verdict(_side(found, claim.margin), found, claim)
    if shape == "flat-after":
        turn = int(np.abs(x - at).argmin())
        if len(y) < 2 or turn in (0, len(x) - 1):
            raise Lacking(f"two curves of {over} with points on both sides of {at} are needed")
        before, after = y[:, turn] - y[:, 0], y[:, turn + 1 :].mean(1) - y[:, turn]
        rise, flat = mean_interval(before), mean_interval(FLAT_SHARE * before - after)
        both = {_side(rise, 0), _side(flat, 0)}
        verdict = HOLDS if both == {HOLDS} else FAILS if FAILS in both else UNDECIDED
        reason = f"gains {rise.estimate:+.3g} up to {at}, {after.mean():+.3g} on average after it"
        weaker = min((rise, flat), key=lambda part: part.low)
        return _verdict(verdict, weaker, claim, reason)
    places, options = (x, y) if shape == "peak" else (x[1:], np.diff(y, axis=1))
    wanted = np.isin(places, [at[1]] if shape == "largest-step" else np.atleast_1d(at))
    if not wanted.any():
        raise Lacking(f"not measured: {over} at {at}")
    found, verdict = choice_interval(options, places, wanted)
    reason = (
        f"largest step ends at {over} {found.estimate:g}" if shape != "peak" else f"peak at {over} {found.estimate:g}"
    )
    return _verdict(verdict, found, claim, reason)


def _judge_statistic(claim: Claim, rows: pd.DataFrame) -> Verdict:
    low, high = claim.statistic["range"]
    if "between" in claim.statistic:
        found = evidence.rank_agreement(rows, *claim.statistic["between"], claim.by)
        return _verdict(_inside(found, low, high), found, claim)
    parts = []
    for name, line in evidence.cells(rows, claim.better, claim.by)["value"].iterrows():
        values = line.dropna().to_numpy()
        exact = Interval(float(values[0]), float(values[0]), float(values[0]), 1, "counted", 0.0)
        found = mean_interval(values) if len(values) > 1 else exact
        label = " ".join(str(part) for part in (name if isinstance(name, tuple) else (name,)) if part)
        parts.append((label, _verdict(_inside(found, low, high), found, claim)))
    return _combine(parts, [], ())


def _judge_value(claim: Claim, results: pd.DataFrame, slug: str) -> Verdict:
    """An absolute value: judged only where encoder and data are the paper's; within `margin` of what is printed."""
    wanted = dict(claim.published)
    frame = compare_table(slug, wanted.pop("table"), results).rows
    for name, text in wanted.items():
        frame = frame[frame[name] == text]
    cell = frame.iloc[0]
    if cell.status != "ran":
        label = "substitute, so absolute values are not compared" if cell.status == "substitute" else "not measured"
        raise Lacking(f"{label}: {cell.note}")
    half = 0.0 if pd.isna(cell.half) else cell.half
    found = Interval(
        cell.difference, cell.difference - half, cell.difference + half, int(cell.seeds), "ours minus printed"
    )
    return _verdict(_inside(found, -claim.margin, claim.margin), found, claim)


def _side(found: Interval, line: float) -> str:
    return HOLDS if found.low > line else FAILS if found.high < line else UNDECIDED


def _inside(found: Interval, low: float, high: float) -> str:
    if low <= found.low and found.high <= high:
        return HOLDS
    return FAILS if found.high < low or found.low > high else UNDECIDED


def _verdict(verdict: str, found: Interval, claim: Claim, reason: str = "", level: str = "") -> Verdict:
    needed = (
        units_to_decide(found, claim.margin)
        if verdict == UNDECIDED and claim.kind in ("gain", "ordering", "trend")
        else None
    )
    if verdict == UNDECIDED and not reason:
        unit = {"datasets": "datasets", "items": "test items"}.get(claim.paired_over, "seeds")
        items = unit == "test items"
        if items and found.n == 1:  # their number is not known here, only how many times more it takes
            unit = f"times as many {unit}"
        joint = f" that covers all {level} at 95 %" if level else ""
        reason = "one value has no interval" if not isfinite(found.low) else f"the interval{joint} crosses the line"
        many = MANY**2 if items else MANY
        if needed:
            reason += "; about" if needed <= many else "; not even"
            reason += f" {min(needed, many):,} {unit} would decide"
    return Verdict(verdict, found.estimate, found.low, found.high, found.n, found.method, needed, reason)


def _combine(parts: list[tuple[str, Verdict]], lacking: list[str], encoders: tuple[str, ...]) -> Verdict:
    """All parts must hold; the verdict shows the weakest of them and names it."""
    order = {FAILS: 0, UNDECIDED: 1, HOLDS: 2}
    label, weakest = min(parts, key=lambda part: (order[part[1].verdict], part[1].low))
    said = [f"weakest of {len(parts)}: {label}"] if len(parts) > 1 else []
    said += [weakest.reason] if weakest.reason else []
    every = len(parts) + len(lacking)
    said += [f"judged on {len(parts)} of {every} comparisons, not run: {', '.join(lacking)}"] if lacking else []
    return Verdict(**{**asdict(weakest), "reason": "; ".join(said), "encoders": encoders})


def _why_not(claim: Claim, lacking: str, not_run: list[Mapping[str, str]]) -> str:
    """The recorded reason for a row that the claim needs, or for its whole table; else what is lacking."""
    worse = claim.worse if isinstance(claim.worse, list) else [claim.worse or {}]
    sides = [claim.rows, claim.better, *claim.order, *worse, *(side for pair in claim.pairs for side in pair)]
    sides.append(claim.published or {})
    models = {model for side in sides for model in np.atleast_1d(side.get("model", [])).tolist()}
    tables = np.atleast_1d((claim.published or claim.rows).get("table", [])).tolist()
    for entry in not_run:
        if entry.get("model") in models and (not tables or entry.get("table") in (None, "", *tables)):
            return f"{entry['model']}: {entry['reason']}"
    whole = [entry for entry in not_run if not entry.get("model") and not entry.get("column")]
    return next((entry["reason"] for entry in whole if entry.get("table") in tables), lacking)
