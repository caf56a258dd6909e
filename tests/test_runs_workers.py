"""Stages made by several processes: the same results, kept in the same cache, and trouble is told."""

from __future__ import annotations

import os

import pandas as pd
import processes
import pytest
import side_by_side
import tiny

from dialnb.data import load
from dialnb.errors import Offline, UnknownName
from dialnb.runs.stages import StageCache, Workers


@pytest.fixture
def cache(tmp_path):
    return StageCache(tmp_path / "stages")


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr("dialnb.runs.stages.say", lines.append)
    return lines


@pytest.fixture
def workers(cache, monkeypatch):
    """Processes that begin with everything imported."""
    monkeypatch.setattr("dialnb.runs.stages.get_context", lambda _: processes.context())
    pool = Workers(2, cache)
    yield pool
    pool.close()


def test_stages_are_made_in_other_processes_with_the_results_of_one(cache, tmp_path):
    workers = Workers(2, cache)
    encoder, records = tiny.encoder(), load("bundled/SNIPS", "dse")[3:40:2]
    jobs = {
        f"part {n}": (side_by_side.where_and_what, {"encoder": encoder, "records": records, "number": n})
        for n in (1, 2, 3)
    }
    made = workers.make(jobs)
    assert len(made) == 3
    found = {name: cache.run(name, *job) for name, job in jobs.items()}
    assert all(record.cached and record.key in made for _, record in found.values())
    rows = pd.concat(result for result, _ in found.values())
    assert os.getpid() not in set(rows["process"])
    assert set(rows["threads"]) == {max(1, (os.cpu_count() or 1) // 2)}, "processes share the cores"
    alone = StageCache(tmp_path / "alone")
    for name, job in jobs.items():
        assert alone.run(name, *job)[0]["value"].tolist() == pytest.approx(found[name][0]["value"].tolist(), rel=1e-5)
    assert workers.make(jobs) == set(), "what is in the cache is not made again"
    workers.close()


def test_where_there_is_a_gpu_processes_begin_before_the_first_stage(workers, monkeypatch):
    workers.warm_up()
    assert not workers._pool._processes, "without a GPU nothing is won by that"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    workers.warm_up()
    begun = set(workers._pool._processes)
    assert len(begun) == 2
    assert len(workers.make({n: (side_by_side.plus_one, {"number": n}) for n in (1, 2)})) == 2
    assert set(workers._pool._processes) == begun


def test_processes_see_the_variables_of_the_time_when_they_begin(cache, workers, monkeypatch):
    workers.make({"first": (side_by_side.plus_one, {"number": 1})})  # what they are copies of is there from now on
    monkeypatch.setenv("DIALNB_OF_THIS_TEST", "late")
    others, job = Workers(2, cache), (side_by_side.variable, {"name": "DIALNB_OF_THIS_TEST"})
    assert len(others.make({"late": job})) == 1
    others.close()
    monkeypatch.delenv("DIALNB_OF_THIS_TEST")
    assert cache.run("late", *job)[0] == "late"


def test_a_failing_stage_is_told_with_its_traceback(workers):
    with pytest.raises(ValueError, match="no luck with 7") as raised:
        workers.make({"bad": (side_by_side.fails, {"number": 7})})
    assert "side_by_side" in str(raised.value.__cause__)


@pytest.mark.parametrize("error", [Offline("no network. Try again"), UnknownName("recipe", "DSX", ["DSE"])])
def test_an_error_on_purpose_is_the_same_as_in_one_process(workers, error):
    with pytest.raises(type(error)) as raised:
        workers.make({"bad": (side_by_side.refuses, {"kind": type(error).__name__})})
    assert str(raised.value) == str(error)


def test_a_process_that_dies_leaves_the_work_to_the_caller(cache, workers, said):
    jobs = {"deadly": (side_by_side.dies, {"number": 5, "parent": os.getpid()})}
    assert workers.make(jobs) == set()
    assert "died" in said[-1]
    assert cache.run("deadly", *jobs["deadly"])[0] == 5


def test_a_stage_without_gpu_memory_beside_the_others_is_made_alone(cache, workers, said):
    jobs = {"large": (side_by_side.lacks_memory, {"number": 5, "parent": os.getpid()})}
    assert workers.make(jobs) == set()
    assert "no GPU memory left" in said[-1]
    assert cache.run("large", *jobs["large"])[0] == 5


def test_a_stage_without_gpu_memory_is_tried_again_when_another_has_ended(cache, workers, said, tmp_path):
    seen = {"seen": str(tmp_path / "seen")}
    jobs = {"small": (side_by_side.takes_memory, seen), "large": (side_by_side.lacks_memory_once, seen)}
    assert len(workers.make(jobs)) == 2
    assert "large: no GPU memory left beside the others; it is made later" in said[0]
    assert said[-1].endswith("(2 of 2)")
    made_by, record = cache.run("large", *jobs["large"])
    assert record.cached and made_by != os.getpid()


def test_a_stage_of_several_names_takes_one_process(cache, workers, tmp_path):
    seen, asked = {"seen": str(tmp_path / "seen")}, []
    jobs = {f"seed {n}": (side_by_side.waits_for, seen) for n in (1, 2, 3)}
    made = workers.make(jobs | {"other": (side_by_side.shows, seen)}, lambda name: asked.append(name) or {})
    assert len(made) == 2 and sorted(asked) == ["other", "seed 1", "seed 2", "seed 3"]
    assert cache.run("seed 2", *jobs["seed 2"])[0], "the other process was free for another stage"


def test_what_waits_for_a_stage_is_made_when_it_is_there(cache, workers, said):
    begun = []

    def follow(name):
        begun.append(name)
        number = cache.run(name, side_by_side.plus_one, {"number": int(name)})[0]
        return {str(number): (side_by_side.plus_one, {"number": number})} if number < 3 else {}

    jobs = {"0": (side_by_side.plus_one, {"number": 0})}
    assert len(workers.make(jobs, follow)) == 3 and begun == ["0", "1", "2"]
    assert said[-1].startswith("stage 2: done") and said[-1].endswith("(3 of 3)")
    begun.clear()
    assert workers.make(jobs, follow) == set() and begun == ["0", "1", "2"], "what is there lets others begin too"
