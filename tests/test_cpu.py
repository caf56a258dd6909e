"""The CPU's own operators: the numbers, gradients and chances of PyTorch's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from dialnb.models import cpu
from dialnb.models.attention import grouped_attention

pytestmark = pytest.mark.usefixtures("one_thread")
SHORT_AND_LONG = ((1, 2), (5, 3), (30, 1), (64, 1), (65, 2), (70, 1))


def randoms(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


def gradients(value, *inputs):
    weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view_as(value)
    return torch.autograd.grad((value * weights).sum(), inputs)


def test_linear_is_pytorchs_with_its_gradients():
    x, weight, bias = randoms(7, 5), randoms(3, 5), randoms(3)
    ours, theirs = cpu.linear(x, weight, bias), F.linear(x, weight, bias)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    torch.testing.assert_close(gradients(ours, x, weight, bias), gradients(theirs, x, weight, bias), rtol=0, atol=1e-12)


def test_linear_gives_no_gradient_to_what_is_frozen():
    x, weight, bias = randoms(4, 5), randoms(3, 5).detach(), randoms(3).detach()
    cpu.linear(x, weight, bias).sum().backward()
    assert x.grad is not None and weight.grad is None and bias.grad is None


@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_gelu_is_the_exact_one_far_out_too(dtype, within):
    x = torch.linspace(-40, 40, 4001, dtype=dtype).requires_grad_()
    ours, theirs = cpu.gelu(x), F.gelu(x)
    torch.testing.assert_close(ours, theirs, rtol=within, atol=within)
    torch.testing.assert_close(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(theirs.sum(), x), rtol=0,
                               atol=2 * within)  # fmt: skip


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5])
def test_dropout_has_its_rate_and_keeps_the_expectation(p):
    torch.manual_seed(0)
    n = 1_000_003
    factors = cpu.keep(torch.Size([n]), p, torch.float64)
    assert set(factors.unique().tolist()) == {0.0, 1 / (1 - p)}
    assert abs((factors == 0).double().mean() - p) < 4 * (p * (1 - p) / n) ** 0.5 + 1 / 65536
    neighbours = ((factors[1:] == 0) & (factors[:-1] == 0)).double().mean()
    assert abs(neighbours - p * p) < 0.002, "draws that share a random word are independent"


def test_no_dropout_draws_nothing():
    x, state = torch.ones(3), torch.get_rng_state()
    assert cpu.dropout(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), state)


# --- attention --------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(1, 80), st.integers(1, 9), min_size=1))
@settings(max_examples=50)
def test_every_token_has_one_place_and_sees_its_own_sequence_only(found):
    groups = tuple(sorted(found.items()))
    tiles = cpu.make_tiles(groups)
    assert sum(len(t.places) for t in tiles) == sum(n * c for n, c in groups)
    for t in tiles:
        assert torch.equal(t.tokens.flatten()[t.places], torch.arange(len(t.places)))
        assert len(t.places.unique()) == len(t.places)
    shared = tiles[0]
    if shared.bias is not None:
        seen = (shared.bias == 0).sum(-1).flatten()[shared.places]
        lengths = [n for n, c in groups if n <= cpu.TILE for _ in range(n * c)]
        assert seen.tolist() == lengths


def test_tiled_attention_is_the_grouped_one_with_its_gradient():
    qkv = randoms(sum(n * c for n, c in SHORT_AND_LONG), 3, 2, 4)
    ours, theirs = cpu.attention(qkv, cpu.make_tiles(SHORT_AND_LONG)), grouped_attention(qkv, SHORT_AND_LONG)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients(ours, qkv), gradients(theirs, qkv), rtol=0, atol=1e-10)


@pytest.mark.parametrize("groups", [((3, 2), (5, 1)), ((66, 1),)])
def test_the_gradient_of_dropped_attention_is_that_of_the_same_draws(groups):
    qkv, tiles = randoms(sum(n * c for n, c in groups), 3, 1, 2), cpu.make_tiles(groups)

    def drawn(x):
        torch.manual_seed(5)
        return cpu.attention(x, tiles, 0.4)

    assert torch.autograd.gradcheck(drawn, (qkv,), fast_mode=True)


def test_attention_of_first_tokens_is_the_first_row_of_the_whole():
    qkv = randoms(sum(n * c for n, c in SHORT_AND_LONG), 3, 2, 4)
    lengths = torch.tensor([n for n, c in SHORT_AND_LONG for _ in range(c)])
    first = lengths.cumsum(0) - lengths
    ours = cpu.first_attention(qkv[first, 0], qkv[:, 1:], SHORT_AND_LONG)
    theirs = grouped_attention(qkv, SHORT_AND_LONG)[first]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients(ours, qkv), gradients(theirs, qkv), rtol=0, atol=1e-10)
