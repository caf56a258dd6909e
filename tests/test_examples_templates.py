"""TaDSE's templates: what is cut, what is filled in, how much comes out, and how it reaches the objective."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from dialnb.data import load
from dialnb.data.records import IntentUtterance, Slot
from dialnb.errors import DataError, UnknownName
from dialnb.examples.templates import (
    RULES,
    Augmentation,
    augment,
    augmented_dropout_examples,
    entity_book,
    make_template,
    mistaken_slots,
    slot_type,
    template_examples,
)
from dialnb.models.encoder import load_encoder
from dialnb.training.recipes import fit, get_recipe


@pytest.fixture(scope="module")
def encoder():
    return tiny.encoder()


def written(*parts: str | tuple[str, str]) -> IntentUtterance:
    """An utterance written as pieces of text and (slot name, value) pairs."""
    text, slots = "", []
    for part in parts:
        name, value = (None, part) if isinstance(part, str) else part
        if name:
            slots.append(Slot(name, value, len(text), len(text) + len(value)))
        text += value
    return IntentUtterance(text, "any", tuple(slots))


VALUE = st.sampled_from(["one", "two", "three", "the north", "a"])
NAME = st.sampled_from(["city", "from.city", "day"])
UTTERANCE = st.lists(st.tuples(st.sampled_from(["go ", "to ", ""]), st.tuples(NAME, VALUE), st.just(" ")), max_size=3)
UTTERANCES = st.lists(UTTERANCE.map(lambda parts: written("x ", *(p for part in parts for p in part))), max_size=6)
TOY = [
    written("i need a ", ("food", food), " place in the ", ("area", area))
    for food, area in (("thai", "north"), ("greek", "south"), ("french", "centre"))
]


def test_one_symbol_stands_for_every_slot_or_its_type():
    utterance = written("fly from ", ("fromloc.city_name", "boston"), " to ", ("toloc.city_name", "new york"), "!")
    assert make_template(utterance) == "fly from {SLOT} to {SLOT}!"
    assert make_template(utterance, typed=True) == "fly from {city_name} to {city_name}!"
    assert make_template(replace(utterance, slots=utterance.slots[::-1])) == make_template(utterance)
    assert make_template(written("no slots")) == "no slots"


@pytest.mark.parametrize("slot", [Slot("city", "rome"), Slot("city", "rome", 2, 6), Slot("city", "to rome", 4, 11)])
def test_slots_that_do_not_lie_in_the_text_make_no_template(slot):
    good = Slot("verb", "fly to", 0, 6)
    with pytest.raises(DataError, match=r"no template can be made of 'fly to rome': slot 'city'"):
        make_template(IntentUtterance("fly to rome", "any", (good, slot)))


def test_the_entity_book_merges_dotted_names_and_keeps_first_seen_order():
    rows = [
        written(("fromloc.city_name", "rome"), " ", ("toloc.city_name", "oslo")),
        written(("toloc.city_name", "bern"), " ", ("city_name", "bern"), " ", ("day", "monday")),
    ]
    book = entity_book(rows)
    assert list(book) == ["city_name", "day"]
    assert book["city_name"].most_common() == [("bern", 2), ("rome", 1), ("oslo", 1)]


def test_the_toy_of_table_2_has_nine_utterances_six_of_them_new():
    filled = list(Augmentation(TOY, k=3))
    distinct = set(filled)
    assert distinct == {
        f"i need a {food} place in the {area}"
        for food, area in product(("thai", "greek", "french"), ("north", "south", "centre"))
    }
    assert len(distinct) == 9 and len(distinct - {row.text for row in TOY}) == 6
    assert len(filled) == 27, "rows that share a template are not merged"
    assert Augmentation(TOY, k=3).statistics == {
        "strategy": "top-3", "entities": 2, "values": 6, "templates": 1, "orig_utterances": 3, "utterances": 27,
        "ut_ratio": 27.0,
    }  # fmt: skip


def test_one_at_a_time_changes_one_slot():
    assert Augmentation(TOY, k=2, fill="one_at_a_time")[-5:] == [
        "i need a french place in the centre",
        "i need a thai place in the centre",
        "i need a greek place in the centre",
        "i need a french place in the north",
        "i need a french place in the south",
    ]


def _expected(utterance: IntentUtterance, top: dict[str, list[str]], fill: str) -> set[tuple[str, ...]]:
    own = tuple(slot.value for slot in utterance.slots)
    options = [top[slot_type(slot.name)] for slot in utterance.slots]
    if fill == "product":
        return {own, *product(*options)}
    return {own} | {(*own[:i], value, *own[i + 1 :]) for i, values in enumerate(options) for value in values}


@given(UTTERANCES, st.integers(1, 4), st.sampled_from(["product", "one_at_a_time"]))
def test_every_utterance_comes_first_with_each_of_its_fillings_once(utterances, k, fill):
    filled = Augmentation(utterances, k, fill)
    top = {name: [value for value, _ in counts.most_common(k)] for name, counts in entity_book(utterances).items()}
    place = 0
    for utterance, count in zip(utterances, filled.counts, strict=True):
        combinations = _expected(utterance, top, fill)
        assert count == len(combinations)
        assert filled[place] == utterance.text
        template = make_template(utterance)
        texts = sorted(template.replace("{SLOT}", "%s") % values for values in combinations)
        assert sorted(filled[place : place + count]) == texts
        place += count
    assert len(filled) == place and list(filled) == filled[:]


@given(UTTERANCES, st.sampled_from(["product", "one_at_a_time"]))
def test_no_values_leave_the_originals(utterances, fill):
    assert list(Augmentation(utterances, 0, fill)) == [utterance.text for utterance in utterances]


@given(UTTERANCES.filter(len), st.integers(-60, 60))
def test_places_count_from_either_end(utterances, place):
    filled = Augmentation(utterances, 3)
    if -len(filled) <= place < len(filled):
        assert filled[place] == list(filled)[place]
    else:
        with pytest.raises(IndexError):
            filled[place]


def test_each_dataset_has_its_rule():
    assert {name: len(augment(name, TOY)) for name in RULES} == {
        "SNIPS": 15, "ATIS": 13, "MASSIVE": 27, "HWU64": 27, "CLINC150": 27,
    }  # fmt: skip
    assert len(augment("MASSIVE", TOY, k=2)) == 13, "4, 4, and 4 beside an original that is none of them"
    with pytest.raises(UnknownName, match="BANKING77"):
        augment("BANKING77", TOY)
    with pytest.raises(UnknownName, match="fill"):
        augment("ATIS", TOY, fill="random")


@given(UTTERANCES, st.floats(0, 1), st.integers(0, 9))
def test_mistakes_change_types_and_nothing_else(utterances, share, seed):
    utterances = [*utterances, written(("city", "rome"), " ", ("day", "monday"))]
    noisy = mistaken_slots(utterances, share, seed)
    assert [u.text for u in noisy] == [u.text for u in utterances]
    assert [make_template(u) for u in noisy] == [make_template(u) for u in utterances]
    assert noisy == mistaken_slots(utterances, share, seed)
    changed = [
        slot_type(a.name) != slot_type(b.name) for u, n in zip(utterances, noisy) for a, b in zip(u.slots, n.slots)
    ]
    assert share < 1 or all(changed)
    assert share > 0 or not any(changed)


def test_a_mistaken_slot_is_filled_with_values_that_do_not_fit():
    noisy = mistaken_slots(TOY, 1.0)
    assert "i need a north place in the thai" in list(Augmentation(noisy, k=3, book=entity_book(TOY)))
    with pytest.raises(DataError, match="one type"):
        mistaken_slots([written(("city", "rome"))], 0.5)


def test_batches_hold_utterances_twice_and_their_templates_twice(encoder):
    rows = [
        written("book a ", ("what", "table"), " for ", ("n", "two")),
        written("a ", ("what", "room")),
        written("bye"),
    ]
    both = [Augmentation(rows, 2), Augmentation(rows[1:], 1)]
    examples = template_examples(encoder, both, sampling="fillings")
    texts = [text for part in both for text in part]
    templates = [t for part in both for t, count in zip(part.templates, part.counts) for _ in range(count)]
    assert len(examples) == len(texts) and len(examples.templates) == 3, "equal templates of two datasets are one"
    chosen = np.array([len(texts) - 2, 0, 1])
    batch = examples.batch(chosen, np.random.default_rng(0))
    said, meant = (encoder.tokenize([side[i] for i in chosen], 32) for side in (texts, templates))
    assert [ids.tolist() for ids in batch.tokens["views"]] == [
        ids.tolist() for part in (said, said, meant, meant) for ids in part
    ]
    ids = batch.arrays["template_ids"]
    assert (ids[0] != ids[1], ids[1] == ids[2]) == (True, True)
    alone = augmented_dropout_examples(encoder, both, sampling="fillings")
    assert [ids.tolist() for ids in alone.batch(chosen, np.random.default_rng(0)).tokens["pair"]] == [
        ids.tolist() for part in (said, said) for ids in part
    ]


def test_utterances_are_drawn_alike_with_one_filling_each_and_another_one_later(encoder):
    rows = [written("bye"), written(("a", "one"), " ", ("a", "two"), " ", ("a", "three"))]
    filled = [Augmentation(rows, 3)]
    assert filled[0].counts.tolist() == [1, 27]
    examples = template_examples(encoder, filled)
    assert len(examples) == 2 and examples.of_epoch == 2 / 28
    known = [ids.tolist() for ids in encoder.tokenize(list(filled[0]), 32)]
    drawn = []
    for seed in range(300):
        views = [ids.tolist() for ids in examples.batch(np.array([1, 0]), np.random.default_rng(seed)).tokens["views"]]
        assert views[1] == known[0] and views[0] == views[2] and views[4] == views[6]
        drawn.append(known.index(views[0]))
    assert set(drawn) == set(range(1, 28)), "every filling comes in its turn, and none of another utterance"
    skewed = template_examples(encoder, filled, sampling="fillings")
    assert len(skewed) == 28 and skewed.of_epoch == 1 and skewed.template_ids.tolist() == [0] + [1] * 27
    with pytest.raises(UnknownName, match="sampling"):
        template_examples(encoder, filled, sampling="rows")


def test_the_placeholder_is_one_token_that_learns(tmp_path):
    encoder, template = tiny.encoder(), "book a {SLOT} for {SLOT}"
    pieces = encoder.tokenize([template], 32).lengths[0]
    result = fit("TaDSE", encoder, [augment("ATIS", TOY)], replace(get_recipe("TaDSE").settings, learning_rate=1e-2))
    trained, ids = result.model, result.model.tokenize([template], 32)[0].tolist()
    symbol = trained.tokenizer.convert_tokens_to_ids("{SLOT}")
    assert ids.count(symbol) == 2 and len(ids) < pieces
    again = load_encoder(trained.save(tmp_path / "kept"), device="cpu")
    assert again.tokenize([template], 32)[0].tolist() == ids
    before = fit("TaDSE", tiny.encoder(), [augment("ATIS", TOY)], get_recipe("TaDSE").settings).model  # hardly moves
    words = [model.transformer.get_input_embeddings().weight[symbol] for model in (before, trained)]
    assert not torch.allclose(*words, atol=1e-4)
    split = fit("TaDSE", tiny.encoder(), [augment("ATIS", TOY)], options={"placeholders": ()}).model
    assert split.tokenize([template], 32).lengths[0] == pieces


def test_trainings_of_exactly_so_many_steps_count_epochs_of_the_fillings():
    settings = replace(get_recipe("TaDSE").settings, steps=7, batch_size=4)
    for k in (0, 3):
        data = [Augmentation(TOY, k=k)]
        result = fit("TaDSE L_u", tiny.encoder(), data, settings).result
        assert result.steps == 7 and result.curve["epoch"].iloc[-1] == pytest.approx(7 * 3 / len(data[0]))


def test_other_data_are_refused_with_advice(encoder):
    for wrong, found in ((["book a table"], "str"), ([], "nothing")):
        with pytest.raises(DataError, match=f"given {found}: make them with"):
            template_examples(encoder, wrong)


@pytest.mark.parametrize("name", ["TaDSE L_u", "TaDSE L_u + L_t", "TaDSE", "TaDSE w/ MLP"])
def test_every_variant_trains(name, tmp_path):
    encoder = tiny.encoder()
    before = encoder.encode(list(tiny.TEXTS))
    data = [augment("ATIS", TOY), augment("SNIPS", TOY)]
    result = fit(name, encoder, data, replace(get_recipe(name).settings, learning_rate=1e-3), cache=tmp_path).result
    assert result.steps == 2 and np.isfinite(result.curve.loss).all()
    assert not np.allclose(before, encoder.encode(list(tiny.TEXTS)), atol=1e-3)


def test_the_printed_rate_moves_the_encoder_hardly_but_measurably():
    encoder = tiny.encoder(initializer_range=0.02)
    before = encoder.encode(list(tiny.TEXTS), normalize=True)
    fit("TaDSE", encoder, [augment("MASSIVE", TOY)])
    after = encoder.encode(list(tiny.TEXTS), normalize=True)
    assert not np.array_equal(before, after) and ((before * after).sum(1) > 0.99).all()


@pytest.mark.parametrize("name", ["TaDSE L_u", "TaDSE"])
def test_training_starts_with_the_pooler_of_the_checkpoint(encoder, name):
    objective = get_recipe(name).objective(encoder)
    head = objective.head if name == "TaDSE" else objective.heads["0"]
    assert torch.equal(head[0].weight, encoder.transformer.pooler.dense.weight)
    assert get_recipe(name).objective(tiny.encoder("distilbert")) is not None, "an encoder without pooler will do"


@pytest.mark.parametrize("name", ["TaDSE L_u + L_t", "TaDSE", "TaDSE w/ MLP"])
def test_recipes_differ_in_their_losses(encoder, name):
    names = get_recipe(name).objective(encoder, direction="both").names
    assert names["aligned"] == (name == "TaDSE w/ MLP") and names["direction"] == "both"
    assert names.get("weight_pair", 0.5) == (0 if name == "TaDSE L_u + L_t" else 0.5)


# --- the published datasets -------------------------------------------------------------------------------------------


def test_atis_gives_the_totals_of_the_two_ways_of_filling(mirror_store):
    rows = list(load("ATIS", split="train", store=mirror_store))
    filled = augment("ATIS", rows)
    assert filled.statistics == {
        "strategy": "top-2", "entities": 41, "values": 623, "templates": 3001, "orig_utterances": 4478,
        "utterances": 225_772, "ut_ratio": 225_772 / 3001,
    }  # fmt: skip
    assert len(augment("ATIS", rows, fill="one_at_a_time")) == 28_528
    assert len({make_template(row, typed=True) for row in rows}) == 3181
    assert [filled[place] for place in filled.offsets[:-1]] == [row.text for row in rows]
    longest = int(np.argmax(filled.counts))
    texts = filled[filled.offsets[longest] : filled.offsets[longest + 1]]
    assert len(set(texts)) == len(texts) == filled.counts.max(), "no filling of a row repeats another"


def test_snips_gives_the_totals_of_both_releases(mirror_store):
    rows = list(load("SNIPS", "slots", "train", mirror_store))
    filled = augment("SNIPS", rows)
    assert (len(filled), filled.statistics["entities"]) == (162_595, 39)
    original = augment("SNIPS", list(load("SNIPS", "original", "train", mirror_store)))
    assert (len(original), original.statistics["templates"], original.statistics["values"]) == (171_371, 7437, 11_928)


def test_the_other_datasets_are_augmented_as_far_as_their_slots_are_public(mirror_store):
    found = {
        name: augment(name, list(load(name, variant, "train", mirror_store))).statistics
        for name, variant in (("HWU64", "tadse"), ("MASSIVE", "joined"))
    }
    keys = ("entities", "templates", "orig_utterances", "utterances")
    assert {name: tuple(line[key] for key in keys) for name, line in found.items()} == {
        "HWU64": (54, 8211, 8953, 46_748),
        "MASSIVE": (53, 11_077, 11_510, 32_194),
    }
