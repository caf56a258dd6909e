"""Stages made by whatever is a `concurrent.futures.Executor`: threads, or the workers of Dask."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import side_by_side
import tiny

from dialnb.data import load
from dialnb.runs.scheduler import Job, Scheduler, connected
from dialnb.runs.stages import StageCache

HERE = Path(__file__).parent


def rows_of(scheduler: Scheduler) -> list[float]:
    """What two stages give, the second of which waits for the first."""
    given = {"encoder": tiny.encoder(), "records": load("bundled/SNIPS", "dse")[3:40:2]}
    first = scheduler.submit("first", lambda: Job(side_by_side.where_and_what, given | {"number": 2}))
    last = scheduler.submit("last", lambda rows: Job(side_by_side.length_of_rows, {"rows": rows}), [first])
    return [float(first.result()["value"].iloc[0]), last.result()]


def test_an_executor_of_your_own_makes_the_stages(tmp_path):
    heard = []
    with ThreadPoolExecutor(2) as threads:
        scheduler = Scheduler(StageCache(tmp_path / "a"), 2, threads, lambda record, _: heard.append(record.name))
        found = rows_of(scheduler)
        scheduler.close()
        assert threads.submit(int, 1).result() == 1, "it is not ours to close"
    assert heard == ["first", "last"]
    assert rows_of(Scheduler(StageCache(tmp_path / "b"))) == pytest.approx(found, rel=1e-5)


def test_two_workers_of_dask_give_the_rows_of_the_local_pool(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="the package distributed is not installed")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    alone = rows_of(Scheduler(StageCache(tmp_path / "alone")))
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
        executor, workers = connected(cluster.scheduler_address)
        assert workers == 2
        assert rows_of(Scheduler(StageCache(tmp_path / "dask"), workers, executor)) == pytest.approx(alone, rel=1e-5)
        executor.shutdown()
