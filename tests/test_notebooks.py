"""Committed notebooks stay clean: no outputs, no execution counts, one kernel that everybody has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shared import are_stripped

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


def test_committed_notebooks_are_stripped_and_a_dirty_one_would_be_found(tmp_path):
    assert are_stripped(*NOTEBOOKS)
    notebook = json.loads(NOTEBOOKS[0].read_text(encoding="utf-8"))
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["execution_count"] = 3
    dirty = tmp_path / "dirty.ipynb"
    dirty.write_text(json.dumps(notebook), encoding="utf-8")
    assert not are_stripped(dirty)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_names_the_kernel_that_every_jupyter_has(path):
    assert json.loads(path.read_text(encoding="utf-8"))["metadata"]["kernelspec"]["name"] == "python3"
