"""The objectives of UMS and DialogueCSE: the reference's numbers, one gradient however it is computed, baselines."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from test_examples_manipulations import groups as selection_groups
from torch import nn

from benchmarks.peers import loop_over_candidates
from dialnb.errors import DataError, UnknownName
from dialnb.evaluation.geometry import whiten
from dialnb.examples.manipulations import manipulation_examples
from dialnb.examples.masking import next_sentence_examples, replaced_token_examples
from dialnb.examples.matching import build_groups, matching_examples
from dialnb.models.baselines import Flow, Transformed, WordVectors, flow
from dialnb.models.selector import Selector, add_marks
from dialnb.tokens import Tokens, pack
from dialnb.training import Batch, TrainingSettings, train
from dialnb.training.objectives import (
    ManipulationObjective,
    MatchingGuidedObjective,
    NextSentencePrediction,
    SiameseObjective,
)
from dialnb.training.pretrain import replaced_token_detection

EXACT = {"precision": "float64", "batch_size": 10, "seed": 5}


pytestmark = pytest.mark.usefixtures("one_thread")


class ByRow:
    """Examples whose draws are a function of the row, so that any split into chunks and processes draws alike."""

    groups = None

    def __init__(self, examples) -> None:
        self.examples = examples
        if hasattr(examples, "draw"):
            draw = examples.draw
            examples.draw = lambda row, rng: draw(row, np.random.default_rng(int(row)))
        else:
            pair, write = examples.pair, examples.write
            examples.pair = lambda row, rng: pair(row, np.random.default_rng(row))
            examples.write = lambda first, second, rng: write(first, second, np.random.default_rng(0))
            examples.masks.choose = lambda tokens, rng: np.flatnonzero(tokens.ids % 3 == 0)
            examples.masks.mask_id = 7

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, rows, rng) -> Batch:
        return self.examples.batch(rows, SimpleNamespace(random=lambda n: np.zeros(n), integers=lambda *_, **__: 0))


def conversations(count: int = 8) -> list[tuple[str, ...]]:
    texts = tiny.sentences(5 * count, seed=3)
    return [tuple(texts[i * 5 : i * 5 + 2 + i % 4]) for i in range(count)]


def cases(name: str):
    torch.manual_seed(0)
    if name in ("manipulation", "next sentence"):
        selector = Selector(tiny.encoder(dropout=0.0, max_position_embeddings=64), dropout=0.0)
        encoder, rows = selector.encoder, selection_groups(9, context=4)
        if name == "next sentence":
            return encoder, NextSentencePrediction(encoder), ByRow(next_sentence_examples(encoder, rows))
        examples = manipulation_examples(encoder, rows)
        return encoder, ManipulationObjective(selector.heads, examples.tasks), ByRow(examples)
    encoder = tiny.encoder(dropout=0.0)
    flat = name.startswith("siamese")
    examples = matching_examples(encoder, build_groups(conversations(), 4), negatives=4, flat=flat)
    objective = (
        SiameseObjective(encoder.dim, "both" in name, "point" in name)
        if flat
        else MatchingGuidedObjective(encoder.dim, name)
    )
    return encoder, objective, examples


@pytest.mark.parametrize(
    "name", ["manipulation", "next sentence", "I1", "I2", "siamese", "siamese, both sides", "siamese, pointwise"]
)
@pytest.mark.parametrize("chunk", [1, 4])
def test_chunks_give_the_gradient_of_the_whole_batch(name, chunk):
    encoder, objective, examples = cases(name)
    loss, whole = tiny.gradient(encoder, objective, examples, TrainingSettings(**EXACT))
    chunked, parts = tiny.gradient(encoder, objective, examples, TrainingSettings(**EXACT, chunk=chunk))
    assert chunked == pytest.approx(loss, rel=1e-12) and tiny.relative_error(parts, whole) < 1e-9
    assert all(bool(gradient.any()) for key, gradient in parts.items() if key.startswith("objective"))


def test_the_network_on_both_sides_reads_the_context_the_response_and_their_distance():
    encoder, objective, examples = cases("siamese, both sides")
    batch = examples.batch(np.arange(3), np.random.default_rng(0))
    vectors = encoder.embed(batch.tokens["texts"], "mean")
    rows = []
    for (turn, *_), candidates in zip(batch.arrays["turns"], batch.arrays["candidates"], strict=True):
        pairs = [(vectors[turn], vectors[place]) for place in candidates]
        scores = [objective.matching(torch.cat([c, r, (c - r).abs()])) for c, r in pairs]
        rows.append(-torch.cat(scores).log_softmax(0)[0])
    assert objective.terms(encoder, batch)["matching"].item() == pytest.approx(
        torch.stack(rows).mean().item(), abs=1e-5
    )


def test_the_pointwise_reading_asks_of_each_response_alone_whether_it_is_the_true_one():
    encoder, objective, examples = cases("siamese, pointwise")
    batch = examples.batch(np.arange(3), np.random.default_rng(0))
    vectors, costs = encoder.embed(batch.tokens["texts"], "mean"), []
    for (turn, *_), candidates in zip(batch.arrays["turns"], batch.arrays["candidates"], strict=True):
        for number, place in enumerate(candidates):
            c, r = vectors[turn], vectors[place]
            odds = objective.matching(torch.cat([c, r, (c - r).abs()])).sigmoid()
            costs.append(-(odds if number == 0 else 1 - odds).log())
    assert objective.terms(encoder, batch)["matching"].item() == pytest.approx(torch.cat(costs).mean().item(), abs=1e-5)


# --- UMS --------------------------------------------------------------------------------------------------------------


class States(nn.Module):
    """Stands for an encoder whose states are the token ids' rows of a table."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = table

    def hidden(self, tokens):
        packed = pack(tokens)
        return self.table[packed.ids], packed

    def pool(self, states, packed, pooling="mean"):
        if pooling == "cls":
            return states[packed.starts[:-1].long()][packed.rank]
        return torch.segment_reduce(states, "mean", lengths=packed.lengths, axis=0)[packed.rank]


