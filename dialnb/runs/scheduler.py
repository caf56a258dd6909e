"""Stages that are submitted and asked later: a small dataflow.

A stage is made as soon as what it waits for is there: in this process, at once, or by the workers of an executor,
which leave it in the cache of stages, where this process then finds it. Nothing goes on behind the back of a notebook:
whoever waits for one stage keeps the workers busy with all the others, too.

Small encoders keep a GPU waiting for the host, and few-shot fine-tuning does so even more; several processes on one GPU
do not. Every process has its own random generators, and a stage seeds itself: the results are those of one process.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import forkserver, get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from dialnb.errors import DialnbError
from dialnb.files import Values, say
from dialnb.runs.fingerprints import Hashes, stage_key
from dialnb.runs.stages import StageCache, StageRecord

NEEDED = ["accelerate", "sklearn.manifold", "transformers.models.bert.modeling_bert"]  # by stages; seconds to import


class Job(NamedTuple):
    """What is to be made: a function and its inputs."""

    function: Callable[..., Any]
    inputs: Values


class Stage:
    """A step of a run that was submitted; :meth:`result` waits for what it gives."""

    def __init__(self, scheduler: Scheduler, name: str, plan: Callable[..., Any], needs: Sequence[Stage]) -> None:
        self.scheduler, self.name, self.plan, self.needs = scheduler, name, plan, needs
        self.waits_for = needs
        self.job, self.key = Job(dict, {}), ""  # known when everything that it needs is there
        self.value: Any = None
        self.is_there = self.is_made = False  # made: by a worker of this run

    def result(self) -> Any:
        self.scheduler.wait(self)
        return self.value

    def then(self, read: Callable[[Any], Any]) -> Stage:
        """What ``read`` makes of the result, in this process, as soon as it is there."""
        return self.scheduler.submit("", read, [self])


class Scheduler:
    """The stages of a run, made in the order in which they were submitted, each when what it needs is there.

    With one worker and no ``executor`` they are made where they are submitted. Else the executor (by default a pool of
    ``workers`` processes) has twice as many as it has workers, since a job carries its encoder. A stage that finds no
    memory on the GPU is tried again when another one has ended, and one that is under way under another name waits for
    that. What no other process can make (code that was typed into a notebook) is made here, while the others work.
    """

    def __init__(
        self,
        cache: StageCache,
        workers: int = 1,
        executor: Executor | None = None,
        hear: Callable[[StageRecord, Values], None] = lambda record, inputs: None,
    ) -> None:
        self.cache, self.workers, self.hear = cache, workers, hear
        self.executor, self.is_ours = executor, executor is None
        self.left: list[Stage] = []  # in the order of submission
        self.here: list[Stage] = []  # to be made by this process
        self.refused: list[Stage] = []  # by a GPU without memory
        self.under_way: dict[Future[Any], Stage] = {}
        self.done = 0
        self.hashes: Hashes = WeakKeyDictionary()

    @property
    def is_alone(self) -> bool:
        """Whether this process makes everything itself."""
        return self.workers < 2 and self.executor is None

    def submit(self, name: str, plan: Callable[..., Any], needs: Sequence[Stage] = ()) -> Stage:
        """A stage that waits for what it ``needs`` and is then planned: ``plan(*results)`` gives its `Job`, or anything
        else, which is its result."""
        stage = Stage(self, name, plan, needs)
        self.left.append(stage)
        self._begin()
        return stage

    def make(self, name: str, job: Job) -> Any:
        """The result of a stage that is made here and now."""
        stage = Stage(self, name, lambda: job, ())
        stage.job, stage.key = job, stage_key(*job, self.hashes)
        self._read(stage)
        return stage.value

    def wait(self, *stages: Stage) -> None:
        """Keep everything going until these are there; without any, until all are."""
        try:
            while any(not stage.is_there for stage in stages) if stages else self._is_busy():
                self._begin()
                if self.here:
                    self._take(self.here.pop(0))
                elif self.under_way:
                    self._collect()
                elif self.refused:
                    self._read(self.refused.pop(0))  # alone
                elif stages and any(not stage.is_there for stage in stages):
                    raise DialnbError("what this waits for was not made; run the cells that ask for it again")
                elif not stages:
                    self.left.clear()  # what is left waits for something that failed
        except BaseException:
            self.left = [*self.under_way.values(), *self.left]  # whoever asks again finds them
            self.under_way.clear()
            self.close()
            raise

    def _is_busy(self) -> bool:
        return bool(self.left or self.here or self.refused or self.under_way)

    def _begin(self) -> None:
        """Begin what can begin, in order; as much as the workers can take."""
        while len(self.under_way) < 2 * self.workers:
            stage = next((each for each in self.left if all(other.is_there for other in each.waits_for)), None)
            if stage is None:
                break
            self.left.remove(stage)
            job = stage.plan(*(need.value for need in stage.needs))
            if isinstance(job, Job):
                stage.job, stage.key = job, stage_key(*job, self.hashes)
                self._hand_out(stage)
            else:
                stage.value, stage.is_there = job, True

    def _hand_out(self, stage: Stage) -> None:
        twin = next((other for other in self.under_way.values() if other.key == stage.key), None)
        if twin:  # under another name; it is then in the cache
            stage.waits_for = [twin]
            self.left.insert(0, stage)
        elif self.is_alone or self.cache.holds(stage.key):
            self._take(stage)
        elif packed := _packed(self.cache.root, self.cache.fresh_since, stage.name, *stage.job, stage.key):
            if not self.under_way:
                give_back_memory()
            try:
                self.under_way[self._open().submit(_make, packed)] = stage
            except BrokenExecutor:
                self._go_on_alone(stage)
        else:
            self.here.append(stage)

    def _read(self, stage: Stage) -> None:
        """The result from the cache, made now where it is not there."""
        if self.is_alone:
            say(f"stage {stage.name}")
        stage.value, record = self.cache.run(stage.name, *stage.job, stage.key)
        stage.is_there, self.done = True, self.done + 1
        record.cached = record.cached and not stage.is_made
        if record.cached:
            say(f"stage {stage.name}: from the cache, made {record.made[:16]}")
        else:
            named = sum(bool(other.name) for other in (*self.left, *self.here, *self.refused))
            count = "" if self.is_alone else f" ({self.done} of {self.done + len(self.under_way) + named})"
            say(f"stage {stage.name}: done in {record.seconds:.1f} s{count}")
        self.hear(record, stage.job.inputs)

    def _take(self, stage: Stage) -> None:
        """Read or make a stage in this process; where the workers leave it no memory, later."""
        try:
            self._read(stage)
        except RuntimeError as error:
            if not (_lacks_memory(error) and self.under_way):
                raise
            self._refuse(stage)

    def _refuse(self, stage: Stage) -> None:
        self.refused.append(stage)
        say(f"stage {stage.name}: no GPU memory left beside the others; it is made later")

    def _collect(self) -> None:
        """Wait until a worker has made something."""
        for future in wait(self.under_way, return_when=FIRST_COMPLETED).done:
            try:
                record = future.result()
            except BrokenExecutor:
                return self._go_on_alone(*self.under_way.values())
            except BaseException:
                del self.under_way[future]
                raise
            stage = self.under_way.pop(future)
            if record is None:
                self._refuse(stage)
            else:
                self.left[:0], self.refused = self.refused, []
                stage.is_made = not record.cached
                self._take(stage)

    def _go_on_alone(self, *stages: Stage) -> None:
        say(f"a process that made stages died after {self.done} of them; going on in one process")
        self.here = [*stages, *self.here]
        self.under_way.clear()
        self.executor, self.workers = None, 1

    # --- workers --------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """What takes long need not wait for a stage: imports and, where there is a GPU, opening it in each process."""
        if self.is_ours and self.workers > 1:
            pool = self._open()
            for _ in range(self.workers * torch.cuda.is_available()):
                pool.submit(torch.cuda.init)

    def _open(self) -> Executor:
        if self.executor is None:
            self.executor = local_pool(self.workers)
        return self.executor

    def close(self, wait: bool = False) -> None:
        """Let processes of our own go; ``wait`` for them when they have nothing left to do."""
        if self.is_ours and self.executor is not None:
            self.executor.shutdown(wait=wait, cancel_futures=True)
            self.executor = None


def local_pool(workers: int) -> ProcessPoolExecutor:
    """Processes on this machine that share its cores and GPUs. Without a GPU, which wants new processes, they are
    copies of one that imports what all of them need."""
    given, begin = (max(1, (os.cpu_count() or 1) // workers), dict(os.environ)), "spawn"
    if sys.platform == "linux" and not torch.cuda.is_available():
        begin = "forkserver"
        forkserver.set_forkserver_preload(NEEDED)
        forkserver.ensure_running()
    return ProcessPoolExecutor(workers, get_context(begin), _prepare, given)


def connected(address: str) -> tuple[Executor, int]:
    """The workers of Dask's ``distributed`` behind the address of its scheduler, and how many they are.

    They see the cache of stages under the same path, and have one thread each, since random generators are those of a
    process.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise DialnbError("--executor needs the package distributed: pip install 'dialnb[dask]'") from error
    client = Client(address, set_as_default=False)
    return client.get_executor(pure=False), sum(client.nthreads().values())


def _packed(*job: Any) -> bytes | None:
    """A job for another process; None for one with code that was typed into a notebook."""
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
        root, fresh_since, name, function, inputs, key = pickle.loads(job)  # noqa: S301 (the parent's own bytes)
        return StageCache(root, fresh_since).run(name, function, inputs, key)[1]
    except RuntimeError as error:
        if not _lacks_memory(error):
            raise
        return None
    finally:
        inputs = None
        give_back_memory()


def _lacks_memory(error: RuntimeError) -> bool:
    return bool(re.search("out of memory|ALLOC_FAILED", str(error)))  # torch, and libraries below it


def give_back_memory() -> None:
    """Leave to the other processes what torch holds back on the GPU, and what graphs in circles of objects hold."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # each holds a stretch of the memory of the graphs it was made for
        torch.cuda.empty_cache()
