"""The grid: models and tasks as plain data, trained once for every seed, asked once, and absent for a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import processes
import pytest
import side_by_side
import tiny
import torch
import yaml
from test_studies import dataset, dialogue

from dialnb.data import load
from dialnb.data.datasets import choose_datasets
from dialnb.data.records import IntentUtterance
from dialnb.errors import DialnbError, UnknownName
from dialnb.evaluation.metrics import tidy_frame, tidy_rows
from dialnb.examples.readings import Dialogues, Lacking
from dialnb.files import read_json
from dialnb.runs import Model, Task, Watch, start
from dialnb.runs.fingerprints import stage_key
from dialnb.runs.grid import job_of
from dialnb.runs.scheduler import Job, _packed
from dialnb.runs.stages import StageCache
from dialnb.studies import dse
from dialnb.training.recipes import RECIPES, fit, get_recipe
from dialnb.training.stage import Result, train_model

pytestmark = pytest.mark.usefixtures("one_thread")

PROFILES = {
    "parameters": {
        "encoder": {"type": "encoder", "default": "mini", "help": "the start"},
        "raw_start": {"type": "str", "default": "as it comes", "help": "the start again"},
        "raw_start_per_seed": {"type": "bool", "default": False, "help": "one of every seed"},
        "corpus": {"type": "str", "default": "bundled", "help": "dialogues"},
        "dialogues": {"type": "int", "default": 12, "help": "so many"},
        "data": {"type": "str", "default": "bundled", "help": "level"},
        "models": {"type": "list[str]", "default": ["DSE"], "choices": ["DSE", "DSE 2-1", "public"], "help": "trained"},
        "tables": {"type": "list[str]", "default": ["T2"], "choices": ["T2", "T7"], "help": "filled"},
        "train_seeds": {"type": "list[int]", "default": [1, 2], "help": "trainings"},
        "batch_size": {"type": "int", "default": 8, "help": "pairs"},
        "max_steps": {"type": "int", "default": 2, "help": "steps"},
        "precision": {"type": "str", "default": "float32", "help": "half of it is slow on most CPUs"},
        "limit": {"type": "int?", "default": None, "help": "items"},
        "temperature": {"type": "float", "default": 0.05, "help": "of the loss"},
    },
    "train": {"masked words": "the raw start"},
    "profiles": {"smoke": {}, "quick": {}, "gpu": {"models": ["DSE", "DSE 2-1"], "tables": ["T2", "T7"]}, "paper": {}},
}
DATA = {
    "intents": [{"dataset": "bundled/SNIPS", "variant": "dse"}],
    "private": [[{"dataset": "Nowhere", "level": "official"}, {"dataset": "ANLI"}]],
}


def length_of(encoder, records, dataset: str, limit: int | None) -> pd.DataFrame:
    """An evaluator as one writes them: records in, tidy rows out."""
    texts = [record.text for record in records][:limit]
    value = float(np.linalg.norm(encoder.encode(texts).mean(0)))
    return tidy_frame(tidy_rows({"norm": value}, task="length", dataset=dataset, protocol="paper", n=len(texts)))


def attraction(first: torch.Tensor, second: torch.Tensor, strength: float = 1.0) -> torch.Tensor:
    """A loss as one writes them: two matrices of vectors in, a number out."""
    return strength * (first - second).square().mean()


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project with one paper that prints nothing, and an encoder of two layers."""
    folder = tmp_path / "project" / "papers" / "dse"
    folder.mkdir(parents=True)
    (folder / "profiles.yaml").write_text(yaml.safe_dump(PROFILES), encoding="utf-8")
    (folder / "data.yaml").write_text(yaml.safe_dump(DATA), encoding="utf-8")
    (folder / "paper.yaml").write_text("{slug: dse, title: made up, venue: here, tables: []}", encoding="utf-8")
    monkeypatch.setenv("DIALNB_PROJECT", str(tmp_path / "project"))
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    tiny.encoder().save(tmp_path / "tiny")
    return tmp_path


@pytest.fixture
def run(project):
    return start("dse", "smoke", encoder=str(project / "tiny"), out=project / "run")


