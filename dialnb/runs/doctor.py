"""What works on this machine, what is missing, and how to get it; nothing is changed or fetched."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from dialnb.runs.planning import needs
from dialnb.runs.profiles import known_papers, load_profiles, project
from dialnb.runs.provenance import hardware


@dataclass(frozen=True)
class Finding:
    """One thing looked at: "ok", "note" (something optional is missing) or "bad", and what to do about it."""

    state: str
    subject: str
    words: str


def examine(root: Path | None = None) -> list[Finding]:
    """Look at packages, hardware, cache, and at data and encoders of every paper."""
    return [*_packages(), *_machine(), *_papers(project(root))]


def _packages() -> list[Finding]:
    try:
        required = [Requirement(text) for text in metadata.requires("dialnb") or ()]
    except metadata.PackageNotFoundError:
        return [Finding("note", "dialnb", "runs from a folder, not installed; its packages are not checked")]
    findings = []
    for need in required:
        optional = "extra" in str(need.marker)
        if need.marker and not optional and not need.marker.evaluate():
            continue
        how = f"pip install -c constraints.txt '{need.name}'"
        try:
            words = metadata.version(need.name)
            fine = need.specifier.contains(words, prereleases=True)
            words += "" if fine else f", but {need.specifier} is needed: {how}"
        except metadata.PackageNotFoundError:
            fine, words = False, f"missing: {how}"
        findings.append(Finding("ok" if fine else "note" if optional else "bad", need.name, words))
    return findings


def _machine() -> list[Finding]:
    import torch

    from dialnb.data.store import default_store

    facts, store = hardware(), default_store()
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_gb']} GB)" for gpu in facts["gpus"])
    built = "this torch is built without CUDA" if torch.version.cuda is None else "torch finds none"
    place = next(folder for folder in (store.cache, *store.cache.parents) if folder.exists())
    free = shutil.disk_usage(place).free / 1e9
    cache = Finding("ok" if free > 5 else "note", "cache", f"{store.cache} ({free:,.0f} GB free)")
    if not os.access(place, os.W_OK):
        cache = Finding("bad", "cache", f"{store.cache} cannot be written: set DIALNB_CACHE")
    network = "forbidden (DIALNB_OFFLINE)" if store.offline else "allowed; nothing was tried"
    return [
        Finding("ok", "processor", f"{facts['cores']} cores, {facts['memory_gb']} GB of memory"),
        Finding("ok" if gpus else "note", "GPU", gpus or f"none ({built}): smoke and quick run on the CPU"),
        cache,
        Finding("ok", "network", network + (f"; mirror {store.mirror}" if store.mirror else "")),
    ]


def _papers(root: Path) -> list[Finding]:
    findings = []
    for slug in known_papers(root):
        files = (root / "papers" / slug / "profiles.yaml", root / "notebooks" / f"{slug}.ipynb")
        if not all(path.is_file() for path in files):
            findings.append(Finding("note", slug, "its notebook is not written yet"))
            continue
        profiles = load_profiles(slug, root)
        ready, lacks = [], ""
        for name in profiles.profiles:
            missing = [need.name for need in needs(profiles, name, profiles.resolve(name)) if not need.present]
            ready += [] if missing else [name]
            lacks += f"; {name} lacks {', '.join(missing)}" if missing else ""
        words = f"ready: {', '.join(ready) or 'no profile'}{lacks}"
        findings.append(Finding("note" if lacks else "ok", slug, words))
    return findings
