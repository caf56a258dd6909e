"""Stages side by side: processes that make stages and leave them in the cache, where the run then finds them.

Small encoders keep a GPU waiting for the host, and few-shot fine-tuning does so even more; several processes on one GPU
do not. Every process has its own random generators, and a stage seeds itself: the results are those of one process.
"""

import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import torch

from dialnb.files import Values
from dialnb.runs.stages import StageCache, StageRecord

Jobs = Mapping[Any, tuple[Callable, Values]]


class Workers:
    """A pool of ``count`` processes for the stages of one cache; it starts with the first stage it is given."""

    def __init__(self, count: int, cache: StageCache) -> None:
        self.count, self.cache = count, cache
        self._pool: ProcessPoolExecutor | None = None

    def make(self, jobs: Jobs, follow: Callable[[Any], Jobs] = lambda _: {}) -> set[str]:
        """Make every job's stage, and those that ``follow(name)`` names once the stage ``name`` is there; the keys of
        all that were not in the cache before.

        A process that dies or finds no memory on the GPU loses nothing: what is missing afterwards is made by the
        caller, alone.
        """
        left, waiting, done, made = deque(jobs.items()), {}, 0, set()
        try:
            while left or waiting:
                while left and len(waiting) < 2 * self.count:  # a job carries its encoder: few at once
                    name, job = left.popleft()
                    if self.cache.holds(*job):
                        left.extend(follow(name).items())
                    elif packed := _packed(self.cache.root, self.cache.fresh_since, str(name), *job):
                        if self._pool is None:
                            threads = max(1, (os.cpu_count() or 1) // self.count)
                            self._pool = ProcessPoolExecutor(self.count, get_context("spawn"), _prepare, (threads,))
                        waiting[self._pool.submit(_make, packed)] = name
                for future in wait(waiting, return_when=FIRST_COMPLETED).done if waiting else ():
                    name, record, done = waiting.pop(future), future.result(), done + 1
                    if record is None:
                        self.cache.say(f"stage {name}: no GPU memory left beside the others; it is made alone later")
                        continue
                    left.extend(follow(name).items())
                    if not record.cached:
                        made.add(record.key)
                        total = done + len(waiting) + len(left)
                        self.cache.say(f"stage {name}: done in {record.seconds:.1f} s ({done} of {total})")
        except BrokenProcessPool:
            self.cache.say(f"a process that made stages died after {done} of them; going on in one process")
            self._pool = None
        except BaseException:
            self.close()
            raise
        return made

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


def _prepare(threads: int) -> None:
    """In a new process: leave with the parent, be quiet, and share the cores."""
    parent = parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)  # libraries that were there before the variables
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for life)


def _make(job: bytes) -> StageRecord | None:
    """The record of the stage, or None where the GPU had no memory left for it.

    What torch holds back for a next stage is given to the other processes.
    """
    try:
        root, fresh_since, name, function, inputs = pickle.loads(job)  # noqa: S301 (the parent's own bytes)
        return StageCache(root, fresh_since, lambda _: None).run(name, function, inputs)[1]
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        return None
    finally:
        inputs = None
        torch.cuda.empty_cache()