@pytest.fixture
def talks(project) -> Dialogues:
    words = iter(tiny.sentences(200, seed=3))
    rows = [dialogue(i, *(f"{next(words)} please book a table" for _ in range(5))) for i in range(12)]
    return Dialogues([dataset(project, rows, "corpus")])


@pytest.fixture
def asked(project) -> Task:
    rows = [IntentUtterance(text, "a", split="test") for text in tiny.sentences(6, seed=1)]
    return Task("T2", length_of, {"made": dataset(project, rows, "intents")}, ["limit"])


def test_every_model_is_trained_once_for_every_seed_and_its_rows_say_which(run, talks, asked):
    trained = run.train({"raw": Model(), "DSE": Model("DSE", data=talks, labels={"window": 3})})
    rows = run.evaluate(trained, [asked]).rows
    assert rows.groupby("model")["train_seed"].agg(list).to_dict() == {"raw": [1, 2], "DSE": [1, 2]}
    assert rows.groupby("model")["value"].nunique().to_dict() == {"raw": 1, "DSE": 2}, "two trainings differ"
    assert set(rows["encoder"]) == {run.settings["encoder"]} and set(run.results["encoder"]) == {"tiny"}
    assert rows.loc[rows["model"] == "DSE", "window"].eq(3).all() and rows["table"].eq("T2").all()
    assert trained.curves["model"].unique().tolist() == ["DSE"] and run.times(trained)["steps"].tolist() == [2]


def test_where_there_are_workers_a_stage_is_told_in_one_line(run, capsys):
    run.stage("before", side_by_side.plus_one, number=1)
    run._scheduler.workers = 2
    run.stage("after", side_by_side.plus_one, number=1)
    said = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("stage ")]
    assert said == ["stage before", "stage before", "stage after"]


def test_times_of_a_training_that_was_interrupted_are_of_all_its_steps(run, talks):
    trained = run.train({"DSE": Model("DSE", data=talks)})
    facts = trained.firsts["DSE"].training
    facts.resumed_at, facts.seconds = 1, 30.0
    (row,) = trained.times().to_dict("records")
    assert (row["steps"], row["minutes"]) == (2, 1) and row["projected hours"] == round(row["printed steps"] / 120, 3)
    facts.resumed_at, facts.seconds = 2, 0.1  # after its last step: nobody knows any more
    assert trained.times()[["minutes", "projected hours"]].isna().all(axis=None)


def test_items_are_kept_of_every_training_unless_a_task_wants_none(run, talks, asked):
    def scores_of(encoder, records, dataset: str, limit: int | None) -> dict[str, pd.DataFrame]:
        rows = length_of(encoder, records, dataset, limit)
        return {"rows": rows, "items": pd.DataFrame({"item": [0, 1], "value": rows["value"].iloc[0]})}

    trained = run.train({"DSE": Model("DSE", data=talks)})
    run.evaluate(
        trained, [replace(asked, evaluate=scores_of), replace(asked, evaluate=scores_of, table="X", items=False)]
    )
    assert run.items.groupby(["table", "train_seed"]).size().to_dict() == {("T2", 1): 2, ("T2", 2): 2}
    run.add_items(run.items.assign(table="T7"))  # under another name, as compression at its best ratio is
    assert run.items[run.items["table"] == "T7"]["train_seed"].tolist() == [1, 1, 2, 2]
    run.evaluate(trained, [replace(asked, evaluate=scores_of)])
    assert len(run.items) == 8, "a cell may be run twice"


def test_a_model_may_have_fewer_trainings_than_the_run(run, talks, asked):
    dse = Model("DSE", data=talks)
    trained = run.train({"DSE": dse, "once": replace(dse, seeds=(1,), start="DSE", options={"temperature": 0.2})})
    assert [*trained.results] == [("DSE", 1), ("DSE", 2), ("once", 1)]
    assert run.evaluate(trained, [asked]).rows.groupby("model")["train_seed"].agg(list)["once"] == [1]


