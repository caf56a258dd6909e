"""What the studies are made of: readings, evaluators of DSE's tables, drawings, before any notebook runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
import tiny
from shared import from_notebook

from dialnb.claims import load_claims
from dialnb.claims.comparison import compare_table
from dialnb.claims.papers import published
from dialnb.data import Dataset, load
from dialnb.data.records import Dialogue, InferenceItem, IntentUtterance, QuestionAnswer, SelectionGroup, Utterance
from dialnb.data.tables import build_table
from dialnb.evaluation import finetune_actions, finetune_responses, majority_tags
from dialnb.evaluation.finetuning import ACTIONS
from dialnb.evaluation.selection import question_answers
from dialnb.examples.readings import Dialogues, Lacking, thin
from dialnb.runs import Model, Trained
from dialnb.runs.answers import Answers, Question
from dialnb.runs.fingerprints import fingerprint
from dialnb.runs.grid import job_of
from dialnb.runs.profiles import load_profiles
from dialnb.runs.scheduler import Scheduler
from dialnb.runs.stages import StageCache
from dialnb.studies import dse, spaces, tasks
from dialnb.studies.shared import show_batch
from dialnb.training import TrainingSettings
from dialnb.training.stage import Result

pytestmark = pytest.mark.usefixtures("one_thread")
PROBES = {"SNLI": "copies", "SICK": "", "ANLI": "copies"}


def dataset(folder: Path, records: list, name: str = "made") -> Dataset:
    """Records of a test as a dataset."""
    table = build_table(records, folder / f"{name}.json", name)
    return Dataset(name, "", "none", name, table, np.arange(len(records)))


def dialogue(number: int, *texts: str, speaker: str = "user", split: str = "train") -> Dialogue:
    other = {"user": "system", "system": "user"}[speaker]
    said = tuple(Utterance((speaker, other)[i % 2], text) for i, text in enumerate(texts))
    return Dialogue(str(number), said, split=split)


@pytest.fixture
def corpus(tmp_path) -> Dataset:
    words = iter(tiny.sentences(200, seed=3))
    rows = [dialogue(i, *(f"{next(words)} please book a table" for _ in range(5))) for i in range(30)]
    return dataset(tmp_path, rows, "corpus")


def resolved(profile: str, **changes) -> dict:
    return load_profiles("dse").resolve(profile, overrides=changes)


# --- data ---------------------------------------------------------------------------------------------------------


def test_thinning_keeps_order_and_draws_the_same_again():
    items = list(range(1000))
    drawn = thin(items, 50)
    assert len(drawn) == 50 and drawn == sorted(set(drawn)) and drawn == thin(items, 50)
    assert drawn != thin(items, 50, seed=1)
    assert thin(items, None) == items == thin(items, 2000)


def test_a_part_of_a_corpus_is_the_same_dialogues_as_thinning_all_of_them(corpus):
    assert Dialogues([corpus], 7).read() == thin(Dialogues([corpus]).read(), 7)


def test_the_tail_quirk_loses_the_opening_line_of_the_system(tmp_path):
    spoken = dataset(tmp_path, [dialogue(0, "hello", "a table", "when", "at two", speaker="system")])
    assert Dialogues([spoken]).read()[0].utterances == ("hello", "a table", "when", "at two")
    assert Dialogues([spoken], tail=True).read()[0].utterances == ("a table", "when", "at two")


def test_of_inference_pairs_only_the_entailed_are_trained_on(tmp_path):
    items = [InferenceItem(str(i), (f"p{i}", f"h{i}"), label) for i, label in enumerate(["entailment", "neutral"] * 2)]
    found = Dialogues([dataset(tmp_path, items)]).read()
    assert [c.utterances for c in found] == [("p0", "h0"), ("p2", "h2")]


@pytest.mark.parametrize("there", [True, False])
def test_every_model_that_the_notebook_lists_can_be_keyed_by_its_data(corpus, there):
    cells = nbformat.read(Path(__file__).parents[1] / "notebooks" / "dse.ipynb", as_version=4).cells
    (listed,) = [cell.source for cell in cells if cell.source.startswith('models = {"BERT"')]
    found, lacking = ({"made": corpus}, {}) if there else ({}, {"made": "it cannot be had"})
    run = SimpleNamespace(data=lambda _: found, lacking=lambda _: lacking, wants=lambda *_, **__: True)
    names = {"run": run, "s": resolved("gpu"), "dialogues": Dialogues([corpus]), "dse": dse, "Model": Model}
    names |= {"Dialogues": Dialogues, "Lacking": Lacking}
    exec(listed.partition("\ntrained = ")[0], names)  # noqa: S102 (a cell of the project's own notebook)
    assert "DSE-dianli" in names["models"] and all(fingerprint(model.data) for model in names["models"].values())
    assert isinstance(names["models"]["DSE-dianli"].data, Dialogues if there else Lacking)


def test_questions_of_dialogues_come_with_the_reply_to_them(tmp_path):
    said = ("is there a cheap hotel near the centre?", "yes there are two of them", "fine?", "which one do you want?")
    pairs = question_answers(dataset(tmp_path, [dialogue(0, *said, "the first one please")] * 2), None)
    assert pairs == [QuestionAnswer(said[0], said[1]), QuestionAnswer(said[3], "the first one please")]


def test_triples_share_a_premise_and_need_both_labels():
    rows = [
        ("a", "a1", "entailment"),
        ("b", "b1", "contradiction"),
        ("a", "a2", "neutral"),
        ("a", "a3", "contradiction"),
    ]
    items = [InferenceItem(str(i), (premise, said), label) for i, (premise, said, label) in enumerate(rows)]
    assert tasks.nli_triples(items) == [("a", "a1", "a3")]


def test_items_of_the_probe_and_of_listed_candidates_average_to_the_rows(tmp_path):
    rows = [InferenceItem(str(i), (f"a {i // 2}", f"b {i}"), ("entailment", "contradiction")[i % 2]) for i in range(40)]
    lists = [
        SelectionGroup(f"log:{i // 3}#{i}", (f"talk {i}",), ("yes", f"talk {i}", "no"), (0, i % 2, 1 - i % 2))
        for i in range(12)
    ]
    probe = tasks.nli_of(tiny.encoder(), dataset(tmp_path, rows, "SICK"), "SICK", None)
    ranked = tasks.candidates_of(tiny.encoder(), dataset(tmp_path, lists, "UbuntuIRC"), "UbuntuIRC", None)
    assert len(probe["items"]) == 20 and ranked["items"]["group"].nunique() == 4, "dialogues of one log belong together"
    for found, keys in ((probe, ["protocol", "metric"]), (ranked, ["protocol", "ties", "metric"])):
        means, scores = (part.groupby(keys)["value"].mean() for part in (found["items"], found["rows"]))
        assert means.to_dict() == pytest.approx(scores[means.index].to_dict())
    assert 0 < ranked["items"]["value"].mean() < 100


# --- models -------------------------------------------------------------------------------------------------------


def settings_of(profile: str, model: Model, **changes) -> TrainingSettings:
    s = load_profiles("dse").resolve(profile, overrides=changes)
    return job_of(s, model, tiny.encoder(), 1)[1]["settings"]


def test_the_rates_of_a_profile_are_for_dse_and_its_variants():
    assert settings_of("gpu", Model("DSE 2-1")).learning_rate == settings_of("gpu", Model("DSE")).learning_rate == 1e-5
    assert settings_of("gpu", Model("DSE-dropout")).learning_rate == 3e-6
    assert settings_of("quick", Model("SimCSE-unsup")).learning_rate == 3e-5, "as printed"
    ours = settings_of("gpu", Model("DSE", settings={"learning_rate": 2e-5}), **{"train.DSE.learning_rate": 3e-5})
    assert ours.learning_rate == 2e-5, "what a cell says goes before what the command line says"


def test_each_baseline_may_have_a_rate_and_steps_of_its_own():
    steps = {recipe: settings_of("gpu", Model(recipe), max_steps=7).max_steps for recipe in ("DSE", "SimCSE-unsup")}
    assert steps == {"DSE": 7, "SimCSE-unsup": 15000}
    short = settings_of("gpu", Model("TOD-BERT"), **{"train.TOD-BERT.max_steps": 5})
    assert (short.max_steps, short.learning_rate) == (5, 2e-5)


def test_the_first_epoch_of_dse_dropout_is_reported(corpus):
    talks = Dialogues([corpus])
    dropout = dse.model("DSE-dropout", talks)
    assert settings_of("paper", dropout).epochs == 15 and dropout.report == 1 and dropout.watch.keep
    assert dse.model("DSE", talks).watch is None


def test_simcse_by_the_mean_is_chosen_as_it_is_trained(corpus):
    made = [dse.model("SimCSE-unsup", Dialogues([corpus]), options=o) for o in ({}, {"pooling": "mean"})]
    assert [model.watch.inputs["pooling"] for model in made] == ["cls", "mean"]


def test_a_model_is_read_with_the_pooling_that_development_data_prefer(tmp_path):
    better_pooling = from_notebook("dse", tmp_path, "better_pooling").better_pooling
    records = load("bundled/CLINC150", "full")
    few = {"shots": (1,), "seeds": (0,)}
    rows = tasks.poolings_of(tiny.encoder(), records, "CLINC150", 60, **few)
    assert set(zip(rows["split"], rows["pooling"])) == {(a, b) for a in ("dev", "test") for b in ("mean", "cls")}
    rest = tasks.poolings_of(tiny.encoder(), load("bundled/SNIPS", "dse"), "S", 60, **few)
    assert set(rest["split"]) == {"test"}
    scores = [("TOD-BERT", "dev", "cls", 9.0), ("TOD-BERT", "dev", "mean", 8.0), ("TOD-BERT", "test", "mean", 99.0)]
    rows = pd.DataFrame(scores, columns=["model", "split", "pooling", "value"])
    assert better_pooling(rows) == {"TOD-BERT": "cls"} and better_pooling(rows.iloc[:0]) == {}


def test_models_may_be_read_with_another_pooling_as_soon_as_answers_tell_which(tmp_path):
    scheduler = Scheduler(StageCache(tmp_path))
    stages = {
        (name, seed): scheduler.submit("", lambda: Result(tiny.encoder()))
        for name in ("DSE", "TOD-BERT")
        for seed in (1, 2)
    }
    trained = Trained(dict.fromkeys(("DSE", "TOD-BERT"), Model()), stages)
    asked = {Question("TOD-BERT", 1, "", None): scheduler.submit("", lambda: None)}
    found = Answers(asked, {}, None).read_better(trained, lambda rows: {"TOD-BERT": "cls"})
    assert {key: each.model.pooling for key, each in found.results.items()} == {
        ("DSE", 1): "mean",
        ("DSE", 2): "mean",
        ("TOD-BERT", 1): "cls",
        ("TOD-BERT", 2): "cls",
    }
    assert trained["TOD-BERT"].pooling == "mean", "what was trained stays as it is"


# --- tasks --------------------------------------------------------------------------------------------------------


def test_actions_are_read_both_ways_and_macro_counts_absent_acts(tmp_path):
    rows = []
    for i in range(40):
        act, text = [("REQUEST", "which train do you want"), ("OFFER", "a good hotel near the centre")][i % 2]
        said = (Utterance("user", "hello"), Utterance("system", text, (act,)), Utterance("user", "ok thanks"))
        rows.append(Dialogue(str(i), said, split=("train", "test")[i >= 30]))
    found = finetune_actions(tiny.encoder(), dataset(tmp_path, rows), dataset="GSIM", shots=(3,), seeds=(0,))
    values = found.set_index(["protocol", "metric"])["value"]
    assert set(found["protocol"]) == {"code", "clean"} and set(found["n"]) == {10}
    present = values["code", "Macro-F1 present"]
    assert values["code", "Macro-F1"] == pytest.approx(present * 2 / 13), "13 columns, two of them occur"


def test_every_system_turn_of_a_dataset_may_be_asked_for(tmp_path):
    turn = (Utterance("user", "hello"), Utterance("system", "which train do you want", ("REQUEST",)))
    rows = [Dialogue(str(i), turn * 3, split=("train", "test")[i >= 20]) for i in range(30)]
    records, settings = dataset(tmp_path, rows, "GSIM"), {"dataset": "GSIM", "shots": (3,), "seeds": (0,)}
    last, every = (finetune_actions(tiny.encoder(), records, **settings, all_turns=names) for names in ((), ("GSIM",)))
    assert (set(last["n"]), set(every["n"])) == ({10}, {30})
    floor = majority_tags(None, records, **settings, all_turns=("GSIM",), recipe=ACTIONS)
    assert set(floor["n"]) == {30}


def test_the_inference_probe_has_captions_and_the_adversarial_triples_stand_beside(mirror_store):
    found = {name: len(tasks.nli_triples(load(name, variant, store=mirror_store))) for name, variant in PROBES.items()}
    assert found == {"SNLI": 744, "SICK": 415, "ANLI": 115}


def test_fine_tuned_selection_is_tested_on_pairs_it_did_not_see(tmp_path):
    pairs = [QuestionAnswer(f"where is {text} {i}", f"{text} is here") for i, text in enumerate(tiny.sentences(240, 5))]
    found = finetune_responses(tiny.encoder(), dataset(tmp_path, pairs), dataset="made", shots=(10,), seeds=(0,))
    assert set(found["n"]) == {100} and set(found["shots"]) == {10}


def test_scores_over_epochs_have_a_row_for_each_task_and_draw():
    records = {"intents": {"SNIPS": load("bundled/SNIPS", "dse")}, "scope": load("bundled/CLINC150", "plus")}
    records |= {"questions": load("bundled/dialogues")[:400]}
    records |= {"candidates": load("bundled/UbuntuIRC", "selection-100")[:120]}
    found = dse.score_four_tasks(tiny.encoder(), records, "probe", 50, 2)
    assert len(found) == 8 and found["value"].between(0, 100).all()
    assert found.groupby("task")["seed"].nunique().to_dict() == dict.fromkeys(
        ("dialogue selection", "intents", "out-of-scope", "utterance selection"), 2
    )


def test_questions_are_paired_with_their_answers_in_the_plane():
    plane = spaces.project_pairs(tiny.encoder(), load("bundled/dialogues")[:300], "made", "tsne", 5, 40, seed=1)
    assert plane["label"].value_counts().to_dict() == {"random response": 40, "question": 5, "answer": 5}
    assert plane[plane["pair"] != ""].groupby("pair").size().eq(2).all()
    assert plane["text"].str.len().gt(0).all() and plane["preservation"].nunique() == 1


def test_clusters_are_scored_on_several_draws_of_intents():
    found = spaces.clusters_of(
        tiny.encoder(),
        load("bundled/CLINC150", "plus"),
        dataset="CLINC150",
        plot_intents=3,
        plot_points=10,
        seeds=(0, 1),
    )
    assert found["seed"].tolist() == [0, 1] and found["value"].nunique() == 2 and set(found["n"]) == {30}


# --- tables -------------------------------------------------------------------------------------------------------


def tidy(table: str, cell) -> dict:
    """A printed cell of DSE as the row that our evaluators would give for it."""
    common = {"model": "DSE", "table": table, "value": cell.value, "seed": 0, "encoder": "mini", "metric": "Accuracy"}
    first, last = cell.column.split()[0], cell.column.split()[-1]
    if table == "T2":
        dataset = {"Clinc150": "CLINC150", "Bank77": "BANKING77", "Snips": "SNIPS", "Hwu64": "HWU64"}.get(cell.column)
        shots = int(cell.setting[0])
        rest = {"task": "intent", "method": "prototype-code", "dataset": dataset, "shots": shots}
    elif table == "T3":
        rest = {"task": "out-of-scope", "protocol": "code", "shots": 1, "threshold": cell.threshold}
        rest["metric"] = cell.column
    elif table == "T4":
        rest = {"task": "response selection", "dataset": first, "metric": last, "protocol": "paper", "ties": "against"}
    else:
        shots = int(cell.column.split()[1].partition("-")[0])
        rest = {"task": "action tagging", "dataset": first, "metric": last, "protocol": "code", "shots": shots}
    return common | rest


def test_the_summary_table_averages_ours_as_the_paper_does():
    printed = {table: published("dse", table) for table in ("T2", "T3", "T4", "T5")}
    cells = {table: part.query("model == 'DSE' and column != 'Ave'") for table, part in printed.items()}
    rows = pd.DataFrame([tidy(table, cell) for table, part in cells.items() for cell in part.itertuples()])
    rows = rows[rows["table"].ne("T2") | rows["dataset"].notna()]
    found = compare_table("dse", "T6", rows).rows.query("model == 'DSE'").set_index("column")["ours"]
    wanted = published("dse", "T6").query("model == 'DSE'").set_index("column")["value"]
    assert found.drop("IC").to_dict() == pytest.approx(wanted.drop("IC").to_dict(), abs=0.05)
    assert found["IC"] == pytest.approx(rows.query("table == 'T2'")["value"].mean()), "of the four public datasets"


def test_every_model_of_the_claims_can_be_made():
    trained = load_profiles("dse").parameters["models"].choices
    known = {"BERT", *trained, *dse.CHECKPOINTS}
    sides = [side for c in load_claims("dse") for side in (c.better, *(c.order or ()), *np.atleast_1d(c.worse or {}))]
    assert {side["model"] for side in sides if "model" in side} <= known
    assert set(resolved("gpu")["models"]) == set(trained)
    assert set(resolved("paper")["checkpoints"]) == set(dse.CHECKPOINTS)


def test_the_drawing_of_pairs_has_a_dropped_reply_and_another_dialogue():
    said = dialogue(0, "is there a  cheap hotel", "Perfect!", "which one do you want").utterances
    drawn = dse.pair_rows(said, Utterance("user", "i need a taxi to the north"))
    assert drawn["kept"].tolist() == [True, False, True, True] and drawn["dialogue"].tolist() == [0, 0, 0, 1]
    assert drawn["text"].iloc[0] == "is there a cheap hotel"


def test_a_batch_is_shown_with_the_closest_wrong_text_of_each_row():
    cosines = np.array([[0.9, 0.1, 0.3], [0.8, 0.2, 0.1], [0.0, 0.6, 0.5]])
    shown = show_batch({"query": list("abc"), "reply": list("xyz")}, cosines, "hardest", weight=10 * cosines)
    assert shown["hardest"].tolist() == ["z", "x", "y"] and shown["cosine"].tolist() == [0.9, 0.2, 0.5]
    assert shown["its weight"].tolist() == [3, 8, 6]


def test_scope_examples_are_drawn_by_class(tmp_path):
    rows = [IntentUtterance(f"t{i}", ("a", "b", "oos")[i % 3], split="test") for i in range(30)]
    kept = spaces.sample_intents(dataset(tmp_path, rows), 5, 4, 3, seed=1)
    assert sorted(r.intent for r in kept) == ["a"] * 4 + ["b"] * 4 + ["oos"] * 3
    assert [r.intent for r in kept[-3:]] == ["oos"] * 3
