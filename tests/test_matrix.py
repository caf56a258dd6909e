"""The matrix: ranks and tests against hand-checked examples, equal budgets, and its notebook through the runner."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import shared
import torch
import yaml
from huggingface_hub import ModelCard
from scipy import stats
from tiny import one_layer

from dialnb import cli
from dialnb.claims import judge_claims, load_claims
from dialnb.claims.comparison import compare_table
from dialnb.claims.papers import FLOORS, OWN, load_paper
from dialnb.claims.ranks import friedman, nemenyi_difference, ranks_of
from dialnb.data import load
from dialnb.ecosystem import hub
from dialnb.errors import DataError
from dialnb.examples.readings import FILLS, Dialogues, SpokenTemplates, reply_lists
from dialnb.files import read_rows
from dialnb.plots.ranks import critical_difference, groups_within, rank_grid
from dialnb.report import build
from dialnb.report.gather import gather, recorded_runs
from dialnb.runs import start
from dialnb.runs.grid import Model, job_of
from dialnb.runs.profiles import load_profiles
from dialnb.studies import matrix
from dialnb.studies.matrix import by_group
from dialnb.studies.matrix_guide import difference, page, picks, recommended
from dialnb.training import TrainingResult
from tools.record import judge_again

ROOT = Path(__file__).resolve().parent.parent

DEMSAR = pd.DataFrame(
    {
        "C4.5": [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.000, 0.940, 0.619, 0.972, 0.957],
        "C4.5+m": [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.000, 0.962, 0.666, 0.981, 0.978],
        "C4.5+cf": [0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.000, 0.965, 0.614, 0.9751, 0.946],
        "C4.5+m+cf": [0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.000, 0.962, 0.669, 0.975, 0.970],
    }
).T
"""Scores of four learners on 14 datasets that have the mean ranks and the statistic of the example in Demšar (2006)."""


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_mean_ranks_friedman_and_critical_difference_of_the_published_example():
    assert ranks_of(DEMSAR).mean(axis=1).round(3).tolist() == [3.143, 2.000, 2.893, 1.964]
    assert round(nemenyi_difference(4, 14), 2) == 1.25  # the paper rounds q to 2.569
    squares = (ranks_of(DEMSAR).mean(axis=1) ** 2).sum()
    assert round(12 * 14 / (4 * 5) * (squares - 4 * 25 / 4), 2) == 9.28  # as printed, which does not correct for ties
    statistic, p = friedman(DEMSAR)
    assert statistic > 9.28 and p < 0.05 and statistic == stats.friedmanchisquare(*DEMSAR.to_numpy()).statistic
    assert groups_within(ranks_of(DEMSAR).mean(axis=1).to_dict(), nemenyi_difference(4, 14)) == [
        ("C4.5+m+cf", "C4.5+m", "C4.5+cf", "C4.5")
    ]


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_quantiles_are_those_of_the_printed_table(methods, q):
    assert nemenyi_difference(methods, 6) / np.sqrt(methods * (methods + 1) / 36) == pytest.approx(q, abs=5e-4)


def test_ties_share_their_ranks_and_a_missing_score_is_refused():
    scores = pd.DataFrame({"a": [3.0, 3.0, 1.0], "b": [1.0, 1.0, 1.0]}, index=["x", "y", "z"])
    assert ranks_of(scores).to_numpy().tolist() == [[1.5, 2.0], [1.5, 2.0], [3.0, 2.0]]
    with pytest.raises(DataError, match="some are missing of y"):
        ranks_of(scores.drop(index="y").reindex(scores.index))


def test_equal_methods_have_no_order(notebook):
    scores = pd.DataFrame(np.ones((3, 4)), index=list("xyz"))
    assert friedman(scores) == (0.0, 1.0)
    assert np.isnan(friedman(scores.iloc[:2])).all()
    assert (notebook.against_best(scores)["p (Wilcoxon, Holm)"] == 1).all()


def test_holm_keeps_the_order_of_the_values_and_never_exceeds_one(notebook):
    assert notebook.holm(np.array([0.2, 0.01, 0.6])).tolist() == pytest.approx([0.4, 0.03, 0.6])
    assert notebook.holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_a_method_that_always_loses_is_told_apart_from_the_best(notebook):
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.normal(size=(3, 12)), index=["best", "near", "far"])
    scores.loc["best"] = scores.max() + 0.1 + rng.random(12)
    scores.loc["far"] = scores.min() - 1 - rng.random(12)
    found = notebook.against_best(scores)
    assert found.loc["far", "best is better on"] == "12 of 12"
    assert found.loc["far", "p (Wilcoxon, Holm)"] == pytest.approx(2 * stats.wilcoxon(np.arange(1, 13)).pvalue)


def test_both_figures_name_every_method():
    long = DEMSAR.rename_axis("method").reset_index().melt("method", var_name="task")
    for figure in (critical_difference(long, difference=1.25), rank_grid(long)):
        (axes,) = figure.axes
        shown = " ".join(text.get_text() for text in [*axes.texts, *axes.get_yticklabels()])
        assert all(name in shown for name in DEMSAR.index)
    with pytest.raises(DataError, match="needs the column"):
        rank_grid(long.drop(columns="value"))


def test_figures_rank_the_mean_scores_over_trainings():
    """The ranks of two trainings would draw, where the scores do not."""
    scores = {"near": (80.0, 71.0), "far": (70.0, 72.0)}
    rows = [(name, "intents", value, seed) for name, both in scores.items() for seed, value in enumerate(both)]
    data = pd.DataFrame(rows, columns=["method", "task", "value", "seed"])
    shown = [text.get_text() for text in rank_grid(data).axes[0].get_yticklabels()]
    assert shown == ["near  1.00", "far  2.00"]


# --- budget -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    defined = ("method", "steps_for", "cost", "costs", "tokens_a_second", "holm", "against_best")
    return shared.from_notebook("matrix", tmp_path_factory.mktemp("notebook"), *defined)


def result(steps: int, tokens: float, resumed_at: int = 0) -> TrainingResult:
    done = (steps - resumed_at) / steps
    return TrainingResult(steps, pd.DataFrame(), 10 * done, steps * 5 / 10, tokens / 10, 0.0, resumed_at)


def test_steps_follow_from_the_tokens_of_a_step(notebook):
    steps_for, cost = notebook.steps_for, notebook.cost
    assert steps_for(10_000, 5, result(4, 400)) == 100  # the pilot had five examples in a step, of 20 tokens each
    assert steps_for(10_000, 50, result(4, 400)) == 10
    assert steps_for(10, 5, result(4, 400)) == 1
    assert cost(result(4, 400, resumed_at=3)) == cost(result(4, 400))
    assert matrix.ALONE not in cost(result(4, 400))
    assert cost(result(4, 400), 80.0)[matrix.ALONE] == 5


def test_a_training_that_failed_has_no_cost(notebook):
    made = {"DSE, as it comes": {2: SimpleNamespace(training=result(4, 400))}}
    trained = SimpleNamespace(of_seed=lambda name: made.get(name, {}))
    names = {"DSE": "DSE, as it comes", "WMDC": "WMDC, as it comes"}
    found = notebook.costs(trained, names, 2, {"DSE": 80.0, "WMDC": 80.0})
    assert found[matrix.ALONE].to_dict() == {"DSE": 5}
    assert notebook.costs(trained, {"WMDC": "WMDC"}, 2).empty and notebook.costs(trained, {}, 2).empty


def matrix_run(**settings) -> SimpleNamespace:
    profiles = load_profiles("matrix")
    run = SimpleNamespace(settings=profiles.resolve("smoke", overrides=settings), encoder=one_layer)
    run.elsewhere = lambda slug: load_profiles(slug).resolve("smoke")
    run.trained_as = lambda model: model.within(run.elsewhere(model.as_in))
    return run


def test_every_method_reads_as_many_tokens_as_its_budget_allows(tmp_path, notebook):
    run, talks = matrix_run(batch_size=8, tokens=12_000), Dialogues([load("bundled/dialogues")[:40]])
    wide = load_profiles("ums").resolve("smoke", overrides={"batch_size": 32})  # right rows are longer: a pilot of many
    elsewhere, run.elsewhere = run.elsewhere, lambda slug: wide if slug == "ums" else elsewhere(slug)
    for method in ("WMDC", "TaDSE", "DialogueCSE", "UMS"):
        steps = None
        for name in ("pilot", "train"):
            model = notebook.method(run, method, talks, steps)
            function, inputs = job_of({}, model, one_layer(), 1)
            (tmp_path / method / name).mkdir(parents=True)
            found = function(**inputs, folder=tmp_path / method / name).training
            whole = notebook.method(run, method, talks, 1)
            steps = notebook.steps_for(12_000, whole.settings["batch_size"] or whole.printed.batch_size, found)
        assert notebook.cost(found)["Tokens (thousands)"] == pytest.approx(12, rel=0.2), method


def test_the_pace_is_that_of_whole_batches_after_a_warm_up(tmp_path, notebook):
    run, asked = matrix_run(batch_size=6, timed_steps=12), []

    def stage(name: str, function, **inputs):
        asked.append((name, inputs["settings"].max_steps, inputs["settings"].batch_size))
        return function(**inputs, folder=tmp_path / name)

    run.stage = stage
    assert notebook.tokens_a_second(run, "DSE", Dialogues([load("bundled/dialogues")[:40]], 40)) > 0
    assert asked == [("warm up DSE", 10, 6), ("time DSE", 12, 6)]


def test_templates_come_from_the_dialogues_alone():
    (made,) = SpokenTemplates(Dialogues([load("bundled/dialogues")[:40]]), 200).read()
    assert len(made.templates) == 200 and any("{" in text for text in made.templates)
    assert made.counts.max() <= 1 + FILLS * max(text.count("{") for text in made.templates)  # no product over slots


def test_wrong_replies_come_from_other_dialogues():
    dialogues = [[f"{name}{i}" for i in range(5)] for name in "abc"] + [["too", "short"]]
    lists = reply_lists(dialogues)
    assert len(lists) == 3 and reply_lists(dialogues) == lists
    for group in lists:
        (right, wrong), said = group.candidates, group.context[0][0]
        assert right[0] == said != wrong[0] and group.labels == (1, 0) and len(group.context) >= 2


# --- tasks and advice -------------------------------------------------------------------------------------------------


def test_items_become_the_same_groups_for_every_method():
    items = pd.DataFrame({"item": range(40), "value": np.tile([1.0, 0.0], 20), "dataset": "d", "metric": "Top-1"})
    first, second = by_group(items, 100.0), by_group(items.assign(value=1.0), 100.0)
    assert len(first) == 10 and first["value"].mean() == 50 and (second["value"] == 100).all()
    assert first["seed"].tolist() == second["seed"].tolist()


def test_the_pick_is_the_best_and_whoever_is_not_told_from_it_is_as_good():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=20)
    scores = {"raw": noise, "also": noise + 5 + rng.normal(size=20), "good": noise + 5 + rng.normal(size=20)}
    rows = pd.DataFrame(scores).rename_axis("seed").reset_index().melt("seed", var_name="model")
    (row,) = picks(finished(rows.assign(task="intents", train_seed=1)), "T1")
    assert {row["pick"], *row["equal"]} == {"good", "also"} and row["gain"].low > 4


def finished(rows: pd.DataFrame, **facts) -> SimpleNamespace:
    """A run with these scores, as the page of advice reads it."""
    usual = {"table": "T1", "column": rows["task"], "encoder": "tiny", "start": "as it comes"}
    rows = rows.assign(**usual | {k: rows[k] for k in rows})
    settings = {"corpus": "bundled", "tokens": 1000}
    return SimpleNamespace(rows=lambda table: rows[rows["table"] == table], settings=settings, facts=facts)


def trainings(gain: float, seeds: tuple[int, ...], spread: float = 0.2, **labels) -> pd.DataFrame:
    """Scores of three methods on four tasks: `good` has a gain that differs between trainings, `bad` loses five."""
    rng, rows = np.random.default_rng(2), []
    for task in ("Intents", "Actions", "Retrieval", "Similarity"):
        shared = rng.normal(50, 3, 10)
        for seed in seeds:
            moved = {"raw": 0, "good": gain + spread * (seed - 2), "bad": -5}
            for model, by in moved.items():
                own = pd.DataFrame({"seed": range(10), "value": shared + by + rng.normal(0, 0.1, 10)})
                rows.append(own.assign(model=model, task=task, train_seed=seed, **labels))
    return pd.concat(rows, ignore_index=True)


def test_gains_have_an_interval_over_trainings_where_several_are_pooled():
    one, three = page(finished(trainings(4, (2,)))), page(finished(trainings(4, (1, 2, 3))))
    assert "one training: no interval" in one and "[+" not in one and "trainings of each: 1" in one
    assert "one training" not in three and "trainings of each: 3" in three
    means = [3.8, 4.0, 4.2]
    half = stats.t.ppf(0.975, 2) * np.std(means, ddof=1) / np.sqrt(3)
    gain = difference(four_tasks := matrix.units(finished(trainings(4, (1, 2, 3))), "T1").eval("good - raw"))
    assert gain.trainings == 3 and gain.high - gain.estimate == pytest.approx(half, rel=0.1)
    assert difference(four_tasks[four_tasks.index.get_level_values("train_seed") == 2]).trainings == 1


@pytest.mark.parametrize(
    ("gain", "spread", "said"), [(4, 0.2, "good"), (0.5, 2, "do nothing"), (-1, 0.2, "do nothing")]
)
def test_the_advice_is_to_do_nothing_where_no_gain_is_sure(gain, spread, said):
    run = finished(trainings(gain, (1, 2, 3), spread), commands={"as it comes": {"good": "dialnb train it"}})
    text = page(run)
    assert f"must do everything: {said}" in text.splitlines()[2]
    assert (f"| Intents | **{said}**" in text) and (said == "good") == ("dialnb train it" in text)
    assert ("Do nothing for Intents" in text) == (said != "good")
    assert recommended(run, "T1") == (["good"] if said == "good" else [])


def test_where_a_floor_is_above_every_method_none_is_recommended():
    rows = trainings(4, (1, 2, 3))
    floor = rows[(rows["model"] == "raw") & (rows["task"] == "Retrieval")].assign(model="BM25", train_seed=0)
    for value, beaten in ((90, True), (20, False)):
        run = finished(pd.concat([rows, floor.assign(value=value)]), commands={})
        text = page(run)
        assert ("| Retrieval | **BM25**: 90.0 (good is the best encoder) |" in text) == beaten
        assert (
            "Train nothing for Retrieval: what learned nothing (BM25) is above every encoder here." in text
        ) == beaten
        assert ("- good for Intents, Actions and Similarity." in text) == beaten
        assert recommended(run, "T1") == ["good"]


def test_a_score_below_zero_is_not_below_a_floor_that_is_not_there():
    rows = trainings(4, (1, 2, 3))
    rows.loc[rows["task"] == "Similarity", "value"] -= 100
    assert all(line["floor"] is None and not line["idle"] for line in picks(finished(rows), "T1"))


def test_a_word_on_speed_only_where_trainings_took_a_while():
    rows, costs = trainings(4, (1,)), {"good": 9.0, "bad": 3.0}
    for times in (1, 2):
        alone = [{"model": name, "column": matrix.ALONE, "value": times * took} for name, took in costs.items()]
        text = page(finished(pd.concat([rows.assign(table="T1"), pd.DataFrame(alone).assign(table="T4", task="cost")])))
        assert ("bad trains fastest (6 s" in text) == (times == 2) and ("fastest" in text) == (times == 2)


def test_each_start_has_its_own_part():
    first = trainings(4, (1,), start="masked words", table="T1", encoder="tiny, masked words")
    second = trainings(-1, (1,), start="as it comes", table="T6", encoder="tiny")
    text = page(finished(pd.concat([first, second])))
    raw, comes = text.split("### ")[1:]
    assert raw.startswith("A raw language model: `tiny, masked words`") and "everything: good**" in raw
    assert comes.startswith("The encoder as it comes: `tiny`") and "everything: do nothing.**" in comes


def test_the_recorded_advice_is_that_of_its_rows_and_its_figures_rank_all_trainings():
    (group,) = [group for group in gather(recorded_runs()) if group.slug == "matrix"]
    text = page(group)
    assert text.count("### ") == 2 and "trainings of each: 3." in text and "one training" not in text
    assert text == (group.record / "guide.md").read_text(encoding="utf-8")
    for table, figure in (("T1", "F2"), ("T6", "F5")):
        drawn = read_rows(group.record / "figures", f"{figure}.csv")
        assert set(drawn["seed"]) == {1, 2, 3}
        means = drawn.pivot_table("value", "method", "task")
        pd.testing.assert_frame_equal(means, matrix.scores(group, table), check_like=True, check_names=False)


@pytest.fixture
def unjudged(monkeypatch):
    """Verdicts as if nothing had been measured: judging takes its time, and `test_records` compares it."""
    nothing = judge_claims("matrix", pd.DataFrame())
    monkeypatch.setattr("dialnb.report.gather.judge_claims", lambda *_: nothing)


@pytest.mark.usefixtures("unjudged")
def test_the_report_of_several_runs_has_the_advice_of_all_of_them(tmp_path):
    (kept,) = [folder for folder in recorded_runs() if folder.parts[-3] == "matrix"]
    record = json.loads((kept / "run.json").read_text(encoding="utf-8"))
    rows = read_rows(kept).query("table in ('T1', 'T4') and train_seed == 1").drop(columns="train_seed")
    for seed in (1, 2, 3):
        folder = tmp_path / "runs" / str(seed)
        folder.mkdir(parents=True)
        rows.assign(value=rows["value"] + 0.01 * seed).to_csv(folder / "results.csv", index=False)
        about = record | {"parameters": record["parameters"] | {"seed": seed}, "stages": [], "pooled": []}
        (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
        (folder / "guide.md").write_text(f"Advice of seed {seed}.", encoding="utf-8")
    build(sorted((tmp_path / "runs").iterdir()), tmp_path / "site")
    page = (tmp_path / "site" / "matrix-gpu.html").read_text(encoding="utf-8")
    assert "trainings of each: 3" in page and "Advice of seed" not in page
    build([tmp_path / "runs" / "2"], tmp_path / "site")
    assert "Advice of seed 2." in (tmp_path / "site" / "matrix-gpu.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("unjudged")
def test_a_record_of_several_trainings_gets_their_advice_when_it_is_judged_again(tmp_path):
    (kept,) = [folder for folder in recorded_runs() if folder.parts[-3] == "matrix"]
    shutil.copytree(kept, tmp_path / "record")
    (tmp_path / "record" / "guide.md").write_text("Advice of an earlier day.", encoding="utf-8")
    judge_again(tmp_path / "record")
    assert "| +4.0 [+3.5, +4.5] |" in (tmp_path / "record" / "guide.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("score", "said"), [(1, "too short for it"), (12, "must read every candidate")])
def test_a_cross_encoder_below_the_raw_encoder_is_said_to_be_untrained(score, said):
    noise = np.random.default_rng(1).normal(size=10)
    levels = {"raw": 8, "DSE": 13, "UMS": score}
    parts = [pd.DataFrame({"value": at + noise, "seed": range(10), "model": name}) for name, at in levels.items()]
    run = finished(pd.concat(parts).assign(task="Dialogue replies", train_seed=1))
    (line,) = [line for line in page(run).splitlines() if "the cross-encoder" in line]
    assert "worse than the best sentence encoder, DSE" in line and said in line


def test_the_study_declares_the_methods_and_tasks_that_it_has():
    paper, parameters = load_paper("matrix"), load_profiles("matrix").parameters
    assert "matrix" in OWN and paper.own
    assert all(isinstance(note, str) for table in paper.tables.values() for note in table.notes)
    methods = [row.labels["model"] for row in paper.tables["T1"].rows]
    assert set(methods) == {"raw", *parameters["methods"].choices}
    for number in range(1, 6):  # the second start has the same tables
        one, two = (vars(paper.tables[f"T{each}"]) for each in (number, number + 5))
        assert {k: v for k, v in one.items() if k not in ("id", "caption")}.items() <= two.items()
    claims = {claim.id: claim for claim in load_claims("matrix")}
    for name in [name for name in claims if not name.endswith("-second")]:
        asked = claims[f"{name}-second"]
        same = replace(claims[name], rows=claims[name].rows | {"table": "T6"})
        assert same == replace(asked, id=name, statement=same.statement, where=same.where)
    assert set(paper.tables["T1"].columns) == set(parameters["tasks"].choices) == set(parameters["tasks"].default)
    sides = json.dumps([vars(claim) for claim in load_claims("matrix")])
    assert all(json.dumps(name) in sides for name in ("UMS", "TaDSE", "DialogueCSE", "WMDC", "DSE 123-1"))


def test_a_table_of_our_own_shows_no_column_of_a_paper():
    rows = pd.DataFrame({"table": "T3", "model": ["raw", "DSE"], "column": "Mean rank", "value": [2.0, 1.0], "n": 0})
    shown = compare_table("matrix", "T3", rows.assign(seed=0, metric="rank"))
    html = shown._repr_html_()
    assert "<th>ours</th>" in html and "<th>paper</th>" not in html
    assert "<th>paper</th>" in compare_table("dse", "T2", rows.assign(seed=0, metric="rank"))._repr_html_()
    (best,) = [row for row in shown.grid if row["cells"]["Mean rank"]["best"]]
    assert best["labels"]["model"] == "DSE" and best["cells"]["Mean rank"]["ours"] == "1.00"
    assert "**1.00**" in shown.markdown() and "()" not in shown.markdown()


# --- through the runner -----------------------------------------------------------------------------------------------


LEARNS = {
    "dse": ("DSE", {"learning_rate": 5e-3, "head_learning_rate": 5e-2}),
    "wmdc": ("WMDC", {"learning_rate": 5e-3, "head_learning_rate": 0.2}),
}
"""Settings at which an encoder that knows nothing learns within seconds; the rates of `quick` are chosen for `mini`."""


@pytest.fixture(scope="module")
def run_matrix(tmp_path_factory):
    """A function that gives the run folder of `dialnb matrix`, from an encoder of one layer."""

    def run(encoder: Path, cache: Path, profile: str, *chosen: str, seed: int = 1, **variables: object) -> Path:
        out = tmp_path_factory.mktemp("matrix")
        options = [text for item in (*chosen, "workers=1") for text in ("--set", item)]
        options += ["--encoder", encoder, "--out", out, "--seed", seed]
        code, said = shared.dialnb("matrix", "--profile", profile, *options, DIALNB_CACHE=cache, **variables)
        assert code == 0, said[-6000:]
        assert "| task | pick | score | gain over raw | as good |" in said
        return next(out.iterdir())

    return run


@pytest.fixture(scope="module")
def folder(run_matrix, tmp_path_factory) -> Path:
    chosen = ("tasks=Intents,Dialogue replies,Adversarial,Similarity,Retrieval", "methods=DSE,SimCSE-unsup,UMS")
    encoder, cache = shared.small_encoder(tmp_path_factory), shared.smoke_cache(tmp_path_factory)
    return run_matrix(encoder, cache, "smoke", *chosen)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """The cache of the run of two starts."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project whose `quick` has other rates."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "papers", folder / "papers", ignore=shutil.ignore_patterns("results"))
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for slug, (row, settings) in LEARNS.items():
        path = folder / "papers" / slug / "profiles.yaml"
        known = yaml.safe_load(path.read_text(encoding="utf-8"))
        known["profiles"]["quick"] |= {"batch_size": 8}
        known["profiles"]["quick"]["train"][row] |= settings
        path.write_text(yaml.safe_dump(known), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def beginner(tmp_path_factory) -> Path:
    """An encoder in whose vectors the places of words drown the words, so that training has something to gain."""
    encoder = one_layer()
    with torch.no_grad():
        encoder.transformer.embeddings.position_embeddings.weight.mul_(4)
    folder = tmp_path_factory.mktemp("beginner") / "tiny"
    encoder.save(folder)
    return folder


@pytest.fixture(scope="module")
def both(run_matrix, beginner, cache, project) -> Path:
    """A run of two starts and two budgets, of the third seed."""
    chosen = [
        "tasks=Similarity,Retrieval",
        "methods=DSE,WMDC",
        "starts=masked words,as it comes",
        "own_budget=DSE,WMDC",
    ]
    chosen += ["dialogues=60", "batch_size=32", "tokens=45000", "queries=120", "retrieval_limit=none", "limit=300"]
    return run_matrix(beginner, cache, "quick", *chosen, seed=3, DIALNB_PROJECT=project)


def test_every_cell_has_a_score_or_a_reason(folder):
    assert {path.stem for path in (folder / "tables").glob("*.csv")} == {"T1", "T2", "T3", "T4", "T5"}
    for path in (folder / "tables").glob("*.csv"):
        rows = pd.read_csv(path)
        assert not (rows["note"] == "not part of this run").any(), path.stem
    first = pd.read_csv(folder / "tables" / "T1.csv").dropna(subset="ours")
    assert set(first["model"]) - set(FLOORS) == {"raw", "DSE", "SimCSE-unsup", "UMS"}
    floors = first[first["model"].isin(FLOORS)].set_index("column")["model"].to_dict()
    assert floors == {"Intents": "Chance", "Dialogue replies": "TF-IDF", "Adversarial": "TF-IDF", "Retrieval": "BM25"}
    assert set(first.loc[first["model"] == "UMS", "column"]) == {"Dialogue replies", "Adversarial"}


def test_ranks_are_those_of_the_scores_and_the_gain_is_paired(folder):
    rows = pd.read_csv(folder / "results.csv")
    scores = rows[rows["table"] == "T1"].pivot_table("value", "model", "task")
    scores = scores.drop(index=["UMS", *FLOORS], errors="ignore")
    ranks = rows[rows["table"] == "T3"].pivot_table("value", "model", "column").drop(columns="Mean rank")
    pd.testing.assert_frame_equal(ranks_of(scores[ranks.columns]), ranks, check_names=False)
    intents = rows[(rows["task"] == "Intents") & rows["table"].isin(["T1", "T2"])]
    wide = intents.pivot_table("value", "seed", ["table", "model"])
    assert np.allclose(wide["T1", "DSE"] - wide["T1", "raw"], wide["T2", "DSE"])


def test_questions_are_judged_and_figures_stored(folder):
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    assert not [claim["id"] for claim in claims if "one row per seed" in claim["reason"]]
    judged = {claim["id"] for claim in claims if claim["verdict"] != "not run" or claim["qualifier"]}
    assert {"home-ums", "training-pays"} <= judged  # far below TF-IDF; DSE after a few steps is near chance on intents
    assert {path.stem for path in (folder / "figures").glob("*.csv")} == {"training", "F1", "F2", "F3"}


def test_the_report_has_a_page_with_the_advice(folder, tmp_path):
    index = build([folder], tmp_path / "report").read_text(encoding="utf-8")
    assert "A study of this project" in index
    (path,) = (tmp_path / "report").glob("matrix-smoke*.html")
    page = path.read_text(encoding="utf-8")
    assert 'id="guide"' in page and "What to pick for which task" in page and "<i>–</i>" not in page
    assert all(f'id="{table}"' in page for table in ("T1", "T2", "T3", "T4", "T5"))


# --- two starts -------------------------------------------------------------------------------------------------------


def test_every_row_names_its_start_and_the_second_has_tables_of_its_own(both):
    rows = pd.read_csv(both / "results.csv")
    starts = {"T1": "masked words", "T3": "masked words", "T6": "as it comes", "T8": "as it comes"}
    for table, said in (starts | {"X-datasets": "masked words", "X-datasets-2": "as it comes"}).items():
        own = rows[rows["table"] == table]
        assert set(own["start"]) == {said}
        encoders = set(own.loc[~own["model"].isin(FLOORS), "encoder"])
        assert encoders == {"tiny" if said == "as it comes" else "tiny, masked words"}
    assert {path.stem for path in (both / "tables").glob("*.csv")} == {f"T{number}" for number in range(1, 12)}
    wide = rows[rows["table"].isin(["T1", "T6", "T11"])].pivot_table("value", "model", ["task", "table"])
    assert (wide["Similarity", "T1"] != wide["Similarity", "T6"])[["raw", "DSE", "WMDC"]].all()
    assert wide["Similarity", "T11"].dropna().index.tolist() == ["DSE", "WMDC"]
    gains = rows[rows["table"] == "T7"].pivot_table("value", "model", "task")
    assert np.allclose(
        gains.loc["DSE", "Similarity"], wide["Similarity", "T6"]["DSE"] - wide["Similarity", "T6"]["raw"]
    )


def test_a_language_model_and_own_budgets_are_stages_of_the_other_notebooks(
    both, beginner, cache, project, tmp_path, monkeypatch
):
    monkeypatch.setenv("DIALNB_CACHE", str(cache))
    monkeypatch.setenv("DIALNB_PROJECT", str(project))
    few = {"dialogues": 60, "workers": 1}
    for slug, name in (("dse", "DSE"), ("wmdc", "WMDC")):
        run = start(slug, "quick", 3, str(beginner), few, tmp_path / slug)
        run.train({name: Model(name, data=Dialogues(run.corpus(), run.settings.dialogues))})
        assert [(stage.name, stage.cached) for stage in run.stages] == [(f"train {name}, seed 3", True)]
    raw = few | {"raw_start": "masked words"}
    run = start("dse", "quick", 2, str(beginner), raw, tmp_path / "raw")  # runs of all seeds share it
    run.encoder()
    assert [(stage.name, stage.cached) for stage in run.stages] == [("raw start: masked words", True)]


def test_recommended_encoders_leave_the_run_with_their_scores(both):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    facts, rows = json.loads((both / "run.json").read_text(encoding="utf-8")), pd.read_csv(both / "results.csv")
    advised = {}
    for table, said in (("T1", "masked words"), ("T6", "as it comes")):
        run = SimpleNamespace(rows=lambda table: rows[rows["table"] == table])
        for name in recommended(run, table):
            advised[f"{name}-{said.replace(' ', '-')}"] = facts["commands"][said][name]
    assert {"DSE-masked-words", "DSE-as-it-comes"} <= advised.keys()
    assert advised.keys() == {path.name for path in (both / "encoders").iterdir()}
    guide = (both / "guide.md").read_text(encoding="utf-8")
    for name, command in advised.items():
        card = (both / "encoders" / name / "README.md").read_text(encoding="utf-8")
        assert command in card and command in guide and "| Similarity |" in card and "model-index" in card
        assert command.endswith("-o my-encoder") and shlex.split(command)[:2] == ["dialnb", "train"]
        model = sentence_transformers.SentenceTransformer(str(both / "encoders" / name), device="cpu")
        assert model.encode(["a table for two"]).shape == (1, 32)


def test_an_exported_card_has_the_scores_of_its_own_start_and_budget(both, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALNB_CACHE", str(cache))
    rows = pd.read_csv(both / "results.csv").query("model == 'DSE' and task == 'Similarity'")
    tables = {"DSE": "X-datasets", "DSE, as it comes, seed 3": "X-datasets-2", "DSE, own budget": "X-datasets-own"}
    assert rows[rows["table"].isin(tables.values())].groupby("table")["value"].mean().nunique() == 3
    for name, table in tables.items():
        assert cli.main(["export", str(both), name, str(tmp_path / name)]) == 0
        results = ModelCard.load(tmp_path / name / "README.md").data.eval_results
        (found,) = [result for result in results if result.task_name == "Similarity"]
        own = rows[rows["table"] == table]
        assert found.metric_value == pytest.approx(own["value"].mean(), abs=1e-3)
        assert found.metric_name.endswith(f"start {own['start'].iloc[0]}") and len(results) == 2


def test_tasks_that_share_a_dataset_keep_their_own_scores_in_a_card(folder, tmp_path):
    rows = pd.read_csv(folder / "results.csv").query("table == 'X-datasets'")
    ModelCard("---\nlibrary_name: sentence-transformers\n---\n").save(tmp_path / "README.md")
    hub.add_results(tmp_path, rows, "DSE")
    results = ModelCard.load(tmp_path / "README.md").data.eval_results
    shared = {found.task_name: found.metric_value for found in results if found.dataset_name == "UbuntuIRC"}
    means = rows.query("model == 'DSE' and dataset == 'UbuntuIRC'").groupby("task")["value"].mean()
    assert shared == pytest.approx(means.to_dict(), abs=1e-3) and len(shared) == 2


def test_the_command_trains_as_the_run_did(both, tmp_path, tmp_path_factory, monkeypatch):
    commands = json.loads((both / "run.json").read_text(encoding="utf-8"))["commands"]["as it comes"]
    program, *words = shlex.split(commands["DSE"].replace("--corpus bundled", "--corpus shop.csv"))
    words[words.index("--encoder") + 1] = shared.small_encoder(tmp_path_factory)
    said = [f"{number},I want {word} please now" for number in (1, 2) for word in "abcdefgh"]
    (tmp_path / "shop.csv").write_text("\n".join(["dialogue,text", *said, ""]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, said = shared.dialnb(*words)
    assert (program, code) == ("dialnb", 0), said
    made = json.loads((tmp_path / "my-encoder" / "training.json").read_text(encoding="utf-8"))
    rows = pd.read_csv(both / "results.csv").query("table == 'T9' and model == 'DSE' and column == 'Steps'")
    assert made["steps"] == rows["value"].item()
