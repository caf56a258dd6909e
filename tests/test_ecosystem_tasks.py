"""Our tasks in mteb: its evaluation of any model gives our rows, to the digit."""

from __future__ import annotations

import pandas as pd
import pytest
import tiny

from dialnb.data import load
from dialnb.data.datasets import named_data
from dialnb.evaluation import diaeval, evaluate_adversarial, evaluate_prototypes, evaluate_scope
from dialnb.evaluation.selection import cosine_scorer
from dialnb.examples.readings import thin
from dialnb.models.encoder import load_encoder

pytest.importorskip("sentence_transformers")
mteb = pytest.importorskip("mteb", reason="the extra 'mteb' is not installed")
tasks = pytest.importorskip("dialnb.ecosystem.tasks")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.encoder().save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def ours(folder):
    return load_encoder(folder, device="cpu")


@pytest.fixture(scope="module")
def model(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def evaluated(model, task) -> tuple[dict, pd.DataFrame]:
    results = mteb.evaluate(model, [task], cache=None, show_progress_bar=False)
    scores = {part["hf_subset"]: part for part in results.task_results[0].scores["test"]}
    return scores, tasks.tidy_rows(results)


def assert_ours(rows: pd.DataFrame, expected: pd.DataFrame) -> None:
    extra = ["encoder", "mteb_task"]
    assert set(rows.columns) - set(expected.columns) == set(extra)
    pd.testing.assert_frame_equal(rows.drop(columns=extra), expected, check_dtype=False, rtol=1e-12)


def test_few_shot_intents_are_ours(model, ours):
    task = tasks.limited(tasks.DSEFewShotIntents, train_limit=300, limit=60).filter_languages(
        None, hf_subsets=["Snips"]
    )
    scores, rows = evaluated(model, task)
    records = load("bundled/SNIPS", "dse")
    parts = [thin(list(records.filter(split=split)), limit) for split, limit in (("train", 300), ("test", 60))]
    expected = evaluate_prototypes(ours, *parts, dataset="Snips")
    assert_ours(rows, expected)
    one_shot = expected.query("shots == 1")["value"].mean() / 100
    assert scores["Snips"]["main_score"] == pytest.approx(one_shot, abs=1e-12)
    assert set(rows["mteb_task"]) == {"DSEFewShotIntents-train_limit300-limit60"}


def test_out_of_scope_is_ours(model, ours, monkeypatch):
    records = load("bundled/CLINC150", "plus").filter(intent=("oos", "balance", "yes", "no"))
    monkeypatch.setattr(tasks, "load", lambda name, variant: records)
    scores, rows = evaluated(model, tasks.limited(tasks.DSEOutOfScope, limit=50))
    train, test = (list(records.filter(split=split)) for split in ("train", "test"))
    assert_ours(rows, evaluate_scope(ours, train, thin(test, 50), dataset="Clinc150"))
    assert 0 < scores["Clinc150"]["main_score"] < 1


def test_diaeval_is_ours(model, ours):
    sizes = {"limit": 10, "train_limit": 30}
    _, rows = evaluated(model, tasks.limited(tasks.DiaEvalInference, **sizes))
    data = named_data("wmdc", "consistency", "bundled")[0]["CI-ToD"]
    assert_ours(rows, diaeval.evaluate_inference(ours, data, dataset="CI-ToD", **sizes))
    _, rows = evaluated(model, tasks.limited(tasks.DiaEvalRetrieval, limit=4))
    data = named_data("wmdc", "candidates", "bundled")[0]["UbuntuIRC"]
    assert_ours(rows, diaeval.retrieval_of(ours, data, "UbuntuIRC", limit=4))
    scores, rows = evaluated(model, tasks.limited(tasks.DiaEvalActions, **sizes))
    data = named_data("wmdc", "actions", "bundled")[0]["STAR"]
    assert_ours(rows, diaeval.evaluate_actions(ours, data, dataset="STAR", **sizes))
    assert 0 <= scores["STAR"]["main_score"] <= 1


def test_adversarial_selection_is_ours(model, ours):
    scores, rows = evaluated(model, tasks.limited(tasks.UMSAdversarialSelection, limit=12))
    lists = thin(load("bundled/UbuntuIRC", "selection-10").filter(split="test"), 12)
    expected = evaluate_adversarial(cosine_scorer(ours), lists, dataset="UbuntuIRC")
    assert_ours(rows, expected)
    drawn = expected.query("ties == 'against' and metric == 'Adversarial R10@1'")["value"].mean()
    assert scores["UbuntuIRC"]["main_score"] == pytest.approx(drawn)


def test_every_task_tells_licence_citation_and_where_its_score_comes_from():
    for task in tasks.TASKS:
        about = task.metadata
        assert about.license and about.bibtex_citation.startswith("@") and about.description
        assert about.name == task.__name__ and about.hf_subsets
    assert tasks.DSEFewShotIntents.metadata.license == "multiple"
    assert tasks.DSEOutOfScope.metadata.license == "cc-by-3.0"
