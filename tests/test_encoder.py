"""The encoder: the numbers of the plain Hugging Face forward, in the caller's order, whatever the batch."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest
import tiny
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from tokenizers import Tokenizer, models, pre_tokenizers

import dialnb
from dialnb.errors import DataError, DialnbError, UnknownName
from dialnb.files import digest_of
from dialnb.models import places
from dialnb.models.attention import grouped_attention, has_kernel, padded_attention, reach
from dialnb.models.packed import ROWS
from dialnb.models.wordpieces import Wordpieces
from dialnb.tokens import Tokens

PACKED = ("bert", "roberta", "electra", "distilbert")
PADDED = ("mpnet", "t5")
TEXTS = list(tiny.TEXTS)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bert():
    return tiny.encoder()


def plain_states(encoder, texts):
    """Last hidden states and mask by the padded forward that everybody writes."""
    ids, mask = map(torch.from_numpy, encoder.tokenize(texts).padded(encoder.wordpieces.pad_id))
    with torch.no_grad():
        return encoder.transformer(input_ids=ids, attention_mask=mask).last_hidden_state, mask


def plainly_pooled(states, mask, pooling):
    mask = mask[..., None]
    return {
        "mean": (states * mask).sum(1) / mask.sum(1),
        "max": states.masked_fill(mask == 0, -torch.inf).amax(1),
        "cls": states[:, 0],
    }[pooling]


# --- the same numbers as the plain forward ----------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("family", PACKED + PADDED)
def test_every_family_gives_the_vectors_of_the_plain_forward(family, pooling):
    encoder = tiny.encoder(family).double()
    assert encoder.packed == (family in PACKED)
    with torch.no_grad():
        ours = encoder.embed(encoder.tokenize(TEXTS), pooling)
    torch.testing.assert_close(ours, plainly_pooled(*plain_states(encoder, TEXTS), pooling), rtol=0, atol=1e-12)


@pytest.mark.parametrize("longest", [0, 2])
def test_a_length_without_room_for_a_word_is_refused(longest):
    with pytest.raises(ValueError, match=f"max_length {longest} leaves no room"):
        tiny.encoder().tokenize(TEXTS, longest)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_pooler_is_the_transformers_own(family):
    encoder = tiny.encoder(family).double()
    ids, mask = map(torch.from_numpy, encoder.tokenize(TEXTS).padded())
    with torch.no_grad():
        theirs = encoder.transformer(input_ids=ids, attention_mask=mask).pooler_output
        torch.testing.assert_close(encoder.embed(encoder.tokenize(TEXTS), "pooler"), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["bert", "electra"])
@pytest.mark.parametrize("packed", [True, False])
def test_second_segments_reach_the_transformer(family, packed):
    encoder = tiny.encoder(family).double()
    encoder.packed = packed
    rows, types = [[2, 9, 3, 11, 3], [2, 8, 3]], [[0, 0, 0, 1, 1], [0, 0, 0]]
    with torch.no_grad():
        ours = encoder.embed(Tokens.from_lists(rows, types), "cls")
        theirs = [
            encoder.transformer(input_ids=torch.tensor([r]), token_type_ids=torch.tensor([t])).last_hidden_state[0, 0]
            for r, t in zip(rows, types, strict=True)
        ]
    torch.testing.assert_close(ours, torch.stack(theirs), rtol=0, atol=1e-12)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("family", PACKED)
def test_gradients_equal_those_of_the_plain_forward(family, pooling):
    encoder, texts = tiny.encoder(family).double(), TEXTS[2:5]
    target = torch.randn(3, encoder.dim, dtype=torch.float64)

    def gradient(vectors):
        encoder.zero_grad()
        (vectors * target).sum().backward()
        return {n: p.grad.clone() for n, p in encoder.named_parameters() if p.grad is not None}

    ours = gradient(encoder.embed(encoder.tokenize(texts), pooling))
    ids, mask = map(torch.from_numpy, encoder.tokenize(texts).padded())
    states = encoder.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
    theirs = gradient(plainly_pooled(states, mask, pooling))
    assert ours.keys() == theirs.keys()
    for name in ours:  # the padding word gets a gradient from nobody
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("activation", ["relu", "gelu_new", "silu"])
def test_other_activations_are_exact_too(activation):
    encoder = tiny.encoder(hidden_act=activation).double()
    assert encoder.packed == (activation != "silu"), "what the packed pass does not know goes the padded way"
    with torch.no_grad():
        ours = encoder.embed(encoder.tokenize(TEXTS))
    torch.testing.assert_close(ours, plainly_pooled(*plain_states(encoder, TEXTS), "mean"), rtol=0, atol=1e-12)


# --- dropout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", PACKED)
def test_hidden_dropout_falls_on_the_same_places_as_in_the_plain_forward(family):
    encoder = tiny.encoder(family, dropout=0.5).double().train()
    encoder.attention_dropout = False
    for module in encoder.transformer.modules():
        if hasattr(module, "query") or hasattr(module, "q_lin"):
            module.dropout.p = 0.0
    tokens = encoder.tokenize(["i need a cheap hotel"])
    torch.manual_seed(3)
    ours = encoder.embed(tokens)
    torch.manual_seed(3)
    theirs = encoder.transformer(input_ids=torch.from_numpy(tokens.ids[None].astype(np.int64))).last_hidden_state.mean(
        1
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_attention_dropout_can_be_left_out():
    encoder = tiny.encoder(dropout=0.0).train()
    encoder.transformer.config.attention_probs_dropout_prob = 0.3
    twice = encoder.tokenize([TEXTS[2]] * 2)
    views = encoder.embed(twice)
    assert (views[0] - views[1]).abs().max() > 1e-3
    encoder.attention_dropout = False
    views = encoder.embed(twice)
    assert torch.equal(views[0], views[1])


def starts_of(groups):
    lengths = [length for length, count in groups for _ in range(count)]
    return torch.tensor([0, *lengths]).cumsum(0).int()


def padded(qkv, groups, p):
    return padded_attention(qkv, starts_of(groups), max(length for length, _ in groups), p)


@given(st.dictionaries(st.integers(1, 140), st.integers(1, 4), min_size=1, max_size=5))
@settings(max_examples=20)
def test_padded_attention_is_the_grouped_one_with_its_gradient(found):
    groups = tuple(sorted(found.items()))
    qkv = torch.randn(sum(n * c for n, c in groups), 3, 2, 4, dtype=torch.float64, requires_grad=True)
    ours, theirs = padded(qkv, groups, 0.0), grouped_attention(qkv, groups)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    weights = torch.randn_like(ours)
    into_ours, into_theirs = (torch.autograd.grad((out * weights).sum(), qkv)[0] for out in (ours, theirs))
    torch.testing.assert_close(into_ours, into_theirs, rtol=0, atol=1e-11)


def test_in_full_precision_only_kernels_of_short_texts_are_compiled():
    gpu = torch.device("cuda")
    assert not any(has_kernel(gpu, torch.float32, block) for block in (64, 128, 512))
    assert has_kernel(gpu, torch.bfloat16, 512) and not has_kernel(torch.device("cpu"), torch.bfloat16, 16)


def test_batches_with_long_texts_share_a_recording_where_a_kernel_skips_what_is_not_there():
    gpu = torch.device("cuda")
    assert {reach(longest, 512, gpu, torch.bfloat16) for longest in (129, 200, 512)} == {512}
    assert [reach(longest, 512, gpu, torch.float32) for longest in (200, 205, 210)] == [208, 208, 224]


@pytest.mark.parametrize("attend", [grouped_attention, padded])
def test_attention_dropout_keeps_the_expectation_and_has_the_variance_of_its_rate(attend):
    torch.manual_seed(0)
    copies, length, p = 20_000, 5, 0.3
    one = torch.randn(length, 3, 2, 4, dtype=torch.float64)
    dropped = attend(one.repeat(copies, 1, 1, 1), ((length, copies),), p).view(copies, length, 2, 4)
    q, k, v = one.permute(1, 2, 0, 3)
    weights = (q @ k.mT / 2).softmax(-1)
    torch.testing.assert_close(dropped.mean(0), (weights @ v).transpose(0, 1), rtol=0, atol=0.03)
    variance = weights.square() @ v.square() * p / (1 - p)
    torch.testing.assert_close(dropped.var(0), variance.transpose(0, 1), rtol=0.1, atol=0.01)


def test_two_views_differ_in_training_and_not_without_dropout(bert):
    twice = bert.tokenize([TEXTS[2]] * 2)
    views = bert.train().embed(twice)
    bert.eval()
    assert (views[0] - views[1]).abs().max() > 1e-3
    sober = tiny.encoder(dropout=0.0).train().embed(twice)
    assert torch.equal(sober[0], sober[1])


def test_encoding_is_sober_and_leaves_the_mode_as_it_was():
    encoder = tiny.encoder(dropout=0.5).train()
    assert np.array_equal(encoder.encode(TEXTS), encoder.encode(TEXTS))
    assert encoder.training and encoder.transformer.training


# --- encode -----------------------------------------------------------------------------------------------------------


def test_vectors_come_in_the_order_of_the_texts(bert):
    together = bert.encode(TEXTS)
    alone = np.concatenate([bert.encode([text]) for text in TEXTS])
    assert together.dtype == np.float32 and together.shape == (len(TEXTS), 32)
    np.testing.assert_allclose(together, alone, atol=1e-5)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(len(TEXTS))), st.integers(1, 9), st.sampled_from(["mean", "cls", "max", "pooler"]))
def test_neither_order_nor_batch_size_changes_a_vector(bert, order, batch_size, pooling):
    expected = bert.encode(TEXTS, pooling=pooling)[list(order)]
    found = bert.encode([TEXTS[i] for i in order], batch_size=batch_size, max_length=16, pooling=pooling)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("family", PADDED)
def test_padding_changes_nothing_either(family):
    encoder = tiny.encoder(family)
    np.testing.assert_allclose(encoder.encode(TEXTS)[:1], encoder.encode(TEXTS[:1]), atol=1e-5)


def test_a_text_said_twice_is_encoded_once_and_stands_in_both_places(bert, monkeypatch):
    seen, tokenize = [], type(bert).tokenize
    monkeypatch.setattr(
        type(bert), "tokenize", lambda self, texts, *rest: seen.append(texts) or tokenize(self, texts, *rest)
    )
    again, once = bert.encode(["b", "a b", "b", "a b", ""]), bert.encode(["b", "a b", ""])
    assert seen[0] == ["b", "a b", ""]
    assert np.array_equal(again, once[[0, 1, 0, 1, 2]])


def test_nothing_gives_an_empty_array(bert):
    assert bert.encode([]).shape == (0, 32)


def test_an_empty_string_is_its_special_tokens(bert):
    vector = bert.encode(["", "   "])
    with torch.no_grad():
        expected = bert.transformer(input_ids=torch.tensor([[2, 3]])).last_hidden_state.mean(1)
    np.testing.assert_allclose(vector, np.repeat(expected.numpy(), 2, 0), atol=1e-5)
    assert np.isfinite(tiny.encoder("t5").encode([""])).all()


def test_truncation_keeps_the_named_side(bert):
    text = "book a cheap room in the north"
    np.testing.assert_allclose(bert.encode([text], 4), bert.encode(["book a"]), atol=1e-5)
    np.testing.assert_allclose(bert.encode([text], 4, truncate="left"), bert.encode(["the north"]), atol=1e-5)


@pytest.mark.parametrize("family", (*PACKED, "mpnet"))
def test_a_text_of_any_length_fits_the_position_table(family):
    assert np.isfinite(tiny.encoder(family).encode(["hotel " * 200], max_length=512)).all()


def test_normalised_vectors_have_length_one(bert):
    np.testing.assert_allclose(np.linalg.norm(bert.encode(TEXTS, normalize=True), axis=1), 1, atol=1e-6)


def test_one_string_is_refused(bert):
    with pytest.raises(TypeError, match=r"write encode\(\[text\]\)"):
        bert.encode("book a table")


@pytest.mark.parametrize("option", [{"pooling": "average"}, {"truncate": "middle"}])
def test_an_unknown_option_is_named(bert, option):
    with pytest.raises(UnknownName, match=next(iter(option.values()))):
        bert.encode(TEXTS, **option)


def test_a_missing_pooler_is_said():
    with pytest.raises(DataError, match="has no pooler"):
        tiny.encoder("electra").encode(TEXTS, pooling="pooler")


def test_a_clone_has_weights_of_its_own(bert):
    twin = bert.clone()
    before = bert.encode(TEXTS)
    np.testing.assert_array_equal(twin.encode(TEXTS), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(bert.encode(TEXTS), before)
    assert not twin.encode(TEXTS).any()


@pytest.mark.filterwarnings("ignore:TF32")
@torch.backends.mkldnn.flags(enabled=False)  # on a CPU without bfloat16 it would switch itself off for good
@pytest.mark.parametrize("times", [1, 40])  # less than what rows are filled up to, and more
def test_rows_that_fill_up_products_in_bfloat16_are_not_read(bert, times):
    tokens, twin = bert.tokenize(TEXTS * times), bert.clone()
    twin.dtype = torch.bfloat16
    assert len(tokens.ids) % ROWS and (len(tokens.ids) > ROWS) == (times > 1)
    with torch.inference_mode():
        states, exact = twin.hidden(tokens)[0], bert.hidden(tokens)[0]
    assert states.shape == exact.shape
    torch.testing.assert_close(states.float(), exact, rtol=0.05, atol=0.1)


@pytest.mark.filterwarnings("ignore:TF32")
@torch.backends.mkldnn.flags(enabled=False)
def test_bfloat16_computation_stays_close_and_returns_float32(bert):
    twin = bert.clone()
    twin.dtype = torch.bfloat16
    found, exact = twin.encode(TEXTS, normalize=True), bert.encode(TEXTS, normalize=True)
    assert found.dtype == np.float32
    assert 1e-7 < np.abs(found - exact).max() < 0.05


# --- saving and loading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_three_readers_of_a_saved_folder_agree(tmp_path, pooling):
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    encoder = tiny.encoder(pooling=pooling)
    folder = encoder.save(tmp_path / "saved")
    expected = encoder.encode(TEXTS)
    again = dialnb.load_encoder(folder)
    assert again.pooling == pooling
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5)
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, expected, atol=1e-5)
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    np.testing.assert_allclose(plainly_pooled(states, batch["attention_mask"], pooling), expected, atol=1e-5)
    files = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"model.safetensors", "tokenizer.json", "README.md", "modules.json"} <= files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl", ".pth"))]


@pytest.mark.parametrize("family", ["roberta", "electra", "distilbert", "mpnet", "t5"])
def test_every_family_survives_saving(tmp_path, family):
    encoder = tiny.encoder(family)
    again = dialnb.load_encoder(encoder.save(tmp_path / family))
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_saving_again_replaces_the_folder_whole(tmp_path):
    folder = tmp_path / "encoder"
    tiny.encoder(seed=1).save(folder)
    (folder / "leftover").touch()
    second = tiny.encoder(seed=2)
    second.save(folder, card="# mine\n")
    np.testing.assert_allclose(dialnb.load_encoder(folder).encode(TEXTS), second.encode(TEXTS), atol=1e-6)
    assert not (folder / "leftover").exists() and (folder / "README.md").read_text() == "# mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"], "no drafts left behind"


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        ("safetensors.torch.save_file", OSError(28, "No space left on device")),
        ("safetensors.torch.save_file", SafetensorError("I/O error: No space left on device (os error 28)")),
        ("transformers.PreTrainedTokenizerFast.save_pretrained", Exception("No space left on device (os error 28)")),
        ("dialnb.models.saving.write_json", OSError(28, "No space left on device")),
    ],
)
def test_a_failed_save_is_a_sentence_and_leaves_the_previous_folder_whole(tmp_path, monkeypatch, writer, error):
    folder = tmp_path / "encoder"
    first = tiny.encoder(seed=1)
    first.save(folder)

    def full(*_, **__):
        raise error

    monkeypatch.setattr(writer, full)
    with pytest.raises(DialnbError, match=r"encoder cannot be written \(.*o space left on device.*\): make room"):
        tiny.encoder(seed=2).save(folder)
    monkeypatch.undo()
    np.testing.assert_allclose(dialnb.load_encoder(folder).encode(TEXTS), first.encode(TEXTS), atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_a_failed_swap_brings_the_previous_folder_back(tmp_path, monkeypatch):
    from pathlib import Path

    folder, replace = tmp_path / "encoder", Path.replace
    tiny.encoder(seed=1).save(folder)

    def failing(self, target):
        if Path(target) == folder and not self.name.endswith("-old"):
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="Input/output"):
        tiny.encoder(seed=2).save(folder)
    assert (folder / "model.safetensors").is_file()


def test_half_precision_files_load_as_float32(tmp_path):
    encoder = tiny.encoder()
    folder = encoder.save(tmp_path / "half", dtype=torch.float16)
    full = encoder.save(tmp_path / "full")
    assert (folder / "model.safetensors").stat().st_size < 0.7 * (full / "model.safetensors").stat().st_size
    again = dialnb.load_encoder(folder)
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=0.05)
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}, "saving narrows the file only"


def test_a_pooler_encoder_is_not_saved_in_a_layout_that_cannot_say_so(tmp_path):
    with pytest.raises(DataError, match="pooler"):
        tiny.encoder(pooling="pooler").save(tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "own",
    [{}, {"length": 5}, {"normalize": True}, {"prompt": "book a "}, {"length": 6, "prompt": "no ", "normalize": 1}],
)
def test_what_is_saved_is_what_encode_does(tmp_path, own):
    from sentence_transformers import SentenceTransformer

    encoder = tiny.encoder()
    for name, value in own.items():
        setattr(encoder, name, value)
    folder, expected = encoder.save(tmp_path / "saved"), encoder.encode(TEXTS)
    again, peer = dialnb.load_encoder(folder), SentenceTransformer(str(folder), device="cpu")
    assert (again.length, again.normalize, again.prompt) == (encoder.length, encoder.normalize, encoder.prompt)
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(peer.encode(TEXTS), expected, atol=1e-5)
    peer.save(str(tmp_path / "theirs"))
    np.testing.assert_allclose(dialnb.load_encoder(tmp_path / "theirs").encode(TEXTS), expected, atol=1e-5)


def test_without_a_length_of_its_own_an_encoder_reads_all_that_fits(tmp_path):
    encoder = tiny.encoder()
    assert encoder.length == encoder.max_length == 40
    long = "hotel " * 30 + "north"
    assert not np.allclose(encoder.encode([long]), encoder.encode([long], max_length=20))
    np.testing.assert_array_equal(encoder.encode([long]), encoder.encode([long], max_length=512))


def edited(folder, name, change):
    """The folder without its hashes, one of its JSON files changed by a function."""
    (folder / "hashes.json").unlink(missing_ok=True)
    (folder / name).write_text(json.dumps(change(json.loads((folder / name).read_text()))))
    return folder


@pytest.mark.parametrize("kind", ["Dense", "LSTM", "Router"])
def test_a_module_that_nobody_has_is_refused_unless_overruled(tmp_path, kind):
    more = {"idx": 2, "name": "2", "path": f"2_{kind}", "type": f"sentence_transformers.models.{kind}"}
    folder = edited(tiny.encoder().save(tmp_path / "x"), "modules.json", lambda said: [*said, more])
    with pytest.raises(DataError, match=f"asks for Transformer, then Pooling, then {kind}"):
        dialnb.load_encoder(folder)
    assert dialnb.load_encoder(folder, pooling="mean").pooling == "mean"


def test_a_prompt_that_is_left_out_of_the_mean_is_refused(tmp_path):
    encoder = tiny.encoder()
    encoder.prompt = "book a "
    folder = edited(
        encoder.save(tmp_path / "x"), "1_Pooling/config.json", lambda said: said | {"include_prompt": False}
    )
    with pytest.raises(DataError, match="leaves its prompt 'book a ' out"):
        dialnb.load_encoder(folder)
    nameless = edited(folder, "config_sentence_transformers.json", lambda said: said | {"default_prompt_name": "other"})
    with pytest.raises(DataError, match="names the prompt 'other'"):
        dialnb.load_encoder(nameless)


@pytest.mark.parametrize("name", ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json"])
@pytest.mark.parametrize("content", ["{", '"text"', "[1]"])
def test_a_broken_description_is_a_sentence(tmp_path, name, content):
    folder = tiny.encoder().save(tmp_path / "x")
    (folder / "hashes.json").unlink()
    (folder / name).write_text(content)
    with pytest.raises(DataError, match=name) as caught:
        dialnb.load_encoder(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_the_name_of_their_file(tmp_path, value):
    encoder = tiny.encoder()
    with torch.no_grad():
        encoder.transformer.encoder.layer[1].output.dense.bias[3] = value
    folder = encoder.save(tmp_path / "x")
    with pytest.raises(DataError, match=r"x/model\.safetensors holds NaN or infinite weights, in encoder\.layer\.1"):
        dialnb.load_encoder(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_saved_folder_that_changed_is_refused(tmp_path, name, how):
    folder = tiny.encoder().save(tmp_path / "x")
    assert set(json.loads((folder / "hashes.json").read_text())) == {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.*")
        if path.name not in ("README.md", "hashes.json")
    }
    (folder / "README.md").write_text("# a card of one's own\n")
    dialnb.load_encoder(folder)
    content = bytearray((folder / name).read_bytes())
    content[-5] ^= 1
    (folder / name).unlink() if how == "removed" else (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name} is {'missing' if how == 'removed' else 'not what was saved'}"):
        dialnb.load_encoder(folder)


def test_the_bundled_encoder_carries_its_hashes():
    assert "model.safetensors" in json.loads((places.BUNDLED / "mini" / "hashes.json").read_text())


def test_a_pooling_that_nobody_has_is_refused_unless_overruled(tmp_path):
    folder = tiny.encoder().save(tmp_path / "x")
    (folder / "hashes.json").unlink()
    config = folder / "1_Pooling" / "config.json"
    said = json.loads(config.read_text()) | {"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
    config.write_text(json.dumps(said))
    with pytest.raises(DataError, match="lasttoken"):
        dialnb.load_encoder(folder)
    assert dialnb.load_encoder(folder, pooling="cls").pooling == "cls"
    config.write_text(json.dumps({"embedding_dimension": 32, "pooling_mode": "max"}))
    assert dialnb.load_encoder(folder).pooling == "max", "the newer way to say it"


def test_a_folder_stands_in_for_a_hub_name(tmp_path, monkeypatch):
    encoder = tiny.encoder()
    encoder.save(tmp_path / "someone" / "some-bert")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("someone/some-bert", "./someone/some-bert", "~/someone/some-bert"):
        np.testing.assert_allclose(dialnb.load_encoder(name).encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize("there", [True, False])
def test_the_hub_is_asked_only_where_it_answers(there, monkeypatch):
    asked, server = [], ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.get_session", lambda: httpx.Client(trust_env=False))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **how: asked.append(how) or missing())
    if there:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    else:
        server.server_close()
    places.hub_answers.cache_clear()
    try:
        with pytest.raises(DataError, match="cannot load encoder 'some/model'" if there else "hub cannot be asked"):
            dialnb.load_encoder("some/model")
    finally:
        places.hub_answers.cache_clear()
        if there:
            server.shutdown()
        server.server_close()
    assert [how["local_files_only"] for how in asked] == [not there]


def missing():
    raise OSError("no such file")


@pytest.mark.parametrize(
    "name", ["someone/no-such-model", "no-such-model", "./nowhere", "/no/such/folder", "bad name!"]
)
def test_an_encoder_that_is_not_there_is_a_sentence(name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the variable is read once, at import
    with pytest.raises(DataError, match="encoder") as caught:
        dialnb.load_encoder(name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_of_something_else_is_said(tmp_path):
    with pytest.raises(DataError, match=r"no config\.json"):
        dialnb.load_encoder(tmp_path)


@pytest.mark.parametrize("damage", ["truncate", "remove", "pickle only"])
def test_damaged_weights_are_a_sentence(tmp_path, damage):
    folder = tiny.encoder().save(tmp_path / "x")
    weights = folder / "model.safetensors"
    if damage == "truncate":
        weights.write_bytes(weights.read_bytes()[:1000])
    else:
        weights.unlink()
    if damage == "pickle only":
        torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(DataError, match="cannot load encoder"):
        dialnb.load_encoder(folder)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("tokenizer.json", "{", "the tokenizer of encoder .* cannot be used .*: it is broken"),
        ("tokenizer.json", "{}", "the tokenizer of encoder .* cannot be used .*: it is broken"),
        ("tokenizer.json", None, "the tokenizer of encoder .* cannot be used .*: it has no words"),
        ("tokenizer_config.json", "[]", "the tokenizer of encoder .* cannot be used .*: it is broken"),
        ("1_Pooling/config.json", "{", "1_Pooling/config.json cannot be read as JSON"),
        ("1_Pooling/config.json", "3", "1_Pooling/config.json holds a number, expected an object"),
        ("1_Pooling/config.json", "{}", "1_Pooling/config.json asks for nothing, but dialnb pools by one of"),
    ],
)
def test_a_broken_file_of_an_encoder_folder_is_named_in_a_sentence(tmp_path, file, content, said):
    folder = tiny.encoder().save(tmp_path / "mine")
    (folder / file).write_text(content, encoding="utf-8") if content else (folder / file).unlink()
    (folder / "hashes.json").unlink()  # as in a folder of others; in one of ours the hash tells
    with pytest.raises(DataError, match=said):
        dialnb.load_encoder(folder)


def test_the_mark_between_utterances_is_the_separator_of_any_tokenizer():
    """Else an MPNet or a RoBERTa reads "[", "sep" and "]", which masked words learn to guess."""
    bert = tiny.tokenizer()
    backend = Tokenizer(models.WordPiece(bert.get_vocab() | {"</s>": len(bert)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    other = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", sep_token="</s>")
    said, apart = "hello [SEP] thanks bye", ["hello", "thanks", "bye"]
    for tokenizer in (bert, other):
        ids = Wordpieces(tokenizer)([said], 20).ids
        pieces = [piece for piece in tokenizer.convert_ids_to_tokens(ids.tolist()) if piece != "[CLS]"]
        assert pieces[:4] == [apart[0], tokenizer.sep_token, *apart[1:]]
    assert Wordpieces(bert).fingerprint() == digest_of(bert.backend_tokenizer.to_str()), "as it was kept before"
