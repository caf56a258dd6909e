"""Commands in what no other file of tests asks of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import tiny

import dialnb
from dialnb.cli import main
from dialnb.data import corpora
from dialnb.data.corpora import Conversation
from dialnb.data.own import from_csv
from dialnb.evaluation import bundled, diaeval

EXAMPLES = Path(dialnb.__file__).parent / "assets" / "examples"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of a few files."""
    for name in ("notebooks/dse.ipynb", "papers/dse/paper.yaml", "workflow/Snakefile", "workflow/.hidden"):
        place = tmp_path / "project" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(name, encoding="utf-8")
    monkeypatch.setenv("DIALNB_PROJECT", str(tmp_path / "project"))
    return tmp_path / "project"


def test_init_copies_the_project_and_never_over_files_of_ones_own(project, tmp_path, capsys):
    mine = tmp_path / "mine"
    assert main(["init", str(mine)]) == 0
    assert f"cd {mine} && jupyter lab notebooks" in capsys.readouterr().out
    assert (mine / "workflow" / "Snakefile").is_file() and not (mine / "workflow" / ".hidden").exists()
    (mine / "notebooks" / "dse.ipynb").write_text("changed", encoding="utf-8")
    assert main(["init", str(mine)]) == 1
    assert "already holds notebooks, papers, workflow, left as they are" in capsys.readouterr().err
    assert (mine / "notebooks" / "dse.ipynb").read_text(encoding="utf-8") == "changed"


def test_a_collection_is_written_to_a_file_that_gives_its_dialogues_again(tmp_path, monkeypatch, capsys):
    part = corpora.Part("bundled/CamRest676")
    monkeypatch.setitem(corpora.COLLECTIONS, "bundled", (part,))
    assert main(["corpus", "bundled", "-o", str(tmp_path / "corpus.jsonl.xz")]) == 0
    dialogues = corpora.read_corpus(tmp_path / "corpus.jsonl.xz")
    assert f"corpus.jsonl.xz: {len(dialogues):,} dialogues" in capsys.readouterr().out
    assert {dialogue.corpus for dialogue in dialogues} == {part.label}
    assert dialogues == list(corpora.conversations((part,)))


def test_of_a_corpus_file_only_the_parts_of_a_collection_are_read(tmp_path, monkeypatch, capsys):
    utterances = from_csv(EXAMPLES / "utterances.csv", held_out=0.25)
    monkeypatch.setattr(bundled, "intent_sets", lambda: {"Bank77": utterances})
    tiny.encoder().save(tmp_path / "start")
    label, said = "bundled/CamRest676", ("a table number {} please", "for how many of you", "two")
    spoken = [tuple(text.format(number) for text in said) for number in range(8)]
    path = tmp_path / "all.jsonl.xz"
    corpora.write_corpus(path, [Conversation(corpus, texts) for texts in spoken for corpus in ("my shop", label)])
    given = ["--corpus", str(path), "--encoder", str(tmp_path / "start"), "--set", "max_steps=1"]
    out = tmp_path / "out"
    assert (
        main(["train", "DSE", *given, "--set", "batch_size=4", "--only", "bundled", "--cap", "12", "-o", str(out)]) == 0
    )
    assert json.loads((out / "training.json").read_text(encoding="utf-8"))["read"] == [label]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"| {label} | 12 |" in card and "my shop" not in card
    assert main(["train", "DSE", *given, "--only", "bundeld", "-o", str(tmp_path / "other")]) == 2
    assert "did you mean 'bundled'?" in capsys.readouterr().err
    assert main(["train", "DSE", "--corpus", "bundeld", "-o", str(tmp_path / "other")]) == 1
    assert "there is no corpus 'bundeld': neither a file nor one of todbert, bundled" in capsys.readouterr().err


def test_the_adversarial_test_needs_a_file(capsys):
    assert main(["evaluate", "mini", "--tasks", "adversarial"]) == 2
    assert "name their file with --data" in capsys.readouterr().err


def test_nothing_is_held_out_of_a_file_that_has_a_split_to_test_on(tmp_path, capsys):
    tiny.encoder().save(tmp_path / "mine")
    utterances = pd.read_csv(EXAMPLES / "utterances.csv")
    place = utterances.groupby("intent").cumcount()
    utterances.assign(split=place.map(lambda count: "test" if count == 0 else "train")).to_csv(tmp_path / "own.csv")
    assert main(["evaluate", str(tmp_path / "mine"), "--data", str(tmp_path / "own.csv"), "--json"]) == 0
    shown = capsys.readouterr()
    assert "held out" not in shown.err
    assert {json.loads(line)["n"] for line in shown.out.splitlines()} == {utterances["intent"].nunique()}


def test_the_scores_of_diaeval_are_lines_of_json_where_that_is_asked_for(tmp_path, monkeypatch, capsys):
    scores = pd.DataFrame({"task": ["retrieval"], "metric": ["Top-1"], "value": [25.0], "n": [4]})
    test = diaeval.BENCHMARK[-1]._replace(function=lambda *_, **__: scores)
    monkeypatch.setattr(diaeval, "BENCHMARK", [test])
    tiny.encoder().save(tmp_path / "mine")
    assert main(["diaeval", str(tmp_path / "mine"), "--json"]) == 0
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert rows and all(row["value"] == 25 and row["table"] == "T4" and row["encoder"] for row in rows)
    assert "… response retrieval" in shown.err, "progress is not mixed with the scores"


def test_the_matrix_is_a_run_of_its_notebook(capsys):
    chosen = ["--profile", "smoke", "--seed", "2", "--dry-run"]
    assert main(["matrix", *chosen]) == 0
    short = capsys.readouterr().out
    assert main(["run", "matrix", *chosen]) == 0
    assert short == capsys.readouterr().out and "nothing is executed" in short


def test_terms_and_changes_of_bundled_data_are_json_where_that_is_asked_for(capsys):
    assert main(["data", "info", "bundled/star", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out).values()
    assert entry["licence"] and entry["changes"] and entry["variants"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_whose_reader_is_gone_before_it_says_anything_ends_well(unbuffered):
    """What it says waits in a buffer until the end, or does not."""
    reading, writing = os.pipe()
    os.close(reading)
    command, settings = [sys.executable, "-m", "dialnb", "--version"], os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, env=settings, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
