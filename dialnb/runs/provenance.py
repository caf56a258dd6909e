"""Where a run comes from: commit, packages, hardware, data and encoders with their hashes and licences."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from dialnb.files import sha256

PACKAGES = (
    "dialnb", "torch", "transformers", "tokenizers", "accelerate", "safetensors", "numpy", "scipy", "pandas",
    "scikit-learn", "matplotlib", "umap-learn", "papermill", "ipykernel",
)  # fmt: skip


CODE = Path(__file__).resolve().parents[2]
"""Where the package stands: a checkout, a packed copy, or the packages of an environment."""


def provenance() -> dict[str, Any]:
    """Everything about this process that its results may depend on."""
    return {"code": commit(), "packages": packages(), "hardware": hardware(), "environment": settings()}


def commit(code: Path = CODE) -> dict[str, Any]:
    """Commit and whether tracked files differ from it; of a packed copy, what the packing wrote down.

    An installed package has none, even where its environment lies within a repository, which is somebody else's.
    """
    packed = code / "PACKED.json"
    if packed.is_file():
        return json.loads(packed.read_text(encoding="utf-8"))["code"]
    head = _git(code, "rev-parse", "HEAD") if _git(code, "ls-files", "dialnb/__init__.py") else None
    if head is None:
        return {"commit": None, "dirty": None, "note": "not a git checkout"}
    changed = _git(code, "status", "--porcelain", "--untracked-files=no") or ""
    difference = _git(code, "diff", "HEAD") or ""
    found: dict[str, Any] = {"commit": head, "dirty": bool(changed)}
    if changed:
        found["changed"] = [line[3:] for line in changed.splitlines()][:50]
        found["difference_sha256"] = hashlib.sha256(difference.encode()).hexdigest()
    return found


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def packages() -> dict[str, str | None]:
    """Versions of what the numbers depend on; None where a package is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def hardware() -> dict[str, Any]:
    """Processor, memory and accelerators; torch is asked only if it is loaded."""
    found: dict[str, Any] = {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory_gb(),
        "gpus": [],
    }
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        each = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        found["gpus"] = [{"name": gpu.name, "memory_gb": round(gpu.total_memory / 2**30, 1)} for gpu in each]
        found["cuda"] = torch.version.cuda
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "not stated"


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def settings() -> dict[str, str]:
    """Environment variables that change what runs."""
    names = ("CUDA_VISIBLE_DEVICES", "DIALNB_OFFLINE", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")
    return {name: os.environ[name] for name in names if name in os.environ}


def determinism() -> str:
    """How far the same run repeats on the same machine."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        return "seeded; GPU reductions may differ in the last bits"
    threads = torch.get_num_threads() if torch else os.cpu_count()
    return f"seeded; bit-identical on the same processor with the same packages, threads ({threads}) and workers"


def data_facts(name: str, variant: str | None = None) -> dict[str, Any]:
    """Fingerprint and licence of a dataset as this machine has it; nothing is fetched."""
    from dialnb.data.datasets import find_reader, records_path
    from dialnb.data.store import default_store

    reader, store = find_reader(name), default_store()
    key = records_path(reader, variant or None, store).stem.rpartition("-")[2]
    return {"name": name, "variant": reader.variant(variant or None), "fingerprint": key, "licence": reader.terms()}


def encoder_facts(name: str) -> dict[str, Any]:
    """Where an encoder's weights come from and their sha256, as far as they are on this machine."""
    from dialnb.models.places import encoder_source, fetch_encoder, find_encoder, hub_snapshot

    place = find_encoder(name)
    if place.kind == "cache or mirror":
        place = fetch_encoder(name)
    folder = place.folder or hub_snapshot(place.name)
    own = place.kind in ("folder", "bundled")
    return {
        "name": place.name,
        "bundled": place.kind == "bundled",
        "sha256": {file.name: sha256(file) for file in sorted(folder.glob("*.safetensors"))} if folder else {},
        "licence": _card_licence(folder / "README.md") if own else encoder_source(place.name).licence,
    }


def _card_licence(card: Path) -> str:
    lines = card.read_text(encoding="utf-8").splitlines() if card.is_file() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("license:")), "not stated")
