"""`dialnb reproduce` on small real notebooks: what runs, is left out or fails, and that the report follows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from dialnb import cli
from dialnb.claims.papers import SLUGS
from dialnb.files import read_json
from dialnb.runs.engine import NotebookRun, Request, execute

ROOT = Path(__file__).resolve().parent.parent


def notebook(*sources: str) -> dict:
    """A clean notebook: a parameters cell, then one heading and one code cell per source."""
    cells = [{"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": 'profile = "smoke"'}]
    for number, source in enumerate(sources, start=1):
        cells += [{"cell_type": "markdown", "metadata": {}, "source": f"## Part {number}"}]
        cells += [{"cell_type": "code", "metadata": {}, "source": source}]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        if cell["cell_type"] == "code":
            cell |= {"execution_count": None, "outputs": []}
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """One real run of the command: DSE runs, DialogueCSE fails in its second part, TaDSE has no notebook."""
    folder = tmp_path_factory.mktemp("reproduce")
    environment = "import os; print('kernel says', profile, os.environ['DIALNB_OFFLINE'], os.environ['HF_HUB_OFFLINE'])"
    environment += "; import gc; print('cycles are looked for after', gc.get_threshold()[0], 'new objects')"
    (folder / "notebooks").mkdir()
    for slug, content in {
        "dse": notebook(environment),
        "dialoguecse": notebook("kept = 1 + 1; print(kept)", "1 / 0"),
    }.items():
        (folder / "notebooks" / f"{slug}.ipynb").write_text(json.dumps(content), encoding="utf-8")
    arguments = ["reproduce", "dse", "dialoguecse", "tadse", "--profile", "quick"]
    with pytest.MonkeyPatch.context() as patch, (folder / "screen").open("w") as screen:
        patch.setattr("sys.stdout", screen)
        patch.delenv("DIALNB_OFFLINE", raising=False)
        code = cli.main([*arguments, "--out", str(folder / "runs"), "--notebooks", str(folder / "notebooks")])
        left_behind = os.environ.get("DIALNB_OFFLINE")
    lines = (folder / "screen").read_text()
    return {"code": code, "lines": lines, "runs": folder / "runs", "left_behind": left_behind}


def executed(outcome: dict, slug: str) -> dict:
    path = outcome["runs"] / f"{slug}-quick-seed1" / "notebook.ipynb"
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_profile_reaches_the_notebook_and_the_kernel_is_offline(outcome):
    texts = [output["text"] for cell in executed(outcome, "dse")["cells"] for output in cell.get("outputs", [])]
    assert "kernel says quick 1 1" in "".join("".join(text) for text in texts)
    assert "kernel says quick 1 1" in outcome["lines"]


def test_the_kernel_looks_for_cycles_rarely(outcome):
    assert "cycles are looked for after 10000 new objects" in outcome["lines"]


def test_the_offline_setting_ends_with_the_run(outcome):
    assert outcome["left_behind"] is None


def test_a_failing_cell_is_shown_the_partial_notebook_is_kept_and_the_exit_code_says_so(outcome):
    assert "failed: cell 6 raised ZeroDivisionError: division by zero" in outcome["lines"]
    assert "1 / 0" in outcome["lines"]
    outputs = [output for cell in executed(outcome, "dialoguecse")["cells"] for output in cell.get("outputs", [])]
    assert any(output.get("text") in ("2\n", ["2\n"]) for output in outputs)
    assert outcome["code"] == 1


def test_a_notebook_that_does_not_exist_yet_is_left_out_with_a_line_that_says_so(outcome):
    assert "left out: notebooks/tadse.ipynb does not exist yet" in outcome["lines"]
    assert "1 ran, 1 failed, 1 left out" in outcome["lines"]


def test_the_report_follows_and_says_where_it_is(outcome):
    page = outcome["runs"] / "report" / "index.html"
    assert f"Report: {page.as_uri()}" in outcome["lines"]
    text = page.read_text(encoding="utf-8")
    assert "cell 6 raised ZeroDivisionError" in text and "notebooks/tadse.ipynb does not exist yet" in text


def test_when_nothing_fails_the_exit_code_is_zero(tmp_path, capsys):
    assert cli.main(["reproduce", "--out", str(tmp_path / "runs"), "--notebooks", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out.count("left out: ") == len(SLUGS)


def test_an_unknown_paper_is_refused_before_anything_runs(tmp_path, capsys):
    assert cli.main(["reproduce", "dze", "--out", str(tmp_path / "runs")]) == 2
    assert "did you mean 'dse'" in capsys.readouterr().err
    assert not list(Path(tmp_path).iterdir())


def write_notebook(folder: Path, *sources: str) -> Path:
    """A notebook of DSE with these cells, in a folder of notebooks."""
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / "dse.ipynb").write_text(json.dumps(notebook(*sources)), encoding="utf-8")
    return folder / "notebooks"


def ran(folder: Path, *sources: str) -> NotebookRun:
    return execute(Request("dse", out=folder / "runs"), ROOT, write_notebook(folder, *sources))


def has_ended(process: int) -> bool:
    """Whether a process ends within half a minute; one that nobody has waited for counts as ended."""
    for _ in range(300):
        if not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


SLOW_TO_END = """
    import time
    handlers = get_ipython().kernel.shell_handlers
    answer = handlers["kernel_info_request"]

    async def slowly(*message):
        await answer(*message)
        time.sleep(1)  # its handler of interrupts is still the one that raises

    handlers["kernel_info_request"] = slowly
