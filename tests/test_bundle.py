"""Bundled data: they load anywhere, are what the index says, may be passed on, and come out of the sources again."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialnb.cli import main
from dialnb.data import bundle, load
from dialnb.data.records import Dialogue, IntentUtterance, RetrievalQuery, ScoredPair, Slot, Utterance
from dialnb.data.store import Store
from dialnb.data.tables import decoder
from dialnb.errors import DataError, UnknownName
from tools.bundling import RECIPES, Recipe, allowed, attribution, encode, make, split_by_rank, spread, to_lines

FOLDER = Path(bundle.__file__).parent.parent / "assets" / "data"
TEXT = st.text(max_size=5)
SLOTS = st.lists(st.builds(Slot, TEXT, TEXT, st.integers(-1, 9), st.integers(-1, 9)), max_size=2).map(tuple)
ACTS = st.lists(TEXT, max_size=2).map(tuple)
UTTERANCES = st.lists(st.builds(Utterance, TEXT, TEXT, ACTS, SLOTS, TEXT), max_size=3).map(tuple)
IDS = st.lists(st.integers(0, 99), max_size=3).map(tuple)
RECORDS = st.one_of(
    st.builds(Dialogue, TEXT, UTTERANCES, ACTS, st.sampled_from(["train", "dev"])),
    st.builds(IntentUtterance, TEXT, TEXT, SLOTS, TEXT, st.sampled_from(["train", "dev"])),
    st.builds(RetrievalQuery, st.integers(0), TEXT, IDS, IDS, TEXT, st.sampled_from(["test", "dev"])),
    st.builds(ScoredPair, TEXT, TEXT, st.floats(0, 5)),
)
STORED = [(name, variant) for name, entry in bundle.index().items() for variant in entry["variants"]]


@pytest.fixture
def no_sources(monkeypatch, tmp_path):
    """No mirror, no network, an empty cache."""
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))


@given(RECORDS)
def test_a_record_survives_being_written_and_read(record):
    line = to_lines([record])
    assert line.count(b"\n") == 1
    assert decoder(type(record))(json.loads(line)) == record


def test_default_values_at_the_end_are_not_written():
    dialogue = Dialogue("7", (Utterance("user", "hi"), Utterance("system", "bye", intent="end")))
    assert encode(dialogue) == ["7", [["user", "hi"], ["system", "bye", [], [], "end"]]]


@pytest.mark.parametrize(("name", "variant"), STORED)
def test_what_the_index_says_is_there_without_sources(no_sources, name, variant):
    entry = bundle.index()[name]
    data = load(f"bundled/{name}", variant or None)
    assert data.name == f"bundled/{name}" and data.licence == entry["licence"]
    assert len(data) == entry["variants"][variant]["rows"]
    assert Counter(data.column("split")) == entry["variants"][variant]["splits"]
    assert data.table.kind == entry["variants"][variant]["record"]
    assert load(f"bundled/{name}", variant or None, split=data[0].split)[0] == data[0]


def test_all_bundled_dialogues_can_be_had_at_once(no_sources):
    data = load("bundled/dialogues")
    corpora = [entry for entry in bundle.index().values() if entry["corpus"]]
    assert len(data.texts()) == sum(part["utterances"] for entry in corpora for part in entry["variants"].values())
    assert len(data.texts()) > 300_000
    assert len(set(data.column("id"))) == len(data)
    assert {name.partition("/")[0] for name in data.column("id")} >= {"SGD", "STAR", "MultiWOZ", "TopicalChat"}


def test_bundled_sgd_has_acts_everywhere_and_intents_of_every_service(no_sources):
    data = load("bundled/SGD")
    assert all(utterance.acts for dialogue in data for utterance in dialogue.utterances)
    assert len(set(data.column("domains"))) == 45
    assert len(set(data.column("utterances.intent"))) > 40


def test_bundled_star_has_action_labels_in_every_split(no_sources):
    for split in ("train", "dev", "test"):
        system = [u for d in load("bundled/STAR", split=split) for u in d.utterances if u.speaker == "system"]
        assert sum(bool(u.acts) for u in system) > 0.75 * len(system)


def test_response_selection_is_derived_from_the_conversations(no_sources):
    tens = load("bundled/UbuntuIRC", "selection-10")
    assert {len(group.candidates) for group in tens.filter(split="train")} == {2}
    assert {len(group.candidates) for group in tens.filter(split=("dev", "test"))} == {10}
    assert all(group.labels[0] == 1 and not any(group.labels[1:]) for group in tens)
    hundreds = load("bundled/UbuntuIRC", "selection-100")
    assert set(hundreds.column("split")) == {"dev", "test"} and len(hundreds[0].candidates) == 100


def test_nothing_is_written_where_nothing_can_be(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="nothing can be written to"):
        data = load("bundled/UbuntuIRC", "turns", store=Store(cache=tmp_path / "file" / "cache", offline=True))
    assert len(data) > 1000


def test_stored_variants_are_read_where_they_lie_and_derived_ones_are_kept(no_sources, tmp_path):
    load("bundled/dialogues"), load("bundled/CamRest676")
    assert not (tmp_path / "cache").exists()
    load("bundled/UbuntuIRC", "turns")
    assert len(list((tmp_path / "cache" / "records" / "bundled").glob("UbuntuIRC-turns-*.json"))) == 1


def test_a_table_is_opened_once_for_all_who_use_it(no_sources):
    first, second = load("bundled/CamRest676"), load("bundled/CamRest676", split="train")
    assert first.table is second.table
    derived = load("bundled/UbuntuIRC", "turns")
    assert load("bundled/UbuntuIRC", "turns").table is derived.table


def test_an_unknown_name_or_variant_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'bundled/BANKING77'"):
        load("bundled/BANKING")
    with pytest.raises(UnknownName, match="did you mean 'selection-10'"):
        load("bundled/UbuntuIRC", "selection10")


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: lzma.compress(b'["hello"]\n')])
def test_a_damaged_file_is_refused(tmp_path, monkeypatch, damage):
    for name in ("bundle.json", "CI-ToD.jsonl.xz"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    broken = tmp_path / "CI-ToD.jsonl.xz"
    broken.write_bytes(damage(broken.read_bytes()))
    monkeypatch.setattr(bundle, "_asset", lambda name: tmp_path / name)
    with pytest.raises(DataError, match=r"CI-ToD\.jsonl\.xz is damaged"):
        bundle.stored("CI-ToD", "copies")


def test_the_bundle_stays_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 7_500_000


@pytest.mark.parametrize(
    "name", ["MetaLWOZ", "MDC", "Frames", "KVRET", "ATIS", "DailyDialog", "ANLI", "AmazonQA", "STS-B"]
)
def test_data_that_may_not_be_passed_on_are_refused(name):
    with pytest.raises(DataError, match=f"{name} may not be bundled"):
        allowed(Recipe(name, "none"))


def test_every_bundled_dataset_is_attributed():
    text = (FOLDER / "ATTRIBUTION.md").read_text("utf-8")
    assert list(bundle.index()) == [recipe.name for recipe in RECIPES]
    for name, entry in bundle.index().items():
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert entry["licence"] in section and entry["changes"] in section and "cite:" in section
        if entry["licence"] in ("MIT", "BSD-3-Clause"):  # their notice has to stay, or it is said that there is none
            assert "notice: Copyright (c)" in section or "no copyright line was found" in section


def test_a_sample_takes_from_every_group_in_turn_and_keeps_the_order():
    dialogues = [Dialogue(str(n), (), ("rare",) if n % 10 == 0 else ("common",)) for n in range(100)]
    kept = spread(16)(dialogues)
    assert Counter(dialogue.domains for dialogue in kept) == {("rare",): 8, ("common",): 8}
    assert kept == sorted(kept, key=lambda dialogue: int(dialogue.id))
    assert spread(16)(dialogues[::-1])[::-1] == kept


def test_splits_by_rank_are_about_eight_to_one_to_one():
    counts = Counter(d.split for d in split_by_rank([Dialogue(str(n), ()) for n in range(2_000)]))
    assert counts["train"] / 2_000 == pytest.approx(0.8, abs=0.03)
    assert counts["dev"] / 2_000 == pytest.approx(0.1, abs=0.02)


def test_the_command_line_lists_and_describes_bundled_data(capsys):
    assert main(["data", "list", "--bundled", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"].removeprefix("bundled/"), row["variant"]) for row in rows] == STORED
    assert main(["data", "info", "bundled/star"]) == 0
    assert "action labels" in capsys.readouterr().out
    assert main(["data", "info", "bundled/nothing-like-it"]) == 2


@pytest.mark.mirror
@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_the_sources_give_the_same_bytes_again(mirror_store, recipe):
    data, entry = make(mirror_store, recipe)
    assert entry == bundle.index()[recipe.name]
    assert data == lzma.decompress((FOLDER / entry["file"]).read_bytes())


@pytest.mark.mirror
def test_the_attribution_is_the_one_that_the_recipes_give(mirror_store):
    assert attribution(mirror_store) == (FOLDER / "ATTRIBUTION.md").read_text("utf-8")


@pytest.mark.mirror
def test_bundled_response_selection_equals_that_of_the_whole_corpus(mirror_store):
    whole = load("UbuntuIRC", "selection-100", store=mirror_store)
    ours = load("bundled/UbuntuIRC", "selection-100", store=mirror_store)
    assert len(whole) == len(ours) and all(a == b for a, b in zip(whole, ours))
