"""Our objectives in the trainer of sentence-transformers: losses and gradients as here, and a real short training."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from dialnb import losses
from dialnb.claims.papers import SLUGS
from dialnb.ecosystem import citation
from dialnb.ecosystem import losses as wrapped
from dialnb.evaluation.foreign import as_encoder
from dialnb.examples.batches import Batch
from dialnb.training.objectives import MatchingGuidedObjective, PairObjective, TemplateObjective

sentence_transformers = pytest.importorskip("sentence_transformers")

FIRST, SECOND, THIRD, FOURTH = (tiny.sentences(6, seed=seed) for seed in range(4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.encoder(dropout=0.0).save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def model(folder):
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu").eval()


def features(model, *columns):
    read = getattr(model, "preprocess", None) or model.tokenize
    return [read(texts) for texts in columns]


def assert_same_gradients(model, loss, theirs: torch.Tensor, ours: torch.Tensor) -> None:
    """Both losses are functions of the same weights: those of the model, and of the head."""
    parameters = [parameter for parameter in loss.parameters() if parameter.requires_grad]
    found, expected = (torch.autograd.grad(value, parameters, allow_unused=True) for value in (theirs, ours))
    assert torch.allclose(theirs, ours, rtol=1e-5)
    assert any(gradient is not None and gradient.abs().max() > 1e-4 for gradient in expected)
    for one, other in zip(found, expected):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, atol=1e-5, rtol=1e-3)


def batch(encoder, texts: dict[str, list[str]], **arrays) -> Batch:
    tokens = {name: encoder.tokenize(part) for name, part in texts.items()}
    return Batch(6, tokens, {name: np.asarray(value) for name, value in arrays.items()})


def test_hard_negative_gradients_are_those_of_our_objective(model):
    loss, encoder = wrapped.HardNegativeNTXentLoss(model, temperature=0.1), as_encoder(model)
    objective = PairObjective(32, "hard_negative", temperature=0.1)
    objective.heads["0"] = loss.head
    ours = objective.loss(objective.embed(encoder, batch(encoder, {"pair": FIRST + SECOND})))
    assert_same_gradients(model, loss, loss(features(model, FIRST, SECOND), None), ours)


def test_weighted_symmetric_gradients_are_those_of_our_objective(model):
    loss, encoder = wrapped.WeightedSymmetricLoss(model), as_encoder(model)
    objective = PairObjective(32, "weighted_symmetric", head="linear", temperature=0.05)
    objective.heads["0"] = loss.head
    seen = torch.tensor([1, 2, 5371, 1, 10, 3])
    weights = losses.inverse_response_frequency(seen).numpy()
    ours = objective.loss(objective.embed(encoder, batch(encoder, {"pair": FIRST + SECOND}, weights=weights)))
    assert_same_gradients(model, loss, loss(features(model, FIRST, SECOND), seen), ours)
    assert loss(features(model, FIRST, SECOND)) > ours


def test_template_gradients_are_those_of_our_objective(model):
    loss, encoder = wrapped.TemplateLoss(model, weight_pair=0.3), as_encoder(model)
    objective = TemplateObjective(32, pooling="mean", weight_pair=0.3)
    objective.head = loss.head
    ours = objective.loss(objective.embed(encoder, batch(encoder, {"views": FIRST + FIRST + SECOND + SECOND})))
    assert_same_gradients(model, loss, loss(features(model, FIRST, SECOND), None), ours)
    same = torch.zeros(6, dtype=torch.long)
    assert loss(features(model, FIRST, SECOND), same) < ours


@pytest.mark.parametrize("aggregation", ["I1", "I2"])
def test_matching_gradients_are_those_of_our_objective(model, aggregation):
    loss, encoder = wrapped.MatchingGuidedLoss(model, turns=2, aggregation=aggregation), as_encoder(model)
    objective = MatchingGuidedObjective(32, aggregation)
    objective.attention = loss.attention
    turns = np.array([[0, 6], [1, 7], [2, 8], [3, 9], [4, -1], [5, 11]])
    candidates = np.stack([np.arange(12, 18), np.arange(18, 24)], 1)
    said = batch(encoder, {"texts": FIRST + SECOND + THIRD + FOURTH}, turns=turns, candidates=candidates)
    ours = objective.terms(encoder, said)["matching"]
    second = [*SECOND[:4], "", SECOND[5]]
    assert_same_gradients(model, loss, loss(features(model, FIRST, second, THIRD, FOURTH), None), ours)


COLUMNS = {
    "HardNegativeNTXentLoss": ({}, {"utterance": FIRST, "next": SECOND}),
    "WeightedSymmetricLoss": ({}, {"context": FIRST, "response": SECOND, "label": [1, 2, 5371, 1, 10, 3]}),
    "TemplateLoss": ({"weight_pair": 0.5}, {"utterance": FIRST, "template": SECOND}),
    "MatchingGuidedLoss": (
        {"turns": 2, "aggregation": "I1"},
        {"one": FIRST, "two": SECOND, "response": THIRD, "negative": FOURTH},
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_their_trainer_lowers_the_loss_and_moves_model_and_head(model, name, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the trainer of sentence-transformers needs datasets")
    options, columns = COLUMNS[name]
    loss = getattr(wrapped, name)(model, **options)
    before = {key: value.clone() for key, value in loss.named_parameters()}
    settings = sentence_transformers.SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        max_steps=6,
        per_device_train_batch_size=6,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=True,
    )
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=model, args=settings, train_dataset=datasets.Dataset.from_dict(columns), loss=loss
    )
    trainer.train()
    told = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(told) == 6 and told[-1] < told[0]
    moved = {key for key, value in loss.named_parameters() if not torch.equal(value, before[key])}
    assert any(key.startswith("model.") for key in moved)
    assert any(not key.startswith("model.") for key in moved)
    assert loss.get_config_dict().keys() >= options.keys() and loss.citation in model.model_card_data.citations.values()


def test_every_loss_tells_inputs_references_other_names_and_an_example():
    for name in COLUMNS:
        text = getattr(wrapped, name).__doc__
        for part in ("Also called", "Args:", "References:", "Requirements:", "Inputs:", "Example:"):
            assert part in text, (name, part)
        example = text.partition("::\n\n")[2]
        compile("\n".join(line[12:] for line in example.splitlines()), name, "exec")


def test_every_paper_has_a_citation():
    assert all(citation(slug).startswith("@") for slug in SLUGS)
