"""Committed notebooks stay clean, and the check that keeps them so catches what it should."""

from __future__ import annotations

import copy
import json

import pytest

from dialnb.notebooks import KERNEL, LANGUAGE, clean, find_notebooks, main, problems

CLEAN = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Title"},
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {"tags": ["parameters"]},
            "source": "seed = 1",
            "execution_count": None,
            "outputs": [],
        },
    ],
    "metadata": {"kernelspec": KERNEL, "language_info": LANGUAGE},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def dirtied(change) -> dict:
    notebook = copy.deepcopy(CLEAN)
    change(notebook)
    return notebook


DIRT = {
    "cell 2 carries outputs": lambda n: n["cells"][1].update(outputs=[{"output_type": "stream", "text": "hi"}]),
    "cell 2 carries an execution count": lambda n: n["cells"][1].update(execution_count=3),
    "cell 1 carries stray metadata: scrolled": lambda n: n["cells"][0]["metadata"].update(scrolled=True),
    "stray notebook metadata: widgets": lambda n: n["metadata"].update(widgets={}),
    "kernelspec must be": lambda n: n["metadata"].update(kernelspec={"name": "my-env", "display_name": "mine"}),
}


def test_a_clean_notebook_has_no_problems_and_cleaning_changes_nothing():
    assert problems(CLEAN) == []
    assert clean(CLEAN) == CLEAN


@pytest.mark.parametrize("finding", DIRT)
def test_each_kind_of_dirt_is_found_and_cleaned_away(finding):
    notebook = dirtied(DIRT[finding])
    assert len(problems(notebook)) == 1 and problems(notebook)[0].startswith(finding)
    assert clean(notebook) == CLEAN


def test_the_command_fails_on_dirt_and_strips_it_on_request(tmp_path, capsys):
    path = tmp_path / "dse.ipynb"
    path.write_text(json.dumps(dirtied(DIRT["cell 2 carries outputs"])), encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    assert f"{path}: cell 2 carries outputs" in capsys.readouterr().err
    assert main(["--fix", str(tmp_path)]) == 0
    assert main([str(tmp_path)]) == 0
    assert json.loads(path.read_text(encoding="utf-8")) == CLEAN


def test_checkpoint_copies_are_not_looked_at(tmp_path):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for path in (tmp_path / "dse.ipynb", tmp_path / ".ipynb_checkpoints" / "dse.ipynb"):
        path.write_text("{}", encoding="utf-8")
    assert find_notebooks([tmp_path]) == [tmp_path / "dse.ipynb"]


def test_a_path_that_does_not_exist_is_a_usage_error_not_a_clean_bill(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / "nowhere")])
    assert stop.value.code == 2 and "found nothing at" in capsys.readouterr().err
