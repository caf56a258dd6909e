"""What works on this machine, what is missing, and how to get it; nothing is changed or fetched.

    python -m tools.doctor [--project FOLDER]

The exit code is 1 if something needed is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch
from tabulate import tabulate

from dialnb.data.store import default_store, shown
from dialnb.files import project_root
from dialnb.runs.planning import needs
from dialnb.runs.profiles import known_papers, load_profiles
from dialnb.runs.provenance import hardware
from tools.pack import requirements


class Finding(NamedTuple):
    """One thing looked at: "ok", "note" (something optional is missing) or "bad", and what to do about it."""

    state: str
    subject: str
    words: str


def examine(root: Path | None = None) -> list[Finding]:
    """Look at packages, hardware, cache, and at data and encoders of every paper."""
    return [*_packages(), *_machine(), *_papers(project_root(root))]


def _packages() -> list[Finding]:
    findings = []
    for need in requirements("dialnb"):
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            version = "missing"
        fine = version != "missing" and need.specifier.contains(version, prereleases=True)
        words = version if fine else f"{version}: pip install -c constraints.txt '{need}'"
        findings.append(Finding("ok" if fine else "bad", need.name, words))
    return findings


def _machine() -> list[Finding]:
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
        Finding("ok", "network", network + (f"; mirror {shown(store.mirror)}" if store.mirror else "")),
    ]


def _papers(root: Path) -> list[Finding]:
    findings = []
    for slug in known_papers(root):
        profiles = load_profiles(slug, root)
        ready, lacks = [], ""
        for name in profiles.profiles:
            missing = [need.name for need in needs(profiles, name, profiles.resolve(name)) if not need.present]
            ready += [] if missing else [name]
            lacks += f"; {name} lacks {', '.join(missing)}" if missing else ""
        words = f"ready: {', '.join(ready) or 'no profile'}{lacks}"
        findings.append(Finding("note" if lacks else "ok", slug, words))
    return findings


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.doctor", description="Tell what works on this machine.")
    parser.add_argument("--project", type=Path, help="folder with papers/ and notebooks/ (default: the checkout)")
    findings = examine(parser.parse_args(arguments).project)
    print(tabulate(findings, tablefmt="plain", disable_numparse=True))
    bad = [finding.state for finding in findings].count("bad")
    print(f"{bad} problem{'' if bad == 1 else 's'}" if bad else "everything that is needed is here")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
