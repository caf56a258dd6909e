"""The parts of the TaDSE study: what is filled, trained, compressed and asked, before its notebook runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from shared import from_notebook

from dialnb.claims.comparison import compare_table
from dialnb.data import Dataset
from dialnb.data.records import IntentUtterance, Slot
from dialnb.data.tables import build_table
from dialnb.evaluation.vectors import normalise
from dialnb.examples.readings import Filled, Templates, annotated
from dialnb.runs.fingerprints import stage_key
from dialnb.runs.grid import Watch, job_of
from dialnb.runs.profiles import load_profiles
from dialnb.studies import tadse
from dialnb.studies.tadse import ALIGNED, PAIR, Compressed
from dialnb.training import TrainingSettings
from dialnb.training.stage import train_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    defined = ("drawing", "toy_counts", "book_rows", "chosen_rates", "rate_of_printed_movement", "shape_rows", "orders")
    defined += ("order_name", "single", "placeholders")
    return from_notebook("tadse", tmp_path_factory.mktemp("notebook"), *defined)


def resolved(profile: str, **changes) -> dict:
    return load_profiles("tadse").resolve(profile, overrides=changes)


def request(what: str, where: str, split: str = "train", intent: str = "find") -> IntentUtterance:
    text = f"find a {what} in {where}"
    start = len(text) - len(where)
    slots = (Slot("what", what, 7, 7 + len(what)), Slot("where", where, start, len(text)))
    return IntentUtterance(text, intent, slots, split=split)


WHAT, WHERE = ("hotel", "train", "taxi", "table"), ("north", "south", "centre")


@pytest.fixture
def records(tmp_path: Path) -> Dataset:
    rows = [request(what, where, split) for split in ("train", "dev", "test") for what in WHAT for where in WHERE]
    rows += [
        IntentUtterance(f"hello {word}", "greet", split=split)
        for split in ("train", "dev", "test")
        for word in tiny.WORDS[:8]
    ]
    table = build_table(rows, tmp_path / "rows.json", "made")
    return Dataset("made", "", "none", "made", table, np.arange(len(rows)))


# --- data -------------------------------------------------------------------------------------------------------------


def test_the_toy_of_table_2_gives_what_is_printed(notebook):
    printed = {"input_sentences": 3, "slot_types": 2, "values_per_slot": 3, "templates": 1, "synthetic_sentences": 6}
    assert notebook.toy_counts([request(what, where) for what, where in zip(WHAT, WHERE)]) == printed | {"total": 9}


def test_a_dataset_to_train_on_is_filled_by_its_rule_or_with_another_k(records):
    assert len(Filled("MASSIVE", records, k=0).augmentation()) == 20, "the originals"
    assert len(Filled("MASSIVE", records, k=2).augmentation()) < len(Filled("MASSIVE", records).augmentation())
    assert len(Filled("MASSIVE", records, k=0, limit=5).augmentation()) == 5
    assert "{what}" in Filled("MASSIVE", records, typed=True).augmentation().templates[0]


def test_mistaken_slots_are_filled_from_the_book_without_mistakes(records):
    made = Filled("MASSIVE", records, mistaken=1.0).augmentation()
    assert set(made.book["what"]) == set(WHAT) and any("find a north" in text for text in made)


def test_entities_stand_in_for_the_slots_of_clinc150():
    said = [IntentUtterance("what is the weather in paris tomorrow", "weather")]
    found = annotated("CLINC150", said, "rules")[0]
    assert [slot.name for slot in found.slots] == ["GPE", "DATE"]
    assert annotated("SNIPS", said, "rules") == said


def test_the_entity_book_lists_printed_values_and_our_own_most_frequent(notebook):
    rows = notebook.book_rows({"NORP": {"french": 5, "welsh": 9}, "GPE": {"rome": 2}}, "rules")
    by_table = pd.DataFrame(rows).set_index(["table", "model"])["value"]
    assert by_table["T8", "french"] == 5 and by_table["T8", "italian"] == 0 and by_table["T8", "welsh"] == 9
    assert by_table["T7", "NORP"] == 14 and by_table["T7", "DATE"] == 0


def test_the_drawing_shows_real_utterances_and_new_fillings_of_their_templates(notebook):
    drawn = notebook.drawing()
    assert drawn["intent"].unique().tolist() == ["PlayMusic", "BookRestaurant"]
    for _, part in drawn.groupby("intent"):
        texts = part.groupby("kind")["text"].apply(list)
        assert texts["template"][0].count("{SLOT}") == 2 and len(texts["filled"]) == 3
        assert texts["utterance"][0] not in texts["filled"]


# --- models -----------------------------------------------------------------------------------------------------------


def test_atis_has_top_2_in_the_column_of_top_3_and_no_top_5(notebook):
    assert notebook.orders("ATIS", (0, 3, 5)) == [0, 2]
    assert notebook.orders("SNIPS", (0, 3, 5)) == [0, 3, 5]
    assert notebook.single("L_u", "ATIS") == "L_u on ATIS, top-2"
    assert notebook.single("L_u", "ATIS", 0) == "L_u on ATIS, none"


def test_models_with_the_alignment_layer_train_longer_on_one_dataset(records):
    s = resolved("paper")
    one, two = tadse.filled({"SNIPS": records}, s), tadse.filled({"SNIPS": records, "ATIS": records}, s)
    made = [tadse.model("TaDSE w/ MLP", s, data) for data in (one, two)]
    epochs = [job_of(s, model, tiny.encoder(), 1)[1]["settings"].epochs for model in made]
    assert epochs == [8, 2], "as printed"
    trained = job_of(s, tadse.model("TaDSE", s, one), tiny.encoder(), 1)[1]["settings"]
    assert (trained.learning_rate, trained.epochs, trained.batch_size) == (1e-8, 2, 16)


def test_temperature_and_weights_of_the_profile_reach_the_losses(records):
    s = resolved("smoke", temperature=0.2, weight_pair=0.1)
    data = tadse.filled({"SNIPS": records}, s)
    options = {recipe: dict(tadse.model(recipe, s, data).options) for recipe in tadse.LOSSES.values()}
    usual = {"sampling": "utterances", "pooling": "cls"}
    assert options["TaDSE L_u"] == {"temperature": 0.2} | usual
    assert options["TaDSE"]["weight_pair"] == 0.1 and "weight_pair" not in options["TaDSE L_u + L_t"]
    assert {value for name, value in options["TaDSE"].items() if name.startswith("temperature")} == {0.2}
    printed = tadse.model("TaDSE", resolved("smoke"), data, options=tadse.VARIANTS["both directions"])
    assert printed.options == {"direction": "both"} | usual


def test_every_training_of_the_gpu_profile_has_the_same_steps_whatever_it_reads(records):
    s, encoder = resolved("gpu"), tiny.encoder()
    assert s.train_seeds == () and s.rates == (1e-6, 3e-6, 1e-5, 3e-5)
    for recipe in tadse.LOSSES.values():
        for k in (0, 3, 5):
            made = tadse.model(recipe, s, tadse.filled({"SNIPS": records}, s, k=k))
            trained = job_of(s, made, encoder, 1)[1]["settings"]
            assert trained.total_steps(10) == trained.total_steps(10_000) == s["train.TaDSE.steps"]
            assert made.options["pooling"] == "cls" == made.pooling, "as SimCSE is trained, from which they start"


def test_the_rate_of_a_row_is_the_best_on_average_over_development_sets_the_smallest_of_equals(notebook):
    rows = [(model, rate, dataset, value) for model, rate, *values in (
        ("TaDSE", 3e-5, 90, 50), ("TaDSE", 1e-5, 80, 70), ("TaDSE", 1e-6, 75, 75),
        ("SimCSE-aug", 1e-6, 1, 2), ("SimCSE-aug", 1e-5, 9, 9), ("SimCSE-aug", 3e-5, 0, 10),
    ) for dataset, value in zip("AB", values)]  # fmt: skip
    chosen = notebook.chosen_rates(pd.DataFrame(rows, columns=["model", "rate", "dataset", "value"]))
    assert chosen == {"TaDSE": 1e-6, "SimCSE-aug": 1e-5}
    assert notebook.chosen_rates(pd.DataFrame()) == {}


def test_the_printed_movement_is_the_printed_rate_times_the_printed_steps(records, notebook):
    s = resolved("smoke", **{"train.TaDSE.steps": 10, "batch_size": 4})
    run = SimpleNamespace(trained_as=lambda model: model.within(s))
    made = tadse.model("TaDSE", s, tadse.filled({"MASSIVE": records}, s))
    fillings = len(made.data.read()[0])
    longer = tadse.model("TaDSE w/ MLP", s, made.data)
    rate, of_longer = (notebook.rate_of_printed_movement(run, each) for each in (made, longer))
    assert rate * 10 == pytest.approx(1e-8 * 2 * fillings / 16) and of_longer == pytest.approx(4 * rate)


def test_neighbours_of_development_utterances_choose_rates(records, notebook):
    given = tiny.encoder(), records, "made", None, None
    dev = tadse.neighbours_of(*given, split="dev")["rows"]
    assert dev["n"].tolist() == [20] and notebook.placeholders(records) == ["{what}", "{where}"]


def test_equal_models_are_one_stage(records):
    encoder, s = tiny.encoder(), resolved("smoke")
    sets = {"SNIPS": records}
    keys = []
    for changes in ({}, {}, {"typed": True}):
        keys.append(stage_key(*job_of(s, tadse.model("TaDSE", s, tadse.filled(sets, s, **changes)), encoder, 1)))
    elsewhere = job_of({"batch_size": 99}, tadse.model("TaDSE", s, tadse.filled(sets, s)).within(s), encoder, 1)
    assert keys[0] == keys[1] == stage_key(*elsewhere) != keys[2]


@pytest.mark.parametrize("recipe", ["TaDSE", "TaDSE w/ MLP", "TaDSE L_u"])
def test_training_hands_out_the_layers_that_compression_needs(records, tmp_path, recipe, monkeypatch):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    encoder, settings = tiny.encoder(), TrainingSettings(batch_size=8, max_steps=2, learning_rate=1e-3)
    made = train_model(recipe, encoder, Templates([Filled("MASSIVE", records)]), settings, {}, None, tmp_path)
    wanted = {"TaDSE": {"head"}, "TaDSE w/ MLP": {"head", "alignment"}, "TaDSE L_u": set()}[recipe]
    assert set(made.layers) == wanted and made.training.steps == 2
    for name, layer in made.layers.items():
        ones = torch.ones(2, encoder.dim)
        wanted = torch.tanh(torch.nn.functional.linear(ones, layer["weight"], layer["bias"])).numpy()
        assert np.allclose(Compressed(encoder, made.layers, "M_A")._through(name, ones.numpy()), wanted, atol=1e-6)


def test_long_training_is_scored_after_every_epoch(records, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    settings = TrainingSettings(batch_size=32, epochs=2, learning_rate=1e-3)
    inputs = {"records": records, "dataset": "MASSIVE", "pooling": "cls", "limit": None, "references": None}
    watch, data = Watch(tadse.neighbours_of, inputs), Templates([Filled("MASSIVE", records, k=0)])
    watched = train_model("TaDSE", tiny.encoder(), data, settings, {}, watch, tmp_path).watched
    assert watched["epoch"].tolist() == [1, 2] and watched["value"].between(0, 100).all()


# --- tests ------------------------------------------------------------------------------------------------------------


def test_neighbours_come_with_what_each_test_utterance_scored(records):
    found = tadse.neighbours_of(tiny.encoder(), records, "made", None, None, (1, 3), "cls")
    means = found["items"].groupby("k")["value"].mean()
    assert found["rows"].set_index("k")["value"].to_dict() == pytest.approx(means.to_dict())
    assert found["rows"]["n"].unique().tolist() == [20] and found["items"]["item"].nunique() == 20


@given(st.integers(0, 50), st.floats(0.01, 0.99))
def test_compression_lies_between_the_utterance_and_its_template(seed, ratio):
    rows = [request(WHAT[seed % 4], WHERE[seed % 3]), IntentUtterance(f"hello {tiny.WORDS[seed % 40]}", "greet")]
    model = Compressed(ENCODER)
    plain, meant = model.plain([row.text for row in rows]), model.templates(rows)
    mixed = model.vectors(rows, meant, ratio)
    assert np.allclose(mixed, ratio * normalise(meant) + (1 - ratio) * normalise(plain), atol=1e-5)
    as_they_come = Compressed(ENCODER, reading="lengths").vectors(rows, meant, ratio)
    assert np.allclose(as_they_come, ratio * meant + (1 - ratio) * plain, atol=1e-5)
    assert np.array_equal(model.vectors(rows, meant, 0), plain)
    assert np.allclose(mixed[1], normalise(plain)[1], atol=1e-5), "without slots the template is the utterance"


ENCODER = tiny.encoder().eval()


def test_the_alignment_layer_is_for_training_unless_asked_for_and_then_stands_behind_the_head():
    dim, rows = ENCODER.dim, [request("hotel", "north")]
    generator = torch.Generator().manual_seed(1)
    layers = {
        name: {"weight": torch.randn(dim, dim, generator=generator), "bias": torch.zeros(dim)}
        for name in ("head", "alignment")
    }
    model, bare = Compressed(ENCODER, layers, "M_A"), Compressed(ENCODER)
    assert np.array_equal(Compressed(ENCODER, layers).templates(rows), bare.templates(rows))
    headed = np.tanh(bare.templates(rows) @ layers["head"]["weight"].numpy().T)
    assert np.allclose(model.templates(rows), np.tanh(headed @ layers["alignment"]["weight"].numpy().T), atol=1e-4)
    assert np.array_equal(model.vectors(rows, model.templates(rows), 0), bare.vectors(rows, bare.templates(rows), 0))


def test_retrieved_templates_are_those_of_the_training_set(records):
    model, train = Compressed(ENCODER), list(records.filter(split="train"))
    known = model.templates(train)
    found = model.retrieved([request("hotel", "north")], known)
    similar = normalise(model.plain(["find a hotel in north"])) @ normalise(known).T
    assert np.array_equal(found[0], known[similar.argmax()])


def test_compression_is_chosen_on_dev_and_the_smallest_of_equals_wins(records):
    made = tadse.compression_of(ENCODER, records, "made", None, None, (0, 0.1, 0.2, 0.5))
    rows, items = (made[part].assign(table="X-compression", model=PAIR) for part in ("rows", "items"))
    assert set(rows["split"]) == {"test"} and set(rows["template"]) == {"gold", "retrieved"} and len(rows) == 8
    chosen = rows[rows["chosen"]]
    assert chosen["compression"].nunique() == 1 and len(chosen) == 2
    means = items.groupby("template")["value"].mean()
    assert chosen.set_index("template")["value"].to_dict() == pytest.approx(means.to_dict())
    dev = rows.assign(value=0.0, split="dev")
    dev.loc[(dev["template"] == "gold") & dev["compression"].isin((0.2, 0.5)), "value"] = 50.0
    best_on_test = rows.assign(value=99.0 * (rows["compression"] == 0.1))
    assert tadse.chosen_ratio(pd.concat([dev, best_on_test])) == 0.2


def test_geometry_has_a_value_of_all_and_of_disjoint_folds(records, notebook):
    rows = tadse.space_of(ENCODER, records, dataset="SNIPS", limit=None, folds=2, ratios=(0.0, 0.5))
    counted = rows.groupby(["protocol", "seed"])["n"].first()
    assert counted["paper", 0] == 20 == counted["folds"].sum()
    tight = rows.query("protocol == 'paper' and metric == 'Alignment'").set_index("compression")["value"]
    assert tight[0.5] < tight[0.0], "utterances of one template move together"
    dealt = notebook.shape_rows(rows.assign(table="F8", model=PAIR))
    assert dealt.groupby("table").size().to_dict() == {"F4": 4, "F8": 8, "X-geometry": 6}
    assert set(dealt[dealt["table"] == "F4"]["model"]) == {"TaDSE", "TaDSE compressed 0.5"}


def test_rows_land_in_the_cells_of_the_printed_tables():
    row = {"task": "intent", "dataset": "ATIS", "metric": "Accuracy", "protocol": "paper", "seed": 0, "value": 80.0,
           "n": 893, "method": "kNN", "k": 1, "encoder": "mini", "pooling": "cls"}  # fmt: skip
    rows = pd.DataFrame([
        row | {"table": "T4", "model": "L_pair", "augmentation": "top-2"},
        row | {"table": "T5", "model": PAIR},
        row | {"table": "T6", "model": tadse.COMPRESSED[ALIGNED], "compression": 0.2},
    ])  # fmt: skip
    for table, model, column in (
        ("T4", "L_pair", "top-3"),
        ("T5", PAIR, "ATIS"),
        ("T6", tadse.COMPRESSED[ALIGNED], "ATIS"),
    ):
        cells = compare_table("tadse", table, rows).rows
        cells = cells[(cells["model"] == model) & (cells["column"] == column)]
        assert cells["ours"].dropna().tolist() == [80.0], table


def test_a_dataset_that_is_missing_is_the_reason_in_its_rows_alone():
    missing = [{"table": "T4", "dataset": "ATIS", "reason": "not here"}]
    cells = compare_table("tadse", "T4", pd.DataFrame(), missing).rows
    assert set(cells[cells["note"] == "not here"]["dataset"]) == {"ATIS"}
