"""The printed examples of every loss, the precision they are computed in, and what they refuse."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil

import pytest
import torch

from dialnb import losses
from dialnb.errors import DialnbError, TrainingError, UnknownName


def f64(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def close(value: torch.Tensor, expected, tolerance: float = 1e-6) -> None:
    """Printed numbers have six decimals: half a unit of the last one belongs to the printing."""
    torch.testing.assert_close(value, f64(expected), rtol=0, atol=tolerance)


FIRST, SECOND = f64([[1, 0], [0, 1]]), f64([[0.8, 0.6], [0.6, 0.8]])
FIRST3, SECOND3 = f64([[1, 0, 0], [0, 2, 0], [1, 1, 1]]), f64([[1, 1, 0], [0, 1, 1], [1, 0, 2]])


# DSE


@pytest.mark.parametrize(
    ("form", "temperature", "rows", "mean"),
    [
        ("code", 0.5, [0.753199, 0.753199, 1.191328, 1.191328], 0.972263),
        ("code", 0.05, [0.035976, 0.035976, 3.912593, 3.912593], 1.974284),
        ("plain", 0.5, [0.627123, 0.627123, 1.114304, 1.114304], 0.870714),
        ("plain", 0.05, [0.018150, 0.018150, 3.240670, 3.240670], 1.629410),
        ("paper", 0.5, [2.240098, 2.240098, 1.405735, 1.405735], 1.822917),
        ("paper", 0.05, [1731.130066, 1731.130066, 22.371352, 22.371352], 876.750709),
        ("paper-negatives", 0.5, [0.907786, 0.907786, 1.414621, 1.414621], 1.161203),
    ],
)
def test_hard_negative_loss_of_two_pairs(form, temperature, rows, mean):
    close(losses.hard_negative_loss(FIRST, SECOND, temperature, form, reduction="none"), rows)
    close(losses.hard_negative_loss(FIRST, SECOND, temperature, form), mean)


@pytest.mark.parametrize(
    ("temperature", "rows", "mean"),
    [
        (0.05, [0.246451, 1.556653, 2.319522, 3.509030, 3.576475, 0.204726], 1.902143),
        (0.2, [0.969452, 1.441163, 1.635744, 1.812462, 1.812026, 0.890155], 1.426834),
    ],
)
def test_hard_negative_loss_normalises_its_three_pairs(temperature, rows, mean):
    close(losses.hard_negative_loss(FIRST3, SECOND3, temperature, reduction="none"), rows)
    close(losses.hard_negative_loss(FIRST3, SECOND3, temperature), mean)


@pytest.mark.parametrize(("temperature", "mean"), [(0.05, 1.218091), (0.2, 1.061911)])
def test_plain_form_of_three_pairs(temperature, mean):
    close(losses.hard_negative_loss(FIRST3, SECOND3, temperature, form="plain"), mean)


# SimCSE and response selection


@pytest.mark.parametrize(("temperature", "row"), [(0.5, 0.513015), (0.05, 0.018150)])
def test_nt_xent_of_two_pairs(temperature, row):
    close(losses.nt_xent_loss(FIRST, SECOND, temperature, reduction="none"), [row, row])
    close(losses.nt_xent_loss(FIRST, SECOND, temperature), row)


def test_nt_xent_of_three_pairs():
    close(losses.nt_xent_loss(FIRST3, SECOND3, 0.05, reduction="none"), [0.005514, 0.693148, 1.726949])
    close(losses.nt_xent_loss(FIRST3, SECOND3, 0.05), 0.808537)


def test_nt_xent_with_hard_negatives():
    hard = f64([[0, 1], [0.6, 0.8]])
    close(losses.nt_xent_loss(FIRST, SECOND, 0.05, hard, reduction="none"), [0.035976, 4.036300])
    close(losses.nt_xent_loss(FIRST, SECOND, 0.05, hard), 2.036138)


def test_response_contrastive_loss_uses_raw_dot_products():
    query, response = f64([[2, 0], [0, 1]]), f64([[1, 0.5], [0.5, 2]])
    close(losses.response_contrastive_loss(query, response, reduction="none"), [0.313262, 0.201413])
    close(losses.response_contrastive_loss(query, response), 0.257337)


# DialogueCSE

CONTEXT = f64([[[[1, 1], [0, 1]], [[1, 0], [9, 9]]]])
CONTEXT_MASK = torch.tensor([[[1, 1], [1, 0]]])
CANDIDATES = f64([[[[1, 0], [0, 1]], [[1, -1], [0, 1]]]])
CANDIDATE_MASK = torch.ones(1, 2, 2, dtype=torch.long)
GROUP = (CONTEXT, CONTEXT_MASK, CANDIDATES, CANDIDATE_MASK)


def sum_of_positive_parts(aware: torch.Tensor) -> torch.Tensor:
    """The attention network of the example: W1 = identity, b = 0, ReLU, w2 = (1, 1)."""
    return aware.relu().sum(-1, keepdim=True)


def literal_context_aware(turn: int, candidate: int) -> torch.Tensor:
    """Rhat_i = M_i R as printed, padding rows zero."""
    matching = losses.matching_matrix(
        CONTEXT[0, turn], CONTEXT_MASK[0, turn], CANDIDATES[0, candidate], CANDIDATE_MASK[0, candidate]
    )
    return matching @ CANDIDATES[0, candidate]


def test_matching_matrix_gives_the_context_aware_response_of_each_turn():
    close(literal_context_aware(0, 0), [[0.707107, 0.707107], [0, 0.707107]])
    close(literal_context_aware(1, 0), [[0.707107, 0], [0, 0]])


@pytest.mark.parametrize(
    ("turn", "pooled"),
    [(0, [[0.353553, 0.707107], [-0.353553, 1.060660]]), (1, [[0.707107, 0], [0.707107, -0.707107]])],
)
def test_masked_mean_of_each_turn(turn, pooled):
    alone = losses.matching_guided_embedding(CONTEXT[:, [turn]], CONTEXT_MASK[:, [turn]], CANDIDATES, CANDIDATE_MASK)
    close(alone[0], pooled)


def test_mean_aggregation_i2():
    aware = losses.matching_guided_embedding(*GROUP)
    close(aware[0], [[0.530330, 0.353553], [0.176777, 0.176777]])
    context_free = CANDIDATES[0].mean(1)
    close(context_free, [[0.5, 0.5], [0.5, 0]])
    close(torch.cosine_similarity(context_free, aware[0]), [0.980581, 0.707107])
    close(losses.matching_guided_loss(*GROUP, temperature=0.1), 0.062891)


def test_attention_aggregation_i1():
    seen = []

    def attention(aware):
        scores = sum_of_positive_parts(aware)
        seen.append(scores.softmax(2)[0, :, :, 0])
        return scores

    aware = losses.matching_guided_embedding(*GROUP, aggregation="I1", attention=attention)
    close(seen[0], [[0.587479, 0.412521]] * 2)
    close(aware[0], [[0.499402, 0.415410], [0.083991, 0.331419]])
    close(torch.cosine_similarity(CANDIDATES[0].mean(1), aware[0]), [0.995812, 0.245663])
    settings = {"temperature": 0.1, "aggregation": "I1", "attention": sum_of_positive_parts}
    close(losses.matching_guided_loss(*GROUP, **settings), 0.000552)


def test_averaging_zero_padded_matrices_would_give_another_loss():
    """The variant not used: turns of different lengths averaged as matrices, then pooled."""
    aware = torch.stack([(literal_context_aware(0, j) + literal_context_aware(1, j)).mean(0) / 2 for j in (0, 1)])
    close(aware, [[0.353553, 0.353553], [0, 0.353553]])
    cosines = torch.cosine_similarity(CANDIDATES[0].mean(1), aware)
    close(cosines, [1, 0])
    close(-(cosines / 0.1).log_softmax(0)[0], 0.000045)


# TaDSE

TEMPLATE, TEMPLATE_PLUS = f64([[0.6, 0.8], [0, 1]]), f64([[0.8, 0.6], [0.28, 0.96]])


@pytest.mark.parametrize(
    ("tau", "utterance", "template", "pair", "reverse", "both", "total"),
    [
        (0.05, 0.018150, 0.241211, 2.009075, 0.009078, 1.009077, 1.263898),
        (0.5, 0.513015, 0.533015, 0.519972, 0.388149, 0.454060, 1.306016),
    ],
)
def test_template_losses(tau, utterance, template, pair, reverse, both, total):
    temperatures = dict.fromkeys(("temperature_utterance", "temperature_template", "temperature_pair"), tau)
    views = (FIRST, SECOND, TEMPLATE, TEMPLATE_PLUS)
    terms = losses.template_losses(*views, **temperatures)
    close(torch.stack(terms), [utterance, template, pair, total])
    close(losses.template_losses(*views, **temperatures, direction="utterance").pair, reverse)
    close(losses.template_losses(*views, **temperatures, direction="both").pair, both)


@pytest.mark.parametrize(
    ("tau", "template_rows", "pair_rows"),
    [(0.05, [0.481675, 0.000746], [4.018150, 0.0]), (0.5, [0.669435, 0.396594], [0.913015, 0.126928])],
)
def test_rows_of_the_template_terms(tau, template_rows, pair_rows):
    close(losses.nt_xent_loss(TEMPLATE, TEMPLATE_PLUS, tau, reduction="none"), template_rows)
    close(losses.nt_xent_loss(TEMPLATE, FIRST, tau, reduction="none"), pair_rows)


def test_each_term_has_its_own_temperature_and_weight():
    views = (FIRST, SECOND, TEMPLATE, TEMPLATE_PLUS)
    terms = losses.template_losses(
        *views,
        temperature_utterance=0.05,
        temperature_template=0.5,
        temperature_pair=0.5,
        weight_utterance=2.0,
        weight_template=0.0,
        weight_pair=0.01,
    )
    close(torch.stack(terms), [0.018150, 0.533015, 0.519972, 2 * 0.018150 + 0.01 * 0.519972], tolerance=2e-6)


@pytest.mark.parametrize(
    ("ratio", "rows", "cosine"),
    [
        (0.2, [[0.92, 0.16], [0, 1]], 0.171341),
        (0.5, [[0.8, 0.4], [0, 1]], 0.447214),
        (0.0, [[1, 0], [0, 1]], 0.0),
    ],
)
def test_semantic_compression(ratio, rows, cosine):
    mixed = losses.semantic_compression(TEMPLATE, FIRST, ratio)
    close(mixed, rows)
    close(torch.cosine_similarity(mixed[0], mixed[1], dim=0), cosine)


def test_compression_ignores_the_lengths_of_its_parts_unless_told_otherwise():
    plain = losses.semantic_compression(TEMPLATE, FIRST, 0.2)
    close(losses.semantic_compression(3 * TEMPLATE, 7 * FIRST, 0.2), plain.tolist(), tolerance=1e-12)
    mixed = losses.semantic_compression(3 * TEMPLATE, 7 * FIRST, 0.2, normalize=False)
    close(mixed, (0.6 * TEMPLATE + 5.6 * FIRST).tolist(), tolerance=1e-12)


# WMDC


def test_inverse_response_frequency():
    frequencies = f64([1, 100, 10, 5371, 2, 1481])
    expected = [1.0, 0.178407, 0.302793, 0.104289, 0.590616, 0.120475]
    close(losses.inverse_response_frequency(frequencies), expected)
    counts = losses.inverse_response_frequency([1, 100])
    assert counts.dtype == torch.float32
    close(counts.double(), [1.0, 0.178407])


@pytest.mark.parametrize(("tau", "row", "mean"), [(0.5, 0.513015, 0.302270), (0.05, 0.018150, 0.010694)])
def test_weighted_symmetric_loss_of_two_pairs(tau, row, mean):
    close(losses.weighted_symmetric_loss(FIRST, SECOND, temperature=tau, reduction="none"), [row, row])
    weights = losses.inverse_response_frequency(f64([1, 100]))
    close(losses.weighted_symmetric_loss(FIRST, SECOND, weights, tau), mean)


def test_weighted_symmetric_loss_of_three_pairs():
    rows = losses.weighted_symmetric_loss(FIRST3, SECOND3, temperature=0.05, reduction="none")
    close(rows, [1.197851, 1.493625, 0.864191])
    weights = losses.inverse_response_frequency(f64([1, 10, 5371]))
    close(losses.weighted_symmetric_loss(FIRST3, SECOND3, weights, 0.05), 0.580079)


def test_normalised_weights_cancel_in_a_batch_of_equally_frequent_responses():
    frequent = f64([0.1, 0.1, 0.1])
    unweighted = losses.weighted_symmetric_loss(FIRST3, SECOND3)
    assert losses.weighted_symmetric_loss(FIRST3, SECOND3, frequent) == pytest.approx(0.1 * unweighted.item())
    normalised = losses.weighted_symmetric_loss(FIRST3, SECOND3, frequent, normalise_weights=True)
    assert normalised == pytest.approx(unweighted.item())


# UMS

TASKS = {
    "insertion": (f64([[0.5, -1.0, 2.0, 0.1, -0.3]]), torch.ones(1, 5), torch.tensor([2])),
    "deletion": (f64([[-0.2, 1.5, -0.7, 0.3, 0.0]]), torch.ones(1, 5), torch.tensor([1])),
    "search": (f64([[0.4, -0.6, 1.1, -1.2]]), torch.ones(1, 4), torch.tensor([0])),
}
SELECTION = (f64([1.2, -0.4]), torch.tensor([1, 0]))


@pytest.mark.parametrize(("task", "value"), [("insertion", 0.542604), ("deletion", 0.550048), ("search", 0.650280)])
def test_each_manipulation_task(task, value):
    close(losses.manipulation_task_loss(*TASKS[task]), value)


def test_manipulation_loss_sums_selection_and_tasks():
    close(losses.manipulation_loss(*SELECTION, {}), 0.388149)
    close(losses.manipulation_loss(*SELECTION, TASKS), 2.131081)


def test_task_without_positive_rows_is_zero_and_differentiable():
    logits = torch.zeros(0, 5, requires_grad=True)
    loss = losses.manipulation_task_loss(logits, torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0 and logits.grad.shape == (0, 5)


def test_row_without_special_tokens_is_not_counted():
    logits, mask, _ = TASKS["insertion"]
    padded = (torch.cat((logits, logits + 1)), torch.cat((mask, torch.zeros(1, 5))), torch.tensor([2, 0]))
    close(losses.manipulation_task_loss(*padded), 0.542604)


# Language modelling


def test_masked_language_model_loss_averages_over_masked_positions():
    logits = f64([[[2.0, 0, 0], [0, 5, 0], [0, 0, 1.0]]])
    expected = (math.log(math.exp(2) + 2) - 2 + math.log(math.e + 2) - 0) / 2
    close(losses.masked_language_model_loss(logits, torch.tensor([[0, -100, 1]])), expected, tolerance=1e-12)


def test_nothing_masked_is_zero_with_a_zero_gradient():
    logits = torch.randn(2, 3, 7, requires_grad=True)
    loss = losses.masked_language_model_loss(logits, torch.full((2, 3), -100))
    loss.backward()
    assert loss.item() == 0 and not logits.grad.any()


def test_next_sentence_loss():
    logits = f64([[2.0, 0.0], [1.0, 3.0]])
    expected = (math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 2
    close(losses.next_sentence_loss(logits, torch.tensor([0, 0])), expected, tolerance=1e-12)


def test_replaced_token_loss_counts_real_tokens_of_the_whole_batch_alike():
    logits = f64([1.0, -2.0, 0.5, 3.0])
    expected = sum(math.log1p(math.exp(x)) for x in (-1.0, -2.0, 0.5, -3.0)) / 4
    close(losses.replaced_token_loss(logits, torch.tensor([1, 0, 0, 1])), expected, tolerance=1e-12)


def test_siamese_matching_loss_uses_raw_dot_products_and_the_first_candidate():
    context, candidates = f64([[2.0, 1.0]]), f64([[[1.0, 0], [0, 1], [-1, 1]]])
    expected = -math.log(math.exp(2) / (math.exp(2) + math.exp(1) + math.exp(-1)))
    close(losses.siamese_matching_loss(context, candidates), expected, tolerance=1e-12)


# Precision


def calls(cast):
    """Every loss on small inputs, its floating tensors passed through ``cast``."""
    first, second = cast(FIRST3), cast(SECOND3)
    group = (cast(CONTEXT), CONTEXT_MASK, cast(CANDIDATES), CANDIDATE_MASK)
    task = (cast(TASKS["search"][0]), *TASKS["search"][1:])
    return {
        "hard_negative": lambda: losses.hard_negative_loss(first, second),
        "nt_xent": lambda: losses.nt_xent_loss(first, second),
        "response_contrastive": lambda: losses.response_contrastive_loss(first, second),
        "weighted_symmetric": lambda: losses.weighted_symmetric_loss(first, second, cast(f64([1, 0.5, 0.1]))),
        "template": lambda: losses.template_losses(first, second, second, first).total,
        "compression": lambda: losses.semantic_compression(first, second, 0.5),
        "matching": lambda: losses.matching_guided_loss(*group),
        "siamese": lambda: losses.siamese_matching_loss(first[:1, :2], group[2][:, 0][:, :, :2]),
        "manipulation": lambda: losses.manipulation_loss(cast(SELECTION[0]), SELECTION[1], {"search": task}),
        "masked_language_model": lambda: losses.masked_language_model_loss(first, torch.tensor([0, 1, -100])),
        "next_sentence": lambda: losses.next_sentence_loss(first[:, :2], torch.tensor([0, 1, 0])),
        "replaced_token": lambda: losses.replaced_token_loss(first, torch.eye(3)),
    }


@pytest.mark.parametrize("name", calls(lambda x: x))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_losses_are_computed_in_float32_or_wider(name, dtype):
    value = calls(lambda x: x.to(dtype))[name]()
    assert value.dtype == torch.promote_types(dtype, torch.float32)
    expected = calls(lambda x: x.to(dtype).double())[name]()
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", calls(lambda x: x))
def test_autocast_does_not_reach_inside(name):
    outside = calls(lambda x: x.float())[name]()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = calls(lambda x: x.float())[name]()
    assert torch.equal(inside, outside)


def test_gradient_of_half_precision_inputs_comes_back_in_half_precision():
    first = FIRST3.bfloat16().requires_grad_()
    losses.hard_negative_loss(first, SECOND3.bfloat16()).backward()
    assert first.grad.dtype == torch.bfloat16 and first.grad.isfinite().all()


def test_compiles_without_graph_breaks():
    for loss in (losses.hard_negative_loss, losses.nt_xent_loss, losses.weighted_symmetric_loss):
        compiled = torch.compile(loss, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(FIRST3, SECOND3), loss(FIRST3, SECOND3))


# Refusals


@pytest.mark.parametrize(
    "loss",
    [
        losses.hard_negative_loss,
        losses.nt_xent_loss,
        losses.response_contrastive_loss,
        losses.weighted_symmetric_loss,
        lambda a, b: losses.template_losses(a, b, a, b),
    ],
)
def test_in_batch_losses_refuse_what_is_not_a_batch_of_pairs(loss):
    with pytest.raises(TrainingError, match=r"at least 2 rows, but got 1; use a larger batch"):
        loss(FIRST[:1], SECOND[:1])
    with pytest.raises(TrainingError, match=r"one shape, but got .*\[2, 2\].*\[3, 3\]"):
        loss(FIRST, SECOND3)
    with pytest.raises(TrainingError, match=r"matrices \[batch, dimension\]"):
        loss(FIRST[None], SECOND[None])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: losses.hard_negative_loss(FIRST, SECOND, 0.0), "temperature above 0, but got 0.0"),
        (lambda: losses.nt_xent_loss(FIRST, SECOND, math.nan), "temperature above 0"),
        (lambda: losses.nt_xent_loss(FIRST, SECOND, hard_negatives=SECOND3), r"hard_negatives \[any number, 2\]"),
        (lambda: losses.matching_guided_loss(*GROUP, aggregation="I1"), "pass it as attention"),
        (lambda: losses.matching_guided_loss(CONTEXT, CONTEXT_MASK[0], *GROUP[2:]), r"mask \[B, T, n\]"),
        (lambda: losses.matching_guided_loss(*GROUP[:2], CANDIDATES[:, :1], CANDIDATE_MASK[:, :1]), "1 negative"),
        (lambda: losses.siamese_matching_loss(FIRST, CANDIDATES), r"context \[B, d\] and candidates \[B, m, d\]"),
        (lambda: losses.siamese_matching_loss(FIRST[:1], CANDIDATES[:, 0, :1]), "at least 1 negative"),
        (lambda: losses.weighted_symmetric_loss(FIRST, SECOND, f64([1.0])), r"one entry of weights per row, \[2\]"),
        (lambda: losses.inverse_response_frequency([1, 0]), "at least 1"),
        (lambda: losses.semantic_compression(FIRST, SECOND3, 0.5), "one shape"),
        (lambda: losses.manipulation_loss(SELECTION[0], torch.ones(3), {}), "one shape"),
        (lambda: losses.manipulation_task_loss(FIRST, FIRST, torch.tensor([1])), "one target per row"),
        (lambda: losses.masked_language_model_loss(FIRST, torch.zeros(3)), r"labels \[\.\.\.\]"),
        (lambda: losses.next_sentence_loss(FIRST3, torch.zeros(3)), r"logits \[B, 2\]"),
        (lambda: losses.replaced_token_loss(FIRST, FIRST3), "one shape"),
    ],
)
def test_unusable_inputs_are_refused_with_a_sentence(call, sentence):
    with pytest.raises(TrainingError, match=sentence):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: losses.hard_negative_loss(FIRST, SECOND, form="papr"),
        lambda: losses.nt_xent_loss(FIRST, SECOND, reduction="sum"),
        lambda: losses.matching_guided_loss(*GROUP, aggregation="I3"),
        lambda: losses.template_losses(FIRST, SECOND, FIRST, SECOND, direction="templates"),
    ],
)
def test_unknown_options_are_refused_by_name(call):
    with pytest.raises(UnknownName, match="Known:"):
        call()
    assert issubclass(UnknownName, DialnbError)


# Documentation


@pytest.mark.parametrize(
    "module", ["dialnb.losses", *(f"dialnb.losses.{m.name}" for m in pkgutil.iter_modules(losses.__path__))]
)
def test_examples_in_docstrings_are_true(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_every_public_function_has_an_example():
    functions = [getattr(losses, name) for name in losses.__all__ if name[0].islower()]
    assert [f.__name__ for f in functions if ">>>" not in f.__doc__] == []