def test_the_manipulation_terms_are_the_reference_numbers():
    """Fidelity reference 7.6: every token's state is its logit."""
    logits = [1.2, -0.4, *(0.5, -1.0, 2.0, 0.1, -0.3), *(-0.2, 1.5, -0.7, 0.3, 0.0), *(0.4, -0.6, 1.1, -1.2)]
    encoder = States(torch.tensor(logits, dtype=torch.float64)[:, None])
    heads = nn.ModuleDict()
    for name in ("selection", "insertion", "deletion", "search"):
        heads[name] = nn.Linear(1, 1, bias=False).double()
        nn.init.ones_(heads[name].weight)
    tokens = Tokens.from_lists([[0], [1], list(range(2, 7)), list(range(7, 12)), list(range(12, 16))])
    arrays = {"labels": np.array([1, 0])}
    for sequence, (task, count, target) in enumerate((("insertion", 5, 2), ("deletion", 5, 1), ("search", 4, 0)), 2):
        arrays |= {f"{task}_sequence": np.full((1, count), sequence), f"{task}_position": np.arange(count)[None]}
        arrays |= {f"{task}_mask": np.ones((1, count), bool), f"{task}_target": np.array([target])}
    counts = {"selection": 2, "insertion": 1, "deletion": 1, "search": 1}
    objective = ManipulationObjective(heads, ("insertion", "deletion", "search"))
    terms = objective.terms(encoder, Batch(2, {"inputs": tokens}, arrays, counts))
    found = {name: round(term.item(), 6) for name, term in terms.items()}
    assert found == {"selection": 0.388149, "insertion": 0.542604, "deletion": 0.550048, "search": 0.650280}
    assert sum(found.values()) == pytest.approx(2.131081, abs=1e-6)


def test_tasks_without_rows_add_nothing_and_unknown_tasks_are_refused():
    encoder, objective, examples = cases("manipulation")
    negatives = examples.batch(np.array([1, 3]), None)
    assert set(objective.terms(encoder, negatives)) == {"selection"}
    with pytest.raises(UnknownName, match="did you mean 'search'"):
        ManipulationObjective(objective.heads, ("serach",))
    assert objective.describe()["tasks"] == ["insertion", "deletion", "search"]


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_post_training_lowers_its_loss(family):
    torch.manual_seed(1)
    encoder = add_marks(tiny.encoder(family, dropout=0.0, max_position_embeddings=64))
    rows = selection_groups(16, context=4)
    if family == "bert":
        objective, examples = NextSentencePrediction(encoder), next_sentence_examples(encoder, rows)
    else:
        objective, examples = replaced_token_detection(encoder), replaced_token_examples(encoder, rows)
        words = encoder.transformer.get_input_embeddings()
        assert objective.generator.transformer.get_input_embeddings() is words
    settings = TrainingSettings(batch_size=16, max_steps=60, epochs=1000, learning_rate=2e-3, clip=5.0)
    curve = train(encoder, objective, examples, settings, show_progress=False).curve.loss
    assert curve.iloc[-8:].mean() < 0.8 * curve.iloc[:3].mean()


# --- DialogueCSE ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("aggregation", "expected"), [("I2", 0.062891), ("I1", 0.000552)])
def test_the_matching_loss_is_the_reference_number(aggregation, expected):
    """Fidelity reference 7.3, through the module: ids are rows of the table below; there is no padding to mask."""
    table = torch.tensor([[1.0, 1], [0, 1], [1, 0], [1, -1]], dtype=torch.float64)
    tokens = Tokens.from_lists([[0, 1], [2], [2, 1], [3, 1]])
    arrays = {"turns": np.array([[0, 1]]), "candidates": np.array([[2, 3]])}
    objective = MatchingGuidedObjective(2, aggregation).double()
    if aggregation == "I1":
        nn.init.eye_(objective.attention[0].weight), nn.init.zeros_(objective.attention[0].bias)
        nn.init.ones_(objective.attention[2].weight), nn.init.zeros_(objective.attention[2].bias)
    loss = objective.terms(States(table), Batch(1, {"texts": tokens}, arrays, {"matching": 1}))["matching"]
    assert loss.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("aggregation", ["I1", "I2"])
