"""MPNet's weights as BERT's: the same numbers under other names, and an encoder that every recipe can train."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch

from dialnb.data.corpora import Conversation
from dialnb.errors import DataError
from dialnb.models.encoder import load_encoder
from dialnb.models.layout import as_bert, lay_out_as_bert
from dialnb.training.pretrain import GOES_ON, PretrainingRecipe, pretrain, replaced_token_detection
from dialnb.training.recipes import fit, get_recipe
from dialnb.training.settings import TrainingSettings

pytestmark = pytest.mark.usefixtures("one_thread")
TALKS = [Conversation("talks", tuple(tiny.sentences(6, seed))) for seed in range(20)]
TEXTS = [text for text in tiny.TEXTS if "unheard" not in text]  # id 1, MPNet's padding, is an unknown word here
FEW = TrainingSettings(batch_size=8, epochs=1, learning_rate=1e-3, max_steps=2)


def without_relative_positions(encoder):
    with torch.no_grad():
        encoder.transformer.encoder.relative_attention_bias.weight.zero_()
    return encoder


@pytest.mark.parametrize("size", [{}, {"num_hidden_layers": 3, "intermediate_size": 64, "layer_norm_eps": 1e-5}])
def test_an_mpnet_without_relative_positions_is_the_bert_that_it_is_laid_out_as(size):
    mpnet = without_relative_positions(tiny.encoder("mpnet", **size))
    before = mpnet.encode(TEXTS), mpnet.encode(TEXTS, pooling="pooler")
    bert = lay_out_as_bert(mpnet)
    assert bert.packed and bert.transformer.config.model_type == "bert" and bert.max_length == 38
    for pooling, vectors in zip(("mean", "pooler"), before):
        torch.testing.assert_close(bert.encode(TEXTS, pooling=pooling), vectors, atol=1e-5, rtol=1e-4)


def test_the_table_of_relative_positions_is_all_that_is_left_out():
    mpnet = tiny.transformer("mpnet")
    bert = as_bert(mpnet)
    theirs, ours = mpnet.state_dict(), bert.state_dict()
    assert len(ours) == len(theirs) - 1 + 1
    assert torch.equal(
        ours["embeddings.position_embeddings.weight"], theirs["embeddings.position_embeddings.weight"][2:]
    )
    assert not ours["embeddings.token_type_embeddings.weight"].any()
    size = sum(tensor.numel() for tensor in theirs.values())
    assert sum(tensor.numel() for tensor in ours.values()) == size - 32 * 4 - 2 * 32 + 2 * 32


def test_other_encoders_stay_as_they_are():
    encoder = tiny.encoder("roberta")
    before = encoder.transformer
    assert lay_out_as_bert(encoder).transformer is before


def test_masked_words_make_a_bert_of_an_mpnet_that_is_read_again_from_its_folder(tmp_path):
    encoder = tiny.encoder("mpnet")
    made = fit("masked words", encoder, TALKS, FEW, options={"held_out": 0.1})
    assert made.model is encoder and encoder.transformer.config.model_type == "bert"
    assert made.result.facts["held_out_loss"] > 0
    loaded = load_encoder(encoder.save(tmp_path / "raw"), device="cpu")
    torch.testing.assert_close(loaded.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6, rtol=1e-5)


def test_held_out_rows_are_trained_on_nowhere():
    examples = get_recipe("masked words").examples(tiny.encoder(), TALKS, held_out=0.1)
    trained = {tuple(row) for row in examples.tokens}
    held_out = {tuple(row) for row in examples.held_out.tokens}
    assert held_out and not held_out & trained
    everything = get_recipe("masked words").examples(tiny.encoder(), TALKS)
    assert everything.held_out is None and len(everything) > len(examples)


def test_replaced_tokens_ask_for_the_raw_start_of_an_mpnet(tmp_path):
    with pytest.raises(DataError, match=r"'tiny-mpnet' is of the family mpnet: start from what 'dialnb train \"masked"):
        replaced_token_detection(tiny.encoder("mpnet"))


def test_pretraining_goes_on_from_an_mpnet_as_from_a_bert(tmp_path):
    start = without_relative_positions(tiny.encoder("mpnet", layer_norm_eps=1e-5))
    recipe = PretrainingRecipe(GOES_ON, "electra", settings=replace(FEW, learning_rate=1e-9))
    made, _ = pretrain(TALKS, recipe, tmp_path, "cpu", start=start)
    torch.testing.assert_close(made.encode(TEXTS), start.encode(TEXTS), atol=1e-4, rtol=1e-3)
    assert made.transformer.config.model_type == "electra" and start.transformer.config.model_type == "mpnet"
