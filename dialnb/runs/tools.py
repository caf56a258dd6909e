"""After a run: take its models out, hold it against another run; and before one: see what this machine can do."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from dialnb.errors import DataError, UnknownName
from dialnb.files import read_json, read_rows, read_run, table_at
from dialnb.runs.provenance import hardware
from dialnb.runs.results import INDEX, check_files, stored_encoders
from dialnb.runs.run import MEASURED
from dialnb.runs.stages import default_stages

if TYPE_CHECKING:
    import pandas as pd


def open_run(folder: Path) -> dict[str, Any]:
    """The record of a run folder, or an error that says what the folder is not.

    Its paper and profile are plain names: folders are found, written and replaced by them.
    """
    record = read_run(folder)
    if record is None:
        raise DataError(f"{folder} is not the folder of a run: it has no run.json; `dialnb list` names the runs")
    try:
        strange = [name for name in (record["slug"], record["profile"]) if not re.fullmatch(r"\w[\w.-]*", name)]
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / 'run.json'} is not the record of a run ({error}); run it anew") from error
    if strange:
        raise DataError(f"{folder / 'run.json'} is not the record of a run: no paper or profile is called {strange}")
    return record


# --- export -----------------------------------------------------------------------------------------------------------


def run_models(folder: Path) -> dict[str, Path]:
    """The encoders that a run's stages made, by stage ("train DSE") and by what follows its first word ("DSE")."""
    found: dict[str, Path] = {}
    for stage in open_run(folder)["stages"]:
        kept = default_stages() / Path(stage["key"]).name
        if (kept / INDEX).is_file():
            encoders = stored_encoders(kept)
            for name, path in encoders.items():
                label = stage["name"] if len(encoders) == 1 else f"{stage['name']} {name}"
                found[label] = found[label.partition(" ")[2] or label] = path
    return found


def export(folder: Path, model: str, destination: Path) -> Path:
    """Copy a model of a run to a folder that sentence-transformers, transformers and dialnb load."""
    models = run_models(folder)
    if not models:
        raise DataError(f"no stage of {folder} has a model in {default_stages()}; run it again to make them")
    if model not in models:
        raise UnknownName(f"model of {folder.name}", model, models)
    if destination.exists() and any(destination.iterdir()):
        raise DataError(f"{destination} exists and is not empty; choose another place or remove it")
    check_files(models[model].parent, models[model].name)
    shutil.copytree(models[model], destination, dirs_exist_ok=True)
    return destination


# --- compare ----------------------------------------------------------------------------------------------------------


def differences(first: dict[str, Any], second: dict[str, Any], path: str = "") -> list[tuple[str, Any, Any]]:
    """Where two records differ, as (name, first, second); names of inner values are joined by dots."""
    found = []
    for name in dict.fromkeys([*first, *second]):
        a, b, here = first.get(name), second.get(name), f"{path}{name}"
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{here}.")
        elif a != b:
            found.append((here, a, b))
    return found


def compare_results(first: Path, second: Path) -> pd.DataFrame:
    """The results of two runs side by side: what identifies a row, both values, and the difference (second - first)."""
    frames = []
    for folder in (first, second):
        if table_at(folder) is None:
            raise DataError(f"{folder} has no results.csv; did the run finish?")
        frames.append(read_rows(folder))
    keys = [name for name in frames[0] if name in frames[1] and name not in MEASURED]
    texts = [frame.astype(dict.fromkeys(keys, str)) for frame in frames]
    both = texts[0][[*keys, "value"]].merge(texts[1][[*keys, "value"]], on=keys, how="outer", suffixes=("_1", "_2"))
    return both.assign(difference=both.value_2 - both.value_1)


def compare(first: Path, second: Path) -> str:
    """Two runs in words: settings, code and machine that differ, then results, then verdicts."""
    records = [open_run(folder) for folder in (first, second)]
    parts = ("profile", "parameters", "code", "packages", "hardware", "data", "encoders", "seconds")
    said = [{part: record.get(part) for part in parts} for record in records]
    lines = [f"1: {first}", f"2: {second}", "", "what differs"]
    lines += [f"  {name}: {a} | {b}" for name, a, b in differences(*said)]
    rows = compare_results(first, second)
    paired = rows.dropna(subset=["value_1", "value_2"])
    moved = paired[paired.difference != 0]
    lines += ["", f"results: {len(paired)} in both, {len(paired) - len(moved)} equal, {len(moved)} different; "
              f"{rows.value_2.isna().sum()} only in 1, {rows.value_1.isna().sum()} only in 2"]  # fmt: skip
    if len(moved):
        shown = moved.reindex(moved.difference.abs().sort_values(ascending=False).index).head(30)
        varying = [name for name in shown if shown[name].nunique() > 1 or name == "difference"]
        lines += [
            f"  mean difference {moved.difference.mean():+.4f}, largest first:",
            shown[varying].to_string(index=False),
        ]
    verdicts = [{c["id"]: c["verdict"] for c in read_json(f / "claims.json") or []} for f in (first, second)]
    changed = differences(*verdicts)
    lines += ["", f"claims: {len(changed)} verdicts differ"] + [f"  {name}: {a} | {b}" for name, a, b in changed]
    return "\n".join(lines)


