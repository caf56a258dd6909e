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

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import cache
from itertools import chain
from math import isfinite

import pandas as pd
from pandas import DataFrame

from dialnb.claims.case import Case
from dialnb.claims.comparison import compare_table
from dialnb.claims.definitions import Claim, load_claims
from dialnb.claims.evidence import Lacking, Unjudged, describe
from dialnb.claims.intervals import Interval
from dialnb.claims.kinds import KINDS, Question, inside
from dialnb.claims.papers import FLOORS, OWN, load_paper, select
from dialnb.claims.printed import printed_case, put_to_print
from dialnb.claims.verdict import (
    AGREES,
    CONTRADICTED,
    CONTRADICTS,
    FAILS,
    HOLDS,
    NEGATIVE,
    NOT_RUN,
    ORDER,
    SCHEMA,
    SILENT,
    UNDECIDED,
    Judged,
    Verdict,
    encoder_kind,
    strength,
)
from dialnb.errors import DataError
from dialnb.files import as_list, project_root, read_json, sha256


def judge_claims(
    slug: str,
    results: DataFrame,
    not_run: Iterable[Mapping[str, str]] = (),
    items: DataFrame | None = None,
    training: Mapping[str, float] | None = None,
) -> Judged:
    """Every claim of a paper with its verdict; a claim whose rows cannot be told apart is not run, and says so."""
    papers = paper_checks(slug)["checks"]
    silent = [name for name, says in papers.items() if says == SILENT]
    case = Case(results, slug, items, training or {}, silent=silent)
    reasons = list(not_run)
    records = []
    for claim in load_claims(slug):
        paper, verdict = papers[claim.id], verdict_on(claim, case, reasons)
        if paper == CONTRADICTS:
            ours = f"here it {verdict.verdict}" if verdict.verdict in (HOLDS, FAILS) else f"here: {verdict.verdict}"
            reason = f"{ours}; {verdict.reason}".strip("; ")
            verdict = replace(verdict, verdict=CONTRADICTED, qualifier="", reason=reason)
        record = vars(claim) | asdict(verdict) | {"encoders": ", ".join(verdict.encoders), "paper": paper}
        record["ours"] = claim.ours or slug in OWN
        for name in ("estimate", "low", "high"):
            record[name] = record[name] if isfinite(record[name]) else None
        record["encoder_kind"] = encoder_kind(slug, verdict.encoders)
        record["strength"], record["strength_words"] = ("", "") if verdict.verdict == NOT_RUN else strength(record)
        records.append({name: record[name] for name in SCHEMA})
    return Judged(DataFrame(records, dtype=object))


def verdict_on(claim: Claim, case: Case, reasons: list[Mapping[str, str]]) -> Verdict:
    """The verdict on a claim; one that could not be judged is not run, and says why."""
    try:
        return _under_all_readings(claim, case) if claim.readings else judge(claim, case)
    except Unjudged as unjudged:
        if not claim.lacking:
            return Verdict(NOT_RUN, qualifier=unjudged.qualifier, reason=str(unjudged))
        reason = claim.lacking
    except Lacking as lacking:
        reason = claim.lacking or _why_not(claim, reasons) or str(lacking)
    except DataError as error:
        reason = str(error)
    return Verdict(NOT_RUN, reason=reason)


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
            agrees = claim.kind == "value" or judge(put_to_print(claim, slug), printed_case(slug)).verdict == HOLDS
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
    sides = [claim.rows, claim.better, claim.published, *chain(*claim.sides)]
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
    if claim.kind == "value":
        return value(claim, case)
    rows = select(case.results, claim.rows)
    rows = rows[~rows["model"].isin(FLOORS)] if "model" in rows else rows
    if rows.empty:
        raise Lacking(f"not measured: {describe(claim.rows)}")
    if claim.each and claim.each not in rows:
        raise Lacking(f"the rows have no column {claim.each!r}")
    questions = {"": Question(claim, case, rows)}
    if claim.each:
        questions = {
            one if isinstance(one, str) else f"at {claim.each} {one:g}": Question(
                claim, case, part, {claim.each: [one]}
            )
            for one, part in rows.groupby(claim.each)
        }
    sides = claim.sides if claim.kind in ("gain", "ordering") else [(claim.better, {})]
    parts = []
    lacking = {}
    for name, asked in questions.items():
        for better, worse in sides:
            against = f"{describe(better)} against {describe(worse)}" if worse else ""
            label = f"{against} {name}".strip()
            try:
                found = list(KINDS[claim.kind](asked, better, worse, len(sides) * len(questions)))
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


def value(claim: Claim, case: Case) -> Verdict:
    """An absolute value, judged only where encoder and data are the paper's: within `margin` of what is printed."""
    compared = compare_table(case.slug, claim.published["table"], case.results).rows
    cell = select(compared, claim.published).iloc[0]
    if cell.status != "ran":
        label = "substitute, so absolute values are not compared" if cell.status == "substitute" else "not measured"
        raise Lacking(f"{label}: {cell.note}")
    half = 0.0 if pd.isna(cell.half) else cell.half
    rows = select(case.results, {"table": cell.table, "model": cell.model})
    gap, trainings = cell.difference, rows["training"].nunique()
    found = Interval(gap, gap - half, gap + half, int(cell.seeds), "ours minus printed", trainings)
    trained = load_paper(case.slug).tables[cell.table].kind in ("results", "in-text") and case.trained(rows)
    verdict = inside(found, -claim.margin, claim.margin)
    return Question(claim, case, rows).answer(verdict, found, rows, trained=trained)
