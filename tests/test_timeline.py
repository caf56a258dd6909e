"""A run in time: stages in lanes, the chain of waiting, and the GPU's use on the same axis."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from dialnb.errors import DataError
from tools.timeline import gpu_of, main, stages_of

BEGAN = datetime(2026, 11, 17, 14, 50, tzinfo=UTC)
TRAINED = {"training": [{"steps": 10}]}


def stage(name: str, start: float, end: float, cached=False, function="tasks.intents_of", **facts) -> dict:
    made = (BEGAN + timedelta(seconds=end)).isoformat(timespec="microseconds")
    about = {"name": name, "key": name, "function": f"dialnb.studies.{function}", "cached": cached, "facts": facts}
    return about | {"seconds": end - start, "made": made}


STAGES = [
    stage("raw start: masked words", 5, 30, **TRAINED),
    stage("train DSE, seed 1", 31, 150, **TRAINED),
    stage("train WMDC, seed 1", 31, 90, **TRAINED),
    stage("finetuned intents: WMDC on SNIPS, seed 1", 91, 140, function="tasks.finetuned_intents_of"),
    stage("intents: DSE on SNIPS, seed 1", 151, 160),
    stage("train UMS, seed 1", -900, -800, cached=True, **TRAINED),
]


@pytest.fixture
def run(tmp_path):
    """A run of three minutes: a raw start, two trainings side by side, a question to each, one stage from before."""
    record = {
        "slug": "dse",
        "profile": "quick",
        "status": "done",
        "reason": "",
        "stages": STAGES,
        "parameters": {"seed": 1},
    }
    record |= {"started": BEGAN.isoformat(), "updated": (BEGAN + timedelta(minutes=3)).isoformat()}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return record


@pytest.fixture
def smi(tmp_path):
    """Samples every two seconds, a minute longer than the run at both ends: idle, then 80 % from the second minute on;
    the last line was cut."""
    lines = []
    for second in range(-60, 240, 2):
        busy = 80 if second >= 60 else 0
        time = BEGAN + timedelta(seconds=second, milliseconds=123)
        lines.append(f"{time:%Y/%m/%d %H:%M:%S}.123, {busy} %, {busy // 8} %, {1024 + busy} MiB, {100 + busy}.50 W")
    path = tmp_path / "gpu.csv"
    path.write_text("\n".join([*lines, "2026/11/17 14:5"]), encoding="utf-8")
    return path


def test_a_stage_that_models_share_is_drawn_once(run):
    made = stage("train DSE, seed 1", 5, 30, **TRAINED)
    shared = run | {"stages": [made, made | {"name": "train temperature 0.05, seed 1"}]}
    assert stages_of(shared, "run")["name"].tolist() == ["train DSE"]


def test_stages_side_by_side_have_lanes_of_their_own_and_those_of_before_none(run):
    rows = stages_of(run, "run").set_index("name")
    assert len(rows) == 5 and rows["lane"].tolist() == [0, 0, 1, 0, 0]
    assert rows.loc["train WMDC", ["start", "end"]].tolist() == pytest.approx([31, 90])
    assert rows["kind"].tolist() == ["raw start", "training", "training", "fine-tuning", "other evaluation"]


def test_the_chain_goes_back_from_the_last_stage_to_what_ended_before_it(run):
    rows = stages_of(run, "run")
    chained = rows.loc[rows["chained"], "name"].tolist()
    assert chained == ["raw start: masked words", "train DSE", "intents: DSE on SNIPS"]


def test_the_gpu_is_clipped_to_the_run_and_its_mean_told(run, smi, tmp_path, capsys):
    rows = gpu_of(smi, run)
    assert len(rows) == 90 and rows["time"].min() >= 0 and rows["busy"].mean() == pytest.approx(80 * 2 / 3)
    main([str(tmp_path / "run"), "--gpu", str(smi), "-o", str(tmp_path / "out" / "dse.png")])
    told = capsys.readouterr().out
    assert "3.0 minutes in all; 5 stages made, 1 from the cache" in told and "GPU busy 53.3 % of the time" in told
    assert f"{(25 + 119 + 59 + 49 + 9) / 180:.2f} times the run's own" in told and "1  train DSE, 119 s" in told
    assert (tmp_path / "out" / "dse.png").read_bytes().startswith(b"\x89PNG")
    smi.rename(tmp_path / "run" / "gpu.csv")  # where a run leaves it
    main([str(tmp_path / "run"), "-o", str(tmp_path / "out" / "dse.png")])
    assert capsys.readouterr().out == told


def test_a_clock_that_is_not_utc_can_be_said(run, smi):
    with pytest.raises(DataError, match=r"is of another time: .* ahead"):
        gpu_of(smi, run, zone=2)
    shifted = smi.read_text().replace(" 14:", " 16:")
    smi.write_text(shifted)
    assert len(gpu_of(smi, run, zone=2)) > 60


def test_what_cannot_be_drawn_is_said_in_a_sentence(run, smi, tmp_path, capsys):
    with pytest.raises(DataError, match="run has nothing to draw: it has no stages"):
        stages_of(run | {"stages": []}, "run")
    with pytest.raises(DataError, match="all of its stages are from the cache"):
        stages_of(run | {"stages": STAGES[-1:]}, "run")
    with pytest.raises(DataError, match=r"does not say when its stages were made, e\.g\. train DSE"):
        stages_of(run | {"stages": [{"name": "train DSE", "seconds": 1.0, "cached": False}]}, "run")
    smi.write_text("index, name\n0, H200\n")
    with pytest.raises(DataError, match="has no line like"):
        gpu_of(smi, run)
    with pytest.raises(SystemExit, match="1"):
        main([str(tmp_path / "run"), "--gpu", str(tmp_path / "none.csv"), "-o", str(tmp_path / "a.png")])
    assert "cannot be read as a table of nvidia-smi" in capsys.readouterr().err
