"""Encoder folders that are almost right: the same vectors as ever, or one sentence; never others without a word."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import dialnb
from dialnb.data.store import Store
from dialnb.errors import DataError
from dialnb.evaluation.foreign import as_encoder
from dialnb.evaluation.own import reply_scorer
from dialnb.models.encoder import load_encoder
from tools.audit.disk import damaged_checkpoints, damaged_stages, damaged_tokens
from tools.audit.encoders import ODD, SAME, encoder_folder, odd_encoder
from tools.audit.outcomes import SOUND, WRONG

pytestmark = pytest.mark.usefixtures("one_thread")

HARMLESS = {
    *("layer_norm_eps is inf", "pad_token_id is -1", "quantization_config of nobody", "architectures is a number"),
    *("tokenizer's class is unknown", "tokenizer reads 0 tokens", "tokenizer reads -1 tokens", "length is huge"),
    "tokenizer of two words",
    'config_sentence_transformers.json is {"max_seq_length": "',
}
"""Oddities of what is not read, or says no more than that all is to be read."""


@pytest.mark.parametrize("case", SAME)
def test_what_is_odd_but_not_wrong_gives_the_vectors_that_it_always_gave(tmp_path, case):
    assert odd_encoder(tmp_path, case).outcome == SOUND


@pytest.mark.parametrize("case", ODD)
def test_what_is_wrong_is_one_sentence_that_names_the_folder(tmp_path, case):
    folder = encoder_folder(tmp_path, case)
    if case in HARMLESS:
        assert np.isfinite(load_encoder(folder, device="cpu").encode(["a"])).all()
        return
    with pytest.raises(DataError) as caught:
        load_encoder(folder, device="cpu").encode(["a", "book a table"])
    assert folder.name in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("tensors renamed", r"lacks weights .*: embeddings\.LayerNorm\.bias, .* and 66 more"),
        (
            "one layer missing",
            r"lacks weights .*: encoder\.layer\.2\.attention\.output.*, .* and 13 more",
        ),
        ("num_hidden_layers is 200", r"describes 200 layers, more than its safetensors can hold"),
        ("num_hidden_layers is 5", r"lacks weights .*: encoder\.layer\.4\."),
        ("num_hidden_layers is 3", r"weights of another transformer .*: encoder\.layer\.3\."),
        ("model_type is gpt2", r"(lacks|holds) weights"),
        ("a second transformer", r"weights of another transformer .*: other\."),
        ("hidden_size is 128", r"weights of other shapes"),
        (
            "an index that names a pickle",
            r"names 'model-1\.bin': weights are read from safetensors beside it",
        ),
        ("ids above the word vectors", r"numbers its words up to 9000, but it has 8192 word vectors"),
    ],
)
def test_what_is_missing_or_foreign_is_named(tmp_path, case, words):
    with pytest.raises(DataError, match=words):
        load_encoder(encoder_folder(tmp_path, case), device="cpu")


def test_nothing_but_safetensors_is_unpickled_or_asked_of_a_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle was read"))
    monkeypatch.setattr(
        "transformers.modeling_utils.lazy_import_flash_attention", lambda *_, **__: pytest.fail("a hub")
    )
    for case in (
        "asks for attention of a hub",
        "asks for other weights",
        "a distributed checkpoint beside the weights",
    ):
        load_encoder(encoder_folder(tmp_path, case), device="cpu")
    with pytest.raises(DataError):
        load_encoder(encoder_folder(tmp_path, "an index that names a pickle"), device="cpu")


def test_a_pooler_that_the_files_lack_is_refused_by_whoever_reads_it(tmp_path):
    folder = encoder_folder(tmp_path, "without the pooler")
    with pytest.raises(DataError, match=r"lacks weights .*: pooler\.dense\.bias, pooler\.dense\.weight\."):
        load_encoder(folder, "pooler", "cpu")
    assert load_encoder(folder, "cls", "cpu").pooling == "cls"


HEADED = {
    "bert": (hf.BertForMaskedLM, hf.BertForPreTraining, hf.BertForSequenceClassification),
    "roberta": (hf.RobertaForMaskedLM,),
    "electra": (hf.ElectraForPreTraining, hf.ElectraForMaskedLM),
    "distilbert": (hf.DistilBertForMaskedLM,),
    "mpnet": (hf.MPNetForMaskedLM, hf.MPNetModel),
    "t5": (hf.T5ForConditionalGeneration,),
}


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family, kinds in HEADED.items() for kind in kinds])
def test_models_of_a_pretraining_are_read_as_encoders_whatever_their_heads(tmp_path, family, kind):
    torch.manual_seed(1)
    model = kind(tiny.transformer(family).config).eval()
    model.save_pretrained(tmp_path)
    (tiny.tokenizer("", "[SEP]") if family == "t5" else tiny.tokenizer()).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, device="cpu")
    body = model.encoder if family == "t5" else model.base_model
    ours, theirs = encoder.transformer.state_dict(), body.state_dict()
    same = {name.removeprefix("encoder.") if family == "t5" else name for name in ours} & theirs.keys()
    assert len(same) > 15
    for name in same:
        assert torch.equal(ours[f"encoder.{name}" if family == "t5" else name], theirs[name]), name


def test_old_names_of_layer_norms_are_understood(tmp_path):
    encoder = tiny.encoder()
    folder = encoder.save(tmp_path / "old")
    (folder / "hashes.json").unlink()
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = load_file(folder / "model.safetensors")
    for new, name in old.items():
        tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    np.testing.assert_allclose(load_encoder(folder).encode(["a table"]), encoder.encode(["a table"]), atol=1e-6)


def test_a_classifier_without_its_weights_is_refused_by_their_names(tmp_path):
    model = hf.BertForSequenceClassification(tiny.transformer().config)
    model.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    reply_scorer(str(tmp_path))
    weights = tmp_path / "model.safetensors"
    save_file({n: t for n, t in load_file(weights).items() if "classifier" not in n}, weights, {"format": "pt"})
    with pytest.raises(DataError, match=r"lacks weights .*: classifier\.bias, classifier\.weight"):
        reply_scorer(str(tmp_path))


@pytest.mark.parametrize("name", ["sentence-transformers/all-MiniLM-L6-v2", "moka-ai/m3e-small"])
def test_real_encoders_are_read_as_before(encoder_mirror, tmp_path, monkeypatch, name):
    monkeypatch.setenv("DIALNB_MIRROR", str(encoder_mirror))
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path))
    encoder = dialnb.load_encoder(name, device="cpu")
    plain = hf.AutoModel.from_pretrained(Store(tmp_path).cache / "files" / name, dtype=torch.float32).eval()
    named = plain.state_dict()
    for key, tensor in encoder.transformer.state_dict().items():
        assert "pooler" in key or torch.equal(tensor, named[key]), key
    assert json.loads(encoder.transformer.config.to_json_string()) == json.loads(plain.config.to_json_string())


@pytest.mark.parametrize("case", [case for case in ODD if case.startswith("modules.json")])
def test_other_readers_of_modules_answer_in_sentences_too(tmp_path, case):
    with pytest.raises(DataError, match="modules"):
        as_encoder(encoder_folder(tmp_path, case))


@pytest.mark.parametrize("family", [damaged_checkpoints, damaged_tokens, damaged_stages])
def test_no_bit_of_what_is_kept_changes_a_number_without_a_word(tmp_path, family):
    results = list(family(tmp_path))
    assert len(results) > 10
    assert [result for result in results if result.outcome in (SOUND, WRONG)] == []