def test_a_task_may_name_the_models_that_it_asks_and_the_labels_of_their_rows(run, talks, asked):
    trained = run.train({"raw": Model(), "DSE": Model("DSE", data=talks, labels={"model": "ours"})})
    rows = run.evaluate(trained, [replace(asked, only={"DSE": {"model": "DSE, shown", "k": 3}})]).rows
    assert set(rows["model"]) == {"DSE, shown"} and set(rows["k"]) == {3}
    assert set(run.evaluate(trained, [replace(asked, only=["raw"])]).rows["model"]) == {"raw"}


def test_a_raw_start_is_made_once_and_named_in_every_row(project, talks, asked):
    settings = {"raw_start": "masked words"}
    run = start("dse", "smoke", encoder=str(project / "tiny"), overrides=settings, out=project / "again")
    trained = run.train({"raw": Model(), "DSE": Model("DSE", data=talks)})
    run.evaluate(trained, [asked])
    assert set(run.results["encoder"]) == {"tiny, masked words"}
    assert set(run.results["start_seed"]) == {1}, "the seed of the start that every training has"
    (made,) = [stage for stage in run.stages if stage.name == "raw start: masked words"]
    assert made.facts["training"][0]["steps"] > run.settings["max_steps"], "it reads the dialogues once, whole"
    plain = tiny.encoder().encode(["book a table"])
    assert not np.allclose(trained["raw"].encode(["book a table"]), plain, atol=1e-3)


def test_a_raw_start_per_seed_is_where_the_trainings_of_that_seed_begin(project, talks, asked):
    settings = {"raw_start": "masked words", "raw_start_per_seed": True, "train_seeds": [1, 2]}
    run = start("dse", "smoke", encoder=str(project / "tiny"), overrides=settings, out=project / "per-seed")
    models = {"raw": Model(), "DSE": Model("DSE", data=talks)}
    trained = run.train(models)
    assert {f"raw start: masked words, seed {seed}" for seed in (1, 2)} < {stage.name for stage in run.stages}
    first, second = (trained.results["raw", seed].model.encode(["book a table"]) for seed in (1, 2))
    assert not np.allclose(first, second, atol=1e-3)
    assert set(run.evaluate(trained, [asked]).rows["train_seed"]) == {1, 2}
    shared = start("dse", "smoke", 2, str(project / "tiny"), {"raw_start": "masked words"}, project / "shared")
    np.testing.assert_array_equal(shared.encoder().encode(["book a table"]), first)
    assert [stage.cached for stage in shared.stages] == [True], "the start that all seeds share is that of seed 1"
    more = {"DSE": replace(models["DSE"], seeds=(1, 2, 3))}
    assert {seed for _, seed in run.train(more).results} == {1, 2, 3}, "a seed of a later cell has its own"


def test_a_raw_start_is_trained_at_its_own_rate(project):
    settings = {"raw_start": "masked words", "train.masked words.learning_rate": 4e-4}
    run = start("dse", "smoke", encoder=str(project / "tiny"), overrides=settings, out=project / "rate")
    _, inputs = job_of(*run.raw_start(), tiny.encoder(), 1)
    assert inputs["settings"].learning_rate == 4e-4


def test_what_starts_from_another_encoder_does_not_wait_for_the_raw_start(project, talks, monkeypatch):
    tiny_one, settings = str(project / "tiny"), {"raw_start": "masked words", "train_seeds": [1, 2]}
    run = start("dse", "smoke", encoder=tiny_one, overrides=settings, out=project / "held")
    models = {"DSE": Model("DSE", data=talks), "other": Model("DSE", tiny_one, talks), "raw": Model()}
    trained = run.train(models)
    assert list(trained) == ["DSE", "other", "raw"] and len(trained.results) == 6
    made = [stage.name for stage in run.stages]
    assert made.count("raw start: masked words") == 1 and "train DSE, seed 2" in made
    assert run.train({"DSE": models["DSE"]})["DSE"].encode(["hi"]).tolist() == trained["DSE"].encode(["hi"]).tolist()


def test_a_raw_start_that_failed_is_a_sentence(project, monkeypatch):
    settings = {"raw_start": "masked words"}
    run = start("dse", "smoke", encoder=str(project / "tiny"), overrides=settings, out=project / "lost")
    monkeypatch.setattr("dialnb.runs.run.job_of", lambda *_: Result(failed="the loss is not a number"))
    with pytest.raises(DialnbError, match="the raw start failed: the loss is not a number"):
        run.encoder()


