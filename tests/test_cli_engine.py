"""`dialnb train` on a corpus of one's own."""

from __future__ import annotations

import json

import pytest

from dialnb.cli import main
from dialnb.data.corpora import Conversation, write_corpus
from dialnb.errors import DataError
from dialnb.evaluation import bundled
from dialnb.models.encoder import load_encoder


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "own.jsonl.xz"
    said = ("i want table number {} for two", "sure, which of the {} places do you like", "the golden wok in town")
    write_corpus(path, [Conversation("my shop", tuple(text.format(i) for text in said)) for i in range(8)])
    return path


def train(corpus, out, *extra: str) -> int:
    small = ("--set", "batch_size=8", "--set", "max_steps=1")
    return main(["train", "DSE", "--corpus", str(corpus), "-o", str(out), *small, *extra])


def test_a_corpus_outside_the_registry_trains_and_its_card_says_so(corpus, tmp_path, monkeypatch):
    one = next(iter(bundled.intent_sets().items()))
    monkeypatch.setattr(bundled, "intent_sets", lambda: dict([one]))
    assert train(corpus, tmp_path / "out", "--option", "temperature=0.1") == 0
    assert json.loads((tmp_path / "out" / "training.json").read_text())["objective"]["temperature"] == 0.1
    assert "| my shop | 24 | not in the registry |" in (tmp_path / "out" / "README.md").read_text()


def test_an_option_that_the_objective_does_not_know_is_named(corpus, tmp_path, capsys):
    assert train(corpus, tmp_path / "out", "--option", "temprature=0.1") != 0
    assert "temprature" in capsys.readouterr().err


def test_what_was_trained_is_saved_even_if_it_cannot_be_scored(corpus, tmp_path, monkeypatch, capsys):
    def damaged():
        raise DataError("the bundled data is damaged")

    monkeypatch.setattr(bundled, "intent_sets", damaged)
    assert train(corpus, tmp_path / "out") == 1 and "damaged" in capsys.readouterr().err
    assert load_encoder(str(tmp_path / "out")).dim


@pytest.mark.parametrize("name", ["a file/out", "full"], ids=["cannot be written", "holds something else"])
def test_a_place_that_cannot_take_the_encoder_is_refused_before_the_training(
    name, corpus, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("dialnb.training.recipes.train_recipe", lambda *_: pytest.fail("it trained"))
    (tmp_path / "full").mkdir()
    kept = [tmp_path / "full" / "thesis.txt", tmp_path / "a file"]
    for path in kept:
        path.write_text("mine")
    assert train(corpus, tmp_path / name) == 1 and "name another" in capsys.readouterr().err
    assert [path.read_text() for path in kept] == ["mine", "mine"]