def test_the_packed_loss_is_that_of_a_loop_over_candidates(aggregation):
    encoder, objective, examples = cases(aggregation)
    encoder.double(), objective.double()
    batch = examples.batch(np.arange(8), None)
    ways = []
    for loss in (objective.terms(encoder, batch)["matching"], loop_over_candidates(encoder, objective, batch)):
        encoder.zero_grad(), objective.zero_grad()
        loss.backward()
        named = [*encoder.named_parameters(), *objective.named_parameters("objective")]
        ways.append((loss.item(), {name: p.grad.clone() for name, p in named if p.grad is not None}))
    (packed, gradient), (naive, expected) = ways
    assert packed == pytest.approx(naive, abs=1e-9) and abs(packed - np.log(5)) > 1e-3, "and not that of a guess"
    assert tiny.relative_error(gradient, expected) < 1e-9


def test_the_siamese_loss_is_the_softmax_of_dot_products_over_the_group():
    encoder, objective, examples = cases("siamese")
    batch = examples.batch(np.arange(5), None)
    vectors = encoder.embed(batch.tokens["texts"], "mean")
    rows = []
    for turn, candidates in zip(batch.arrays["turns"], batch.arrays["candidates"], strict=True):
        rows.append((vectors[candidates] @ objective.matching(vectors[turn[0]])).log_softmax(0)[0])
    expected = -torch.stack(rows).mean().item()
    assert objective.terms(encoder, batch)["matching"].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["I1", "I2", "siamese"])
def test_matching_can_be_learnt_and_frozen_layers_stay(name):
    encoder, objective, examples = cases(name)
    before = {key: value.clone() for key, value in encoder.named_parameters()}
    settings = TrainingSettings(batch_size=20, epochs=40, learning_rate=5e-4, freeze=1)
    curve = train(encoder, objective, examples, settings, show_progress=False).curve.loss
    assert curve.iloc[-6:].mean() < 0.75 * curve.iloc[0]
    moved = {key for key, value in encoder.named_parameters() if not torch.equal(value, before[key])}
    assert moved and all("layer.1." in key for key in moved)


def test_an_unknown_aggregation_is_refused():
    with pytest.raises(UnknownName, match="turn aggregation"):
        MatchingGuidedObjective(4, "I3")


# --- baselines --------------------------------------------------------------------------------------------------------


def test_a_flow_knows_its_volume():
    torch.manual_seed(0)
    model = Flow(5, layers=3).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(7, 5, dtype=torch.float64)
    z, change = model(x)
    assert (z - x).abs().max() > 0.1
    for row in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda y: model(y[None])[0][0], x[row])
        assert torch.linalg.slogdet(jacobian)[1].item() == pytest.approx(change[row].item(), abs=1e-9)
    with pytest.raises(DataError, match="at least 2"):
        Flow(1)


def test_the_flow_makes_a_bent_cloud_more_normal_the_same_way_every_time():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(600, 3))
    bent = np.c_[first, first**2 + 0.1 * rng.normal(size=(600, 3))].astype(np.float32)

    def gap(points):  # a standard normal has fourth moments of 3 along every direction
        directions = np.random.default_rng(1).normal(size=(6, 40))
        along = points @ (directions / np.linalg.norm(directions, axis=0))
        return np.abs((along**4).mean(0) - 3).mean() + np.abs((along**2).mean(0) - 1).mean()

    assert gap(flow(bent)) < 0.7 * gap((bent - bent.mean(0)) / bent.std(0))
    np.testing.assert_array_equal(*(flow(bent, steps=20) for _ in range(2)))


def test_word_vectors_average_the_word_table_without_special_tokens():
    encoder = tiny.encoder()
    found = WordVectors(encoder).encode(["book a table", "", "hello"], max_length=4)
    table = encoder.transformer.get_input_embeddings().weight.detach().numpy()
    ids = encoder.tokenizer.convert_tokens_to_ids(["book", "a", "hello"])
    np.testing.assert_allclose(found, [table[ids[:2]].mean(0), np.zeros(32), table[ids[2]]], atol=1e-6)


def test_a_transformed_encoder_transforms_what_is_encoded_together():
    encoder = tiny.encoder()
    texts = tiny.sentences(40)
    found = Transformed(encoder, whiten).encode(texts, max_length=16)
    np.testing.assert_array_equal(found, whiten(encoder.encode(texts, max_length=16)))
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(found.shape[1]), atol=1e-3)
