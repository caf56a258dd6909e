"""The example in README, run as it stands by someone who knows only sentence-transformers and mteb."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import tiny

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")
mteb = pytest.importorskip("mteb", reason="the extra 'mteb' is not installed")

ROOT = Path(__file__).resolve().parent.parent


def test_a_script_trains_with_our_loss_evaluates_on_our_tasks_and_reads_our_results(tmp_path, monkeypatch, capsys):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(import mteb\n.*?)```", readme, re.DOTALL)
    assert len([line for line in script.splitlines() if line.strip()]) <= 12
    folder = tiny.encoder().save(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mteb, "evaluate", functools.partial(mteb.evaluate, cache=None, show_progress_bar=False))
    small = {
        '"sentence-transformers/all-MiniLM-L6-v2"': f'"{folder}", device="cpu"',
        "tasks.DSEFewShotIntents()": "tasks.limited(tasks.DSEFewShotIntents, train=2000, test=20)",
        "tasks.UMSAdversarialSelection()": "tasks.limited(tasks.UMSAdversarialSelection, groups=5)",
    }
    for whole, part in small.items():
        assert whole in script
        script = script.replace(whole, part)
    found = {}
    exec(compile(script, "README.md", "exec"), found)  # noqa: S102
    rows = found["tasks"].tidy_rows(found["results"])
    assert set(rows["task"]) == {"intent", "adversarial selection"}
    assert set(rows["dataset"]) == {"Clinc150", "Bank77", "Snips", "Hwu64", "UbuntuIRC"}
    assert "Adversarial R10@1" in capsys.readouterr().out
