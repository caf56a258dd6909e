"""`dialnb train` on a corpus of one's own."""

from __future__ import annotations

import json
import re

import pytest
import tiny
from test_examples_manipulations import groups

from benchmarks import __main__ as benchmarks
from dialnb.cli import main
from dialnb.data import load
from dialnb.data.corpora import Conversation, collection, conversations, sentences_of, write_corpus
from dialnb.errors import DataError
from dialnb.evaluation import bundled
from dialnb.models.encoder import load_encoder
from dialnb.models.selector import Selector
from tools import pretrain


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "own.jsonl.xz"
    said = ("i want table number {} for two", "sure, which of the {} places do you like", "the golden wok in town")
    write_corpus(path, [Conversation("my shop", tuple(text.format(i) for text in said)) for i in range(8)])
    return path


ONE = {"Clinc150": bundled.INTENT_SETS["Clinc150"]}


def train(corpus, out, *extra: str) -> int:
    small = ("--set", "batch_size=8", "--set", "max_steps=1")
    return main(["train", "DSE", "--corpus", str(corpus), "-o", str(out), *small, *extra])


def test_a_corpus_outside_the_registry_trains_and_its_card_says_so(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "INTENT_SETS", ONE)
    tiny.encoder().save(tmp_path / "start")
    started = ("--encoder", str(tmp_path / "start"))
    assert train(corpus, tmp_path / "out", "--option", "temperature=0.1", *started) == 0
    assert json.loads((tmp_path / "out" / "training.json").read_text())["objective"]["temperature"] == 0.1
    assert "| my shop | 24 | not in the registry |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("recipe", ["DSE", "DialogueCSE", "UMS"])
def test_a_recipe_trains_on_the_bundled_dialogues_without_a_network(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    monkeypatch.delenv("DIALNB_MIRROR", raising=False)
    monkeypatch.setattr(bundled, "INTENT_SETS", ONE)
    tiny.encoder().save(tmp_path / "start")
    few = ["--cap", "60", "--set", "batch_size=4", "--set", "max_steps=1", "--encoder", str(tmp_path / "start")]
    assert main(["train", recipe, "--corpus", "bundled", "-o", str(tmp_path / "out"), *few]) == 0
    assert json.loads((tmp_path / "out" / "training.json").read_text())["steps"] == 1
    assert re.search(r"\| bundled/SGD \| \d+ \| CC-BY-SA-4.0 \|", (tmp_path / "out" / "README.md").read_text())


def test_the_bundled_collection_is_all_that_is_bundled():
    texts = [dialogue.utterances for dialogue in conversations(collection("bundled"))]
    assert texts == [sentences_of(record) for record in load("bundled/dialogues")]


@pytest.mark.parametrize("recipe", ["DSE", "DSE 2-1", "TOD-BERT", "WMDC"])
def test_a_recipe_that_needs_dialogues_says_so_of_utterances(recipe, tmp_path, capsys):
    path = tmp_path / "shop.CSV"
    path.write_text("text,intent\nwhere is my order now,order\ni want my money back,refund\n", encoding="utf-8")
    assert main(["train", recipe, "--corpus", str(path), "-o", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert f"{recipe} learns from dialogues of at least" in err and "DSE-dropout or SimCSE-unsup" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--set", "batch_size=many"), "'batch_size' must be a whole number"),
        (("--set", "batch_size=0"), "batch_size must be above 0"),
        (("--set", "seed=1e20"), "'seed' must be a whole number, at least 0, at most 2147483647"),
        (("--set", "learning_rate=inf"), "'learning_rate' must be a number"),
        (("--set", "learning_rate=nan"), "'learning_rate' must be a number"),
        (("--set", "schedule=linaer"), "did you mean 'linear'"),
        (("--set", "drop_last=perhaps"), "'drop_last' must be true or false"),
        (("--option", "temperature=hot"), "temperature above 0, but got hot"),
        (("--option", "temperature=Infinity"), "temperature above 0, but got inf"),
        (("--option", "form=Nope"), "unknown"),
        (("--encoder", "./nowhere"), "no encoder folder at './nowhere'"),
    ],
)
def test_what_cannot_be_set_is_refused_before_the_data_are_read(given, said, tmp_path, capsys):
    assert train("no-such-file.csv", tmp_path / "out", *given) != 0
    assert said in capsys.readouterr().err


def test_templates_are_made_of_a_file_of_ones_own_and_nothing_else(tmp_path, capsys):
    assert main(["train", "TaDSE", "--corpus", "reachable", "-o", str(tmp_path / "out")]) == 2
    assert "TaDSE learns from utterances with slots" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_refused_before_the_data_are_read(tmp_path, capsys):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "out"
    assert main(["train", "DSE", "--corpus", "no-such-file.csv", "-o", str(place)]) == 1
    with pytest.raises(DataError, match="nothing can be written to"):
        pretrain.main(["--corpus", "no-such-file.csv", "-o", str(place)], standalone_mode=False)
    assert f"nothing can be written to {place.parent}" in capsys.readouterr().err


def test_all_encoders_are_there_before_the_first_is_scored(monkeypatch, capsys):
    monkeypatch.setattr(bundled, "intent_scores", lambda *_: pytest.fail("an encoder was scored"))
    assert main(["evaluate", "mini", "./nowhere"]) == 1
    assert "no encoder folder at './nowhere'" in capsys.readouterr().err


def test_the_benchmarks_without_their_extra_say_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(benchmarks, "find_spec", lambda name: None)
    assert benchmarks.main([]) == 1
    assert "(datasets and sentence-transformers): pip install 'dialnb[bench]'" in capsys.readouterr().err


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
    monkeypatch.setattr("dialnb.training.recipes.fit", lambda *_: pytest.fail("it trained"))
    (tmp_path / "full").mkdir()
    kept = [tmp_path / "full" / "thesis.txt", tmp_path / "a file"]
    for path in kept:
        path.write_text("mine")
    assert train(corpus, tmp_path / name) == 1 and "name another" in capsys.readouterr().err
    assert [path.read_text() for path in kept] == ["mine", "mine"]


def test_the_adversarial_test_takes_lists_of_ones_own_and_any_kind_of_model(tmp_path, capsys):
    from transformers import BertConfig, BertForSequenceClassification

    lists = []
    for group in groups(4):
        row = {"context": group.context, "candidates": group.candidates, "labels": group.labels}
        lists.append(json.dumps(row))
    data = tmp_path / "lists.jsonl"
    data.write_text("\n".join(lists), encoding="utf-8")
    encoder = tiny.encoder(max_position_embeddings=80)
    encoder.save(tmp_path / "sentences")
    Selector(encoder.clone(), 64).save(tmp_path / "selector")
    config = BertConfig(**encoder.transformer.config.to_diff_dict() | {"num_labels": 1})
    BertForSequenceClassification(config).save_pretrained(tmp_path / "cross")
    encoder.tokenizer.save_pretrained(tmp_path / "cross")
    places = [str(tmp_path / name) for name in ("sentences", "selector", "cross")]
    assert main(["evaluate", *places, "--tasks", "adversarial", "--data", str(data), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line]
    first = [row for row in rows if row["metric"] == "Adversarial first" and row["protocol"] == "paper"]
    assert {row["encoder"] for row in first} == {"sentences", "selector", "cross"} and len(first) == 9
    assert {row["n"] for row in first} == {4} and len({row["value"] for row in first}) > 1
    assert main(["evaluate", places[1], "--tasks", "adversarial"]) == 2
    assert "--data" in capsys.readouterr().err
