"""`dialnb data`: what there is, where it comes from, whether it is intact, and what it counts to."""

import json
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from click import argument, group, option
from tabulate import tabulate

from dialnb.commands import JSON
from dialnb.errors import DataError
from dialnb.files import Fields, Values, say

MAY_SHARE = {True: "yes", False: "no", None: "not stated"}
NAMES = argument("names", nargs=-1, metavar="[NAME]...")


@group()
def data() -> None:
    """List, describe, fetch, verify, count data."""


@data.command("list")
@option("--bundled", is_flag=True, help="what comes with the package, as bundled/NAME")
@JSON
def list_sources(bundled: bool, as_json: bool) -> None:
    """List every dataset and encoder.

    With licence and how much of it is available.
    """
    if bundled:
        from dialnb.data.bundle import index

        return show(bundled_rows(index()), as_json)
    from dialnb.data.sources import load_registry

    width = 1_000 if as_json else 36
    rows = [
        {
            "name": source.name,
            "kind": source.kind,
            "availability": source.availability,
            "files": sum(file.verified for file in source.files),
            "MB": round(sum(file.size for file in source.files) / 1e6, 1),
            "may be shared": MAY_SHARE[source.redistributable],
            "licence": textwrap.shorten(source.licence, width, placeholder=" …"),
            "papers": by_paper(source.papers),
        }
        for source in load_registry().values()
    ]
    show(rows, as_json)


@data.command()
@argument("name")
@JSON
def info(name: str, as_json: bool) -> None:
    """Describe one dataset or encoder.

    Its papers, terms, citation and files.
    """
    from dialnb.data.bundle import PREFIX
    from dialnb.data.sources import get_source
    from dialnb.data.store import default_store

    if name.casefold().startswith(PREFIX):
        return bundled_info(name, as_json)
    store, source = default_store(), get_source(name)
    cached = ["yes" if store.location(source, file).exists() else "no" for file in source.files]
    about = asdict(source)
    files = [file | {"cached": state} for file, state in zip(about.pop("files"), cached)]
    if as_json:
        return print_json(about | {"files": files})
    about |= {"papers": by_paper(source.papers), "may be shared": MAY_SHARE[about.pop("redistributable")]}
    describe({label: text for label, text in about.items() if text})
    for file in files:
        file["sha256"] = file["sha256"][:12] + "…" if file["sha256"] else "not checked"
        file["from"] = (file["urls"] or ["by hand"])[0]
    if files:
        print()
        show([{name: file[name] for name in ("key", "size", "sha256", "cached", "from")} for file in files])


@data.command()
@argument("names", nargs=-1, required=True, metavar="NAME...")
@option("--unchecked", is_flag=True, help="also files that nobody could check; their hash is enforced from then on")
@JSON
def fetch(names: Sequence[str], unchecked: bool, as_json: bool) -> None:
    """Bring files into the cache and verify them.

    NAME is a dataset, e.g. CLINC150, or an encoder.
    """
    from dialnb.data.sources import DATASET, get_source
    from dialnb.data.store import default_store
    from dialnb.models.places import download_encoder

    store = default_store()
    rows = []
    for source in [get_source(name) for name in names]:
        if source.kind == DATASET:
            wanted = [file.key for file in source.files if file.verified or unchecked]
            if not wanted:
                hint = " Try --unchecked." if any(file.urls for file in source.files) else ""
                raise DataError(f"{source.name} has no checked files to fetch. {source.coverage}{hint}")
            paths, folder = [*store.fetch(source.name, wanted).values()], store.cache / "files" / source.name
        else:
            folder = download_encoder(source.name)
            paths = [path for path in folder.rglob("*") if path.is_file()]
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
        rows.append({"name": source.name, "files": len(paths), "MB": round(megabytes, 1), "folder": str(folder)})
    show(rows, as_json)


