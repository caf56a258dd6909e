"""Where a run comes from: commit, packages and hardware."""

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from dialnb.files import Values, read_json

PACKAGES = (
    "dialnb",
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "safetensors",
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "matplotlib",
    "umap-learn",
    "papermill",
    "ipykernel",
)
"""What the numbers depend on."""

VARIABLES = ("CUDA_VISIBLE_DEVICES", "DIALNB_OFFLINE", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")
"""What changes what runs."""

CODE = Path(__file__).resolve().parents[2]
"""Where the package stands: a checkout, a packed copy, or the packages of an environment."""


def provenance() -> Values:
    """Everything about this process that its results may depend on."""
    packages = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return {"code": commit(), "packages": packages, "hardware": hardware(), "environment": variables}


def commit(code: Path = CODE) -> Values:
    """Commit and whether tracked files differ from it; of a packed copy, what the packing wrote down.

    An installed package has none, even where its environment lies within a repository, which is somebody else's.
    """

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(code), *arguments], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return "" if done.returncode else done.stdout.strip()

    if packed := read_json(code / "PACKED.json"):
        return packed["code"]
    head = git("ls-files", "dialnb/__init__.py") and git("rev-parse", "HEAD")
    if not head:
        return {"commit": None, "dirty": None, "note": "not a git checkout"}
    return {"commit": head, "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}


def hardware() -> Values:
    """Processor, memory and accelerators; torch is asked only if it is loaded."""
    about = Path("/proc/cpuinfo")
    named = re.search("model name.*: (.*)", about.read_text("utf-8")) if about.is_file() else None
    found = {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": named[1] if named else platform.processor() or "not stated",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": None,
        "gpus": [],
    }
    if hasattr(os, "sysconf"):  # not on Windows
        found["memory_gb"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            found["gpus"].append({"name": gpu.name, "memory_gb": round(gpu.total_memory / 2**30, 1)})
        found["cuda"] = torch.version.cuda
    return found


def determinism() -> str:
    """How far the same run repeats on the same machine."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        return "seeded; GPU reductions may differ in the last bits"
    threads = torch.get_num_threads() if torch else os.cpu_count()
    return f"seeded; bit-identical on the same processor with the same packages, threads ({threads}) and workers"
