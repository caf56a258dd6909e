"""Stages made by several processes: the same results, kept in the same cache, and trouble is told."""

from __future__ import annotations

import os

import pandas as pd
import processes
import pytest
import side_by_side
import tiny

from dialnb.data import load
from dialnb.errors import DialnbError, Offline, UnknownName
from dialnb.runs.scheduler import Job, Scheduler
from dialnb.runs.stages import StageCache


@pytest.fixture
def cache(tmp_path):
    return StageCache(tmp_path / "stages")


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr("dialnb.runs.scheduler.say", lines.append)
    return lines


@pytest.fixture
def workers(cache, monkeypatch):
    """Processes that begin with everything imported."""
    monkeypatch.setattr("dialnb.runs.scheduler.get_context", lambda _: processes.context())
    pool = Scheduler(cache, 2)
    yield pool
    pool.close()


def made(workers, jobs) -> dict:
    """What stages of these names give, all submitted before the first one is waited for."""
    stages = {name: workers.submit(name, lambda job=job: Job(*job)) for name, job in jobs.items()}
    return {name: stage.result() for name, stage in stages.items()}


def test_stages_are_made_in_other_processes_with_the_results_of_one(cache, tmp_path):
    records_of, encoder = [], tiny.encoder()
    workers, records = (
        Scheduler(cache, 2, hear=lambda record, _: records_of.append(record)),
        load("bundled/SNIPS", "dse"),
    )
    jobs = {
        f"part {n}": (side_by_side.where_and_what, {"encoder": encoder, "records": records[3:40:2], "number": n})
        for n in (1, 2, 3)
    }
    found = made(workers, jobs)
    assert sorted(record.name for record in records_of if not record.cached) == [*jobs]
    rows = pd.concat(found.values())
    assert os.getpid() not in set(rows["process"])
    assert set(rows["threads"]) == {max(1, (os.cpu_count() or 1) // 2)}, "processes share the cores"
    alone = made(Scheduler(StageCache(tmp_path / "alone")), jobs)
    for name, result in alone.items():
        assert result["value"].tolist() == pytest.approx(found[name]["value"].tolist(), rel=1e-5)
    records_of.clear()
    made(workers, jobs)
    assert all(record.cached for record in records_of), "what is in the cache is not made again"
    workers.close()


def test_where_there_is_a_gpu_processes_begin_before_the_first_stage(workers, monkeypatch):
    workers.warm_up()
    assert not workers.executor._processes, "without a GPU nothing is won by that"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    workers.warm_up()
    begun = set(workers.executor._processes)
    assert len(begun) == 2
    assert made(workers, {str(n): (side_by_side.plus_one, {"number": n}) for n in (1, 2)}) == {"1": 2, "2": 3}
    assert set(workers.executor._processes) == begun


def test_processes_see_the_variables_of_the_time_when_they_begin(cache, workers, monkeypatch):
    made(workers, {"first": (side_by_side.plus_one, {"number": 1})})  # what they are copies of is there from now on
    monkeypatch.setenv("DIALNB_OF_THIS_TEST", "late")
    others = Scheduler(cache, 2)
    late = made(others, {"late": (side_by_side.variable, {"name": "DIALNB_OF_THIS_TEST"})})
    others.close()
    assert late == {"late": "late"}


def test_a_failing_stage_is_told_with_its_traceback(workers):
    with pytest.raises(ValueError, match="no luck with 7") as raised:
        made(workers, {"bad": (side_by_side.fails, {"number": 7})})
    assert "side_by_side" in str(raised.value.__cause__)


@pytest.mark.parametrize("error", [Offline("no network. Try again"), UnknownName("recipe", "DSX", ["DSE"])])
def test_an_error_on_purpose_is_the_same_as_in_one_process(workers, error):
    with pytest.raises(type(error)) as raised:
        made(workers, {"bad": (side_by_side.refuses, {"kind": type(error).__name__})})
    assert str(raised.value) == str(error)


def test_after_a_failing_stage_others_can_be_asked_for_and_what_waits_for_it_says_so(workers):
    bad = workers.submit("bad", lambda: Job(side_by_side.fails, {"number": 7}))
    after = workers.submit("after", lambda number: Job(side_by_side.plus_one, {"number": number}), [bad])
    good = workers.submit("good", lambda: Job(side_by_side.plus_one, {"number": 1}))
    with pytest.raises(ValueError, match="no luck with 7"):
        workers.wait()
    assert good.result() == 2
    with pytest.raises(DialnbError, match="run the cells that ask for it again"):
        after.result()


def test_a_process_that_dies_leaves_the_work_to_the_caller(workers, said):
    jobs = {"deadly": (side_by_side.dies, {"number": 5, "parent": os.getpid()})}
    assert made(workers, jobs) == {"deadly": 5}
    assert "died" in said[0]


def test_a_stage_without_gpu_memory_beside_the_others_is_made_alone(workers, said):
    jobs = {"large": (side_by_side.lacks_memory, {"number": 5, "parent": os.getpid()})}
    assert made(workers, jobs) == {"large": 5}
    assert "no GPU memory left" in said[0]


def test_a_result_that_finds_no_gpu_memory_is_read_when_another_has_ended(workers, cache, said, monkeypatch):
    """A run was stopped by this: its own process read a model while the workers held all of the memory."""
    read, tries = StageCache.run, []

    def run(self, name, *job):
        tries.append(name)
        if len(tries) == 1:
            raise RuntimeError("CUDA out of memory. Tried to allocate 90.00 MiB")
        return read(self, name, *job)

    monkeypatch.setattr(StageCache, "run", run)
    found = made(workers, {str(number): (side_by_side.plus_one, {"number": number}) for number in (2, 3)})
    assert found == {"2": 3, "3": 4} and len(tries) == 3
    assert "no GPU memory left beside the others; it is made later" in said[0]
    assert not any("from the cache" in line for line in said)


def test_a_stage_without_gpu_memory_is_tried_again_when_another_has_ended(workers, said, tmp_path):
    seen = {"seen": str(tmp_path / "seen")}
    found = made(workers, {"small": (side_by_side.takes_memory, seen), "large": (side_by_side.lacks_memory_once, seen)})
    assert "large: no GPU memory left beside the others; it is made later" in said[0]
    assert said[-1].endswith("(2 of 2)") and found["large"] != os.getpid()


def test_a_stage_of_several_names_takes_one_process(workers, tmp_path):
    seen = {"seen": str(tmp_path / "seen")}
    jobs = {f"seed {n}": (side_by_side.waits_for, seen) for n in (1, 2, 3)}
    found = made(workers, jobs | {"other": (side_by_side.shows, seen)})
    assert found["seed 2"] is found["seed 3"] is True, "the other process was free for another stage"


def test_what_waits_for_a_stage_is_made_when_it_is_there(workers, said):
    stages = [workers.submit("0", lambda: Job(side_by_side.plus_one, {"number": 0}))]
    for number in (1, 2):
        plan = lambda before: Job(side_by_side.plus_one, {"number": before})  # noqa: E731
        stages.append(workers.submit(str(number), plan, stages[-1:]))
    assert stages[-1].result() == 3 and [stage.value for stage in stages] == [1, 2, 3]
    assert said[-1].startswith("stage 2: done") and said[-1].endswith("(3 of 3)")


def test_what_cannot_travel_is_made_here_while_others_work(workers, tmp_path):
    seen = {"seen": str(tmp_path / "seen")}
    there = workers.submit("waits", lambda: Job(side_by_side.waits_for, seen))
    here = workers.submit("typed", lambda: Job(lambda seen: side_by_side.shows(seen) and os.getpid(), seen))
    workers.wait()
    assert here.result() == os.getpid() and there.result()
