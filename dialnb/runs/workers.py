"""Stages side by side: processes that make stages and leave them in the cache, where the run then finds them.

Small encoders keep a GPU waiting for the host, and few-shot fine-tuning does so even more; several processes on one GPU
do not. Every process has its own random generators, and a stage seeds itself: the results are those of one process.
"""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from dialnb.errors import DialnbError
from dialnb.runs.stages import StageCache, StageRecord

Jobs = Mapping[str, tuple[Callable, dict[str, Any]]]


class Workers:
    """A pool of ``count`` processes for the stages of one cache; it starts with the first stage it is given."""

    def __init__(self, count: int, cache: StageCache) -> None:
        self.count, self.cache = count, cache
        self._pool: ProcessPoolExecutor | None = None

    def make(self, jobs: Jobs) -> set[str]:
        """Make every job's stage; the keys of those that were not in the cache before.

        A process that dies (out of memory, say) loses nothing: what is missing afterwards is made by the caller.
        """
        if self._pool is None:
            threads = max(1, (os.cpu_count() or 1) // self.count)
            self._pool = ProcessPoolExecutor(self.count, get_context("spawn"), _prepare, (threads,))
        place = (self.cache.root, self.cache.fresh_since)
        waiting = {self._pool.submit(_make, pickle.dumps((*place, name, *job))): name for name, job in jobs.items()}
        made = set()
        try:
            for number, future in enumerate(as_completed(waiting), 1):
                found, name = future.result(), waiting[future]
                if isinstance(found, str):
                    raise DialnbError(f"stage {name} failed in its own process:\n{found}")
                if not found.cached:
                    made.add(found.key)
                    self.cache.say(f"stage {name}: done in {found.seconds:.1f} s ({number} of {len(waiting)})")
        except BrokenProcessPool:
            self.cache.say(f"a process that made stages died; going on without ({len(waiting)} stages were given out)")
            self._pool = None
        except BaseException:
            self.close()
            raise
        return made

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _prepare(threads: int) -> None:
    """In a new process: leave with the parent, be quiet, and share the cores."""
    parent = parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    import sys

    import torch

    torch.set_num_threads(threads)
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (for life)


def _make(job: bytes) -> StageRecord | str:
    """The record of the stage, or the traceback of its failure."""
    try:
        root, fresh_since, name, function, inputs = pickle.loads(job)  # noqa: S301 (the parent's own bytes)
        return StageCache(root, fresh_since, lambda _: None).run(name, function, inputs)[1]
    except Exception:
        return traceback.format_exc(limit=-6)