def test_after_a_change_only_what_changed_is_made_again(run, talks, asked):
    models = {"DSE": Model("DSE", data=talks, options={"temperature": 0.05})}
    run.evaluate(run.train(models), [asked])
    before = {stage.key for stage in run.stages}
    models["warm"] = Model("DSE", data=talks, options={"temperature": 0.2})
    run.evaluate(run.train(models), [asked])
    made = sorted(stage.name for stage in run.stages if stage.key not in before)
    assert len(before) == 4 and made == [
        "length: warm on made, seed 1",
        "length: warm on made, seed 2",
        "train warm, seed 1",
        "train warm, seed 2",
    ]
    again = {stage.name for stage in run.stages if stage.key in before}
    assert all(stage.cached for stage in run.stages if stage.name in again)


def test_a_model_may_have_seeds_of_its_own_and_what_starts_from_it_those_that_both_have(run, talks, asked):
    models = {
        "first": Model("DSE-dropout", data=talks, seeds=(1, 2, 3)),
        "once": Model("DSE", "first", talks, seeds=(3,)),
    }
    trained = run.train(models | {"late": Model("DSE", "first", talks)})
    found = {name: list(trained.of_seed(name)) for name in trained}
    assert found == {"first": [1, 2, 3], "once": [3], "late": [1, 2]}
    asked = replace(
        asked,
        floors={
            "TF-IDF": lambda encoder, records, dataset, limit: length_of(trained["first"], records, dataset, limit)
        },
    )
    floors = [a.question.seed for a in run.answers(trained, [asked], "first") if a.question.model == "TF-IDF"]
    assert floors == [1, 2, 3], "a floor for every training"


def test_a_model_may_have_the_name_of_the_encoder_that_it_is(run, talks, asked):
    trained = run.train({"mini": Model(start="mini"), "mini-DSE": Model("DSE", "mini", talks)})
    rows = run.evaluate(trained, [asked]).rows
    assert set(rows["encoder"]) == {"mini"} and set(rows["model"]) == {"mini", "mini-DSE"}


def test_a_model_starts_from_another_one_of_the_same_seed(run, talks):
    models = {"late": Model("DSE", "first", talks), "first": Model("DSE-dropout", data=talks)}
    trained = run.train(models)
    assert list(trained.results) == [("late", 1), ("late", 2), ("first", 1), ("first", 2)]
    for seed in (1, 2):
        inputs = job_of(run.settings, models["late"], trained.results["first", seed].model, seed)[1]
        direct = fit("DSE", inputs["encoder"].clone(), talks.read(), inputs["settings"]).model
        late = trained.results["late", seed].model
        assert np.allclose(late.encode(["book a table"]), direct.encode(["book a table"]), atol=1e-5)


def test_what_a_profile_leaves_out_says_so_with_the_smallest_one_that_has_it(run, talks, asked):
    models = {"DSE 2-1": Model("DSE 2-1", data=talks), "further": Model("DSE", "DSE 2-1", talks)}
    models["public"] = Model(start="nowhere/at-all")
    assert len(run.train(models)) == 0
    run.evaluate(run.train({}), [asked, Task("T7", length_of, "intents", ["limit"])])
    reasons = {(entry["table"], entry.get("model")): entry["reason"] for entry in run.missing}
    assert reasons["", "DSE 2-1"] == "left out of the smoke profile to keep its time; it runs with 'gpu'"
    assert reasons["", "further"] == reasons["", "DSE 2-1"], "it starts from what is left out"
    assert reasons["", "public"] == "left out of the smoke profile to keep its time", "no profile has it"
    assert "it runs with 'gpu'" in reasons["T7", None]


