"""`dialnb reproduce` on small real notebooks: what runs, is left out or fails, and that the report follows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dialnb import cli
from dialnb.claims.papers import SLUGS


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
