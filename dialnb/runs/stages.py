"""Stages: steps of a run that are done once and kept, under the hash of everything they depend on.

    stages/KEY/             stage.json (what it was, when, how long) and the result; there whole, or not there
    stages/KEY.work/        the stage's own folder while it runs: training checkpoints; a killed run goes on there
    stages/KEY.lock         held while the stage runs, so that two runs that want the same model train it once

What a stage hands out is always what was read back from disk, so a run that finds it in the cache, a run that made it
and a run that was killed half-way all see the same bytes.

Small encoders keep a GPU waiting for the host, and few-shot fine-tuning does so even more; several processes on one GPU
do not. `Workers` make stages side by side and leave them in the cache, where the run then finds them. Every process has
its own random generators, and a stage seeds itself: the results are those of one process.

On a CPU most of a stage is encoding, often of texts that another stage has asked the same encoder for: what `encode`
gave for a list of texts is kept as a stage's result is, and is the same to the bit.
"""

import gc
import inspect
import os
import pickle
import re
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import forkserver, get_context, parent_process
from pathlib import Path
from typing import Any

import torch
from filelock import AcquireReturnProxy, FileLock, Timeout

from dialnb.data.store import default_store
from dialnb.errors import DataError, DialnbError
from dialnb.files import Values, say, writing
from dialnb.models.encoder import Encoder
from dialnb.models.packed import small_products
from dialnb.runs.fingerprints import code_version, fingerprint
from dialnb.runs.results import RECORD, UNREADABLE, read_record, read_result, write_result
from dialnb.training.loop import TrainingResult

KEPT = ("key", "function", "seconds", "made", "facts")
MEASURED = ("steps", "resumed_at", "seconds", "examples_per_second", "tokens_per_second", "peak_memory_gb", "last_loss")
"""What the record of a stage says of its training."""

NEEDED = ["accelerate", "sklearn.manifold", "transformers.models.bert.modeling_bert"]  # by stages; seconds to import


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

    def run(self, name: str, function: Callable, inputs: Values) -> tuple[Any, StageRecord]:
        """The stage's result, from the cache or made now, and its record."""
        key = stage_key(function, inputs)
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
                if part != "self" and value.device.type == "cpu":  # stages ask for the vectors of the same texts
                    given[part].memory = lambda **asked: self.run("vectors", Encoder.encode, asked)[0]
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
        training = value.get("training") if isinstance(value, dict) else None
        if isinstance(training, TrainingResult):
            about["facts"]["training"] = [{name: getattr(training, name) for name in MEASURED}]
        draft.mkdir()
        with writing(self.root):
            write_result(value, draft, **about)
        shutil.rmtree(final, ignore_errors=True)
        draft.replace(final)
        shutil.rmtree(work, ignore_errors=True)


def stage_key(function: Callable, inputs: Values) -> str:
    """The name of a result: a hash of the function, its inputs, and the code that it and their classes reach."""
    hashes = {name: (fingerprint(value, name), code_version(type(value))) for name, value in inputs.items()}
    parts = [f"{function.__module__}.{function.__qualname__}", code_version(function), hashes]
    return fingerprint(parts)[:32]


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


Jobs = dict[Any, tuple[Callable[..., Any], Values]]


@dataclass
class Workers:
    """A pool of ``count`` processes for the stages of one cache; it starts with the first stage it is given, or before
    that where it is told to."""

    count: int
    cache: StageCache
    _pool: ProcessPoolExecutor | None = None

    def make(self, jobs: Jobs, follow: Callable[[Any], Jobs] = lambda _: {}) -> set[str]:
        """Make every job's stage, and those that ``follow(name)`` names once the stage ``name`` is there; the keys of
        all that were not in the cache before.

        A stage that finds no memory on the GPU is tried again when another one has ended, and one that is under way
        under another name waits here, not in a process. What is missing in the end, or when a process has died, is made
        by the caller, alone.
        """
        left, refused, done, made = deque(jobs.items()), [], 0, set()
        waiting: dict[Future[Any], tuple[Any, Any, str]] = {}
        same: dict[str, list[Any]] = {}  # by the key of a stage that is waited for
        give_back_memory()
        try:
            while left or waiting:
                while left and len(waiting) < 2 * self.count:  # a job carries its encoder: few at once
                    name, job = left.popleft()
                    key = stage_key(*job)
                    if self.cache.holds(key):
                        left.extend(follow(name).items())
                    elif key in same:
                        same[key].append((name, job))
                    elif packed := _packed(self.cache.root, self.cache.fresh_since, str(name), *job):
                        waiting[self._open().submit(_make, packed)], same[key] = (name, job, key), []
                ended = False
                for future in wait(waiting, return_when=FIRST_COMPLETED).done if waiting else ():
                    (name, job, key), record = waiting.pop(future), future.result()
                    left.extendleft(same.pop(key))
                    if record is None:
                        refused.append((name, job))
                        say(f"stage {name}: no GPU memory left beside the others; it is made later")
                        continue
                    ended, done = True, done + 1
                    left.extend(follow(name).items())
                    if not record.cached:
                        made.add(record.key)
                        total = done + len(waiting) + len(left)
                        say(f"stage {name}: done in {record.seconds:.1f} s ({done} of {total})")
                if ended:
                    left.extendleft(refused)
                    refused.clear()
        except BrokenProcessPool:
            say(f"a process that made stages died after {done} of them; going on in one process")
            self._pool = None
        except BaseException:
            self.close()
            raise
        return made

    def warm_up(self) -> None:
        """What takes long need not wait for a stage: imports and, where there is a GPU, opening it in each process."""
        if self.count > 1:
            pool = self._open()
            for _ in range(self.count * torch.cuda.is_available()):
                pool.submit(torch.cuda.init)

    def _open(self) -> ProcessPoolExecutor:
        """Without a GPU, which wants new processes, they are copies of one that imports what all of them need."""
        if self._pool is None:
            given, begin = (max(1, (os.cpu_count() or 1) // self.count), dict(os.environ)), "spawn"
            if sys.platform == "linux" and not torch.cuda.is_available():
                begin = "forkserver"
                forkserver.set_forkserver_preload(NEEDED)
                forkserver.ensure_running()
            self._pool = ProcessPoolExecutor(self.count, get_context(begin), _prepare, given)
        return self._pool

    def close(self, wait: bool = False) -> None:
        """Let the processes go; ``wait`` for them when they have nothing left to do."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None


def _packed(*job: Any) -> bytes | None:
    """A job for another process; None for one with code that was typed into a notebook, which is made by the caller."""
    try:
        packed = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return None if b"__main__" in packed else packed


def _prepare(threads: int, variables: Values) -> None:
    """In a new process: leave with the parent, be quiet, and share the cores."""
    parent: Any = parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    os.environ |= variables | {"OMP_NUM_THREADS": str(threads)}
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)  # libraries that were there before the variables
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for life)


def _make(job: bytes) -> StageRecord | None:
    """The record of the stage, or None where the GPU had no memory left for it."""
    try:
        root, fresh_since, name, function, inputs = pickle.loads(job)  # noqa: S301 (the parent's own bytes)
        return StageCache(root, fresh_since).run(name, function, inputs)[1]
    except RuntimeError as error:
        if not re.search("out of memory|ALLOC_FAILED", str(error)):  # torch, and libraries below it
            raise
        return None
    finally:
        inputs = None
        give_back_memory()


def give_back_memory() -> None:
    """Leave to the other processes what torch holds back on the GPU, and what graphs in circles of objects hold."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # each holds a stretch of the memory of the graphs it was made for
        torch.cuda.empty_cache()
