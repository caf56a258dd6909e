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
with the words after its statement, or with `words` and fields of its own); `lacking` (why rows are missing); `ours` (a
claim that the paper does not make); `headline` (a few words for a figure: the paper's abstract or
conclusion rests on it). A side that names several models stands for their mean.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from dialnb.claims.papers import Fields, load_paper
from dialnb.errors import DataError, UnknownName
from dialnb.files import as_list, project_root, read_yaml

BY = ("task", "dataset", "metric", "protocol", "shots", "threshold")
"""Columns within which two models are compared like with like; a claim may name its own."""

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
    rows: Fields = field(default_factory=dict)
    better: Fields = field(default_factory=dict)
    worse: Any = field(default_factory=dict)
    order: tuple = ()
    pairs: tuple = ()
    than: Fields = field(default_factory=dict)
    trend: Fields = field(default_factory=dict)
    statistic: Fields = field(default_factory=dict)
    published: Fields = field(default_factory=dict)
    each: str = ""
    by: tuple[str, ...] = BY
    paired_over: str = "seeds"
    margin: float = 0.0
    times: float = 1.0
    lower: bool = False
    learned: Fields = field(default_factory=dict)
    one_model: bool = False
    readings: Mapping[str, Fields] = field(default_factory=dict)
    printed: Fields = field(default_factory=dict)
    lacking: str = ""
    ours: bool = False
    headline: str = ""

    @property
    def tables(self) -> list[str]:
        """The tables that it speaks of."""
        return as_list((self.published or self.rows).get("table", []))

    @property
    def sides(self) -> list[tuple[Mapping, Mapping]]:
        """The comparisons that a gain or an ordering consists of, as (better, worse)."""
        if self.order or self.pairs:
            return list(self.pairs) or list(zip(self.order[:-1], self.order[1:]))
        return [(self.better, worse) for worse in as_list(self.worse)]


@cache
def load_claims(slug: str) -> tuple[Claim, ...]:
    """A paper's claims, checked: unknown fields, kinds, shapes or tables, and doubled ids are errors that say where."""
    load_paper(slug)
    path = project_root() / "papers" / slug / "claims.yaml"
    return parse_claims(slug, read_yaml(path), str(path))


def parse_claims(slug: str, raw: list[Fields], where: str) -> tuple[Claim, ...]:
    """Turn parsed YAML into claims."""
    claims: list[Claim] = []
    for whole in raw:
        for entry in _split(whole):
            here = f"{where}, claim {entry.get('id', len(claims) + 1)!r}"
            _check(slug, entry, here)
            lists = {name: tuple(entry[name]) for name in ("order", "pairs", "by") if name in entry}
            claims.append(Claim(**{**entry, **lists}))
    doubled = [name for name, count in Counter(claim.id for claim in claims).items() if count > 1]
    if doubled:
        raise DataError(f"{where}: claim ids must be unique, found {', '.join(sorted(doubled))} twice")
    return tuple(claims)


def _split(entry: Fields) -> list[Fields]:
    """One entry per value of the column that it names under `split` (or per values, A/B), or the entry itself."""
    rest = {name: value for name, value in entry.items() if name != "split"}
    if "split" not in entry:
        return [rest]
    ((column, values),) = entry["split"].items()
    parts: list[Fields] = []
    for value, words in values.items():
        first, *others = str(value).split("/")
        fields = dict(words) if isinstance(words, dict) else {"words": words}
        part = {
            "id": f"{entry['id']}-{first.lower().replace(' ', '-')}",
            "statement": f"{entry['statement'].rstrip('.')}, {fields.pop('words')}.",
            "headline": f"{entry['headline']}, {first}" if entry.get("headline") else "",
            "rows": {
                **entry.get("rows", {}),
                column: [first, *others] if others else value,
                **fields.pop("rows", {}),
            },
        }
        parts.append(rest | part | fields)
    return parts


def _check(slug: str, entry: Fields, here: str) -> None:
    """Refuse an entry with a misspelt name, or without a field that it needs."""
    paper = load_paper(slug)
    published = entry.get("published") or {}
    tables = [*paper.tables, *(figure["id"] for figure in paper.figures)]
    fields = chain(entry, *entry.get("readings", {}).values())
    used_tables = chain(*(as_list(part.get("table", [])) for part in (entry.get("rows", {}), published)))
    names: dict[str, tuple[Iterable[Any], Collection[str]]] = {
        "field": (fields, Claim.__dataclass_fields__),
        "kind": (filter(None, [entry.get("kind")]), NEEDED),
        "table": ((table for table in used_tables if not table.startswith("X-")), tables),
        "shape": ([(entry.get("trend") or {}).get("shape", "rising")], SHAPES),
    }
    for kind, (used, known) in names.items():
        if unknown := [name for name in used if name not in known]:
            raise DataError(f"{here}: {UnknownName(kind, str(unknown[0]), known)}")
    for name in ("id", "statement", "where", "kind", NEEDED.get(entry.get("kind", ""), "kind")):
        if not entry.get(name) and not (name == "worse" and entry.get("pairs")):
            raise DataError(f"{here}: expected the field {name!r}, found none; add it")
