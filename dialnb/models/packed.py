"""The BERT family's forward pass over packed tokens.

Same parameters, same mathematics and same dropout as the Hugging Face modules, computed on real tokens only: fused
query-key-value projection, attention within sequences, everything else row by row. Weights stay in float32 and are cast
on use, so ``dtype=torch.bfloat16`` is mixed precision with float32 master weights and no autocast. Covers BERT,
RoBERTa/XLM-R, ELECTRA and DistilBERT; ``supports`` says.
"""

from collections import namedtuple
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import partial
from operator import attrgetter
from platform import machine
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.backends import mkldnn
from torch.nn import functional as F

from dialnb.models.attention import (
    block_size,
    grouped_attention,
    has_kernel,
    kernel_attention,
    kernels,
    padded_attention,
    widened,
)
from dialnb.tokens import Packed

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "gelu_new": partial(F.gelu, approximate="tanh")}
Part = tuple[Tensor, Tensor]  # weight and bias


BERT = (
    "attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm "
    "intermediate.dense output.dense output.LayerNorm"
)
DISTILBERT = (
    "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm "
    "ffn.lin1 ffn.lin2 output_layer_norm"
)
Layer = namedtuple("Layer", "query key value output attention_norm inner outer norm")
"""The eight parts of one transformer layer, whatever the family calls them, each a weight and a bias."""


class _SmallProducts(ContextDecorator):
    """Passes of ours: on ARM they leave out oneDNN, which takes ten times as long there for the small products of
    attention that is trained, and longer for the others. The switch is the whole process's: the first pass to begin
    turns it, the last one to end, in whatever thread, turns it back."""

    def __init__(self) -> None:
        self.passes, self.lock = 0, Lock()

    def __enter__(self) -> None:
        with self.lock:
            if not self.passes:
                self.before = mkldnn.enabled
                mkldnn.enabled &= machine() != "aarch64"
            self.passes += 1

    def __exit__(self, *_) -> None:
        with self.lock:
            self.passes -= 1
            if not self.passes:
                mkldnn.enabled = self.before


small_products = _SmallProducts()


class Shared(NamedTuple):
    """What all layers have in common; dropout is 0 outside training."""

    heads: int
    attention_dropout: float
    output_dropout: float
    hidden_dropout: float
    eps: float
    activation: str


def supports(transformer: nn.Module) -> bool:
    """Whether this forward pass reproduces the given Hugging Face model."""
    config = transformer.config
    return (
        config.model_type in FAMILIES
        and getattr(config, "position_embedding_type", "absolute") in (None, "absolute")
        and _activation(config) in ACTIVATIONS
        and not getattr(config, "is_decoder", False)
    )


def packed_forward(
    transformer: nn.Module,
    packed: Packed,
    dtype: torch.dtype | None = None,
    attention_dropout: bool = True,
    first_only: bool = False,
) -> Tensor:
    """Last hidden states ``[tokens, width]`` of a packed batch; with ``first_only`` those of every sequence's first
    token, ``[sequences, width]`` in packed order, for which the last layer is computed no further than needed.

    ``dtype`` is the precision of the computation (default: that of the weights). ``attention_dropout=False`` leaves
    out the dropout on attention probabilities while training: a choice to be recorded with the run.
    """
    layers = [_layer(module) for module in stack_of(transformer).layer]
    shared = _shared(transformer, attention_dropout)
    seeds = torch.zeros(len(layers), dtype=torch.int64, device=packed.ids.device)
    if shared.attention_dropout or (shared.hidden_dropout and seeds.is_cuda):
        seeds.random_(0, 2**31)
    x = _embed(transformer, packed, dtype or layers[0].query[0].dtype, shared.hidden_dropout)
    block = block_size(packed.max_length, transformer.config.max_position_embeddings)
    if has_kernel(x.device, x.dtype, block):
        attend = partial(kernel_attention, block=block)
    elif x.is_cuda:
        attend = partial(_padded, longest=packed.max_length)
    else:
        attend = partial(_grouped, groups=packed.groups)
    return _stack(x, layers, packed.starts, seeds, attend, shared, packed.starts[:-1].long() if first_only else None)


def _grouped(qkv, starts, seed, groups, dropout: float) -> Tensor:
    return grouped_attention(qkv, groups, dropout)


