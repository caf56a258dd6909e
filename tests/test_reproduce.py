"""`dialnb reproduce` on small real notebooks: what runs, is left out or fails, and what the report says of it."""

from __future__ import annotations

import argparse
import json
import os
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dialnb import notebooks
from dialnb.commands import reproduce as command
from dialnb.errors import UnknownName
from dialnb.papers import SLUGS, load_paper
from dialnb.report import format_cell, render
from dialnb.runs.reproduce import Heartbeat, NotebookRun, reproduce


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
    metadata = {"kernelspec": notebooks.KERNEL, "language_info": notebooks.LANGUAGE}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def write(path: Path, content: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


class Page(HTMLParser):
    """The links, ids and texts of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.ids += [values["id"]] if "id" in values else []

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """One real run of the command: DSE runs, DialogueCSE fails in its second part, TaDSE has no notebook."""
    folder = tmp_path_factory.mktemp("reproduce")
    environment = "import os; print('kernel says', profile, os.environ['DIALNB_OFFLINE'], os.environ['HF_HUB_OFFLINE'])"
    write(folder / "notebooks" / "dse.ipynb", notebook(environment))
    write(folder / "notebooks" / "dialoguecse.ipynb", notebook("kept = 1 + 1; print(kept)", "1 / 0"))
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    arguments = ["reproduce", "dse", "dialoguecse", "tadse", "--profile", "quick"]
    options = parser.parse_args([*arguments, "--out", str(folder / "runs"), "--notebooks", str(folder / "notebooks")])
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("dialnb.runs.reproduce._say", lines.append)
        patch.delenv("DIALNB_OFFLINE", raising=False)
        code = command.run(options)
        left_behind = os.environ.get("DIALNB_OFFLINE")
    return {"code": code, "lines": "\n".join(lines), "runs": folder / "runs", "left_behind": left_behind}


def executed(outcome: dict, slug: str) -> dict:
    return json.loads((outcome["runs"] / "quick" / slug / f"{slug}.ipynb").read_text(encoding="utf-8"))


def test_the_profile_reaches_the_notebook_and_the_kernel_is_offline(outcome):
    texts = [output["text"] for cell in executed(outcome, "dse")["cells"] for output in cell.get("outputs", [])]
    assert "kernel says quick 1 1" in "".join("".join(text) for text in texts)


def test_the_offline_setting_ends_with_the_run(outcome):
    assert outcome["left_behind"] is None


def test_progress_names_the_paper_the_cell_and_its_heading(outcome):
    assert f"[1/3] dse  {load_paper('dse').title}" in outcome["lines"]
    assert "cell 4/4  Part 1" in outcome["lines"]  # papermill adds a cell with the injected parameters
    assert "    ran in " in outcome["lines"]


def test_a_failing_cell_is_shown_the_partial_notebook_is_kept_and_the_exit_code_says_so(outcome):
    assert "failed: cell 6 raised ZeroDivisionError: division by zero" in outcome["lines"]
    assert "1 / 0" in outcome["lines"]
    outputs = [output for cell in executed(outcome, "dialoguecse")["cells"] for output in cell.get("outputs", [])]
    assert any(output.get("text") in ("2\n", ["2\n"]) for output in outputs)
    assert outcome["code"] == 1


def test_a_notebook_that_does_not_exist_yet_is_left_out_with_a_line_that_says_so(outcome):
    assert "left out: notebooks/tadse.ipynb does not exist yet" in outcome["lines"]


def test_the_report_tells_ran_failed_left_out_and_not_asked_for_apart(outcome):
    text = Page(outcome["runs"] / "report" / "index.html").text
    for status in ("ran", "failed", "left out", "not asked for"):
        assert status in text
    assert "cell 6 raised ZeroDivisionError" in text


def test_every_link_of_the_report_leads_to_a_file_or_an_anchor_and_none_leaves_the_folder_of_runs(outcome):
    folder = outcome["runs"] / "report"
    page = Page(folder / "index.html")
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert link[1:] in page.ids if link.startswith("#") else (folder / link).is_file(), link
    assert "../quick/dse/dse.ipynb" in page.links


def test_the_report_holds_every_published_table_of_every_paper(outcome):
    page = Page(outcome["runs"] / "report" / "index.html")
    for slug in SLUGS:
        for table in load_paper(slug).tables.values():
            assert f"{slug}-{table.id}" in page.ids
            assert table.caption in page.text
    assert "97.00" in page.text and "892,835" in page.text


def test_when_nothing_fails_the_exit_code_is_zero(tmp_path, capsys):
    options = argparse.Namespace(papers=[], profile="quick", out=tmp_path / "runs", notebooks=tmp_path / "none")
    assert command.run(options) == 0
    printed = capsys.readouterr().out
    assert printed.count("does not exist yet") == len(SLUGS)
    assert f"Report: {(tmp_path / 'runs' / 'report' / 'index.html').as_uri()}" in printed


def test_an_unknown_paper_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'dse'"):
        reproduce(slugs=["dze"], out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_reason_from_a_notebook_cannot_inject_markup_into_the_report(tmp_path):
    page = render([NotebookRun("dse", "failed", "<script>alert(1)</script>")], "quick", tmp_path)
    assert "<script" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(97.0, 2, "97.00"), (22.9, 0, "22.9"), (1039, 2, "1,039"), ("1:9", 2, "1:9"), (None, 2, "–")],
)
def test_cells_are_printed_as_the_paper_prints_them(value, digits, text):
    assert format_cell(value, digits) == text


def test_a_long_cell_keeps_reporting_until_the_next_one(monkeypatch, capsys):
    monkeypatch.setattr("dialnb.runs.reproduce.HEARTBEAT_SECONDS", 0.01)
    with Heartbeat() as heartbeat:
        heartbeat.announce("cell 2/9  Training")
        while "Training ... " not in (seen := capsys.readouterr().out):
            assert "Traceback" not in seen
