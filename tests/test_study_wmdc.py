"""DiaEval and the WMDC study: groups of test dialogues, both readings of DECODE, nested corpora, every sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from shared import from_notebook

from dialnb.claims import load_claims
from dialnb.claims.comparison import compare_table
from dialnb.claims.intervals import mean_interval
from dialnb.cli import main
from dialnb.data import Dataset, load
from dialnb.data.datasets import named_data
from dialnb.data.records import Dialogue, InferenceItem, SelectionGroup, Utterance
from dialnb.data.tables import build_table
from dialnb.errors import UnknownName
from dialnb.evaluation import diaeval
from dialnb.evaluation.metrics import accuracy, f1_scores, group_values
from dialnb.evaluation.sampling import item_groups
from dialnb.examples.readings import Dialogues
from dialnb.examples.windows import response_frequencies
from dialnb.runs import Model
from dialnb.runs.fingerprints import stage_key
from dialnb.runs.grid import job_of
from dialnb.runs.profiles import load_profiles
from dialnb.studies import dse, wmdc
from dialnb.training.recipes import wmdc as windows_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    defined = ("benchmark_rows", "known_domains", "figure_data", "count_corpora")
    defined += ("nested", "task_scores", "share_curve", "sample_pairs")
    return from_notebook("wmdc", tmp_path_factory.mktemp("notebook"), *defined)


def made(folder: Path, records: list, name: str = "made", variant: str = "") -> Dataset:
    table = build_table(records, folder / f"{name}.json", name)
    return Dataset(name, variant, "none", name, table, np.arange(len(records)))


def resolved(profile: str, **changes) -> dict:
    return load_profiles("wmdc").resolve(profile, overrides=changes)


# --- groups of test items -----------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), min_size=20, max_size=60), st.integers(2, 10))
def test_values_of_groups_average_to_the_score_of_all(hits, count):
    hit = np.array(hits)
    groups = item_groups(range(len(hit)), count)
    values = group_values(lambda rows: {"Accuracy": accuracy(hit[rows], np.ones(len(rows), bool))}, groups)
    assert np.mean([v["Accuracy"] for v in values.values()]) == pytest.approx(100 * hit.mean())
    if len(hit) % count == 0:
        assert [v["Accuracy"] for v in values.values()] == pytest.approx(
            [100 * hit[groups == g].mean() for g in range(count)]
        )


def test_the_interval_over_groups_covers_the_truth_of_an_f1_that_is_no_average():
    rng, covered = np.random.default_rng(0), 0
    for _ in range(60):
        gold = rng.random((600, 3)) < 0.3
        found = np.where(rng.random((600, 3)) < 0.8, gold, rng.random((600, 3)) < 0.3)
        values = group_values(lambda rows, g=gold, f=found: f1_scores(g[rows], f[rows]), item_groups(range(600), 10))
        interval = mean_interval(np.array([v["Micro-F1"] for v in values.values()]))
        assert interval.estimate == pytest.approx(f1_scores(gold, found)["Micro-F1"])
        covered += interval.low <= 86 <= interval.high  # 0.8 + 0.2 * 0.3 of the acts are found, and as many are right
    assert covered >= 50


def test_utterances_of_one_dialogue_share_a_group():
    keys = [f"dialogue {i // 7}" for i in range(700)]
    groups = item_groups(keys)
    assert len(set(zip(keys, groups))) == 100 and np.bincount(groups).tolist() == [70] * 10


@pytest.mark.parametrize(
    ("task", "records", "dataset"),
    [
        (
            diaeval.evaluate_inference,
            [
                InferenceItem(f"{c} {i}", (f"talk {c}", "so", f"a {i}"), str(i % 2), split)
                for split in diaeval.SPLITS
                for c in "abcdefghijkl"
                for i in range(4)
            ],
            "CI-ToD",
        ),
        (
            diaeval.retrieval_of,
            [
                SelectionGroup(f"log:{c}#{i}", (f"talk {c}",), ("yes", "no"), (1, 0))
                for c in "abcdefghijkl"
                for i in range(4)
            ],
            "UbuntuIRC",
        ),
    ],
)
def test_items_of_one_conversation_share_a_group(tmp_path, monkeypatch, task, records, dataset):
    asked = []
    monkeypatch.setattr(
        diaeval, "item_groups", lambda keys, *rest: asked.append(list(keys)) or item_groups(keys, *rest)
    )
    task(tiny.encoder(), made(tmp_path, records), dataset=dataset)
    assert [asked[0].count(key) for key in dict.fromkeys(asked[0])] == [4] * 12


# --- DiaEval ------------------------------------------------------------------------------------------------------


def acts_corpus(folder: Path, variant: str) -> Dataset:
    said = [Utterance("system", "where to", ("REQUEST",)), Utterance("user", "to the north", ("INFORM",)),
            Utterance("system", "this one", ("SELECT",)), Utterance("user", "hm"), Utterance("system", "it is booked",
            ("NOTIFY_SUCCESS",))]  # fmt: skip
    return made(folder, [Dialogue(str(i), tuple(said), split=s) for i, s in enumerate(diaeval.SPLITS)], "GSIM", variant)


OFFER, BOOKED = ("sys_offer",), ("sys_notify_success",)


@pytest.mark.parametrize(("variant", "labels"), [("copies", [OFFER, BOOKED]), ("official", [OFFER, (), BOOKED])])
def test_unknown_acts_are_not_asked_for_but_known_absence_is(tmp_path, variant, labels):
    samples = diaeval.asked_actions(acts_corpus(tmp_path, variant), "GSIM")
    assert [example.acts for example in samples["test"]] == labels
    assert samples["test"][0].text == "where to [SEP] to the north"


def test_a_dataset_without_a_training_set_is_cross_validated(tmp_path):
    said = [(f"{chr(97 + i // 2)} yes", "so", "no" if i % 2 else "yes") for i in range(60)]
    items = [InferenceItem(str(i), words, str(i % 2), "test") for i, words in enumerate(said)]
    rows = diaeval.evaluate_inference(tiny.encoder(), made(tmp_path, items), dataset="DECODE")
    probe = rows[rows["protocol"] == "paper"]
    assert sorted(probe["seed"]) == list(range(10)) and set(probe["n"]) == {60}
    assert probe["value"].mean() == 100, "the last word tells the label"


def test_long_dialogues_of_decode_are_left_out():
    assert diaeval.short_enough(InferenceItem("a", ("so, what?",) * 60, "0"))
    assert not diaeval.short_enough(InferenceItem("a", ("so, what?",) * 70, "0"))


def test_histories_are_joined_by_the_encoders_own_separator():
    assert diaeval.separator_of(tiny.encoder()) == "[SEP]"
    assert diaeval.separator_of(lambda texts: [[1.0] for _ in texts]) == "[SEP]"


def test_the_other_reading_of_decode_needs_a_file_and_says_so():
    found, lacking = named_data("wmdc", "entailment", "bundled")
    assert not found and lacking["Dialogue-NLI"].startswith("needs Dialogue-NLI, which is not bundled")
    with pytest.raises(UnknownName, match="level of data"):
        named_data("wmdc", "consistency", "nowhere")
    with pytest.raises(UnknownName, match=r"data in data\.yaml of wmdc"):
        named_data("wmdc", "contradictions", "bundled")


def test_the_command_prints_every_task_beside_the_papers_rows(tmp_path, capsys):
    tiny.encoder().save(tmp_path / "mine")
    small = ["--limit", "20", "--train-limit", "30", "--lists", "4"]
    assert main(["diaeval", str(tmp_path / "mine"), *small, "-o", str(tmp_path / "rows.csv")]) == 0
    shown = capsys.readouterr().out
    assert shown.count("mine (here)") == 3 and "WMDC-RoBERTa" in shown and "majority label (here)" in shown
    assert (
        "STAR in place of DSTC2" in shown
        and "Not run: DECODE" in shown
        and "Not run: GSIM" in shown
        and "nan" not in shown
    )
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert {"STAR", "CI-ToD", "UbuntuIRC"} == set(rows["dataset"]) and {"task", "metric", "seed", "value", "n"} <= set(
        rows
    )
    summary = diaeval.diaeval_summary(rows).set_index(["dataset", "metric"])
    top = rows.query("metric == 'Top-3' and dataset == 'UbuntuIRC' and ties == 'against'")
    assert summary.loc[("UbuntuIRC", "Top-3"), "value"] == pytest.approx(top["value"].mean(), abs=0.005)
    assert (
        summary.loc[("UbuntuIRC", "Top-3"), "n"] == 4 and ("CI-ToD", "Accuracy of the majority label") in summary.index
    )
    assert len(summary) == 2 + 2 + 4
    assert diaeval.diaeval_summary(top.head(1))["±"].isna().all(), "one group has no interval, and no warning"
    compared = compare_table("wmdc", "T4", rows.assign(model="mine")).rows.query("model == 'mine'")
    assert (compared["status"] == "substitute").all() and (compared["seeds"] == 4).all()


def test_the_command_keeps_what_was_scored_before_it_was_interrupted(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        diaeval, "BENCHMARK", [diaeval.BENCHMARK[1], diaeval.BENCHMARK[0]._replace(function=interrupted)]
    )
    tiny.encoder().save(tmp_path / "mine")
    small = ["--limit", "20", "--train-limit", "30"]
    assert main(["diaeval", str(tmp_path / "mine"), *small, "-o", str(tmp_path / "rows.csv")]) == 130
    assert set(pd.read_csv(tmp_path / "rows.csv")["dataset"]) == {"CI-ToD"}


def test_the_command_refuses_a_file_that_cannot_be_written_before_it_scores(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["diaeval", "no encoder of this name", "-o", str(tmp_path / "file" / "rows.csv")]) == 1
    assert "nothing can be written to " in capsys.readouterr().err


def test_the_command_refuses_impossible_limits(capsys):
    assert main(["diaeval", "mini", "--lists", "1"]) == 2
    assert "1 is not in the range x>=2" in capsys.readouterr().err


# --- counting -----------------------------------------------------------------------------------------------------


def test_the_benchmark_counts_what_is_scored_not_what_lies_in_the_file(notebook, mirror_store):
    rows = notebook.benchmark_rows("GSIM", load("GSIM", store=mirror_store))
    assert {row["column"]: row["value"] for row in rows} == {"train": 2775, "val": 2787, "test": 1905, "labels": 13}
    assert {row["substitute"] for row in rows} == {"the turns whose acts are known"}
    few = notebook.benchmark_rows("GSIM", load("GSIM", store=mirror_store), limit=50, train_limit=40)
    assert {row["column"]: row["value"] for row in few} == {"train": 40, "val": 50, "test": 50, "labels": 13}
    assert "a sample of them" in few[0]["substitute"]


def test_curves_hold_the_share_of_the_top_percent_exactly(notebook):
    said = [["yes"] * 30 + [f"utterance {i}" for i in range(199)]]
    curve = notebook.share_curve(response_frequencies(said))
    nearest = (curve["top"] - 1).abs().argmin()
    assert curve["share"].iloc[nearest] == pytest.approx(100 * 31 / 229), "two of two hundred"
    assert curve["share"].is_monotonic_increasing and curve["share"].iloc[-1] == pytest.approx(100)


def test_bundled_corpora_are_counted_one_by_one(notebook):
    corpora = {"WOZ2.0": load("bundled/WOZ2.0"), "STAR": load("bundled/STAR")}
    found = notebook.count_corpora(corpora, ["WOZ2.0"], 20, 5, 2, 6)
    assert found["sizes"]["dialogues"].tolist() == [20, 20]
    assert list(dict.fromkeys(found["curves"]["corpus"])) == ["WOZ2.0", "STAR", "all corpora"]
    assert len(found["rare"]) == 5 and found["pairs"].groupby("draw").size().tolist() == [6, 6]
    assert {len(context) for context in found["pairs"]["context"]} == {3}
    of_both, of_one = (sum(found["frequencies"][part].values()) for part in ("every", "nine"))
    assert of_one < of_both, "STAR is not among those of TOD-BERT"


def test_the_drawing_weighs_frequent_utterances_less():
    drawn = wmdc.window_rows([Utterance("user", "a  table"), Utterance("system", "yes")], [1, 20])
    assert drawn["weight"].tolist() == pytest.approx([1, 1 / (np.log(20) + 1)]) and drawn["text"].iloc[0] == "a table"


# --- models -------------------------------------------------------------------------------------------------------


def test_baselines_are_the_stages_of_the_dse_notebook():
    own, other = resolved("gpu"), load_profiles("dse").resolve("gpu")
    talks, encoder = Dialogues([load("bundled/CamRest676")]), tiny.encoder()
    for recipe in ("DSE", "SimCSE-unsup", "TOD-BERT"):
        here = job_of(own, dse.model(recipe, talks), encoder, 1)
        assert stage_key(*here) == stage_key(*job_of(other, dse.model(recipe, talks), encoder, 1))
    whole = {name: job_of(own, Model(name, data=talks), encoder, 1)[1]["settings"] for name in ("DSE", "WMDC")}
    assert {name: (found.epochs, found.max_steps) for name, found in whole.items()} == {
        "DSE": (15, None),
        "WMDC": (1, None),
    }, "each has the training that its paper prints"
    assert (own["corpus"], own["dialogues"], own["encoder"]) == (other["corpus"], other["dialogues"], other["encoder"])


def test_the_printed_settings_of_wmdc_stand_in_the_paper_profile():
    settings, quick = (job_of(resolved(name), Model("WMDC"), None, 1)[1]["settings"] for name in ("paper", "quick"))
    assert (settings.batch_size, settings.learning_rate, settings.schedule) == (256, 3e-5, "onecycle")
    assert settings.head_learning_rate == pytest.approx(40 * 3e-5) and settings.max_steps is None
    assert quick.head_learning_rate == pytest.approx(40 * quick.learning_rate)


def test_windows_are_named_after_what_differs():
    assert windows_recipe((1, 2, 3)).name == "WMDC"
    assert windows_recipe((1, 2, 3, 4, 5), None).name == "WMDC {1,2,3,4,5} w/o IRF"


@given(st.floats(0.05, 0.5), st.floats(0.5, 1.0))
def test_smaller_parts_of_a_corpus_lie_within_larger_ones(notebook, less, more):
    records = load("bundled/CamRest676")
    small, large = (set(notebook.nested([records], part)[0].rows.tolist()) for part in (less, more))
    assert small <= large and len(small) == max(1, round(less * len(records)))


def test_the_whole_corpus_is_the_same_stage_as_the_model_of_figure_3(notebook):
    s, records = resolved("gpu"), load("bundled/CamRest676")
    whole, part = (notebook.nested([records], share)[0] for share in (1.0, 0.5))
    assert sorted(whole.rows.tolist()) == list(range(len(records))) and len(part) < len(whole)
    short = {"max_steps": s.sweep_steps, "epochs": float(s.sweep_steps)}
    models = [Model("WMDC", data=Dialogues([each]), settings=short) for each in (whole, whole, part)]
    keys = [stage_key(*job_of(s, model, tiny.encoder(), 1)) for model in models]
    assert keys[0] == keys[1] != keys[2]
    for model in models:
        settings = job_of(s, model, tiny.encoder(), 1)[1]["settings"]
        assert settings.total_steps(3) == s["sweep_steps"], "as many steps, however small the part"


def test_domains_that_training_lacks_can_be_left_out(notebook):
    records = load("bundled/CI-ToD")
    known = notebook.known_domains(records)
    assert len(records.filter(split="test")) == 318 and len(known.filter(split="test")) == 212, "without the weather"
    assert len(known.filter(split="train")) == len(records.filter(split="train"))


def test_scores_of_the_sweeps_keep_their_trainings(notebook):
    rows = [(seed, group, seed + group) for seed in (1, 2, 3) for group in range(2)]
    frame = pd.DataFrame(rows, columns=["train_seed", "seed", "value"])
    frame = frame.assign(table="T3", dataset="C", metric="Accuracy", protocol="paper", n=5, model="x", window=1)
    found = notebook.task_scores(frame, "window")
    assert found.groupby("train_seed")["value"].mean().to_dict() == {1: 1.5, 2: 2.5, 3: 3.5}
    both = pd.concat([found, found.assign(window=2)])
    drawn = notebook.figure_data(both, "window")
    assert len(drawn) == 2 * 2 * 2, "a figure has the means over trainings: groups, windows, the task and the average"


def test_every_model_of_the_claims_can_be_made():
    rows = ("SimCSE-BERT-unsup", "TOD-JNT-BERT", "DSE-BERT", "WMDC-BERT")
    second = ("SimCSE-RoBERTa-unsup", "DSE-RoBERTa", "WMDC-RoBERTa")
    known = {"BERT", "RoBERTa", *rows, *second, *wmdc.CHECKPOINTS}
    sides = [side for c in load_claims("wmdc") for side in (c.better, *np.atleast_1d(c.worse or {}))]
    assert {side["model"] for side in sides if "model" in side} <= known
    assert set(resolved("paper")["checkpoints"]) == set(wmdc.CHECKPOINTS)


# --- scores -------------------------------------------------------------------------------------------------------


def test_bands_show_what_differs_between_points_not_what_a_group_shares(notebook):
    rows = [("a", g, 10 * g + p) for g in range(5) for p in (0,)] + [("b", g, 10 * g + 3 + g % 2) for g in range(5)]
    frame = pd.DataFrame(rows, columns=["model", "seed", "value"])
    frame = frame.assign(task="t", metric="m", x=frame["model"].map({"a": 1, "b": 2}))
    paired = notebook.figure_data(frame, "x").query("task == 't'")
    assert paired.groupby("model")["value"].mean().tolist() == pytest.approx(frame.groupby("model")["value"].mean())
    assert paired.groupby("model")["value"].std().max() < 0.5 < frame.groupby("model")["value"].std().min()


def test_one_score_per_task_averages_its_datasets(notebook):
    rows = [("T2", "A", "Micro-F1", 10.0), ("T2", "B", "Micro-F1", 30.0), ("T2", "A", "Macro-F1", 99.0),
            ("T3", "C", "Accuracy", 50.0), ("T4", "D", "Top-3", 7.0), ("T4", "D", "Top-1", 1.0)]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["table", "dataset", "metric", "value"])
    frame = frame.assign(protocol="paper", seed=0, n=5, model="x")
    found = notebook.task_scores(frame).set_index("task")["value"].to_dict()
    assert found == {"action prediction": 20, "dialogue inference": 50, "response retrieval": 7}
    points = pd.concat([notebook.task_scores(frame).assign(window=window) for window in (1, 2)])
    means = notebook.figure_data(points, "window").query("task == 'average of the three'")["value"]
    assert means.tolist() == pytest.approx([77 / 3] * 2)
