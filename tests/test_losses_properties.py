"""The losses against plain loops, finite differences, reordering, padding, and extreme inputs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dialnb import losses
from dialnb.losses import _shared


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def same(value: torch.Tensor, expected, tolerance: float = 1e-12) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)


# References: plain loops over lists of numbers, written from the equations


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def hard_negative_reference(first, second, tau, form):
    z, m = first + second, len(first)
    rows = []
    for i in range(2 * m):
        p = i + m if i < m else i - m
        e = {j: math.exp(cosine(z[i], z[j]) / tau) for j in range(2 * m) if j != i}
        negatives = [j for j in e if j != p]
        alpha = {j: e[j] / (math.fsum(e[k] for k in negatives) / (2 * m - 2)) for j in e}
        if form == "code":
            below = e[p] + math.fsum(alpha[j] * e[j] for j in negatives)
        elif form == "plain":
            below = math.fsum(e.values())
        elif form == "paper":
            below = math.fsum(math.exp(alpha[j] * math.log(e[j])) for j in e)
        else:
            below = e[p] + math.fsum(math.exp(alpha[j] * math.log(e[j])) for j in negatives)
        rows.append(-math.log(e[p] / below))
    return rows


def softmax_reference(anchors, candidates, score, same_as=None):
    rows = []
    for i, anchor in enumerate(anchors):
        kept = [j for j in range(len(candidates)) if j == i or same_as is None or same_as[i] != same_as[j]]
        below = math.fsum(math.exp(score(anchor, candidates[j])) for j in kept)
        rows.append(-math.log(math.exp(score(anchor, candidates[i])) / below))
    return rows


def matching_reference(context, context_mask, candidates, candidate_mask, tau, attention):
    """Loss of one group, forming M_i, Rhat_i and their masked means as printed. Attention None means I2."""
    similarities = []
    for response, response_mask in zip(candidates, candidate_mask):
        r = [token for token, real in zip(response, response_mask) if real]
        if not r:
            continue
        d, per_turn = len(r[0]), []
        for turn, turn_mask in zip(context, context_mask):
            u = [token for token, real in zip(turn, turn_mask) if real]
            if not u:
                continue
            matching = [[dot(a, b) / math.sqrt(d) for b in r] for a in u]
            aware = [[math.fsum(w * token[k] for w, token in zip(row, r)) for k in range(d)] for row in matching]
            per_turn.append([math.fsum(row[k] for row in aware) / len(u) for k in range(d)])
        scores = [math.exp(attention(p)) if attention else 1.0 for p in per_turn]
        pooled = [math.fsum(s * p[k] for s, p in zip(scores, per_turn)) / math.fsum(scores) for k in range(d)]
        similarities.append(cosine([math.fsum(t[k] for t in r) / len(r) for k in range(d)], pooled))
    return -math.log(math.exp(similarities[0] / tau) / math.fsum(math.exp(s / tau) for s in similarities))


# Agreement with the references


@pytest.mark.parametrize("form", ["code", "plain", "paper", "paper-negatives"])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), pairs=st.integers(2, 6), d=st.integers(2, 5), tau=st.floats(0.05, 3))
def test_hard_negative_loss_is_its_equation(form, seed, pairs, d, tau):
    tau = tau + 1 if form.startswith("paper") else tau  # exponents of exponents: the loops overflow when it is cold
    first, second = random(pairs, d, seed=seed), random(pairs, d, seed=seed + 1)
    value = losses.hard_negative_loss(first, second, tau, form, reduction="none")
    same(value, hard_negative_reference(first.tolist(), second.tolist(), tau, form), 1e-9)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), n=st.integers(2, 6), d=st.integers(2, 5), tau=st.floats(0.05, 3))
def test_in_batch_losses_are_their_equations(seed, n, d, tau):
    a, b, c = (random(n, d, seed=seed + k) for k in range(3))
    la, lb, lc = a.tolist(), b.tolist(), c.tolist()
    ids = (torch.arange(n) // 2).tolist()

    def score(x, y):
        return cosine(x, y) / tau

    same(losses.nt_xent_loss(a, b, tau, reduction="none"), softmax_reference(la, lb, score), 1e-9)
    same(losses.nt_xent_loss(a, b, tau, c, reduction="none"), softmax_reference(la, lb + lc, score), 1e-9)
    same(losses.response_contrastive_loss(a, b, reduction="none"), softmax_reference(la, lb, dot), 1e-9)
    weights = torch.arange(1, n + 1, dtype=torch.float64)
    for duplicate_ids in (None, ids):
        there = softmax_reference(la, lb, score, duplicate_ids)
        back = softmax_reference(lb, la, score, duplicate_ids)
        rows = [w * (x + y) / 2 for w, x, y in zip(weights.tolist(), there, back)]
        given_ids = None if duplicate_ids is None else torch.tensor(duplicate_ids)
        same(losses.weighted_symmetric_loss(a, b, weights, tau, False, given_ids, "none"), rows, 1e-9)
        expected = sum(rows) / sum(weights.tolist())
        same(losses.weighted_symmetric_loss(a, b, weights, tau, True, given_ids), expected, 1e-9)
    masked = losses.template_losses(a, b, b, c, tau, tau, tau, template_ids=torch.tensor(ids))
    same(masked.template, sum(softmax_reference(lb, lc, score, ids)) / n, 1e-9)
    same(masked.pair, sum(softmax_reference(lb, la, score)) / n, 1e-9)


@pytest.mark.parametrize("aggregation", ["I1", "I2"])
@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_matching_guided_loss_is_the_literal_computation(aggregation, data, seed):
    turns, candidates, d = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 4)), data.draw(st.integers(2, 5))
    context_lengths = data.draw(st.lists(st.integers(0, 4), min_size=turns, max_size=turns).filter(any))
    response_lengths = data.draw(st.lists(st.integers(1, 4), min_size=candidates, max_size=candidates))
    context, responses = random(1, turns, 4, d, seed=seed), random(1, candidates, 4, d, seed=seed + 1)
    context_mask = (torch.arange(4) < torch.tensor(context_lengths)[:, None])[None]
    response_mask = (torch.arange(4) < torch.tensor(response_lengths)[:, None])[None]
    weights = random(d, seed=seed + 2)
    attention = {
        "I1": (lambda aware: aware.relu() @ weights, lambda p: dot([max(x, 0) for x in p], weights.tolist())),
        "I2": (None, None),
    }[aggregation]
    value = losses.matching_guided_loss(context, context_mask, responses, response_mask, 0.1, aggregation, attention[0])
    lists = [t[0].tolist() for t in (context, context_mask, responses, response_mask)]
    same(value, matching_reference(*lists, 0.1, attention[1]), 1e-9)


def test_pooled_shortcut_equals_the_matching_matrices_to_rounding():
    context, candidates = random(2, 3, 7, 16), random(2, 4, 6, 16, seed=1)
    lengths = torch.tensor([[7, 3, 1], [2, 0, 5]])
    context_mask = torch.arange(7) < lengths[..., None]
    candidate_mask = torch.arange(6) < torch.tensor([[6, 2, 3, 1], [4, 4, 6, 5]])[..., None]
    wide = (context[:, None], context_mask[:, None], candidates[:, :, None], candidate_mask[:, :, None])
    aware = losses.matching_matrix(*wide) @ (candidates * candidate_mask[..., None])[:, :, None]
    pooled = aware.sum(-2) / lengths.clamp(min=1)[:, None, :, None]
    expected = pooled.sum(2) / (lengths > 0).sum(1)[:, None, None]
    same(losses.matching_guided_embedding(context, context_mask, candidates, candidate_mask), expected)


def test_shared_templates_are_negatives_unless_masked():
    t = torch.tensor([[1.0, 0], [1, 0], [0, 1]], dtype=torch.float64)
    views = (random(3, 2), random(3, 2, seed=1), t, t)
    assert losses.template_losses(*views).template > 0.4
    assert losses.template_losses(*views, template_ids=torch.tensor([7, 7, 8])).template < 1e-6


# Gradients


def pair_losses():
    ids = torch.tensor([0, 0, 1, 2])
    forms = ("code", "plain", "paper", "paper-negatives")
    hard = {f"hard_negative {form}": lambda a, b, f=form: losses.hard_negative_loss(a, b, 0.5, f) for form in forms}
    return hard | {
        "nt_xent": lambda a, b: losses.nt_xent_loss(a, b, 0.1),
        "nt_xent with hard negatives": lambda a, b: losses.nt_xent_loss(a, b, 0.1, b.flip(1)),
        "response_contrastive": losses.response_contrastive_loss,
        "weighted_symmetric": lambda a, b: losses.weighted_symmetric_loss(a, b, random(4).exp(), 0.1),
        "weighted_symmetric masked": lambda a, b: losses.weighted_symmetric_loss(a, b, None, 0.1, duplicate_ids=ids),
        "template": lambda a, b: losses.template_losses(a, b, a.flip(1), b.sin(), 0.1, 0.2, 0.3).total,
        "template masked, both directions": lambda a, b: (
            losses.template_losses(a, b, a.flip(1), b.sin(), direction="both", template_ids=ids).total
        ),
        "compression": lambda a, b: losses.semantic_compression(a, b, 0.3, normalize=True),
    }


@pytest.mark.parametrize("name", pair_losses())
def test_gradients_of_pair_losses(name):
    inputs = (random(4, 3).requires_grad_(), random(4, 3, seed=1).requires_grad_())
    assert torch.autograd.gradcheck(pair_losses()[name], inputs)


@pytest.mark.parametrize("aggregation", ["I1", "I2"])
def test_gradients_of_matching_and_its_attention(aggregation):
    context_mask = torch.tensor([[[1, 1], [1, 0]], [[1, 1], [0, 0]]])
    candidate_mask = torch.tensor([[[1, 1], [1, 0]], [[1, 1], [1, 1]]])

    def loss(context, candidates, weights):
        attention = (lambda aware: aware.tanh() @ weights) if aggregation == "I1" else None
        return losses.matching_guided_loss(
            context, context_mask, candidates, candidate_mask, 0.5, aggregation, attention, reduction="none"
        )

    shapes = ((2, 2, 2, 3), (2, 2, 2, 3), (3, 1))
    assert torch.autograd.gradcheck(loss, tuple(random(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)))


@pytest.mark.parametrize(
    ("loss", "shapes"),
    [
        (losses.siamese_matching_loss, [(3, 4), (3, 5, 4)]),
        (
            lambda s, x: losses.manipulation_loss(
                s, torch.tensor([1, 0, 1]), {"search": (x, x > -0.5, torch.tensor([0, 3]))}
            ),
            [(3,), (2, 4)],
        ),
        (lambda x: losses.masked_language_model_loss(x, torch.tensor([[1, -100], [0, 4]])), [(2, 2, 5)]),
        (lambda x: losses.next_sentence_loss(x, torch.tensor([1, 0, 1])), [(3, 2)]),
        (lambda x: losses.replaced_token_loss(x, x > 0), [(12,)]),
    ],
)
def test_gradients_of_the_other_losses(loss, shapes):
    assert torch.autograd.gradcheck(loss, tuple(random(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)))


# Reordering and padding


@pytest.mark.parametrize("form", ["code", "plain", "paper"])
def test_reordering_the_pairs_reorders_the_rows(form):
    first, second, order = random(6, 4), random(6, 4, seed=1), torch.tensor([3, 0, 5, 1, 4, 2])
    rows = losses.hard_negative_loss(first, second, 0.3, form, "none")
    moved = losses.hard_negative_loss(first[order], second[order], 0.3, form, "none")
    same(moved, rows[torch.cat((order, order + 6))])
    swapped = losses.hard_negative_loss(second, first, 0.3, form, "none")
    same(swapped, rows.roll(6))


def test_reordering_the_rows_of_the_other_in_batch_losses():
    a, b, order = random(6, 4), random(6, 4, seed=1), torch.tensor([3, 0, 5, 1, 4, 2])
    weights, ids = random(6, seed=2).exp(), torch.tensor([0, 1, 0, 2, 2, 3])
    for loss in (losses.nt_xent_loss, losses.response_contrastive_loss):
        same(loss(a[order], b[order], reduction="none"), loss(a, b, reduction="none")[order])
    rows = losses.weighted_symmetric_loss(a, b, weights, 0.1, False, ids, "none")
    moved = losses.weighted_symmetric_loss(a[order], b[order], weights[order], 0.1, False, ids[order], "none")
    same(moved, rows[order])
    swapped = losses.weighted_symmetric_loss(b, a, weights, 0.1, False, ids, "none")
    same(swapped, rows)
    terms = losses.template_losses(a, b, b.sin(), a.cos(), template_ids=ids)
    moved = losses.template_losses(a[order], b[order], b.sin()[order], a.cos()[order], template_ids=ids[order])
    same(torch.stack(moved), torch.stack(terms))


def test_cosine_losses_ignore_the_lengths_of_their_vectors():
    a, b, stretch = random(5, 4), random(5, 4, seed=1), random(5, 1, seed=2).exp()
    for loss in (losses.hard_negative_loss, losses.nt_xent_loss, losses.weighted_symmetric_loss):
        same(loss(a * stretch, b * 3), loss(a, b))


def matching_inputs():
    context_mask = torch.arange(5) < torch.tensor([[5, 3, 1], [2, 4, 2]])[..., None]
    candidate_mask = torch.arange(6) < torch.tensor([[6, 2, 3, 1], [4, 4, 6, 5]])[..., None]
    return random(2, 3, 5, 4), context_mask, random(2, 4, 6, 4, seed=1), candidate_mask


def attention(aware: torch.Tensor) -> torch.Tensor:
    return aware.tanh().sum(-1, keepdim=True)


@pytest.mark.parametrize("aggregation", ["I1", "I2"])
@pytest.mark.parametrize("filler", [9.0, -1e30, math.inf, math.nan])
def test_padding_of_tokens_turns_and_candidates_changes_nothing(aggregation, filler):
    def loss(*inputs):
        return losses.matching_guided_loss(*inputs, aggregation=aggregation, attention=attention, reduction="none")

    context, context_mask, candidates, candidate_mask = matching_inputs()
    expected = loss(context, context_mask, candidates, candidate_mask)
    context = torch.nn.functional.pad(context.masked_fill(~context_mask[..., None], filler), (0, 0, 0, 2, 0, 2))
    candidates = torch.nn.functional.pad(
        candidates.masked_fill(~candidate_mask[..., None], filler), (0, 0, 0, 3, 0, 1), value=filler
    )
    context_mask = torch.nn.functional.pad(context_mask, (0, 2, 0, 2))
    candidate_mask = torch.nn.functional.pad(candidate_mask, (0, 3, 0, 1))
    context.requires_grad_(), candidates.requires_grad_()
    padded = loss(context, context_mask, candidates, candidate_mask)
    same(padded, expected)
    padded.sum().backward()
    for tokens, mask in ((context, context_mask), (candidates, candidate_mask)):
        assert tokens.grad.isfinite().all() and not tokens.grad[~mask].any()


def test_order_of_turns_tokens_and_negatives_does_not_matter():
    context, context_mask, candidates, candidate_mask = matching_inputs()
    for aggregation in ("I1", "I2"):
        chosen = {"aggregation": aggregation, "attention": attention}
        expected = losses.matching_guided_loss(context, context_mask, candidates, candidate_mask, **chosen)
        moved = losses.matching_guided_loss(
            context.flip(1, 2),
            context_mask.flip(1, 2),
            candidates[:, [0, 3, 1, 2]].flip(2),
            candidate_mask[:, [0, 3, 1, 2]].flip(2),
            **chosen,
        )
        same(moved, expected)


def test_scaling_the_context_leaves_i2_unchanged_but_not_i1():
    context, *rest = matching_inputs()
    same(losses.matching_guided_loss(7 * context, *rest), losses.matching_guided_loss(context, *rest))
    chosen = {"aggregation": "I1", "attention": attention}
    scaled, plain = (losses.matching_guided_loss(x, *rest, **chosen) for x in (7 * context, context))
    assert abs(scaled - plain) > 1e-4


def test_context_without_turns_tells_the_candidates_nothing():
    context, context_mask, candidates, candidate_mask = matching_inputs()
    context.requires_grad_()
    for aggregation in ("I1", "I2"):
        loss = losses.matching_guided_loss(
            context, context_mask & False, candidates, candidate_mask, 0.1, aggregation, attention
        )
        same(loss.detach(), math.log(4))
        assert not torch.autograd.grad(loss, context)[0].any()


def test_padding_of_task_logits_changes_nothing():
    logits, mask, target = random(3, 4), torch.arange(4) < torch.tensor([[4], [2], [3]]), torch.tensor([3, 0, 1])
    longer = torch.nn.functional.pad(logits, (0, 3), value=50.0)
    longer_mask = torch.nn.functional.pad(mask, (0, 3))
    same(
        losses.manipulation_task_loss(longer, longer_mask, target), losses.manipulation_task_loss(logits, mask, target)
    )


# Extremes


def degenerate_batches():
    base = random(8, 16)
    zero = base.clone()
    zero[3] = 0
    return {
        "ordinary": (base, random(8, 16, seed=1)),
        "identical sides": (base, base.clone()),
        "all vectors equal": (base[:1].repeat(8, 1), base[:1].repeat(8, 1)),
        "near duplicates": (base, base[:1] + 1e-7 * base),
        "opposite sides": (base, -base),
        "a zero vector": (zero, base),
        "tiny vectors": (1e-15 * base, base),
        "huge vectors": (1e15 * base, base),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-4, 0.05, 1e3])
@pytest.mark.parametrize("batch", degenerate_batches())
def test_extreme_inputs_give_finite_losses_and_gradients(batch, temperature, dtype):
    first, second = (x.to(dtype).requires_grad_() for x in degenerate_batches()[batch])
    taus = (temperature,) * 3
    for loss in (
        lambda a, b: losses.hard_negative_loss(a, b, temperature),
        lambda a, b: losses.hard_negative_loss(a, b, temperature, "plain"),
        lambda a, b: losses.nt_xent_loss(a, b, temperature, b.flip(0)),
        lambda a, b: losses.weighted_symmetric_loss(a, b, None, temperature),
        lambda a, b: losses.template_losses(a, b, b, a, *taus, direction="both").total,
        lambda a, b: losses.matching_guided_loss(
            a.view(1, 2, 4, 16), torch.ones(1, 2, 4), b.view(1, 2, 4, 16), torch.ones(1, 2, 4), temperature
        ),
    ):
        value = loss(first, second)
        gradients = torch.autograd.grad(value, (first, second))
        assert value.isfinite() and value >= 0
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_small_losses_survive_rounding_in_float32():
    first = torch.eye(4)
    loss = losses.hard_negative_loss(first, first, temperature=0.05, reduction="none")
    expected = math.log1p(6 * math.exp(-20))
    torch.testing.assert_close(loss.double(), torch.full((8,), expected, dtype=torch.float64), rtol=1e-4, atol=0)


def test_temperature_limits_of_the_hard_negative_loss():
    """Hot: every alpha is 1 and all 2M - 1 candidates are alike. Cold: the hardest negative against the positive."""
    first, second = random(5, 3), random(5, 3, seed=1)
    hot = losses.hard_negative_loss(first, second, 1e9)
    same(hot, math.log(9), 1e-7)
    z = torch.nn.functional.normalize(torch.cat((first, second)), dim=1)
    s, p = z @ z.T, torch.arange(10).roll(5)
    positive = s[torch.arange(10), p].clone()
    s[torch.arange(10), p] = s[torch.arange(10), torch.arange(10)] = -2
    cold = losses.hard_negative_loss(first, second, 1e-6, reduction="none")
    same(cold * 1e-6, (s.amax(1) - positive).clamp(min=0), 1e-5)


# Memory


@pytest.mark.parametrize("block", [1, 12, 40])
def test_blocks_of_rows_give_the_same_value_and_gradient(monkeypatch, block):
    inputs = (random(4, 3).requires_grad_(), random(4, 3, seed=1).requires_grad_())
    whole = {name: loss(*inputs).sum() for name, loss in pair_losses().items()}
    whole_gradients = {name: torch.autograd.grad(value, inputs) for name, value in whole.items()}
    monkeypatch.setattr(_shared, "BLOCK", block)
    for name, loss in pair_losses().items():
        value = loss(*inputs).sum()
        same(value, whole[name])
        for gradient, expected in zip(torch.autograd.grad(value, inputs), whole_gradients[name]):
            same(gradient, expected)


@pytest.mark.parametrize("loss", [losses.hard_negative_loss, losses.nt_xent_loss, losses.weighted_symmetric_loss])
def test_large_batches_keep_no_similarity_matrix_for_the_backward_pass(monkeypatch, loss):
    n, d = 256, 4
    first, second = random(n, d).requires_grad_(), random(n, d, seed=1).requires_grad_()
    kept = []

    def remember(tensor):
        kept.append(tensor.numel())
        return tensor

    def elements_kept():
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            loss(first, second)
        return sum(kept)

    assert elements_kept() > n * n
    monkeypatch.setattr(_shared, "BLOCK", 8 * n)
    assert elements_kept() < n * n / 2