"""


def test_a_kernel_that_takes_its_time_after_the_last_message_is_not_interrupted(tmp_path, capfd):
    assert ran(tmp_path, dedent(SLOW_TO_END)).status == "ran"
    assert "KeyboardInterrupt" not in "".join(capfd.readouterr())


CHILD = "import pathlib, subprocess; child = subprocess.Popen(['sleep', '1000']); "
CHILD += "pathlib.Path({!r}).write_text(str(child.pid))"


@pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are a thing of POSIX")
@pytest.mark.parametrize("last", ["", "1 / 0", "import os; os._exit(9)"], ids=["ran", "failed", "kernel died"])
def test_a_process_that_a_notebook_started_ends_with_the_run(tmp_path, last):
    assert ran(tmp_path, CHILD.format(str(tmp_path / "child")), last).status == ("failed" if last else "ran")
    assert has_ended(int((tmp_path / "child").read_text()))


def command(folder: Path, *sources: str) -> subprocess.Popen:
    """`dialnb run dse` on a notebook with these cells, in a process of its own that says everything to one pipe."""
    notebooks = write_notebook(folder, *sources)
    arguments = ["run", "dse", "--notebooks", str(notebooks), "--out", str(folder / "runs")]
    words = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    if sys.platform != "win32":  # tests that were begun by a shell with `&` ignore it, and so does what they begin
        words["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen([sys.executable, "-m", "dialnb", *arguments], cwd=ROOT, **words)


def interrupted(process: subprocess.Popen) -> str:
    """What a command says that is interrupted."""
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=300)[0]


@pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are a thing of POSIX")
def test_a_process_that_a_notebook_started_ends_with_a_run_that_is_interrupted(tmp_path):
    process = command(tmp_path, CHILD.format(str(tmp_path / "child")), "import time; print('begun'); time.sleep(1000)")
    while "begun" not in process.stdout.readline():
        assert process.poll() is None
    assert "interrupted" in interrupted(process) and process.returncode == 130
    assert has_ended(int((tmp_path / "child").read_text()))


def test_a_run_goes_on_when_nobody_reads_what_it_says(tmp_path):
    process = command(tmp_path, "print('first ' * 10_000)", "import sys; print('second ' * 10_000, file=sys.stderr)")
    assert process.stdout.readline().startswith("[1/1] dse")
    process.stdout.close()  # as `| head -1` does
    assert process.wait(timeout=300) == 0
    assert read_json(tmp_path / "runs" / "dse-quick-seed1" / "run.json")["status"] == "done"
    assert "second" in (tmp_path / "runs" / "dse-quick-seed1" / "log.txt").read_text(encoding="utf-8")