@data.command()
@NAMES
@JSON
def verify(names: Sequence[str], as_json: bool) -> int:
    """Check the sha256 of every file.

    In the cache and in a mirror folder. The exit code is 1 if one is bad, or if a dataset that was asked for by name
    has missing files.
    """
    from tqdm.contrib.concurrent import thread_map

    from dialnb.data.sources import get_source, load_registry
    from dialnb.data.store import default_store

    store, problems = default_store(), []
    rows: list[Values] = []
    total = Counter(ok=0, missing=0, bad=0)
    for source in [get_source(name) for name in names] or load_registry().values():
        keys = [file.key for file in source.files if file.verified or store.location(source, file).exists()]
        bar = {"desc": source.name, "leave": False, "delay": 2, "unit": "file"}
        checked = thread_map(partial(store.check, source.name), keys, **bar)
        states = Counter(state for state, _ in checked)
        rows.append({"name": source.name, **{state: states[state] for state in total}})
        total.update(states)
        for key, (state, problem) in zip(keys, checked):
            if state == "bad":
                problems.append({"name": source.name, "file": key, "problem": problem})
    if as_json:
        print_json({**total, "datasets": rows, "problems": problems})
    else:
        show([row for row in rows if sum(row[state] for state in total)])
        for one in problems:
            say(f"\nbad: {one['name']} {one['file']}\n  {one['problem']}")
        amounts = ", ".join(f"{count:,} {state}" for state, count in total.items())
        print(f"\n{total.total():,} files: {amounts}")
    return int(bool(problems or (names and total["missing"])))


@data.command()
@NAMES
@JSON
def stats(names: Sequence[str], as_json: bool) -> None:
    """Count records beside what papers print.

    Without a NAME, of what is at hand; only what is named is fetched.
    """
    from tqdm import tqdm

    from dialnb.commands.counts import count_all
    from dialnb.data.store import Store, default_store

    store = default_store()
    if not names and not store.mirror:
        store = Store(offline=True)
    counts = tqdm(count_all(store, list(names)), "count", leave=False, delay=2, unit="number")
    show([asdict(count) for count in counts], as_json)


def bundled_rows(index: Mapping[str, Fields]) -> list[Values]:
    """One row per variant that is stored; what is derived from one is named beside it."""
    return [
        {
            "name": f"bundled/{name}",
            "variant": variant,
            "records": part["record"],
            "rows": part["rows"],
            "splits": ", ".join(f"{split} {count:,}" for split, count in part["splits"].items()),
            "utterances": part.get("utterances"),
            "licence": entry["licence"],
            "also": ", ".join(entry["derived"]),
        }
        for name, entry in index.items()
        for variant, part in entry["variants"].items()
    ]


def bundled_info(name: str, as_json: bool) -> None:
    """Terms and changes of bundled datasets, then what is in them."""
    from dialnb.data.bundle import get_bundled, index
    from dialnb.data.sources import get_source

    stored = index()
    entries = {source: stored[source] for source in stored if source in get_bundled(name).sources}
    if as_json:
        return print_json(entries)
    for source, entry in entries.items():
        about = {"name": f"bundled/{source}", "licence": entry["licence"]}
        describe(about | {"citation": get_source(source).citation, "changes": entry["changes"]})
        print()
    show(bundled_rows(entries))


def by_paper(tables: Iterable[str]) -> str:
    """ "DSE T2", "DSE T3", "UMS T1" as "DSE T2 T3, UMS T1"."""
    grouped: dict[str, str] = {}
    for paper, table in map(str.split, tables):
        grouped[paper] = f"{grouped.get(paper, paper)} {table}"
    return ", ".join(grouped.values())


def describe(about: Mapping[str, str]) -> None:
    """Print one paragraph per entry, the labels in a column of their own."""
    width = shutil.get_terminal_size().columns
    for label, text in about.items():
        say(textwrap.fill(text, width, initial_indent=f"{label:<15}", subsequent_indent=" " * 15))


def show(rows: Sequence[Fields], as_json: bool = False) -> None:
    """Print a table with aligned columns, numbers to the right; the last column may be as long as it likes."""
    if as_json:
        return print_json(rows)
    say(tabulate(rows, headers="keys", tablefmt="simple", intfmt=",", floatfmt=","))


def print_json(content: Any) -> None:
    """Print JSON for machines."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    print(json.dumps(content, indent=1, ensure_ascii=not is_unicode))


COMMANDS = (data,)
