"""Several notebooks: one after the other, or side by side as processes of their own with a GPU each.

Side by side, every notebook has its own process, kernel sockets and run folder; the caches lock what they write. One
that fails does not stop the others.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dialnb.files import make_folder, read_json, say
from dialnb.runs.engine import NotebookRun, Request, execute, not_written
from dialnb.runs.profiles import show


def run_all(
    requests: Sequence[Request], root: Path, notebooks: Path | None = None, jobs: int = 1, jobs_per_gpu: int = 1
) -> list[NotebookRun]:
    """Run the notebooks and return what became of each, in the order of the requests."""
    for out in dict.fromkeys(request.out for request in requests):
        make_folder(out)
    if jobs <= 1 or len(requests) <= 1:
        return [_one(number, len(requests), request, root, notebooks) for number, request in enumerate(requests, 1)]
    slots = gpu_slots(jobs_per_gpu)
    jobs = min(jobs, len(requests), slots.qsize() or jobs)
    say(f"{len(requests)} notebooks, {jobs} at a time" + (f", {slots.qsize()} GPU slots" if slots.qsize() else ""))
    running, printing = [], threading.Lock()
    with ThreadPoolExecutor(jobs) as pool:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        found = [pool.submit(_process, r, root, notebooks, threads, slots, printing, running) for r in requests]
        try:
            return [future.result() for future in found]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise


def summary(runs: Sequence[NotebookRun]) -> str:
    """One line per notebook, and the counts."""
    width = max(len(run.slug) for run in runs)
    lines = [
        f"  {run.slug:<{width}}  {run.status:<8}  {run.seconds:6.0f} s  {run.reason or run.notebook}" for run in runs
    ]
    counts = {status: sum(run.status == status for run in runs) for status in ("ran", "failed", "left out")}
    return "\n".join([*lines, ", ".join(f"{count} {status}" for status, count in counts.items())])


def gpu_slots(per_gpu: int = 1) -> queue.Queue[str]:
    """The GPUs that jobs may use, each `per_gpu` times; from CUDA_VISIBLE_DEVICES, else the driver; empty without."""
    slots: queue.Queue[str] = queue.Queue()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = visible.split(",") if visible is not None else _driver_gpus()
    for gpu in [gpu.strip() for gpu in found if gpu.strip() not in ("", "-1")] * per_gpu:
        slots.put(gpu)
    return slots


def _driver_gpus() -> list[str]:
    """Numbers of the GPUs that the driver lists; asking it costs less than loading torch."""
    try:
        done = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(number) for number, line in enumerate(done.stdout.splitlines()) if line.startswith("GPU")]


def _one(number: int, total: int, request: Request, root: Path, notebooks: Path | None) -> NotebookRun:
    say(f"[{number}/{total}] {request.slug}  {request.profile}, seed {request.seed}")
    run = execute(request, root, notebooks)
    say(f"    {run.status}: {run.reason}" if run.reason else f"    ran in {run.seconds:.0f} s: {run.notebook}")
    return run


def _process(
    request: Request, root: Path, notebooks: Path | None, threads: int, slots: queue.Queue[str],
    printing: threading.Lock, running: list[subprocess.Popen],
) -> NotebookRun:  # fmt: skip
    """Run one notebook in a process of its own; its lines come through with its name in front."""
    if missing := not_written(request, root, notebooks):
        return missing
    gpu = slots.get() if slots.qsize() else None
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"} | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else {})
    variables.setdefault("OMP_NUM_THREADS", str(threads))
    began = time.time()
    try:
        command = command_line(request, root, notebooks)
        with subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            running.append(process)
            for line in process.stdout:
                with printing:
                    say(f"[{request.slug}] {line.rstrip()}")
    finally:
        if gpu is not None:
            slots.put(gpu)
    record, seconds = read_json(request.folder / "run.json") or {}, time.time() - began
    notebook = request.folder / "notebook.ipynb"
    if process.returncode == 0:
        return NotebookRun(request.slug, "ran", "", seconds, notebook)
    reason = record.get("reason") or f"its process ended with code {process.returncode}"
    return NotebookRun(request.slug, "failed", reason, seconds, notebook if notebook.is_file() else None)


def command_line(request: Request, root: Path, notebooks: Path | None) -> list[str]:
    """The command that runs one request alone."""
    command = [sys.executable, "-m", "dialnb", "run", request.slug, "--profile", request.profile]
    command += ["--seed", str(request.seed), "--out", str(request.out.absolute()), "--project", str(root)]
    command += ["--notebooks", str(notebooks)] if notebooks else []
    command += ["--encoder", request.encoder] if request.encoder else []
    return command + [part for name, value in request.overrides.items() for part in ("--set", f"{name}={show(value)}")]
