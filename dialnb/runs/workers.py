"""Stages side by side: processes that make stages and leave them in the cache, where the run then finds them.

Small encoders keep a GPU waiting for the host, and few-shot fine-tuning does so even more; several processes on one GPU
do not. Every process has its own random generators, and a stage seeds itself: the results are those of one process.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

from dialnb.errors import DialnbError
from dialnb.runs.stages import StageCache, StageRecord

Jobs = Mapping[str, tuple[Callable, dict[str, Any]]]


class Workers:
    """A pool of ``count`` processes for the stages of one cache; it starts with the first stage it is given."""

    def __init__(self, count: int, cache: StageCache) -> None:
        self.count, self.cache = count, cache
        self._pool: ProcessPoolExecutor | None = None

    def make(self, jobs: Jobs, follow: Callable[[str], Jobs] | None = None) -> set[str]:
        """Make every job's stage, and those that ``follow(name)`` names once the stage ``name`` is there; the keys of
        all that were not in the cache before.

        A process that dies or finds no memory on the GPU loses nothing: what is missing afterwards is made by the
        caller, alone.
        """
        left, waiting, done, made = deque(), {}, 0, set()

        def take(jobs: Jobs) -> None:
            for name, job in jobs.items():
                if not self.cache.holds(*job):
                    left.append((name, job))
                elif follow is not None:
                    take(follow(name))

        take(jobs)
        if left and self._pool is None:
            threads = max(1, (os.cpu_count() or 1) // self.count)
            self._pool = ProcessPoolExecutor(self.count, get_context("spawn"), _prepare, (threads,))
        try:
            while left or waiting:
                while left and len(waiting) < 2 * self.count:  # a job carries its encoder: few at once
                    name, job = left.popleft()
                    if (packed := _packed(self.cache.root, self.cache.fresh_since, str(name), *job)) is not None:
                        waiting[self._pool.submit(_make, packed)] = name
                if not waiting:
                    continue
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    found, name, done = future.result(), waiting.pop(future), done + 1
                    if isinstance(found, Failure):
                        raise found.error(name)
                    if found is None:
                        self.cache.say(f"stage {name}: no GPU memory left beside the others; it is made alone later")
                        continue
                    if not found.cached:
                        made.add(found.key)
                        total = done + len(waiting) + len(left)
                        self.cache.say(f"stage {name}: done in {found.seconds:.1f} s ({done} of {total})")
                    if follow is not None:
                        take(follow(name))
        except BrokenProcessPool:
            total = done + len(waiting) + len(left)
            self.cache.say(f"a process that made stages died after {done} of {total}; going on in one process")
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
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)  # libraries that were there before the variables
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for life)


class Failure(NamedTuple):
    """Why a stage failed: an error that was raised on purpose (its kind and words), or a fault (its traceback)."""

    kind: type[DialnbError] | None
    words: str

    def error(self, name: str) -> Exception:
        """The same error as in one process; a fault is none that a notebook goes on from."""
        if self.kind is None:
            return RuntimeError(f"stage {name} failed in its own process:\n{self.words}")
        error = self.kind.__new__(self.kind)
        error.args = (self.words,)
        return error


def _make(job: bytes) -> StageRecord | Failure | None:
    """The record of the stage, why it failed, or None where the GPU had no memory left for it.

    What torch holds back for a next stage is given to the other processes.
    """
    import torch

    try:
        root, fresh_since, name, function, inputs = pickle.loads(job)  # noqa: S301 (the parent's own bytes)
        return StageCache(root, fresh_since, lambda _: None).run(name, function, inputs)[1]
    except DialnbError as error:
        return Failure(type(error), str(error))
    except Exception as error:
        lacking = isinstance(error, RuntimeError) and "out of memory" in str(error)
        return None if lacking else Failure(None, traceback.format_exc(limit=-6))
    finally:
        inputs = None
        torch.cuda.empty_cache()
