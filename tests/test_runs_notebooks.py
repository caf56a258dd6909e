"""Notebooks through the runner, for real: failing, killed, repeated, and by papermill alone."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import shared
from papermill import PapermillExecutionError

from dialnb import cli
from dialnb.errors import BadParameter, UnknownName
from dialnb.files import read_run
from dialnb.runs import start
from dialnb.runs.engine import RESERVE, OwnKernel, Request, Voice, _without_places, execute, run_all

HERE = Path(__file__).parent
STEPS = ("--set", "steps=12")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The toy project with a second paper, `broken`, whose notebook fails after the same training stage."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(HERE / "toy", root, dirs_exist_ok=True)
    shutil.copytree(root / "papers" / "toy", root / "papers" / "broken")
    text = (root / "notebooks" / "toy.ipynb").read_text(encoding="utf-8")
    (root / "notebooks" / "broken.ipynb").write_text(text.replace('\\"toy\\"', '\\"broken\\"'), encoding="utf-8")
    profiles = root / "papers" / "broken" / "profiles.yaml"
    profiles.write_text(profiles.read_text().replace("{steps: 4}", "{steps: 4, fail: true}"))
    return root


def variables(project: Path, cache: str, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(HERE), str(project), str(HERE.parent)])
    return {"DIALNB_CACHE": str(project / cache), "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def dialnb(project: Path, cache: str, *arguments: str) -> tuple[int, str]:
    command = [*arguments, "--project", project, "--profile", "smoke"]
    with contextlib.chdir(project):
        return shared.dialnb(*command, **variables(project, cache))


def record(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def both(project):
    """`dialnb run all`: two notebooks that want the same training stage; one of them fails later."""
    code, said = dialnb(project, "cache", "run", "all", *STEPS)
    found = {record(path.parent)["slug"]: path.parent for path in (project / "runs").glob("*/run.json")}
    return {"code": code, "said": said, **found}


def test_one_failing_does_not_stop_the_other_and_the_summary_names_all(both):
    assert both["code"] == 1, both["said"]
    assert "toy     ran" in both["said"] and "broken  failed" in both["said"]
    assert "1 ran, 1 failed, 0 left out" in both["said"]


def test_two_notebooks_that_want_the_same_model_train_it_once(both):
    cached = [record(both[slug])["stages"][0]["cached"] for slug in ("toy", "broken")]
    assert sorted(cached) == [False, True]


def test_a_failing_cell_is_shown_with_its_source_and_the_end_of_the_traceback(both):
    out = both["said"]
    assert 'raise RuntimeError("asked to fail")' in out
    assert "RuntimeError: asked to fail" in out
    assert "\x1b[" not in out


def test_the_partial_notebook_and_the_record_of_a_failure_are_kept(both):
    failed = record(both["broken"])
    assert (failed["status"], failed["reason"]) == ("failed", "cell 9 raised RuntimeError: asked to fail")
    assert [stage["name"] for stage in failed["stages"]] == ["train Toy", "measure Toy"]
    cells = json.loads((both["broken"] / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    assert any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", []))


def test_progress_is_lines_of_stage_cell_and_heading(both):
    lines = both["said"].splitlines()
    assert "    cell 6/12  Training" in lines and "stage train Toy" in lines
    assert "    cell 6/12  Training" in (both["toy"] / "log.txt").read_text(encoding="utf-8").splitlines()


def test_a_finished_run_holds_results_tables_figures_and_provenance(both):
    folder, done = both["toy"], record(both["toy"])
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"notebook.ipynb", "run.json", "results.csv", "log.txt", "tables/T1.csv"} <= names
    assert {"figures/F1.png", "figures/F1.svg", "figures/F1.csv"} <= names
    assert done["status"] == "done" and done["parameters"]["steps"] == 12 and done["set_by_hand"] == {"steps": 12}
    assert done["not_run"] == [{"table": "T1", "model": "Absent", "reason": "it never existed"}]
    assert {"commit", "dirty"} <= set(done["code"]) and done["packages"]["torch"] and done["hardware"]["cores"] >= 1
    assert done["data"][0]["name"] == "bundled/BANKING77" and done["licences"]
    train = done["stages"][0]
    assert train["seconds"] > 0 and train["facts"]["training"][0]["tokens_per_second"] > 0
    assert train["facts"]["peak_memory_gb"] > 0 and "bit-identical" in done["determinism"]


def test_a_run_can_be_shared_it_does_not_say_where_it_was_made(both, project):
    for name in ("notebook.ipynb", "log.txt", "run.json"):
        assert str(project) not in (both["toy"] / name).read_text(encoding="utf-8"), name


@pytest.mark.slow
def test_what_a_run_leaves_names_encoders_by_their_folders_not_where_those_lie(tmp_path):
    request = Request("toy", encoder="/a/b/minilm", overrides={"others": ("/c/d/small", "org/bert"), "steps": 3})
    log = tmp_path / "log.txt"
    log.write_text("encoder = '/a/b/minilm'; /c/d/small, org/bert, mini")
    _without_places(log, tmp_path, request)
    assert log.read_text() == "encoder = 'minilm'; small, org/bert, mini"


def test_a_second_run_trains_nothing_and_papermill_alone_does_the_same(both, project):
    out = project / "runs" / "alone"
    chosen = ["-p", "profile", "smoke", "-p", "out", str(out), "-y", "{overrides: {steps: 12}}", "-k", "python3"]
    found = variables(project, "cache", DIALNB_PROJECT=str(project))
    shared.papermill(project / "notebooks" / "toy.ipynb", project / "alone.ipynb", *chosen, **found)
    assert [stage["cached"] for stage in record(out)["stages"]] == [True, True]
    assert (out / "results.csv").read_bytes() == (both["toy"] / "results.csv").read_bytes()
    assert (out / "tables" / "T1.csv").read_bytes() == (both["toy"] / "tables" / "T1.csv").read_bytes()


def start_and_stop(project: Path, after: int, how: int) -> int:
    """Start the toy run, slowed down, and send it a signal once the checkpoint of a step after `after` is there."""
    command = [sys.executable, "-m", "dialnb", "run", "toy", "--profile", "smoke", "--project", str(project), *STEPS]
    command += ["--out", str(project / "killed")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIALNB_")}
    environment = kept | variables(project, "cache-killed", TOY_PAUSE="0.5")
    process = subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.DEVNULL)
    stages, deadline = project / "cache-killed" / "stages", time.time() + 200
    while process.poll() is None and time.time() < deadline:
        if any(int(path.name.removeprefix("step-")) > after for path in stages.glob("*.work/step-*")):
            break
        time.sleep(0.05)
    assert process.poll() is None, "the run ended before it could be stopped"
    kernels = children(process.pid)
    for pid in (process.pid, *kernels) if how == signal.SIGKILL else (process.pid,):
        os.kill(pid, how)
    code = process.wait(60)
    while any(Path(f"/proc/{pid}").exists() for pid in kernels) and time.time() < deadline:
        time.sleep(0.05)
    return code


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(child) for child in found]


@pytest.mark.slow
def test_killed_and_interrupted_and_run_again_it_goes_on_and_ends_with_the_same_tables(both, project):
    start_and_stop(project, 0, signal.SIGKILL)
    folder = next((project / "killed").glob("toy-*"))
    assert record(folder)["status"] == "running" and read_run(folder)["status"] == "interrupted"
    assert start_and_stop(project, 4, signal.SIGTERM) == 130
    assert (record(folder)["status"], record(folder)["reason"]) == ("failed", "interrupted")

    code, said = dialnb(project, "cache-killed", "run", "toy", *STEPS, "--out", str(project / "killed"))
    assert code == 0, said
    done = record(folder)
    assert done["status"] == "done" and done["stages"][0]["facts"]["training"][0]["resumed_at"] > 4
    for name in ("results.csv", "tables/T1.csv", "figures/F1.csv"):
        assert (folder / name).read_bytes() == (both["toy"] / name).read_bytes(), name
    assert not pd.read_csv(folder / "results.csv")["value"].isna().any()


def test_without_a_notebook_the_command_fails_and_says_so(tmp_path, capsys):
    shutil.copytree(HERE / "toy" / "papers" / "toy", tmp_path / "papers" / "toy")
    where = ["--project", str(tmp_path), "--out", str(tmp_path / "runs")]
    assert cli.main(["run", "toy", "--profile", "smoke", *where]) == 1
    assert "notebooks/toy.ipynb does not exist yet" in capsys.readouterr().out


# --- smaller parts ----------------------------------------------------------------------------------------------------


def test_a_kernel_is_of_this_interpreter_and_has_an_address_of_its_own(tmp_path):
    kernel = type("Kernel", (OwnKernel,), {"variables": {"JUPYTER_RUNTIME_DIR": str(tmp_path)}})()
    assert kernel.kernel_spec.argv[0] == sys.executable and kernel.connection_file == str(tmp_path / "kernel.json")
    assert (kernel.transport, kernel.ip) == ("ipc", str(tmp_path / "kernel")) or sys.platform == "win32"


@pytest.fixture
def toy(monkeypatch):
    """The toy project as the one that `start` finds."""
    monkeypatch.setenv("DIALNB_PROJECT", str(HERE / "toy"))


def test_a_notebook_that_never_finishes_its_run_counts_as_failed(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dialnb.runs.engine.execute_notebook", lambda _, __, parameters, **___: start("toy", **parameters)
    )
    run = execute(Request("toy", "smoke", out=tmp_path / "runs"), HERE / "toy")
    assert run.status == "failed" and "before its run was finished" in run.reason
    assert record(tmp_path / "runs" / "toy-smoke-seed1")["status"] == "failed"


@pytest.mark.parametrize(
    "given", [{"shots": [1, -1]}, {"pooling": "maen"}, {"rate": float("inf")}, {"encoder": "./nowhere"}, {"stepz": 1}]
)
def test_what_a_notebook_cannot_set_is_refused_before_its_run_begins(toy, tmp_path, given):
    with pytest.raises((BadParameter, UnknownName)):
        start("toy", "smoke", overrides=given, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_error_that_was_foreseen_is_told_as_a_sentence_without_its_traceback(tmp_path, monkeypatch, capsys):
    def notebook(*_, **__):
        told = {"exec_count": 1, "source": "start()", "traceback": ["Traceback ..."]}
        raise PapermillExecutionError(cell_index=2, ename="Offline", evalue="SGD is not here; fetch it", **told)

    monkeypatch.setattr("dialnb.runs.engine.execute_notebook", notebook)
    run = execute(Request("toy", "smoke", out=tmp_path), HERE / "toy")
    assert run.reason == "cell 3: SGD is not here; fetch it"
    assert "Traceback" not in capsys.readouterr().out


def test_a_full_disk_fails_the_run_with_a_record_and_the_next_one_goes_on(toy, tmp_path, monkeypatch):
    def notebook(_, output, parameters, **__):
        run = start("toy", **parameters)
        if run.settings.seed == 2:
            return run.finish()
        filled.append(output.parent)
        raise OSError(errno.ENOSPC, "No space left on device", "notebook.ipynb")

    def write(path, text, *encoding):
        """Into a full folder only the record goes, once what was reserved for it is given back."""
        if path.parent in filled and ((path.parent / RESERVE).exists() or "run.json" not in path.name):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return plain(path, text, *encoding)

    plain, filled = Path.write_text, []
    monkeypatch.setattr("dialnb.runs.engine.execute_notebook", notebook)
    monkeypatch.setattr(Path, "write_text", write)
    runs = run_all([Request("toy", "smoke", seed, out=tmp_path) for seed in (1, 2)], HERE / "toy")
    assert [run.status for run in runs] == ["failed", "ran"]
    failed = record(tmp_path / "toy-smoke-seed1")
    assert (failed["status"], failed["reason"]) == ("failed", "notebook.ipynb: no space left on device")


def test_a_log_that_cannot_be_written_stops_nothing(capsys):
    class Full:
        def write(self, *_):
            raise OSError(errno.ENOSPC, "No space left on device")

        flush = write

    Voice(Full()).say("going on")
    assert capsys.readouterr().out == "going on\n"


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setattr("dialnb.runs.engine.execute", lambda *_: pytest.fail("a notebook was started"))
    place = str(tmp_path / "file" / "runs")
    assert cli.main(["run", "toy", "--profile", "smoke", "--project", str(HERE / "toy"), "--out", place]) == 1
    assert f"nothing can be written to {place} (not a directory)" in capsys.readouterr().err


def test_the_list_tells_a_run_that_goes_on_from_one_that_was_killed_and_a_damaged_one(toy, tmp_path, capsys):
    def listed() -> str:
        assert cli.main(["list", "--out", str(tmp_path)]) == 0
        return capsys.readouterr().out

    run = start("toy", "smoke", out=tmp_path / "mine")
    run = start("toy", "smoke", out=tmp_path / "mine")  # as when a cell is run again
    assert "mine: running" in listed()
    run._lock.release(force=True)  # as the system does when a process ends
    assert "mine: interrupted" in listed() and record(run.folder)["status"] == "running"
    (tmp_path / "mine" / "run.json").write_text("{", encoding="utf-8")
    assert "run.json is damaged" in listed()


def test_a_long_cell_keeps_reporting_and_lines_start_on_their_own(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("dialnb.runs.engine.HEARTBEAT_SECONDS", 0.05)
    with (tmp_path / "log").open("w") as log, Voice(log) as voice:
        voice.announce("    cell 2/9  Training")
        voice.write("\x1b[31mhalf a line")
        while "Training ... 0 s" not in (tmp_path / "log").read_text():
            time.sleep(0.02)
    said = capsys.readouterr().out
    assert "\nhalf a line\n    cell 2/9  Training ... 0 s\n" in said
