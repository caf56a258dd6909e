"""Models of other libraries in our evaluators: the same weights give the same scores, however they come in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny

from dialnb.data.records import IntentUtterance, SelectionGroup
from dialnb.errors import DataError
from dialnb.evaluation import diaeval, evaluate_adversarial, evaluate_prototypes, finetune_intents
from dialnb.evaluation.finetuning import INTENTS
from dialnb.evaluation.foreign import Foreign, as_encoder
from dialnb.evaluation.own import evaluate_own
from dialnb.evaluation.selection import cosine_scorer
from dialnb.explore.sentences import similarities
from dialnb.models.encoder import Encoder, load_encoder

sentence_transformers = pytest.importorskip("sentence_transformers")

LONG = " ".join(tiny.WORDS[:36])
TEXTS = [*filter(None, tiny.TEXTS), LONG]
SAID = tiny.sentences(120)
LABELLED = [IntentUtterance(text, text.split()[0][0]) for text in SAID]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of a tiny encoder whose vectors have length one."""
    encoder = tiny.encoder()
    encoder.normalize = True
    return encoder.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def dense(model):
    """A SentenceTransformer that is more than a transformer and pooling."""
    try:
        from sentence_transformers.base.modules import Dense
    except ImportError:
        from sentence_transformers.models import Dense
    return sentence_transformers.SentenceTransformer(modules=[*list(model)[:2], Dense(32, 8)], device="cpu")


def lists() -> list[SelectionGroup]:
    said = tiny.sentences(60, seed=3)
    groups = []
    for i in range(0, 60, 6):
        groups.append(SelectionGroup(str(i), tuple(said[i : i + 3]), tuple(said[i + 3 : i + 6]), (1, 0, 0)))
    return groups


@pytest.mark.parametrize("settings", [{}, {"max_length": 8}, {"max_length": 8, "truncate": "left"}], ids=str)
def test_a_sentence_transformer_gives_the_vectors_of_the_loaded_folder(folder, model, settings):
    encoder = as_encoder(model)
    assert isinstance(encoder, Encoder) and encoder.transformer is model[0].auto_model
    found = encoder.encode(TEXTS, **settings)
    assert np.array_equal(found, load_encoder(folder, device="cpu").encode(TEXTS, **settings))
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    if not settings:
        assert np.allclose(found, model.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("settings", [{"max_length": 8}, {"max_length": 8, "truncate": "left"}], ids=str)
def test_a_model_that_is_only_asked_reads_as_many_tokens_as_it_is_told(model, settings):
    asked = Foreign(lambda texts: model.encode(texts, show_progress_bar=False), "asked", model)
    before = model.max_seq_length, model.tokenizer.truncation_side
    assert np.allclose(asked.encode(TEXTS, **settings), as_encoder(model).encode(TEXTS, **settings), atol=1e-5)
    assert (model.max_seq_length, model.tokenizer.truncation_side) == before


def test_prototypes_score_every_kind_of_model_as_the_loaded_folder(folder, model):
    ours = load_encoder(folder, device="cpu")
    expected = evaluate_prototypes(ours, LABELLED, LABELLED, dataset="toy", shots=[1], seeds=range(3))
    kinds = {
        "object": model,
        "folder": str(folder),
        "Hugging Face": (ours.transformer, ours.tokenizer),
        "Hugging Face by name": ours.transformer,
        "function": lambda texts: ours.encode(texts).tolist(),
        "tensors": lambda texts: model.encode(texts, convert_to_tensor=True, show_progress_bar=False),
    }
    for name, kind in kinds.items():
        found = evaluate_prototypes(kind, LABELLED, LABELLED, dataset="toy", shots=[1], seeds=range(3))
        pd.testing.assert_frame_equal(found, expected, obj=name)


def test_an_mteb_model_scores_as_the_loaded_folder_and_keeps_its_prompts(folder, model):
    pytest.importorskip("mteb", reason="the extra 'mteb' is not installed")
    from mteb.models import SentenceTransformerEncoderWrapper

    wrapped = SentenceTransformerEncoderWrapper(model)
    assert as_encoder(wrapped).transformer is model[0].auto_model
    prompted = sentence_transformers.SentenceTransformer(
        str(folder), device="cpu", prompts={"Classification": "hello "}
    )
    asked = as_encoder(SentenceTransformerEncoderWrapper(prompted))
    expected = load_encoder(folder, device="cpu").encode([f"hello {text}" for text in TEXTS], max_length=8)
    assert np.allclose(asked.encode(TEXTS, max_length=8), expected, atol=1e-5)


def test_modules_beyond_pooling_are_asked_as_a_whole_also_from_a_folder(dense, tmp_path):
    encoder = as_encoder(dense)
    assert isinstance(encoder, Foreign) and encoder.encode(TEXTS).shape == (len(TEXTS), 8)
    dense.save(str(tmp_path / "dense"), create_model_card=False)
    assert np.allclose(as_encoder(tmp_path / "dense").encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    with pytest.raises(DataError, match="fine-tuning needs a transformer"):
        finetune_intents(dense, LABELLED, LABELLED, dataset="toy")


def test_fine_tuning_trains_a_clone_of_a_sentence_transformer(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recipe = replace(INTENTS, epochs=1)
    some = [IntentUtterance(text, "ab"[place % 2]) for place, text in enumerate(SAID[:40])]
    rows = finetune_intents(model, some, some, dataset="toy", shots=[1], seeds=[0], recipe=recipe)
    assert len(rows) == 1
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items())


def test_adversarial_lists_and_the_tour_take_a_sentence_transformer(folder, model):
    ours = load_encoder(folder, device="cpu")
    found = evaluate_adversarial(model, lists(), dataset="toy")
    pd.testing.assert_frame_equal(found, evaluate_adversarial(cosine_scorer(ours), lists(), dataset="toy"))
    said = tiny.sentences(4)
    assert similarities(model, said).to_html(uuid="a") == similarities(ours, said).to_html(uuid="a")


def test_diaeval_takes_a_sentence_transformer(folder, model, monkeypatch):
    monkeypatch.setattr(diaeval, "BENCHMARK", diaeval.BENCHMARK[1:2])
    sizes = {"limit": 12, "train_limit": 40}
    found = diaeval.run_diaeval(model, **sizes)
    expected = diaeval.run_diaeval(load_encoder(folder, device="cpu"), **sizes)
    pd.testing.assert_frame_equal(found, expected)
    assert diaeval.separator_of((model[0].auto_model, model.tokenizer)) == "[SEP]"


def test_files_of_ones_own_take_a_function(folder):
    from dialnb.data import from_csv

    file = from_csv("dialnb/assets/examples/utterances.csv", held_out=0.2)
    ours = load_encoder(folder, device="cpu")
    pd.testing.assert_frame_equal(evaluate_own(lambda texts: ours.encode(texts), file), evaluate_own(ours, file))


def test_what_is_no_encoder_is_refused_with_a_sentence():
    with pytest.raises(DataError, match="int is no encoder: expected a folder"):
        as_encoder(3)
