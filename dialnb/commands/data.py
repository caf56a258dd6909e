"""`dialnb data`: what there is, where it comes from, whether it is intact, and what it counts to."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from dialnb.data.sources import DATASET, Source, SourceFile, get_source, load_registry
from dialnb.errors import DataError

if TYPE_CHECKING:
    from dialnb.data.store import Store

MAY_SHARE = {True: "yes", False: "no", None: "not stated"}


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add `dialnb data` and its actions."""
    parser = subparsers.add_parser("data", help="datasets and encoders: list, describe, fetch, verify, count")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for run, names, words in [
        (list_sources, None, "every dataset and encoder, with licence and how much of it can be had"),
        (info, 1, "one dataset or encoder: papers, terms, citation, files"),
        (fetch, "+", "bring the files of datasets and encoders into the cache and verify them"),
        (verify, "*", "check the sha256 of every file in the cache and in a mirror folder"),
        (stats, "*", "counts of the records beside those that the papers print"),
    ]:
        name = run.__name__.split("_")[0]
        action = actions.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
        if names:
            action.add_argument("names", nargs=names, metavar="NAME", help="a dataset, e.g. CLINC150, or an encoder")
        action.add_argument("--json", action="store_true", help="print JSON instead of a table")
        action.set_defaults(run=run)
        if run is list_sources:
            action.add_argument("--bundled", action="store_true", help="what comes with the package, as bundled/NAME")
        if run is fetch:
            help_ = "also files that nobody could check; their hash is recorded and enforced from then on"
            action.add_argument("--unchecked", action="store_true", help=help_)


def list_sources(arguments: argparse.Namespace) -> int:
    """One row per dataset or encoder."""
    if arguments.bundled:
        from dialnb.data.bundle import index

        _show(_bundled_rows(index()), arguments.json)
        return 0
    rows = [
        {
            "name": source.name,
            "kind": source.kind,
            "availability": source.availability,
            "files": sum(file.verified for file in source.files),
            "MB": round(sum(file.size for file in source.files) / 1e6, 1),
            "may be shared": MAY_SHARE[source.redistributable],
            "licence": source.licence if arguments.json else textwrap.shorten(source.licence, 36, placeholder=" …"),
            "papers": _by_paper(source.papers),
        }
        for source in load_registry().values()
    ]
    _show(rows, arguments.json)
    return 0


def info(arguments: argparse.Namespace) -> int:
    """Everything that the registry says about one dataset or encoder, and which files are in the cache."""
    from dialnb.data.bundle import PREFIX, get_bundled, index
    from dialnb.data.store import default_store

    if arguments.names[0].casefold().startswith(PREFIX):
        wanted = get_bundled(arguments.names[0]).sources
        return _bundled_info({name: entry for name, entry in index().items() if name in wanted}, arguments.json)
    store = default_store()
    source = get_source(arguments.names[0])
    files = [_file_row(store, source, file) for file in source.files]
    about = {
        "name": source.name,
        "title": source.title,
        "kind": ", ".join(filter(None, (source.kind, source.language))),
        "used by": _by_paper(source.papers) or "none of the papers",
        "licence": source.licence,
        "may be shared": MAY_SHARE[source.redistributable],
        "cite": source.citation,
        "homepage": source.homepage or "none",
        "coverage": source.coverage,
    } | ({"note": source.note} if source.note else {})
    if arguments.json:
        print(json.dumps(about | {"papers": source.papers, "files": files}, indent=1, ensure_ascii=False))
        return 0
    _describe(about)
    if files:
        print()
        columns = ("key", "bytes", "sha256", "cached")
        _show([{c: row[c] for c in columns} | {"from": (row["urls"] or ["by hand"])[0]} for row in files], False)
    return 0


