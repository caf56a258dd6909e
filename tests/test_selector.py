"""The cross-encoder: its marks, its scores, its folder, and what training it does."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from test_examples_manipulations import groups

from dialnb.data.records import SelectionGroup
from dialnb.errors import DataError
from dialnb.evaluation.adversarial import evaluate_adversarial
from dialnb.examples.manipulations import MARKS, manipulation_examples
from dialnb.models.encoder import load_encoder
from dialnb.models.selector import Selector, add_marks
from dialnb.training import TrainingSettings, train
from dialnb.training.objectives import ManipulationObjective


def selector(family: str = "bert", **settings) -> Selector:
    return Selector(tiny.encoder(family, max_position_embeddings=80, **settings))


@pytest.mark.parametrize("vocabulary", [78, 80, 96])
@pytest.mark.parametrize("family", ["bert", "electra"])
def test_marks_are_single_tokens_with_random_embeddings_of_their_own(family, vocabulary):
    encoder = tiny.encoder(family, vocabulary=vocabulary)
    words, before = list(encoder.tokenizer.get_vocab()), encoder.encode(tiny.TEXTS)
    twin = encoder.clone()
    add_marks(encoder, seed=1)
    assert [len(encoder.tokenizer.tokenize(token)) for token in MARKS.values()] == [1] * 4
    ids = encoder.tokenizer.convert_tokens_to_ids(list(MARKS.values()))
    rows = encoder.transformer.get_input_embeddings().weight[ids].detach()
    assert torch.pdist(rows).min() > 0 and rows.std() == pytest.approx(0.3, rel=0.3)
    assert len(encoder.tokenizer) == len(words) + 4 and len(twin.tokenizer) == len(words), "clones share a tokenizer"
    np.testing.assert_array_equal(encoder.encode(tiny.TEXTS), before)
    add_marks(encoder, seed=2)
    torch.testing.assert_close(encoder.transformer.get_input_embeddings().weight[ids], rows, rtol=0, atol=0)


def test_one_seed_makes_one_selector():
    first, second = selector(), selector()
    other = Selector(tiny.encoder(max_position_embeddings=80), seed=1)
    score = first.score(groups())
    assert score == second.score(groups()) != other.score(groups())


@pytest.mark.parametrize("family", ["bert", "electra", "roberta", "distilbert"])
def test_scores_are_those_of_one_pair_at_a_time_by_the_plain_transformer(family):
    model = selector(family, **({"type_vocab_size": 1} if family == "roberta" else {}))
    rows = groups(4)
    found = model.score(rows, batch_tokens=100)
    for group, scores in zip(rows, found, strict=True):
        for candidate, score in zip(group.candidates, scores, strict=True):
            first = "".join(f"{text} [EOT] " for text in group.context)
            ids = model.encoder.tokenizer(f"{first}[SEP] {candidate} [EOT]")["input_ids"]
            split = ids.index(model.encoder.tokenizer.sep_token_id) + 1
            types = torch.tensor([[0] * split + [1] * (len(ids) - split)])
            kinds = {"token_type_ids": types} if family in ("bert", "electra") else {}
            states = model.encoder.transformer(torch.tensor([ids]), **kinds).last_hidden_state
            expected = model.heads["selection"](states[:, 0]).sigmoid().item()
            assert score == pytest.approx(expected, abs=1e-5)


def test_scores_keep_the_order_and_equal_candidates_tie_exactly():
    model = selector()
    rows = [*groups(3), SelectionGroup("x", ("hello",), ("bye", "ok", "bye", ""), (1, 0, 0, 0))]
    found = model.score(rows)
    assert [len(scores) for scores in found] == [2, 2, 2, 4]
    assert found[3][0] == found[3][2] != found[3][1]
    again = model.score(rows[::-1])[::-1]
    assert all(a == pytest.approx(b, abs=1e-6) for a, b in zip(found, again, strict=True))
    assert model.score([]) == []


def test_scoring_is_without_dropout_whatever_mode_the_heads_are_in():
    model = selector()
    expected = model.score(groups())
    model.heads.train(), model.encoder.train()
    assert model.score(groups()) == expected


def test_a_saved_selector_scores_the_same_and_its_folder_is_an_encoder(tmp_path):
    model = selector()
    model.save(tmp_path / "selector")
    loaded = Selector.load(tmp_path / "selector", device="cpu")
    assert loaded.score(groups()) == model.score(groups()) and loaded.max_length == 80
    encoder = load_encoder(tmp_path / "selector", device="cpu")
    np.testing.assert_allclose(encoder.encode(tiny.TEXTS), model.encoder.encode(tiny.TEXTS), atol=1e-6)
    model.encoder.save(tmp_path / "plain")
    with pytest.raises(DataError, match=r"not a folder that Selector\.save wrote"):
        Selector.load(tmp_path / "plain")
    heads = tmp_path / "selector" / "selector.safetensors"
    heads.write_bytes(heads.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=r"selector\.safetensors is not what was saved"):
        Selector.load(tmp_path / "selector")


def test_a_selector_has_one_possible_file(tmp_path):
    """In the library's header the order of several keys changes from one file to the next."""
    model = selector()
    files = {(model.save(tmp_path / f"s{i}") / "selector.safetensors").read_bytes() for i in range(8)}
    assert len(files) == 1


def test_a_selector_saved_with_its_facts_one_by_one_is_still_read(tmp_path):
    model = selector()
    folder = model.save(tmp_path / "s")
    facts = {"max_length": "80", "dropout": "0.2"}
    save_file(load_file(folder / "selector.safetensors"), folder / "selector.safetensors", metadata=facts)
    (folder / "hashes.json").unlink()
    loaded = Selector.load(folder, device="cpu")
    assert loaded.score(groups()) == model.score(groups()) and loaded.max_length == 80


@pytest.mark.parametrize("facts", [None, {}, {"facts": "[1]"}, {"facts": '{"max_length": "x", "dropout": 0}'}])
def test_heads_that_say_nothing_are_a_sentence(tmp_path, facts):
    folder = selector().save(tmp_path / "s")
    save_file(load_file(folder / "selector.safetensors"), folder / "selector.safetensors", metadata=facts)
    (folder / "hashes.json").unlink()
    with pytest.raises(DataError, match="cannot load encoder 's'"):
        Selector.load(folder, device="cpu")


def test_training_teaches_the_selector_and_its_heads_follow_on_the_way():
    model = selector(dropout=0.0)
    rows = groups(8, context=4)
    examples = manipulation_examples(model.encoder, rows)
    seen = []

    def correct(*_):
        seen.append(np.mean([scores[0] > scores[1] for scores in model.score(rows)]))

    settings = TrainingSettings(batch_size=16, epochs=40, learning_rate=3e-3, clip=5.0)
    objective = ManipulationObjective(model.heads, examples.tasks)
    result = train(model.encoder, objective, examples, settings, on_epoch=correct, show_progress=False)
    assert len(seen) == 40 and seen[-1] == 1
    assert result.curve.loss.iloc[-5:].mean() < 0.7 * result.curve.loss.iloc[0]
    frame = evaluate_adversarial(model.score, rows, dataset="toy", seeds=(0,))
    assert {"Original R2@1", "Adversarial first"} <= set(frame.metric)
