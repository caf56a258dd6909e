"""Where a run comes from: commit, packages and hardware."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import mean
from threading import Thread

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

GPU_USE = "timestamp,utilization.gpu,utilization.memory,memory.used,power.draw"
"""What is written down of GPUs while a run lasts."""

VARIABLES = ("CUDA_VISIBLE_DEVICES", "DIALNB_OFFLINE", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")
"""What changes what runs."""

CODE = Path(__file__).resolve().parents[2]
"""Where the package stands: a checkout, a packed copy, or the packages of an environment."""


def provenance() -> Values:
    """Everything about this process that its results may depend on."""
    packages: Values = {"python": platform.python_version()}
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
    found: Values = {
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


def watch_gpus(path: Path) -> Callable[[], Values]:
    """Write into a new file every two seconds what the GPUs do, if `nvidia-smi` can tell; what ends that says how busy
    they were (percent of the time) and how much of their memory was in use."""
    path.unlink(missing_ok=True)
    command = ["nvidia-smi", f"--query-gpu={GPU_USE}", "--format=csv,noheader", "-l", "2"]
    try:
        sampler = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return dict

    def keep() -> None:  # by way of this process, so that the sampler ends with it
        with sampler:
            for line in sampler.stdout or ():
                with path.open("a", encoding="utf-8") as kept:
                    kept.write(line)

    def end() -> Values:
        sampler.kill()
        keeper.join()
        found = re.findall(r", (\d+) %, .*, (\d+) MiB", path.read_text("utf-8") if path.is_file() else "")
        if not found:
            return {}
        busy, memory = zip(*((int(one), int(other)) for one, other in found))
        return {"gpu_busy": round(mean(busy), 1), "gpu_memory_gb": round(max(memory) / 1024, 1)}

    keeper = Thread(target=keep, daemon=True)
    keeper.start()
    return end


def determinism() -> str:
    """How far the same run repeats on the same machine."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        return "seeded; GPU reductions may differ in the last bits"
    threads = torch.get_num_threads() if torch else os.cpu_count()
    return f"seeded; bit-identical on the same processor with the same packages, threads ({threads}) and workers"