def fetch(arguments: argparse.Namespace) -> int:
    """Fetch the checked files of each dataset, or all of them; an encoder as a whole, wherever it is had from."""
    from dialnb.data.store import default_store
    from dialnb.models.places import download_encoder, hub_snapshot

    store = default_store()
    rows = []
    for source in [get_source(name) for name in arguments.names]:
        if source.kind != DATASET:
            place = download_encoder(source.name)
            folder = place.folder or hub_snapshot(source.name)
            rows.append({"name": source.name} | _size(folder.rglob("*")) | {"folder": str(folder)})
            continue
        wanted = [file for file in source.files if file.verified or arguments.unchecked]
        if not wanted:
            hint = " Try --unchecked." if any(file.urls for file in source.files) else ""
            raise DataError(f"{source.name} has no checked files to fetch. {source.coverage}{hint}")
        paths = store.fetch(source.name, [file.key for file in wanted])
        folder = store.cache / "files" / source.name
        rows.append({"name": source.name} | _size(paths.values()) | {"folder": str(folder)})
    _show(rows, arguments.json)
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Check all copies; 1 if one is bad, or if a dataset that was asked for by name has missing files."""
    from dialnb.data.store import default_store

    store = default_store()
    sources = [get_source(name) for name in arguments.names] or list(load_registry().values())
    wanted = [(source, file) for source in sources for file in source.files if _is_checkable(store, source, file)]
    with ThreadPoolExecutor() as pool:
        checks = pool.map(lambda pair: store.check(pair[0].name, pair[1].key), wanted)
        states = list(tqdm(checks, "verify", len(wanted), leave=False, delay=2, unit="file"))
    found = [(source.name, file.key, *state) for (source, file), state in zip(wanted, states, strict=True)]
    total = Counter(state for _, _, state, _ in found)
    counts = {state: total[state] for state in ("ok", "missing", "bad")}
    bad = [{"name": name, "file": key, "problem": text} for name, key, state, text in found if state == "bad"]
    each = Counter((name, state) for name, _, state, _ in found)
    rows = [{"name": source.name} | {state: each[source.name, state] for state in counts} for source in sources]
    if arguments.json:
        print(json.dumps({**counts, "datasets": rows, "problems": bad}, indent=1, ensure_ascii=False))
    else:
        _show([row for row in rows if any(row[state] for state in counts)], False)
        for item in bad:
            print(f"\nbad: {item['name']} {item['file']}\n  {item['problem']}")
        print(f"\n{len(found):,} files: {counts['ok']:,} ok, {counts['missing']:,} missing, {counts['bad']:,} bad")
    return int(bool(bad) or bool(arguments.names and counts["missing"]))


def stats(arguments: argparse.Namespace) -> int:
    """Counts beside the published ones. The overview takes what is at hand; only what is named is fetched."""
    from dialnb.claims.counts import count_all
    from dialnb.data.store import Store, default_store

    store = default_store()
    if not arguments.names and not store.mirror:
        store = Store(offline=True)
    counts = tqdm(count_all(store, arguments.names), "count", leave=False, delay=2, unit="number")
    _show([asdict(count) for count in counts], arguments.json)
    return 0


def _bundled_rows(index: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per variant that is stored; what is derived from one is named beside it."""
    return [
        {
            "name": f"bundled/{name}",
            "variant": variant,
            "records": part["record"],
            "rows": part["rows"],
            "splits": ", ".join(f"{split} {rows:,}" for split, rows in part["splits"].items()),
            "utterances": part.get("utterances"),
            "licence": entry["licence"],
            "also": ", ".join(entry["derived"]),
        }
        for name, entry in index.items()
        for variant, part in entry["variants"].items()
    ]


def _bundled_info(index: dict[str, dict[str, Any]], as_json: bool) -> int:
    """Terms and changes of bundled datasets, then what is in them."""
    if as_json:
        print(json.dumps(index, indent=1, ensure_ascii=False))
        return 0
    for name, entry in index.items():
        cite = get_source(name).citation
        _describe({"name": f"bundled/{name}", "licence": entry["licence"], "cite": cite, "changes": entry["changes"]})
        print()
    _show(_bundled_rows(index), False)
    return 0


def _describe(about: dict[str, str]) -> None:
    width = shutil.get_terminal_size().columns
    for label, text in about.items():
        print(textwrap.fill(text, width, initial_indent=f"{label:<15}", subsequent_indent=" " * 15))


def _size(paths: Iterable[Path]) -> dict[str, Any]:
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    return {"files": len(sizes), "MB": round(sum(sizes) / 1e6, 1)}


def _is_checkable(store: Store, source: Source, file: SourceFile) -> bool:
    return file.verified or store.location(source, file).exists()


def _file_row(store: Store, source: Source, file: SourceFile) -> dict[str, Any]:
    return {
        "key": file.key,
        "bytes": file.size or None,
        "sha256": file.sha256[:12] + "…" if file.sha256 else "not checked",
        "cached": "yes" if store.location(source, file).exists() else "no",
        "licence": file.licence,
        "urls": list(file.urls),
        "note": file.note,
    }


def _by_paper(tables: Iterable[str]) -> str:
    """ "DSE T2", "DSE T3", "UMS T1" as "DSE T2 T3, UMS T1"."""
    grouped: dict[str, list[str]] = {}
    for paper, table in (item.split() for item in tables):
        grouped.setdefault(paper, []).append(table)
    return ", ".join(f"{paper} {' '.join(found)}" for paper, found in grouped.items())


def _show(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """A table with aligned columns, numbers to the right; the last column may be as long as it likes."""
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    header = list(rows[0]) if rows else []
    cells = [
        [f"{v:,}" if isinstance(v, int | float) else str("" if v is None else v) for v in r.values()] for r in rows
    ]
    widths = [max(len(text) for text in column) for column in zip(header, *cells, strict=True)]
    right = [all(isinstance(row[name], int | float | None) for row in rows) for name in header]
    for line in (header, ["-" * width for width in widths], *cells):
        parts = [t.rjust(w) if r else t.ljust(w) for t, w, r in zip(line, widths, right, strict=True)]
        print("  ".join(parts).rstrip())
