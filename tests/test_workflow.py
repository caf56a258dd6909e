"""A sweep for real: two papers through Snakemake, one run killed in the middle, and then resumed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import nbformat
import pandas as pd
import psutil
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook
from sweep import read_sweep

from dialnb.errors import BadParameter, DataError, UnknownName
from dialnb.files import read_json, write_json
from dialnb.runs.profiles import load_profiles, run_name
from dialnb.runs.tools import merge

ROOT = Path(__file__).resolve().parent.parent
DEFAULTS = yaml.safe_load((ROOT / "workflow" / "config.yaml").read_text(encoding="utf-8"))
CELLS = {
    "parameters": "profile, seed, encoder, overrides, out = 'quick', 1, '', {}, ''",
    "start": """
        import time
        from pathlib import Path
        import pandas as pd
        from dialnb.data import load
        from dialnb.runs import start
        run = start("SLUG", profile=profile, seed=seed, encoder=encoder, overrides=overrides, out=out)""",
    "stage": """
        def count(dataset, seed):
            counted = {split: len(load(dataset, split=split)) for split in ("train", "test")}
            facts = {"task": "counts", "dataset": dataset, "metric": "utterances", "protocol": "paper", "seed": seed}
            return pd.DataFrame([{**facts, "split": split, "value": n, "n": n} for split, n in counted.items()])
        run.add(run.stage("count BANKING77", count, dataset="bundled/BANKING77", seed=seed), model="raw", table="X")""",
    "hold": """
        while Path("hold", run.folder.name).exists():
            time.sleep(0.02)""",
    "end": """
        run.add(run.stage("count HWU64", count, dataset="bundled/HWU64", seed=seed), model="raw", table="X")
        run.finish()""",
}
"""A notebook as short as can be: two stages, with a point between them at which a run can be held."""

needs_snakemake = pytest.mark.skipif(
    find_spec("snakemake") is None, reason="snakemake is not installed: pip install -c constraints.txt -e '.[sweep]'"
)


def snakemake(folder: Path, profile: str = "local", *options: str) -> list[str]:
    workflow = ROOT / "workflow"
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(workflow / "Snakefile"),
        "--directory",
        str(folder),
    ]
    command += ["--configfile", str(folder / "config.yaml"), "--profile", str(workflow / "profiles" / profile)]
    return [*command, *options]


def records(folder: Path) -> dict[str, dict]:
    return {path.parent.name: read_json(path) for path in (folder / "runs").glob("*/run.json")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder for a sweep of two papers in their smoke profile, with a seed that is not the first."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "notebooks").mkdir()
    (folder / "hold").mkdir()
    for slug in ("dse", "wmdc"):
        cells = [new_code_cell(dedent(text).strip().replace("SLUG", slug)) for text in CELLS.values()]
        cells[0].metadata["tags"] = ["parameters"]
        notebook = new_notebook(cells=cells, metadata={"kernelspec": {"display_name": "Python 3", "name": "python3"}})
        nbformat.write(notebook, folder / "notebooks" / f"{slug}.ipynb")
    chosen = {
        "papers": ["dse", "wmdc"],
        "profiles": ["smoke"],
        "seeds": [2],
        "out": "runs",
        "notebooks": "notebooks",
    }
    chosen |= {"set": {"dse": {"train": {"DSE": {"epochs": 1}}, "shots": [1, 5]}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(DEFAULTS | chosen), encoding="utf-8")
    return folder


def settings(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIALNB_")}
    return kept | {"DIALNB_CACHE": str(folder / "cache"), "XDG_CACHE_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}


def kill(process: subprocess.Popen, folder: Path, name: str) -> None:
    """End a run that has a stage behind it, and its kernel, as a machine that fails does."""
    deadline = time.monotonic() + 900
    while not records(folder).get(name, {}).get("stages"):
        assert process.poll() is None and time.monotonic() < deadline, "the run did not come to its first stage"
        time.sleep(0.1)
    start = f"{sys.executable} -m dialnb run wmdc --profile smoke --seed 2 "
    for child in psutil.process_iter(["cmdline"]):  # what has ended meanwhile is passed over
        line = " ".join(child.info["cmdline"] or ())
        if line.startswith(start) and str(folder) in line:
            for part in (*child.children(recursive=True), child):
                part.kill()
            return
    raise AssertionError(f"no process starts with {start}")


@pytest.fixture(scope="module")
def sweep(folder) -> dict:
    """What was there after a sweep in which a run was killed, and after the same command once more."""
    killed = "wmdc-smoke-seed2"
    (folder / "hold" / killed).touch()
    with (folder / "first.txt").open("w") as log:
        process = subprocess.Popen(snakemake(folder), env=settings(folder), stdout=log, stderr=log)
        kill(process, folder, killed)
        process.wait(120)
    (folder / "hold" / killed).unlink()
    before = {"killed": killed, "code": process.returncode, "runs": records(folder)}
    before["finished"] = {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("runs/*/results.csv")}
    again = subprocess.run(snakemake(folder), env=settings(folder), capture_output=True, text=True, timeout=900)
    return {**before, "again": again, "folder": folder}


@pytest.mark.slow
@needs_snakemake
def test_a_killed_run_stops_neither_the_others_nor_goes_unnoticed(sweep):
    others = set(sweep["runs"]) - {sweep["killed"]}
    assert sweep["code"] != 0 and len(others) == 1
    assert all(sweep["runs"][name]["status"] == "done" for name in others) and set(sweep["finished"]) == others
    assert sweep["runs"][sweep["killed"]]["status"] == "running"


@pytest.mark.slow
@needs_snakemake
def test_resumed_it_runs_what_is_missing_and_nothing_else(sweep):
    again, now = sweep["again"], records(sweep["folder"])
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]
    assert len(now) == 2 and {run["status"] for run in now.values()} == {"done"}
    for name, moment in sweep["finished"].items():
        assert (sweep["folder"] / "runs" / name / "results.csv").stat().st_mtime_ns == moment
        assert now[name]["updated"] == sweep["runs"][name]["updated"]
    stages = {stage["name"]: stage["cached"] for stage in now[sweep["killed"]]["stages"]}
    assert stages["count BANKING77"] and [*stages] == ["count BANKING77", "count HWU64"]


@pytest.mark.slow
@needs_snakemake
def test_the_table_holds_the_rows_of_every_run_and_the_report_its_pages(sweep):
    folder = sweep["folder"]
    table = pd.read_csv(folder / "runs" / "results.csv")
    counted = {path.parent.name: len(pd.read_csv(path)) for path in folder.glob("runs/*-*/results.csv")}
    assert table.groupby("run").size().to_dict() == counted and len(counted) == 2
    assert set(table.groupby(["paper", "profile", "train_seed"]).groups) == {
        (paper, "smoke", 2) for paper in ("dse", "wmdc")
    }
    assert table["value"].notna().all() and list(table)[:4] == ["run", "paper", "profile", "train_seed"]
    assert {path.stem for path in (folder / "runs" / "report").glob("*-smoke*.html")}


@needs_snakemake
def test_on_a_cluster_every_run_is_a_job_with_the_resources_of_its_profile(folder):
    if find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip("snakemake-executor-plugin-slurm is not installed: pip install -c constraints.txt -e '.[sweep]'")
    options = (
        "--dry-run",
        "--config",
        "profiles=[quick,gpu]",
        "papers=[ums]",
        "seeds=[1,2]",
        "out=elsewhere",
        "set={}",
    )
    plan = subprocess.run(snakemake(folder, "slurm", *options), env=settings(folder), capture_output=True, text=True)
    assert plan.returncode == 0, plan.stderr
    jobs = {part.split("wildcards: run=")[1].split()[0]: part for part in plan.stdout.split("rule ") if "run=" in part}
    planned = {f"ums-{profile}-seed{seed}": profile == "gpu" for profile in ("quick", "gpu") for seed in (1, 2)}
    assert {name: "gpu=1" in part for name, part in jobs.items()} == planned
    assert "threads: 8" in jobs["ums-gpu-seed1"] and "mem_mb=64000" in jobs["ums-gpu-seed1"]


@needs_snakemake
def test_what_a_configuration_says_is_quoted_for_the_shell(tmp_path):
    out = "my runs; touch canary"
    chosen = {"papers": ["wmdc"], "profiles": ["smoke"], "seeds": [2], "out": out}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(DEFAULTS | chosen), encoding="utf-8")
    command = snakemake(tmp_path, "local", "--dry-run", "--printshellcmds")
    words = subprocess.run(command, env=settings(tmp_path), capture_output=True, text=True, check=True)
    lines = [line.strip() for line in (words.stdout + words.stderr).splitlines() if " -m dialnb " in line]
    assert len(lines) == 3
    for line in lines:
        assert out in line and all(out in word for word in shlex.split(line) if "canary" in word), line


def test_a_sweep_is_every_combination_of_its_lists_each_in_a_folder_of_its_own():
    sweep = read_sweep(DEFAULTS | {"papers": ["dse", "ums"], "seeds": [1, "2"], "encoders": ["", "org/bert"]})
    assert list(sweep.runs)[:3] == ["dse-quick-seed1", "dse-quick-seed1-org-bert", "dse-quick-seed2"]
    assert len(sweep.runs) == 8 and sweep.command("ums-quick-seed2-org-bert").endswith("--encoder org/bert")


def test_what_is_set_by_hand_names_the_folder_as_the_command_line_does():
    by_hand = {"dse": {"train": {"DSE": {"epochs": 1}}, "shots": [1, 5]}}
    sweep = read_sweep(DEFAULTS | {"papers": ["dse"], "seeds": [1], "set": by_hand})
    (name,) = sweep.runs
    assert sweep.command(name).endswith("--set shots=1,5 --set train.DSE.epochs=1.0")
    typed = load_profiles("dse").parse(["train.DSE.epochs=1.0", "shots=1,5"])
    assert name == run_name("dse", "quick", 1, "", typed)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"paper": ["dse"]}, UnknownName, "did you mean 'papers'"),
        ({"papers": ["dze"]}, UnknownName, "did you mean 'dse'"),
        ({"profiles": ["tiny"]}, UnknownName, "unknown profile of dse 'tiny'"),
        ({"seeds": []}, BadParameter, "'seeds' as a list that is not empty"),
        ({"seeds": ["one"]}, BadParameter, "'seed' must be a whole number"),
        ({"set": {"dse": {"train.DSE.epoch": 1}}}, UnknownName, "did you mean 'epochs'"),
        ({"set": {"dsee": {"epochs": 1}}}, UnknownName, "did you mean 'dse'"),
        ({"resources": {"gpu": {}}}, UnknownName, "unknown profile among the resources"),
    ],
)
def test_a_sweep_that_cannot_run_is_refused_with_a_sentence(wrong, error, words):
    with pytest.raises(error, match=re.escape(words)):
        read_sweep(DEFAULTS | wrong)


def test_a_table_is_not_made_of_runs_that_did_not_finish(tmp_path):
    record = {"slug": "dse", "profile": "smoke", "status": "failed", "reason": "cell 3 raised ValueError"}
    write_json(tmp_path / "run.json", record | {"parameters": {}, "stages": []})
    with pytest.raises(DataError, match="not finished \\(failed: cell 3 raised ValueError\\)"):
        merge([tmp_path])
