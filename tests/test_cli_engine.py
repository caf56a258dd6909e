"""`dialnb train` on a corpus of one's own."""

from __future__ import annotations

import json

import pytest

from dialnb.cli import main
from dialnb.data.corpora import Conversation, write_corpus
from dialnb.evaluation import bundled


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
