"""The BERT family's forward pass over packed tokens.

Same parameters, same mathematics and same dropout as the Hugging Face modules, computed on real tokens only: fused
query-key-value projection, attention within sequences, everything else row by row. For long runs on a GPU the stack of
layers is compiled; weights stay in float32 and are cast on use, so ``dtype=torch.bfloat16`` is mixed precision with
float32 master weights and no autocast. Covers BERT, RoBERTa/XLM-R, ELECTRA and DistilBERT; ``supports`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from dialnb.models import cpu
from dialnb.models.attention import (
    SHORT,
    block_size,
    grouped_attention,
    has_kernel,
    kernel_attention,
    padded_attention,
)
from dialnb.tokens import Packed

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "gelu_new": lambda x: F.gelu(x, approximate="tanh")}


class Layer(NamedTuple):
    """The sixteen tensors of one transformer layer, whatever the family calls them."""

    wq: torch.Tensor
    bq: torch.Tensor
    wk: torch.Tensor
    bk: torch.Tensor
    wv: torch.Tensor
    bv: torch.Tensor
    wo: torch.Tensor
    bo: torch.Tensor
    g1: torch.Tensor
    b1: torch.Tensor
    wi: torch.Tensor
    bi: torch.Tensor
    wf: torch.Tensor
    bf: torch.Tensor
    g2: torch.Tensor
    b2: torch.Tensor


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
    compiled: bool = False,
    first_only: bool = False,
) -> torch.Tensor:
    """Last hidden states ``[tokens, width]`` of a packed batch; with ``first_only`` those of every sequence's first
    token, ``[sequences, width]`` in packed order, for which a CPU computes nothing else in the last layer.

    ``dtype`` is the precision of the computation (default: that of the weights). ``attention_dropout=False`` leaves
    out the dropout on attention probabilities while training: a choice to be recorded with the run. ``compiled`` pays
    for itself in long training runs on a GPU (the first step takes about a minute).
    """
    config = transformer.config
    train = transformer.training
    hidden_p = (config.dropout if config.model_type == "distilbert" else config.hidden_dropout_prob) if train else 0.0
    attention_p = config.attention_dropout if config.model_type == "distilbert" else config.attention_probs_dropout_prob
    attention_p = attention_p if train and attention_dropout else 0.0
    output_p = 0.0 if config.model_type == "distilbert" else hidden_p  # DistilBERT drops nothing after attention
    layers = list(_layers(transformer))
    dtype = dtype or layers[0].wq.dtype
    eps = 1e-12 if config.model_type == "distilbert" else config.layer_norm_eps
    seeds = torch.zeros(len(layers), dtype=torch.int64, device=packed.ids.device)
    if attention_p:
        seeds.random_(0, 2**31)
    x = _embed(transformer, packed, dtype, hidden_p)
    constants = {
        "heads": config.num_attention_heads,
        "attention_p": attention_p,
        "output_p": output_p,
        "hidden_p": hidden_p,
        "eps": eps,
        "activation": _activation(config),
    }
    block = block_size(packed.max_length, config.max_position_embeddings)
    if not has_kernel(x.device, x.dtype, block):
        if x.device.type == "cuda":
            attend = partial(_padded, longest=packed.max_length)
        elif cpu.serves(x) and torch.is_grad_enabled():
            attend = partial(_tiled, tiles=cpu.make_tiles(packed.groups))
        else:
            attend = partial(_grouped, groups=packed.groups)
        if first_only and cpu.serves(x):
            x = _stack(x, layers[:-1], packed.starts, seeds, attend=attend, **constants)
            return _last_for_first(x, layers[-1], packed, **constants)
        states = _stack(x, layers, packed.starts, seeds, attend=attend, **constants)
    elif compiled and block <= SHORT and torch.is_grad_enabled():
        states = _compiled(block, x.shape[1], len(layers), **constants)(x, layers, packed.starts, seeds)
    else:
        attend = partial(kernel_attention, block=block)
        states = _stack(x, layers, packed.starts, seeds, attend=attend, **constants)
    return states[packed.starts[:-1].long()] if first_only else states


def _grouped(qkv, starts, seed, groups, dropout: float) -> torch.Tensor:
    return grouped_attention(qkv, groups, dropout)


def _padded(qkv, starts, seed, longest: int, dropout: float) -> torch.Tensor:
    return padded_attention(qkv, starts, longest, dropout)


def _tiled(qkv, starts, seed, tiles, dropout: float) -> torch.Tensor:
    return cpu.attention(qkv, tiles, dropout)


def _stack(
    x: torch.Tensor, layers: list[Layer], starts: torch.Tensor, seeds: torch.Tensor, *,
    attend: Callable, heads: int, attention_p: float, output_p: float, hidden_p: float, eps: float, activation: str,
) -> torch.Tensor:  # fmt: skip
    for i, layer in enumerate(layers):
        context = attend(_project(x, layer, heads), starts, seeds[i : i + 1], dropout=attention_p)
        x = _rest(x, context, layer, output_p, hidden_p, eps, activation)
    return x


def _last_for_first(
    x: torch.Tensor, layer: Layer, packed: Packed, heads: int, attention_p: float, **constants
) -> torch.Tensor:
    """The last layer for first tokens: keys and values of all tokens, everything else of these rows only."""
    first = x[packed.starts[:-1].long()]
    query = _linear(first, layer.wq, layer.bq).view(len(first), heads, -1)
    both = _linear(x, torch.cat([layer.wk, layer.wv]), torch.cat([layer.bk, layer.bv]))
    context = cpu.first_attention(query, both.view(len(x), 2, heads, -1), packed.groups, attention_p)
    return _rest(first, context, layer, **constants)


@cache
def _compiled(block: int, width: int, depth: int, **constants) -> Callable:
    """The whole stack as one graph with a free number of tokens, so that the host stays ahead of the device.

    Every shape gets a function under a name of its own: the compiler takes a number that differs between two calls of
    one function for a variable, and code for a variable number of heads is slow.
    """

    def stack(x: torch.Tensor, layers: list[Layer], starts: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        return _stack(x, layers, starts, seeds, attend=partial(kernel_attention, block=block), **constants)

    shape = (block, width, depth, *(value for value in constants.values() if isinstance(value, int | str)))
    stack.__code__ = stack.__code__.replace(co_name="_".join(map(str, ("stack", *shape))))
    graph = torch.compile(stack, fullgraph=True)

    def call(x: torch.Tensor, layers: list[Layer], starts: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        for tensor in (x, starts):
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return graph(x, layers, starts, seeds)

    return call


def _project(x: torch.Tensor, layer: Layer, heads: int) -> torch.Tensor:
    weight, bias = torch.cat([layer.wq, layer.wk, layer.wv]), torch.cat([layer.bq, layer.bk, layer.bv])
    return _linear(x, weight, bias).view(x.shape[0], 3, heads, x.shape[1] // heads)


def _rest(x, context, layer: Layer, output_p: float, hidden_p: float, eps: float, activation: str) -> torch.Tensor:
    """Output projection, residual, feed-forward, residual."""
    attended = _linear(context.flatten(1), layer.wo, layer.bo)
    x = _norm(x + _dropout(attended, output_p), layer.g1, layer.b1, eps)
    inner = _linear(x, layer.wi, layer.bi)
    inner = cpu.gelu(inner) if activation == "gelu" and cpu.serves(x) else ACTIVATIONS[activation](inner)
    return _norm(x + _dropout(_linear(inner, layer.wf, layer.bf), hidden_p), layer.g2, layer.b2, eps)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    product = cpu.linear if cpu.serves(x) else F.linear
    return product(x, weight.to(x.dtype), bias.to(x.dtype))


def _dropout(x: torch.Tensor, p: float) -> torch.Tensor:
    return cpu.dropout(x, p) if cpu.serves(x) else F.dropout(x, p, p > 0)


def _norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Layer normalisation, in float32 inside where the stream is narrower."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    return F.layer_norm(wide, weight.shape, weight.to(wide.dtype), bias.to(wide.dtype), eps).to(x.dtype)


def _embed(transformer: nn.Module, packed: Packed, dtype: torch.dtype, p: float) -> torch.Tensor:
    table = transformer.embeddings
    positions = packed.positions
    if transformer.config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions = positions + table.padding_idx + 1
    x = F.embedding(packed.ids, table.word_embeddings.weight) + F.embedding(positions, table.position_embeddings.weight)
    if hasattr(table, "token_type_embeddings"):
        types = packed.types if packed.types is not None else torch.zeros_like(packed.ids)
        x = x + F.embedding(types, table.token_type_embeddings.weight)
    norm = table.LayerNorm
    x = _dropout(_norm(x, norm.weight, norm.bias, norm.eps).to(dtype), p)
    if hasattr(transformer, "embeddings_project"):
        x = _linear(x, transformer.embeddings_project.weight, transformer.embeddings_project.bias)
    return x


def _layers(transformer: nn.Module):
    if transformer.config.model_type == "distilbert":
        for m in transformer.transformer.layer:
            a = m.attention
            parts = (a.q_lin, a.k_lin, a.v_lin, a.out_lin, m.sa_layer_norm, m.ffn.lin1, m.ffn.lin2, m.output_layer_norm)
            yield Layer(*(t for part in parts for t in (part.weight, part.bias)))
        return
    for m in transformer.encoder.layer:
        a, o = m.attention.self, m.attention.output
        parts = (
            a.query,
            a.key,
            a.value,
            o.dense,
            o.LayerNorm,
            m.intermediate.dense,
            m.output.dense,
            m.output.LayerNorm,
        )
        yield Layer(*(t for part in parts for t in (part.weight, part.bias)))


def _activation(config) -> str:
    name = config.activation if config.model_type == "distilbert" else config.hidden_act
    return name if isinstance(name, str) else getattr(name, "__name__", "")