def _padded(qkv, starts, seed, longest: int, dropout: float) -> Tensor:
    return padded_attention(qkv, starts, longest, dropout)


def _stack(
    x: Tensor,
    layers: list[Layer],
    starts: Tensor,
    seeds: Tensor,
    attend: Callable,
    shared: Shared,
    rows: Tensor | None = None,
) -> Tensor:
    """All layers; where only some ``rows`` are asked for, the last one goes on with these alone after attention."""
    for i, layer in enumerate(layers):
        weights, biases = zip(layer.query, layer.key, layer.value)
        qkv = linear(x, (torch.cat(weights), torch.cat(biases)))
        qkv = qkv.view(len(x), 3, shared.heads, -1)
        context = attend(qkv, starts, seeds[i : i + 1], dropout=shared.attention_dropout).flatten(1)
        if rows is not None and i == len(layers) - 1:
            x, context = x[rows], context[rows]
        join = partial(_add_and_norm, seed=seeds[i : i + 1], eps=shared.eps)
        x = join(x, linear(context, layer.output), layer.attention_norm, use=2, dropout=shared.output_dropout)
        inner = ACTIVATIONS[shared.activation](linear(x, layer.inner))
        x = join(x, linear(inner, layer.outer), layer.norm, use=3, dropout=shared.hidden_dropout)
    return x


def linear(x: Tensor, part: Part) -> Tensor:
    weight, bias = part
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


def _add_and_norm(x: Tensor, change: Tensor, part: Part, seed: Tensor, use: int, dropout: float, eps: float) -> Tensor:
    """The residual connection."""
    if kernels and x.is_cuda and x.dtype != torch.float64:
        return kernels.add_and_norm(x, change, part, seed, use, dropout, eps)
    return _norm(x + F.dropout(change, dropout, dropout > 0), part, eps)


def _norm(x: Tensor, part: Part, eps: float) -> Tensor:
    """Layer normalisation, in float32 inside where the stream is narrower."""
    wide, (weight, bias) = widened(x), part
    return F.layer_norm(wide, weight.shape, weight.to(wide.dtype), bias.to(wide.dtype), eps).to(x.dtype)


def _embed(transformer: nn.Module, packed: Packed, dtype: torch.dtype, dropout: float) -> Tensor:
    table = transformer.embeddings
    positions = packed.positions
    if transformer.config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions = positions + table.padding_idx + 1
    x = F.embedding(packed.ids, table.word_embeddings.weight) + F.embedding(positions, table.position_embeddings.weight)
    if hasattr(table, "token_type_embeddings"):
        types = packed.types if packed.types is not None else torch.zeros_like(packed.ids)
        x = x + F.embedding(types, table.token_type_embeddings.weight)
    x = _norm(x, part_of(table.LayerNorm), table.LayerNorm.eps).to(dtype)
    x = F.dropout(x, dropout, dropout > 0)
    if hasattr(transformer, "embeddings_project"):
        x = linear(x, part_of(transformer.embeddings_project))
    return x


def stack_of(transformer: nn.Module) -> nn.Module:
    """The part of a transformer that holds its layers."""
    return transformer.transformer if transformer.config.model_type == "distilbert" else transformer.encoder


def _layer(module: nn.Module) -> Layer:
    """The parts of a layer of the transformer, DistilBERT's or the others'."""
    names = DISTILBERT if hasattr(module, "ffn") else BERT
    return Layer(*map(part_of, attrgetter(*names.split())(module)))


def part_of(module: nn.Module) -> Part:
    return module.weight, module.bias


def _shared(transformer: nn.Module, attention_dropout: bool) -> Shared:
    config, train = transformer.config, transformer.training
    distil = config.model_type == "distilbert"
    attention = config.attention_dropout if distil else config.attention_probs_dropout_prob
    hidden = config.dropout if distil else config.hidden_dropout_prob
    return Shared(
        heads=config.num_attention_heads,
        attention_dropout=attention if train and attention_dropout else 0.0,
        output_dropout=hidden if train and not distil else 0.0,  # DistilBERT drops nothing after attention
        hidden_dropout=hidden if train else 0.0,
        eps=1e-12 if distil else config.layer_norm_eps,
        activation=_activation(config),
    )


def _activation(config) -> str:
    name = config.activation if config.model_type == "distilbert" else config.hidden_act
    return name if isinstance(name, str) else getattr(name, "__name__", "")
