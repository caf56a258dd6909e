"""The papers' claims as data: `papers/<slug>/claims.yaml` in, checked `Claim`s out.

    - id: dse-over-raw                       # unique within the paper
      statement: DSE beats its raw encoder.  # in our words
      where: Section 4.3, Table 2            # where the paper says so
      kind: gain                             # gain | ordering | trend | statistic | value
      rows: {table: T2, metric: Accuracy}    # tidy rows that it speaks of
      better: {model: DSE}                   # gain: one side against one or several others
      worse: [{model: BERT}, {model: TOD-BERT}]

Other fields: `order` (best first, for an ordering); `pairs` (of better and worse, all of which must hold); `than` (a
second better and worse, whose gain must be smaller); `times` (the better side counts this many times, for margins that
are ratios); `trend` {over, shape: rising | falling | peak | largest-step | flat-after, at, scale: log}; `statistic`
{range} or {between, range}; `published` {table, column, row labels}; `each` (must hold for every value of a column);
`by` (columns that are compared like with like); `paired_over` (seeds | datasets | items); `margin`; `lower` (less is
better); `learned` (the rows that show whether a model learned, where those of the claim do not); `one_model` (both
sides are readings of one and the same trained model, so that test items are its replicates); `readings` {name: fields}
(the paper leaves a choice open that decides the claim: it is judged with these fields under each); `printed` (fields of
the paper check, where the paper prints its numbers elsewhere); `split` {column: {value: words}} (one claim per value,
with the words after its statement). A side that names several models stands for their mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import yaml

from dialnb.claims.evidence import BY
from dialnb.errors import DataError, UnknownName
from dialnb.papers import load_paper, project_root

NEEDED = {"gain": "worse", "ordering": "order", "trend": "trend", "statistic": "statistic", "value": "published"}
"""Kinds of claims, and the field that each needs (a gain may have `pairs` instead)."""

SHAPES = ("rising", "falling", "peak", "largest-step", "flat-after")


@dataclass(frozen=True)
class Claim:
    """One claim; the module's docstring explains the fields."""

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
    times: float = 1.0
    lower: bool = False
    learned: Mapping[str, Any] = field(default_factory=dict)
    one_model: bool = False
    readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    printed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sides(self) -> list[tuple[Mapping, Mapping]]:
        """The comparisons that a gain or an ordering consists of, as (better, worse)."""
        if self.order or self.pairs:
            return list(self.pairs) or list(zip(self.order[:-1], self.order[1:]))
        return [(self.better, worse) for worse in (self.worse if isinstance(self.worse, list) else [self.worse])]

    def under(self, reading: str) -> Claim:
        """The claim under one reading of what the paper leaves open."""
        return replace(self, **self.readings[reading], readings={})


@cache
def load_claims(slug: str) -> tuple[Claim, ...]:
    """A paper's claims, checked: unknown fields, kinds, shapes or tables, and doubled ids are errors that say where."""
    load_paper(slug)
    path = project_root() / "papers" / slug / "claims.yaml"
    return parse_claims(slug, yaml.safe_load(path.read_text(encoding="utf-8")), str(path))


def _split(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry per value of the column that it names under `split` (or per values, A/B), or the entry itself."""
    rest = {name: value for name, value in entry.items() if name != "split"}
    if "split" not in entry:
        return [rest]
    ((column, values),) = entry["split"].items()
    named = {"id": entry.get("id", ""), "statement": str(entry.get("statement", "")).rstrip(".")}
    parts = []
    for value, words in values.items():
        first, *more = str(value).split("/")
        rows = {**entry.get("rows", {}), column: [first, *more] if more else value}
        parts.append(
            rest
            | {"id": f"{named['id']}-{first.lower()}", "statement": f"{named['statement']}, {words}.", "rows": rows}
        )
    return parts


def parse_claims(slug: str, raw: list[Mapping[str, Any]], where: str) -> tuple[Claim, ...]:
    """Turn parsed YAML into claims."""
    known_tables = [*load_paper(slug).tables, *(figure["id"] for figure in load_paper(slug).figures)]
    found: list[Claim] = []
    for entry in (part for whole in raw for part in _split(whole)):
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
        for name in (name for fields in entry.get("readings", {}).values() for name in fields):
            if name not in known:
                raise DataError(f"{here}, readings: {UnknownName('field', name, known)}")
        lists = {name: tuple(entry[name]) for name in ("order", "pairs", "by") if name in entry}
        found.append(Claim(**{**entry, **lists}))
    ids = [claim.id for claim in found]
    if len(set(ids)) < len(ids):
        raise DataError(
            f"{where}: claim ids must be unique, found {', '.join(sorted({i for i in ids if ids.count(i) > 1}))} twice"
        )
    return tuple(found)