@pytest.fixture
def offering(project):
    """A run whose larger profiles have the bundled encoder as a further one."""
    further = {"others": {"type": "list[encoder]", "default": [], "help": "further encoders"}}
    larger = {"gpu": PROFILES["profiles"]["gpu"] | {"others": ["mini"]}}
    made = PROFILES | {"parameters": PROFILES["parameters"] | further, "profiles": PROFILES["profiles"] | larger}
    (project / "project" / "papers" / "dse" / "profiles.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
    return start("dse", "smoke", encoder=str(project / "tiny"), out=project / "run")


def test_a_row_is_left_out_by_its_own_name_alone_whatever_it_is_made_of(offering, talks, asked):
    run = offering
    models = {"TF": Model(start="mini", pooling="cls"), "mine": Model("DSE 2-1", data=talks)}
    trained = run.train(models)
    assert [*trained] == ["TF", "mine"] and run.missing == []
    assert trained["TF"].pooling == "cls" and set(run.evaluate(trained, [asked]).rows["model"]) == {"TF", "mine"}


def test_what_is_left_out_is_said_in_the_log_once_for_each_reason(offering, capsys):
    run = offering
    models = {"DSE 2-1": Model(), "mini": Model(start="mini"), "nobody's": Model(start="DSE 2-1")}
    for _ in range(2):  # a cell may be run twice
        run.train(models)
    run.wants("T7", table="T7")
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not run")]
    why = "left out of the smoke profile to keep its time; it runs with 'gpu'"
    assert said == [f"not run: DSE 2-1; mini; nobody's: {why}", f"not run: T7: {why}"]


def test_a_model_typed_into_the_notebook_of_dse_is_trained_in_every_profile_that_runs_here(tmp_path):
    cells = read_json(Path(__file__).parent.parent / "notebooks" / "dse.ipynb")["cells"]
    (source,) = (text for text in map("".join, (cell["source"] for cell in cells)) if text.startswith("models = {"))
    for profile in ("smoke", "quick"):
        run = start("dse", profile, out=tmp_path / profile)
        dialogues = Dialogues(run.corpus(), 12)
        given = {"run": run, "s": run.settings, "dialogues": dialogues, "dse": dse, "Model": Model, "Lacking": Lacking}
        given |= {"Watch": Watch, "Dialogues": Dialogues}
        exec(source + '\nmodels["TF"] = Model(start="mini", pooling="cls")', given)  # noqa: S102 (a cell of our own)
        assert {"BERT", "DSE", "TF"} <= {name for name in given["models"] if run.wants(name)}


def test_data_that_cannot_be_had_are_a_reason_in_the_table(run, talks):
    rows = run.evaluate(run.train({"raw": Model()}), [Task("T2", length_of, "private", ["limit"])]).rows
    assert rows.empty
    (entry,) = run.missing
    assert (entry["table"], entry["dataset"]) == ("T2", "Nowhere") and "not bundled" in entry["reason"]
    with pytest.raises(UnknownName, match="intents"):
        run.data("intnets")


def test_a_loss_of_ones_own_is_trained_like_one_of_the_library_and_is_part_of_the_key(run, talks, asked):
    own = Model("DSE", data=talks, options={"loss": attraction, "strength": 2.0})
    rows = run.evaluate(run.train({"mine": own, "DSE": Model("DSE", data=talks)}), [asked]).rows
    assert rows.groupby("model")["value"].mean().nunique() == 2
    other = Model("DSE", data=talks, options={"loss": attraction, "strength": 3.0})
    keys = {stage_key(*job_of(run.settings, model, tiny.encoder(), 1)) for model in (own, other)}
    assert len(keys) == 2
    with pytest.raises(UnknownName, match="option of the attraction loss"):
        fit("DSE", tiny.encoder(), talks.read(), options={"loss": attraction, "strenght": 1})


def test_code_that_was_typed_into_a_notebook_is_left_to_its_own_process(monkeypatch):
    assert _packed(length_of, {"limit": 3}) is not None
    monkeypatch.setattr(length_of, "__module__", "__main__")
    monkeypatch.setitem(__import__("sys").modules["__main__"].__dict__, "length_of", length_of)
    assert _packed(length_of, {"limit": 3}) is None
    assert _packed(lambda encoder: encoder) is None, "a function without a name cannot travel"


def test_a_training_that_diverges_is_a_reason_and_no_end(run, talks, asked):
    def explode(first, second):
        return (first - second).sum() * torch.inf

    trained = run.train({"bad": Model("DSE", data=talks, options={"loss": explode}), "DSE": Model("DSE", data=talks)})
    assert list(trained) == ["DSE"]
    assert {entry["model"] for entry in run.missing} == {"bad"}


def test_the_model_comes_back_as_it_was_when_it_was_best(talks, tmp_path):
    seen = []

    def score(model, values):
        seen.append(model.encode(["book a table"]))
        value = values[len(seen) - 1]
        return tidy_frame(tidy_rows({"Corr": value}, task="dev", dataset="dev", protocol="paper", n=1))

    watch = Watch(score, {"values": (0.3, 0.9, float("nan"))}, best="Corr", keep=True)
    few = {"batch_size": 16, "precision": "float32"}
    settings = job_of(few, Model("DSE", settings={"epochs": 3, "learning_rate": 1e-3}), None, 1)[1]
    made = train_model("DSE", tiny.encoder(), talks, settings["settings"], {}, watch, tmp_path)
    assert np.allclose(made.model.encode(["book a table"]), seen[1], atol=1e-6)
    assert made.watched["epoch"].tolist() == [1, 2, 3] and list(made.epochs) == [1, 2, 3]
    short = replace(settings["settings"], max_steps=1)
    assert train_model("DSE", tiny.encoder(), talks, short, {}, watch, tmp_path / "short").watched is None, "no epoch"


def test_what_is_kept_of_every_epoch_is_a_model_of_its_own(run, talks, asked):
    model = Model("DSE", data=talks, settings={"epochs": 2, "max_steps": 20}, watch=Watch(keep=True), report=1)
    trained = run.train({"DSE": model})
    rows = run.evaluate(trained.epochs, [asked]).rows
    assert rows["model"].eq("DSE").all() and sorted(rows["epoch"]) == [1, 1, 2, 2]
    first = rows[rows["epoch"].eq(1) & rows["train_seed"].eq(1)]["value"].iloc[0]
    reported = run.evaluate(trained, [asked]).rows
    assert reported[reported["train_seed"] == 1]["value"].iloc[0] == first, "the first epoch is reported"


def test_the_best_place_that_the_level_admits_is_taken_and_named():
    official, ours = ({"dataset": f"{where}HWU64", "variant": "dse"} for where in ("", "bundled/"))
    star = {"dataset": "bundled/STAR"}
    entries = [{"dataset": "bundled/SNIPS"}, [official | {"level": "official"}, ours], star | {"step": 4}]
    found, lacking = choose_datasets([*entries, [{"dataset": "ANLI"}, {"dataset": "SNLI"}]], "bundled")
    assert list(found) == ["SNIPS", "HWU64", "STAR"] and found["HWU64"].variant == "dse"
    whole, _ = choose_datasets([star | {"label": "all of STAR"}], "bundled")
    assert len(found["STAR"]) == -(-len(whole["all of STAR"]) // 4)
    assert "which is not bundled" in lacking["ANLI"]


@pytest.mark.parametrize("name", ["DialogueCSE", "Siamese", "UMS", "SimCSE", "adaptation", "masked words"])
def test_every_paper_trains_from_plain_dialogues(name, talks):
    recipe, encoder = get_recipe(name), tiny.encoder(max_position_embeddings=128)
    options = {"max_length": 64} if recipe.paper == "ums" else {}
    few = {"max_steps": 1, "batch_size": 4, "precision": "float32"}
    settings = job_of({}, Model(recipe, settings=few), encoder, 1)[1]["settings"]
    made = fit(recipe, encoder, talks.read(), settings, options=options)
    assert made.result.steps == 1 and np.isfinite(made.result.curve["loss"]).all()
    assert {"DialogueCSE I1", "SiameseBERT-s", "next sentences", "replaced tokens", "selection"} <= RECIPES.keys()


def test_a_figure_without_data_is_a_sentence_without_quotes(run):
    said = run.figure("F9", None, data=pd.DataFrame(), caption="", alt="", otherwise="there is no data")
    assert said == said._repr_markdown_() == "Not drawn: there is no data."
    assert run.missing[-1] == {"table": "F9", "reason": "there is no data"}


def test_a_model_may_have_fewer_seeds_than_the_run(run, talks, asked):
    models = {"raw": Model(), "DSE": Model("DSE", data=talks), "once": Model("DSE", "DSE", talks, seeds=(1,))}
    trained = run.train(models)
    assert list(trained.results) == [("raw", 1), ("raw", 2), ("DSE", 1), ("DSE", 2), ("once", 1)]
    assert run.evaluate(trained, [asked]).rows.groupby("model")["train_seed"].nunique().to_dict() == {
        "DSE": 2,
        "once": 1,
        "raw": 2,
    }


def test_rows_name_a_raw_start_that_is_a_model_of_the_notebook(project, talks, asked):
    settings = {"raw_start": "masked words"}
    run = start("dse", "smoke", encoder=str(project / "tiny"), overrides=settings, out=project / "own")
    models = {"BERT": Model("masked words", str(project / "tiny"), talks), "DSE": Model("DSE", "BERT", talks)}
    run.evaluate(run.train(models), [asked])
    assert set(run.results["encoder"]) == {"tiny, masked words"}


def test_what_was_submitted_twice_is_made_once(run, talks, asked):
    later = {"later": Model("DSE", data=talks), "from it": Model("DSE", "later", talks)}
    run.train(later)
    count = len(run.stages)
    assert list(run.train(later)) == ["later", "from it"]
    assert all(stage.cached for stage in run.stages[count:]), "they were there already"


@pytest.fixture
def with_workers(run, monkeypatch):
    monkeypatch.setattr("dialnb.runs.scheduler.get_context", lambda _: processes.context())
    run._scheduler.workers = 2
    yield run
    run._scheduler.close()


def test_with_workers_rows_are_those_of_one_process_and_wait_until_they_are_asked_for(project, with_workers):
    talks, records = Dialogues([load("bundled/dialogues")], 12), load("bundled/SNIPS", "dse")[3:40:2]
    models = {"first": Model("DSE-dropout", data=talks), "DSE": Model("DSE", "first", talks), "raw": Model()}
    tasks = [Task(table, length_of, {"SNIPS": records}, ["limit"]) for table in ("T2", "X")]
    trained = with_workers.train(models)
    answers = with_workers.evaluate(trained, tasks[:1])
    with_workers.evaluate(trained.only("raw"), tasks[1:])
    assert not any(stage.is_there for key, stage in trained.stages.items() if key[0] != "raw")
    assert len(with_workers.rows("X")) == 2 and "T2" not in set(with_workers._results["table"])
    assert len(with_workers.rows("T2")) == 6
    alone = start("dse", "smoke", encoder=str(project / "tiny"), out=project / "alone")
    alone._scheduler.cache = StageCache(project / "other-stages")
    rows = alone.evaluate(alone.train(models), tasks[:1]).rows
    assert np.allclose(rows["value"], answers.rows["value"], rtol=1e-5)


def test_what_workers_made_is_read_once_and_kept_in_the_record(with_workers, monkeypatch):
    run, read, real = with_workers, [], StageCache.run
    monkeypatch.setattr(StageCache, "run", lambda self, name, *rest: read.append(name) or real(self, name, *rest))
    stages = [run.submit(str(number), side_by_side.plus_one, number=number) for number in (1, 2)]
    last = run._scheduler.submit("3", lambda number: Job(side_by_side.plus_one, {"number": number}), [stages[1]])
    assert last.result() == 4 and [stage.result() for stage in stages] == [2, 3] and sorted(read) == ["1", "2", "3"]
    run.save()
    record = read_json(run.folder / "run.json")
    assert sorted((stage["name"], stage["cached"]) for stage in record["stages"]) == [
        ("1", False),
        ("2", False),
        ("3", False),
    ]


def test_rows_stand_in_the_order_of_asking_whoever_looks_first(run, talks, asked):
    trained = run.train({"raw": Model()})
    for name in ("one", "two"):
        run.evaluate(trained, [replace(asked, labels={"part": name})])
    run.add(run.rows("T2").assign(part="three"))
    run.evaluate(trained, [replace(asked, labels={"part": "four"})])
    assert run.results["part"].unique().tolist() == ["one", "two", "three", "four"]
