"""Stages: steps of a run that are done once and kept, under the hash of everything they depend on.

    stages/KEY/             stage.json (what it was, when, how long) and the result; there whole, or not there
    stages/KEY.work/        the stage's own folder while it runs: training checkpoints; a killed run goes on there
    stages/KEY.lock         held while the stage runs, so that two runs that want the same model train it once

What a stage hands out is always what was read back from disk, so a run that finds it in the cache, a run that made it
and a run that was killed half-way all see the same bytes.

On a CPU most of a stage is encoding, often of texts that another stage has asked the same encoder for: there the
encoders of a stage have a folder in which they keep the vectors of a list of texts, the same to the bit.

    stages/vectors-CODE/    vectors of lists of texts, under the hash of encoder and texts
"""

import inspect
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import AcquireReturnProxy, FileLock, Timeout

from dialnb.data.store import default_store
from dialnb.errors import DataError, DialnbError
from dialnb.files import Values, say, writing
from dialnb.models.encoder import Encoder
from dialnb.models.packed import small_products
from dialnb.runs.fingerprints import code_version, stage_key
from dialnb.runs.results import RECORD, UNREADABLE, read_record, read_result, write_result
from dialnb.training.loop import TrainingResult

KEPT = ("key", "function", "seconds", "made", "facts")
MEASURED = ("steps", "resumed_at", "seconds", "examples_per_second", "tokens_per_second", "peak_memory_gb", "last_loss")
"""What the record of a stage says of its training."""


@dataclass
class StageRecord:
    """What `run.json` says of one stage; `seconds` is the time it took when it was made."""

    name: str
    key: str
    function: str
    cached: bool
    seconds: float
    made: str
    facts: Values


@dataclass
class StageCache:
    """The shared folder of stages. Results older than `fresh_since` (a time stamp) are ignored and made again."""

    root: Path
    fresh_since: float = 0.0

    def run(self, name: str, function: Callable, inputs: Values, key: str = "") -> tuple[Any, StageRecord]:
        """The stage's result, from the cache or made now, and its record; ``key`` is its `stage_key`, where known."""
        key = key or stage_key(function, inputs)
        folder = self.root / key
        self.root.mkdir(parents=True, exist_ok=True)
        with self._locked(name, key):
            found = self._read(name, folder)
            cached = found is not None
            if not cached:
                self._make(name, key, function, inputs)
                found = self._read(name, folder)
        if found is None:
            raise DataError(f"stage {name}: its result cannot be read back from {folder}; is the disk full or failing?")
        result, record = found
        return result, StageRecord(name, cached=cached, **{part: record[part] for part in KEPT})

    def holds(self, key: str) -> bool:
        """Whether there is a result that counts already; whether it is sound is seen when it is read."""
        return not self.fresh_since and (self.root / key / RECORD).is_file()

    def _locked(self, name: str, key: str) -> AcquireReturnProxy:
        lock = FileLock(self.root / f"{key}.lock")
        try:
            return lock.acquire(timeout=0)
        except Timeout:
            say(f"stage {name}: another run is making it; waiting")
            return lock.acquire()

    def _read(self, name: str, folder: Path) -> tuple[Any, Values] | None:
        if not folder.is_dir():
            return None
        try:
            record = read_record(folder)
            if record["key"] != folder.name:
                raise DataError(f"{folder} holds the stage {record['key']}")
            if datetime.fromisoformat(record["made"]).timestamp() < self.fresh_since:
                return None
            return read_result(folder, record), record
        except (DialnbError, *UNREADABLE) as error:
            say(f"stage {name}: its stored result is damaged or of another time and is made anew ({error})")
            return None

    @small_products
    def _make(self, name: str, key: str, function: Callable, inputs: Values) -> None:
        work, draft, final = (self.root / f"{key}{suffix}" for suffix in (".work", ".draft", ""))
        if work.exists() and work.stat().st_ctime < self.fresh_since:
            shutil.rmtree(work)
        shutil.rmtree(draft, ignore_errors=True)
        given = dict(inputs)
        for part, value in inputs.items():
            if isinstance(value, Encoder):  # training changes it in place: the caller's stays what it was
                given[part] = value.clone()
                if value.device.type == "cpu":  # stages ask for the vectors of the same texts
                    given[part].cache = self.root / f"vectors-{code_version(Encoder)[:16]}"
        if "folder" in inspect.signature(function).parameters and "folder" not in inputs:
            work.mkdir(exist_ok=True)
            given["folder"] = work
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        value = function(**given)
        about: Values = {
            "name": name,
            "key": key,
            "function": f"{function.__module__}.{function.__qualname__}",
            "seconds": round(time.perf_counter() - began, 3),
            "made": datetime.now(UTC).isoformat(timespec="microseconds"),
            "facts": peak_memory(),
        }
        training = getattr(value, "training", None)
        if isinstance(training, TrainingResult):
            about["facts"]["training"] = [{name: getattr(training, name) for name in MEASURED}]
        draft.mkdir()
        with writing(self.root):
            write_result(value, draft, **about)
        shutil.rmtree(final, ignore_errors=True)
        draft.replace(final)
        shutil.rmtree(work, ignore_errors=True)


def default_cache() -> StageCache:
    """The folder of stages in the cache, shared by all notebooks; what was made before DIALNB_FRESH, a time stamp that
    `dialnb run --fresh` sets, does not count."""
    return StageCache(default_store().cache / "stages", float(os.environ.get("DIALNB_FRESH") or 0.0))


def peak_memory() -> dict[str, float]:
    """Peak memory in GB: of the process since it started, and of the GPU since the stage began."""
    found = {}
    try:
        import resource

        unit = 2**30 if sys.platform == "darwin" else 2**20
        found["peak_memory_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 3)
    except ImportError:  # Windows
        pass
    if torch.cuda.is_available():
        found["peak_gpu_memory_gb"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
    return found