# --- doctor -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One thing looked at: "ok", "note" (something optional is missing) or "bad", and what to do about it."""

    state: str
    subject: str
    words: str


def examine(root: Path | None = None) -> list[Finding]:
    """Look at Python, packages, hardware, cache, data, encoders and papers; nothing is changed or fetched."""
    return [*_packages(), *_machine(), *_storage(), *_papers(root)]


def _packages() -> list[Finding]:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    fine = (3, 11) <= sys.version_info[:2] < (3, 14)
    found = [
        Finding("ok" if fine else "bad", "Python", version if fine else f"{version}; dialnb needs 3.11, 3.12 or 3.13")
    ]
    try:
        needs = [Requirement(text) for text in metadata.requires("dialnb") or ()]
    except metadata.PackageNotFoundError:
        return [*found, Finding("note", "dialnb", "runs from a folder, not installed; its packages are not checked")]
    for need in needs:
        optional = need.marker is not None and "extra" in str(need.marker)
        if need.marker is not None and not optional and not need.marker.evaluate():
            continue
        try:
            has = metadata.version(need.name)
            fine = need.specifier.contains(has, prereleases=True)
            words = (
                has if fine else f"{has}, but {need.specifier} is needed: pip install -c constraints.txt '{need.name}'"
            )
        except metadata.PackageNotFoundError:
            fine, words = False, f"missing: pip install -c constraints.txt '{need.name}'"
        found.append(Finding("ok" if fine else "note" if optional else "bad", need.name, words))
    return found


def _machine() -> list[Finding]:
    import torch

    facts = hardware()
    found = [Finding("ok", "processor", f"{facts['cores']} cores, {facts['memory_gb']} GB of memory")]
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_gb']} GB)" for gpu in facts["gpus"])
    built = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds none"
    found.append(
        Finding("ok", "GPU", gpus)
        if gpus
        else Finding("note", "GPU", f"none ({built}): smoke and quick run on the CPU")
    )
    return found


def _storage() -> list[Finding]:
    from dialnb.data.store import default_store

    store = default_store()
    place = next(folder for folder in (store.cache, *store.cache.parents) if folder.exists())
    free = shutil.disk_usage(place).free / 1e9
    writable = os.access(place, os.W_OK)
    words = f"{store.cache} ({free:,.0f} GB free)" if writable else f"{store.cache} cannot be written: set DIALNB_CACHE"
    found = [Finding("bad" if not writable else "ok" if free > 5 else "note", "cache", words)]
    network = "forbidden (DIALNB_OFFLINE)" if store.offline else "allowed; nothing was tried"
    found.append(Finding("ok", "network", network + (f"; mirror {store.mirror}" if store.mirror else "")))
    from dialnb.models.places import bundled_encoders

    bundled = bundled_encoders()
    words = ", ".join(bundled) or "none: reinstall, the quick and smoke profiles need it"
    return [*found, Finding("ok" if bundled else "bad", "bundled encoders", words)]


def _papers(root: Path | None) -> list[Finding]:
    from dialnb.runs.planning import needs
    from dialnb.runs.profiles import known_papers, load_profiles, project

    found, root = [], project(root)
    for slug in known_papers(root):
        if (
            not (root / "papers" / slug / "profiles.yaml").is_file()
            or not (root / "notebooks" / f"{slug}.ipynb").is_file()
        ):
            found.append(Finding("note", slug, "its notebook is not written yet"))
            continue
        profiles = load_profiles(slug, root)
        missing = {
            name: [need for need in needs(profiles, name, profiles.resolve(name)) if not need.present]
            for name in profiles.profiles
        }
        ready = ", ".join(name for name, lacking in missing.items() if not lacking) or "no profile"
        lacks = "".join(
            f"; {name} lacks {', '.join(n.name for n in lacking)}" for name, lacking in missing.items() if lacking
        )
        found.append(Finding("note" if lacks else "ok", slug, f"ready: {ready}{lacks}"))
    return found
