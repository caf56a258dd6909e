"""`dialnb train` on a corpus of one's own."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_examples_manipulations import groups

from benchmarks import __main__ as benchmarks
from dialnb.cli import main
from dialnb.data import SelectionGroup, corpora, from_csv, from_jsonl, load
from dialnb.data.corpora import Conversation, collection, conversations, sentences_of, write_corpus
from dialnb.errors import DataError
from dialnb.evaluation import bundled, own
from dialnb.evaluation.selection import cosine_scorer, selection_rows
from dialnb.models import places
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.selector import Selector
from tools import pretrain


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "own.jsonl.xz"
    said = ("i want table number {} for two", "sure, which of the {} places do you like", "the golden wok in town")
    write_corpus(path, [Conversation("my shop", tuple(text.format(i) for text in said)) for i in range(8)])
    return path


ONE = {"Clinc150": bundled.INTENT_SETS["Clinc150"]}
EXAMPLES = Path(bundled.__file__).parent.parent / "assets" / "examples"


@pytest.fixture
def few_intents(monkeypatch):
    """A handful of utterances in the place of the bundled sets of intents, on which encoders are scored."""
    few = from_csv(EXAMPLES / "utterances.csv", held_out=0.25)
    monkeypatch.setattr(bundled, "intent_sets", lambda: {"Clinc150": few})


@pytest.fixture
def few_bundled(monkeypatch):
    """One of the bundled corpora in the place of all."""
    monkeypatch.setitem(corpora.COLLECTIONS, "bundled", collection("bundled")[:1])


def train(corpus, out, *extra: str) -> int:
    small = ("--set", "batch_size=8", "--set", "max_steps=1")
    return main(["train", "DSE", "--corpus", str(corpus), "-o", str(out), *small, *extra])


@pytest.mark.usefixtures("few_intents")
def test_a_corpus_outside_the_registry_trains_and_its_card_says_so(corpus, tmp_path):
    tiny.encoder().save(tmp_path / "start")
    started = ("--encoder", str(tmp_path / "start"))
    assert train(corpus, tmp_path / "out", "--option", "temperature=0.1", *started) == 0
    assert json.loads((tmp_path / "out" / "training.json").read_text())["objective"]["temperature"] == 0.1
    assert "| my shop | 24 | not in the registry |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.usefixtures("few_intents")
def test_the_raw_start_of_an_mpnet_says_how_it_was_laid_out_and_its_loss_on_held_out_text(corpus, tmp_path):
    tiny.encoder("mpnet").save(tmp_path / "start")
    given = ["--set", "learning_rate=1e-4", "--set", "epochs=2", "--set", "batch_size=8", "--option", "held_out=0.2"]
    places = ["--encoder", str(tmp_path / "start"), "--corpus", str(corpus), "-o", str(tmp_path / "raw")]
    assert main(["train", "masked words", *places, *given]) == 0
    card, facts = (tmp_path / "raw" / "README.md").read_text(), json.loads((tmp_path / "raw/training.json").read_text())
    assert "table of relative positions was left out" in card
    assert f"on held-out text {facts['held_out_loss']:.3f}" in card and facts["held_out_loss"] > 1
    assert load_encoder(tmp_path / "raw").transformer.config.model_type == "bert"


@pytest.mark.usefixtures("few_intents", "few_bundled")
@pytest.mark.parametrize("recipe", ["DSE", "DialogueCSE", "UMS"])
def test_an_mpnet_trains_as_it_comes(recipe, tmp_path):
    tiny.encoder("mpnet").save(tmp_path / "start")
    given = ["--cap", "60", "--set", "max_steps=1", "--set", "batch_size=4", "--encoder", str(tmp_path / "start")]
    assert main(["train", recipe, "--corpus", "bundled", "-o", str(tmp_path / "out"), *given]) == 0
    assert load_encoder(tmp_path / "out").transformer.config.model_type == "mpnet"


@pytest.mark.usefixtures("few_intents", "few_bundled")
@pytest.mark.parametrize("recipe", ["DSE", "DialogueCSE", "UMS"])
def test_a_recipe_trains_on_the_bundled_dialogues_without_a_network(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALNB_OFFLINE", "1")
    monkeypatch.delenv("DIALNB_MIRROR", raising=False)
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
        (("--set", "batch_size=0"), "'batch_size' must be a whole number, at least 1"),
        (("--set", "seed=1e20"), "'seed' must be a whole number, at least 0, at most 2147483647"),
        (("--set", "learning_rate=inf"), "'learning_rate' must be a number"),
        (("--set", "learning_rate=nan"), "'learning_rate' must be a number"),
        (("--set", "schedule=linaer"), "did you mean linear?"),
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


def test_encoders_are_scored_in_few_shot_intents_where_no_data_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bundled, "INTENT_SETS", ONE)
    places = [str(tiny.encoder(seed=seed).save(tmp_path / name)) for seed, name in enumerate(("first", "second"))]
    assert main(["evaluate", *places, "--json"]) == 0
    rows = pd.DataFrame(map(json.loads, capsys.readouterr().out.splitlines()))
    sizes = rows.groupby(["encoder", "dataset", "shots"])["seed"].nunique()
    assert dict(sizes) == {(name, "Clinc150", shots): 10 for name in ("first", "second") for shots in (1, 5)}
    assert main(["evaluate", *places]) == 0
    shown = capsys.readouterr().out
    means = rows[rows["encoder"] == "second"].groupby("shots")["value"].mean().round(2)
    assert all(f"{mean:g}" in shown for mean in means) and "first" in shown


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


# --- replies of one's own ---------------------------------------------------------------------------------------------

LIST = {"context": ["i want a table", "for two please"], "candidates": ["ok sure", "hello bye"], "labels": [1, 0]}
NO_OLD = LIST | {"context": ["ok sure", " ok sure "]}


def listed(path: Path, rows: list[dict]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def cross_encoder(folder: Path, family: str = "bert", **settings) -> Path:
    """An untrained transformer with a classifier, as others save it."""
    kinds = {"bert": ("BertConfig", "BertForSequenceClassification")}
    kinds["roberta"] = ("RobertaConfig", "RobertaForSequenceClassification")
    config, model = (getattr(transformers, name) for name in kinds[family])
    body = tiny.transformer(family, max_position_embeddings=80).config.to_diff_dict()
    torch.manual_seed(2)
    model(config(**body | {"num_labels": 1} | settings)).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def models(tmp_path):
    """A folder of each kind of model that can rank replies."""
    encoder = tiny.encoder(max_position_embeddings=80)
    encoder.save(tmp_path / "sentences")
    Selector(encoder.clone(), 64).save(tmp_path / "selector")
    cross_encoder(tmp_path / "cross")
    return {name: str(tmp_path / name) for name in ("sentences", "selector", "cross")}


@pytest.fixture
def data(tmp_path):
    rows = [{"context": one.context, "candidates": one.candidates, "labels": one.labels} for one in groups(4)]
    return listed(tmp_path / "lists.jsonl", rows)


def test_the_adversarial_test_takes_lists_of_ones_own_and_any_kind_of_model(models, data, capsys):
    assert main(["evaluate", *models.values(), "--tasks", "adversarial", "--data", data, "--json"]) == 0
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines() if line]
    first = [row for row in rows if row["metric"] == "Adversarial first" and row["protocol"] == "paper"]
    assert {row["encoder"] for row in first} == {"sentences", "selector", "cross"} and len(first) == 9
    assert {row["n"] for row in first} == {4} and len({row["value"] for row in first}) > 1
    assert shown.err == "", "neither bars nor warnings"
    assert main(["evaluate", models["selector"], "--tasks", "adversarial"]) == 2
    assert "--data" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", [[], ["--tasks", "adversarial"]])
@pytest.mark.filterwarnings("ignore:TF32")
@torch.backends.mkldnn.flags(enabled=False)  # on a CPU without bfloat16 it would switch itself off for good
def test_replies_are_scored_in_bfloat16_where_that_is_asked_for(tasks, models, data, capsys, monkeypatch):
    seen, forward = [], Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda self, *given: seen.append(self.dtype) or forward(self, *given))
    places = [models["selector"], models["sentences"]]
    for asked in ("float32", "bfloat16"):
        assert main(["evaluate", *places, "--data", data, "--json", "--precision", asked, *tasks]) == 0
        assert {dtype for dtype in seen if dtype} == {getattr(torch, asked)}  # a look at what was loaded names none
        seen.clear()
    scores = [own.reply_scorer(place, torch.bfloat16)(list(from_jsonl(data))) for place in places]
    exact = [own.reply_scorer(place)(list(from_jsonl(data))) for place in places]
    assert scores != exact and np.allclose(scores, exact, atol=0.05)


def test_listed_replies_are_scored_as_the_model_reads_them_with_and_without_the_adversarial_test(models, data, capsys):
    lists = list(from_jsonl(data))
    labels = [one.labels for one in lists]
    scores = {name: own.reply_scorer(place)(lists) for name, place in models.items()}
    assert np.allclose(scores["selector"], Selector.load(models["selector"]).score(lists), atol=1e-6)
    assert np.allclose(scores["sentences"], cosine_scorer(load_encoder(models["sentences"]))(lists), atol=1e-6)
    assert not np.allclose(scores["cross"], cosine_scorer(load_encoder(models["cross"]))(lists), atol=0.01)
    assert main(["evaluate", *models.values(), "--data", data, "--json"]) == 0
    rows = pd.DataFrame(json.loads(line) for line in capsys.readouterr().out.splitlines() if line)
    for name, values in scores.items():
        expected = selection_rows(values, labels, dataset="lists.jsonl")
        assert rows[rows["encoder"] == name]["value"].tolist() == pytest.approx(expected["value"].tolist())


@pytest.mark.parametrize("kind", ["selector", "cross"])
@pytest.mark.parametrize("where", ["mirror", "hub's cache"])
def test_a_model_named_by_its_hub_id_reads_replies_as_its_folder_does(kind, where, models, data, tmp_path, monkeypatch):
    at = tmp_path / "mirror" / "huggingface.co" / "someone" / kind / "resolve" / "main"
    if where == "hub's cache":
        stored = tmp_path / "hub" / f"models--someone--{kind}"
        at = stored / "snapshots" / ("0" * 40)
        (stored / "refs").mkdir(parents=True)
        (stored / "refs" / "main").write_text("0" * 40)
    shutil.copytree(models[kind], at, ignore=shutil.ignore_patterns("hashes.json"))
    monkeypatch.setenv("DIALNB_MIRROR", str(tmp_path / "mirror") if where == "mirror" else "")
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(places, "hub_answers", lambda: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    lists = list(from_jsonl(data))
    found = own.reply_scorer(f"someone/{kind}")(lists)
    assert np.allclose(found, own.reply_scorer(models[kind])(lists), atol=1e-6)


def test_lists_that_cannot_be_tested_are_counted_beside_the_scores(models, tmp_path, capsys):
    data = listed(tmp_path / "some.jsonl", [LIST, LIST | {"labels": [1, 1]}, NO_OLD, NO_OLD])
    assert main(["evaluate", models["cross"], models["sentences"], "--tasks", "adversarial", "--data", data]) == 0
    told = (
        "dialnb: some.jsonl: of 4 lists are left out: 1 with no negative candidate, 2 with no usable context utterance"
    )
    assert set(capsys.readouterr().err.splitlines()) == {told}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([LIST | {"labels": [0, 0]}] * 3, "none of the 3 lists of mine.jsonl can be tested: 3 with no true response"),
        ([NO_OLD, NO_OLD | {"labels": [0, 0]}], "1 with no usable context utterance, 1 with no true response"),
        ([{"text": "hello", "intent": "greet"}], "but mine.jsonl holds IntentUtterance records"),
        ([{"utterances": ["hello", "you"]}], "mine.jsonl has no reply to choose: no dialogue has a third turn"),
        ([LIST, LIST | {"candidates": ["a", "b", "c"], "labels": [1, 0, 0]}], "must have one length, found 2, 3"),
    ],
)
def test_a_file_that_gives_no_adversarial_list_is_answered_with_a_sentence(rows, said, models, tmp_path, capsys):
    data = listed(tmp_path / "mine.jsonl", rows)
    assert main(["evaluate", models["sentences"], "--tasks", "adversarial", "--data", data]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["no tokenizer", "pickled weights", "no classifier"])
def test_a_cross_encoder_that_cannot_be_used_is_a_sentence(damage, models, data, capsys):
    folder = Path(models["cross"])
    weights = load_file(folder / "model.safetensors")
    if damage == "no tokenizer":
        for file in folder.glob("tokenizer*"):
            file.unlink()
    elif damage == "pickled weights":
        (folder / "model.safetensors").unlink()
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        body = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier")}
        save_file(body, folder / "model.safetensors", metadata={"format": "pt"})
    said = {
        "no tokenizer": "the tokenizer of encoder",
        "pickled weights": "cross has no model.safetensors, and nothing else is read",
        "no classifier": "lacks weights that its config.json describes: classifier.bias, classifier.weight",
    }
    assert main(["evaluate", models["cross"], "--data", data]) == 1
    assert said[damage] in capsys.readouterr().err


def test_a_context_longer_than_the_positions_of_a_cross_encoder_is_cut(tmp_path):
    folder = cross_encoder(tmp_path / "roberta", "roberta", pad_token_id=1)
    pieces = tiny.tokenizer()
    pieces.model_max_length = 512
    pieces.save_pretrained(folder)
    score = own.reply_scorer(str(folder))
    long, longer = (SelectionGroup("", ("i want a table",) * n, ("ok sure", "hello"), (1, 0)) for n in (60, 90))
    assert np.isfinite(score([long])).all() and score([long]) == score([longer]), "the latest words count"


def test_an_encoder_made_of_a_cross_encoder_is_saved_as_an_encoder(models, data, tmp_path):
    encoder = load_encoder(models["cross"])
    saved = encoder.save(tmp_path / "trained")
    assert json.loads((saved / "config.json").read_text())["architectures"] == ["BertModel"]
    lists = list(from_jsonl(data))
    assert np.allclose(own.reply_scorer(str(saved))(lists), cosine_scorer(encoder)(lists), atol=1e-6)
