"""The parts of the TaDSE study: what is filled, trained, compressed and asked, before its notebook runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from dialnb.claims import load_claims
from dialnb.claims.papers import compare_table
from dialnb.data import Dataset
from dialnb.data.columns import build_table
from dialnb.data.records import IntentUtterance, Slot
from dialnb.evaluation.vectors import normalise
from dialnb.runs.profiles import load_profiles
from dialnb.runs.stages import stage_key
from dialnb.studies import tadse, tadse_data, tadse_models, templates
from dialnb.studies.tadse_models import ALIGNED, DATASETS, PAIR, Spec, single
from dialnb.studies.templates import Compressed, Filled
from dialnb.training import TrainingSettings
from dialnb.training.recipes import get_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


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
    table = build_table(rows, tmp_path / "rows.safetensors", "made")
    return Dataset("made", "", "none", "made", {}, table, np.arange(len(rows)))


# --- data -------------------------------------------------------------------------------------------------------------


def test_the_toy_of_table_2_gives_what_is_printed():
    printed = {"input_sentences": 3, "slot_types": 2, "values_per_slot": 3, "templates": 1, "synthetic_sentences": 6}
    assert tadse_data.toy_counts() == printed | {"total": 9}


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
    found = templates.annotated("CLINC150", said, "rules")[0]
    assert [slot.name for slot in found.slots] == ["GPE", "DATE"]
    assert templates.annotated("SNIPS", said, "rules") == said


def test_the_entity_book_lists_printed_values_and_our_own_most_frequent():
    rows = tadse_data.book_rows({"NORP": {"french": 5, "welsh": 9}, "GPE": {"rome": 2}}, "rules")
    by_table = pd.DataFrame(rows).set_index(["table", "model"])["value"]
    assert by_table["T8", "french"] == 5 and by_table["T8", "italian"] == 0 and by_table["T8", "welsh"] == 9
    assert by_table["T7", "NORP"] == 14 and by_table["T7", "DATE"] == 0


def test_the_drawing_shows_real_utterances_and_new_fillings_of_their_templates():
    drawn = tadse_data.drawing()
    assert drawn["intent"].unique().tolist() == ["PlayMusic", "BookRestaurant"]
    for _, part in drawn.groupby("intent"):
        texts = part.groupby("kind")["text"].apply(list)
        assert texts["template"][0].count("{SLOT}") == 2 and len(texts["filled"]) == 3
        assert texts["utterance"][0] not in texts["filled"]


# --- models -----------------------------------------------------------------------------------------------------------


def test_atis_has_top_2_in_the_column_of_top_3_and_no_top_5():
    assert tadse_models.orders("ATIS", (0, 3, 5)) == [0, 2]
    assert tadse_models.orders("SNIPS", (0, 3, 5)) == [0, 3, 5]


def test_the_gpu_profile_trains_every_row_of_the_printed_tables_once():
    found = tadse_models.specifications(resolved("gpu"), DATASETS)
    assert {"TaDSE", "TaDSE w/ MLP", "SimCSE-aug", "TOD-BERT-aug", "DSE-aug"} <= set(found)
    ordered = [name for name in found if name.startswith(("L_u on", f"{PAIR} on")) and "mistaken" not in name]
    assert len([name for name in ordered if "printed" not in name and "HWU64" not in name]) == 22, "2 x 11 of T4"
    assert single(ALIGNED, "MASSIVE", 3) in found and single(ALIGNED, "CLINC150", 5) not in found
    told = [
        (s.recipe, s.sources, s.start, repr(s.options), s.typed, s.mistaken, repr(s.settings)) for s in found.values()
    ]
    assert len(set(told)) == len(told), "no model twice"


def test_the_printed_rate_and_the_working_ones_never_share_a_table():
    s = resolved("gpu")
    found = tadse_models.specifications(s, DATASETS)
    asked = tadse.questions(s, DATASETS, [*found, "SimCSE", "BERT", "TOD-BERT", "DSE"])
    rates: dict[str, set] = {}
    for name, *_, labels in asked:
        if name in found:
            rates.setdefault(labels["table"], set()).add(found[name].settings.get("learning_rate", s["learning_rate"]))
    assert rates["X-printed"] == {1e-8}
    assert not any(1e-8 in used for table, used in rates.items() if table != "X-printed")
    assert 1e-8 not in s["rates"]


def test_models_with_the_alignment_layer_train_longer_on_one_dataset():
    s = resolved("paper")
    epochs = [tadse_models.template_settings(s, "TaDSE w/ MLP", one).epochs for one in (True, False)]
    assert epochs == [8, 2] and tadse_models.template_settings(s, "TaDSE", True) == get_recipe("TaDSE").settings


def test_every_question_is_about_a_model_that_is_made():
    for profile in ("smoke", "quick", "gpu"):
        s = resolved(profile)
        made = [*tadse_models.specifications(s, tuple(s["datasets"])), "BERT", *s["baselines"]]
        assert {name for name, *_ in tadse.questions(s, tuple(s["datasets"]), made)} <= set(made)


def test_every_model_of_the_claims_is_asked_about():
    s = resolved("gpu")
    made = [*tadse_models.specifications(s, DATASETS), "BERT", *s["baselines"]]
    rows = pd.DataFrame([labels for *_, labels in tadse.questions(s, DATASETS, made)])
    models = rows.groupby("table")["model"].apply(set).to_dict()
    models["T6"] = {*tadse.COMPRESSED, *tadse.COMPRESSED.values()}
    for claim in load_claims("tadse"):
        if (table := claim.rows.get("table")) not in ("T3", "T4", "T5", "T6", "F6"):
            continue
        sides = [claim.better, *np.atleast_1d(claim.worse or {}), *(side for pair in claim.pairs for side in pair)]
        assert {side["model"] for side in sides if "model" in side} <= models[table], claim.id


def test_equal_models_are_one_stage(records):
    encoder, s = tiny.encoder(), resolved("smoke")
    spec = Spec("TaDSE", (("SNIPS", 3),))
    keys = [stage_key(*tadse_models.job(s, spec, {"SimCSE": encoder}, {"SNIPS": records})) for _ in range(2)]
    other = tadse_models.job(s, spec._replace(typed=True), {"SimCSE": encoder}, {"SNIPS": records})
    assert keys[0] == keys[1] != stage_key(*other)


@pytest.mark.parametrize("recipe", ["TaDSE", "TaDSE w/ MLP", "TaDSE L_u"])
def test_training_hands_out_the_layers_that_compression_needs(records, tmp_path, recipe, monkeypatch):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    encoder, settings = tiny.encoder(), TrainingSettings(batch_size=8, max_steps=2, learning_rate=1e-3)
    made = templates.train_templates(recipe, encoder, [Filled("MASSIVE", records)], settings, {}, tmp_path)
    wanted = {"TaDSE": {"head"}, "TaDSE w/ MLP": {"head", "alignment"}, "TaDSE L_u": set()}[recipe]
    assert set(made["layers"]) == wanted and made["training"].steps == 2
    vectors = np.ones((2, encoder.dim), np.float32)
    for name, layer in made["layers"].items():
        told = torch.tanh(torch.nn.functional.linear(torch.ones(2, encoder.dim), layer["weight"], layer["bias"]))
        assert np.allclose(templates.apply_layer(made["layers"], name, vectors), told.numpy(), atol=1e-6)


def test_long_training_is_scored_before_it_and_after_every_epoch(records, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    settings = TrainingSettings(batch_size=32, epochs=2, learning_rate=1e-3)
    source = [Filled("MASSIVE", records, k=0)]
    made = templates.score_epochs(
        "TaDSE", tiny.encoder(), source, settings, {}, records, "MASSIVE", "cls", None, None, tmp_path
    )
    assert made["rows"]["epoch"].tolist() == [0, 1, 2] and made["rows"]["value"].between(0, 100).all()


# --- tests ------------------------------------------------------------------------------------------------------------


def test_neighbours_come_with_what_each_test_utterance_scored(records):
    found = templates.neighbours_of(tiny.encoder(), records, "made", "cls", (1, 3), None, None)
    means = found["items"].groupby("k")["value"].mean()
    assert found["rows"].set_index("k")["value"].to_dict() == pytest.approx(means.to_dict())
    assert found["rows"]["n"].unique().tolist() == [20] and found["items"]["item"].nunique() == 20


@given(st.integers(0, 50), st.floats(0.01, 0.99))
def test_compression_lies_between_the_utterance_and_its_template(seed, ratio):
    rows = [request(WHAT[seed % 4], WHERE[seed % 3]), IntentUtterance(f"hello {tiny.WORDS[seed % 40]}", "greet")]
    model = Compressed(ENCODER, {}, "mean")
    plain, meant = model.plain([row.text for row in rows]), model.templates(rows)
    mixed = model.vectors(rows, meant, ratio)
    assert np.allclose(mixed, ratio * meant + (1 - ratio) * plain, atol=1e-5)
    assert np.array_equal(model.vectors(rows, meant, 0), plain)
    assert np.allclose(mixed[1], plain[1], atol=1e-5), "without slots the template is the utterance"


ENCODER = tiny.encoder().eval()


def test_a_model_with_alignment_is_compressed_behind_its_head():
    dim, rows = ENCODER.dim, [request("hotel", "north")]
    generator = torch.Generator().manual_seed(1)
    layers = {
        name: {"weight": torch.randn(dim, dim, generator=generator), "bias": torch.zeros(dim)}
        for name in ("head", "alignment")
    }
    model, bare = Compressed(ENCODER, layers, "cls"), Compressed(ENCODER, {}, "cls")
    headed = np.tanh(bare.templates(rows) @ layers["head"]["weight"].numpy().T)
    assert np.allclose(model.templates(rows), np.tanh(headed @ layers["alignment"]["weight"].numpy().T), atol=1e-4)
    assert np.array_equal(model.vectors(rows, model.templates(rows), 0), bare.vectors(rows, bare.templates(rows), 0))


def test_retrieved_templates_are_those_of_the_training_set(records):
    model, train = Compressed(ENCODER, {}, "mean"), list(records.filter(split="train"))
    known = model.templates(train)
    found = model.retrieved([request("hotel", "north")], known)
    similar = normalise(model.plain(["find a hotel in north"])) @ normalise(known).T
    assert np.array_equal(found[0], known[similar.argmax()])


def test_compression_is_chosen_on_dev_and_the_smallest_of_equals_wins(records):
    found = templates.compressed_of(ENCODER, {}, records, "made", "mean", (0, 0.1, 0.2, 0.5), None, None, "rules")
    assert set(found["rows"]["split"]) == {"dev", "test"} and set(found["rows"]["template"]) == {"gold", "retrieved"}
    rows = found["rows"].assign(value=0.0)
    dev = (rows["split"] == "dev") & (rows["template"] == "gold")
    rows.loc[dev & rows["compression"].isin((0.2, 0.5)), "value"] = 50.0
    rows.loc[(rows["split"] == "test") & (rows["compression"] == 0.1), "value"] = 99.0
    assert tadse.chosen_ratio(rows) == 0.2


def test_geometry_has_a_value_of_all_and_of_disjoint_folds(records):
    found = templates.space_of(ENCODER, {}, records, "made", "mean", (0.0, 0.5), None, 2, "rules")
    counted = found.groupby(["protocol", "seed"])["n"].first()
    assert counted["paper", 0] == 20 == counted["folds"].sum()
    tight = found.query("protocol == 'paper' and metric == 'Alignment'").set_index("compression")["value"]
    assert tight[0.5] < tight[0.0], "utterances of one template move together"


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
