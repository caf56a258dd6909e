"""The papers' own notebooks, headless, in their smallest profile and from an encoder of one layer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from dialnb.models.encoder import Encoder, load_encoder
from dialnb.papers import load_paper
from dialnb.training.pretrain import new_transformer

SHAPE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """The run folder of `dialnb run dse --profile smoke`."""
    folder = tmp_path_factory.mktemp("dse")
    pieces = load_encoder("mini", device="cpu").tokenizer
    Encoder(new_transformer("bert", SHAPE, len(pieces)), pieces, name="tiny").save(folder / "tiny")
    command = [sys.executable, "-m", "dialnb", "run", "dse", "--profile", "smoke", "--out", str(folder / "runs")]
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DIALNB_CACHE": str(folder / "cache")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIALNB_")}
    ran = subprocess.run(
        [*command, "--encoder", str(folder / "tiny")], env=kept | settings, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return next((folder / "runs").iterdir())


def test_every_printed_table_is_written_with_a_reason_for_each_row_that_did_not_run(done):
    shown = set(load_paper("dse").tables) - {"T1"}
    assert {path.stem for path in (done / "tables").glob("*.csv")} == shown
    for table in shown:
        rows = pd.read_csv(done / "tables" / f"{table}.csv")
        missing = rows[rows["status"] == "not run"]
        unsaid = missing[missing["note"] == "not part of this run"]
        assert unsaid.empty, f"{table}: {unsaid[['model', 'column']].to_dict('records')[:3]}"


def test_no_claim_is_left_undecided_for_rows_that_cannot_be_told_apart(done):
    claims = json.loads((done / "claims.json").read_text(encoding="utf-8"))
    assert not [claim["id"] for claim in claims if "one row per seed" in claim["reason"]]
    judged = {claim["id"] for claim in claims if claim["verdict"] != "not run"}
    assert {"raw-intents", "out-of-scope", "utterance-selection", "dialogue-selection"} <= judged


def test_figures_come_with_the_data_they_were_drawn_from(done):
    names = {path.stem for path in (done / "figures").glob("*.png")}
    assert names == {"F1", "F2", "geometry", "training"} == {path.stem for path in (done / "figures").glob("*.csv")}
    plane = pd.read_csv(done / "figures" / "F1.csv")
    assert set(plane["part"]) == {"intents", "questions and answers"} and plane["preservation"].between(0, 1).all()
    reasons = {entry["table"]: entry["reason"] for entry in json.loads((done / "run.json").read_text())["not_run"]}
    assert "smoke" in reasons["F3"] and "smoke" in reasons["F1-umap"] and "ANLI" in reasons["X1"]
