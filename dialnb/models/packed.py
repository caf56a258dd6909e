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
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mkldnn
from torch.nn import functional as F

from dialnb.models.attention import NARROW, attend, kernels, widened
from dialnb.tokens import Packed

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "gelu": F.gelu,
    "relu": lambda x, out: F.relu(x, out is x),
    "gelu_new": partial(F.gelu, approximate="tanh"),
}
Part = tuple[Tensor, Tensor]  # weight and bias
ROWS = 512  # to a multiple of so many are products in half precision on a CPU filled up


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

    passes, lock = 0, Lock()

    def __enter__(self) -> None:
        with self.lock:
            if not self.passes:
                self.before = mkldnn.enabled
                mkldnn.enabled &= machine() != "aarch64"  # type: ignore[operator]  # torch names another type
            self.passes += 1

    def __exit__(self, *_) -> None:
        with self.lock:
            self.passes -= 1
            if not self.passes:
                mkldnn.enabled = self.before

    def keep(self) -> None:
        """Leave oneDNN as it was before: products in bfloat16 need it."""
        with self.lock:
            if self.passes:
                mkldnn.enabled = self.before


small_products = _SmallProducts()


def supports(transformer: Any) -> bool:
    """Whether this forward pass reproduces the given Hugging Face model."""
    config = transformer.config
    return (
        config.model_type in FAMILIES
        and _activation(config) in ACTIVATIONS
        and not getattr(config, "is_decoder", False)
    )


def packed_forward(
    transformer: Any,
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
    config = transformer.config
    layers = [_layer(module) for module in stack_of(transformer).layer]
    attention, after_attention, hidden = _dropouts(transformer)
    attention *= attention_dropout
    seeds = torch.zeros(len(layers), dtype=torch.int64, device=packed.ids.device)
    if attention or (hidden and seeds.is_cuda):
        seeds.random_(0, 2**31)
    x = _embed(transformer, packed, dtype or layers[0].query[0].dtype, hidden)
    wide = inner = None
    real, spare = len(x), 0
    if not (x.is_cuda or torch.is_grad_enabled()):  # all layers use the same memory: new pages take a tenth of the time
        if x.dtype in NARROW:  # oneDNN makes a kernel for every number of rows, which takes as long as five products
            spare = -real % ROWS
            x = F.pad(x, (0, 0, 0, spare))
        wide, inner = (x.new_empty(len(x), size) for size in (3 * config.hidden_size, len(layers[0].inner[0])))
    heads = config.num_attention_heads
    for layer, seed in zip(layers, seeds.split(1)):
        ends = first_only and layer is layers[-1]
        if ends:
            rows, inner = packed.starts[:-1].long(), None
        if ends and wide is not None and packed.types is not None and not attention:  # long inputs of two segments
            x, context = x[rows], _first_attention(x[:real], packed, rows, layer, heads)
        else:
            weights, biases = zip(layer.query, layer.key, layer.value)
            qkv = linear(x, (torch.cat(weights), torch.cat(biases)), wide).view(len(x), 3, heads, -1)
            context = attend(qkv[:real], packed, seed, config.max_position_embeddings, attention).flatten(1)
            if ends:
                x, context = x[rows], context[rows]
            elif spare:
                context = F.pad(context, (0, 0, 0, spare))
        join = partial(_add_and_norm, seed=seed, eps=getattr(config, "layer_norm_eps", 1e-12))
        x = join(x, linear(context, layer.output), layer.attention_norm, use=2, dropout=after_attention)
        active = ACTIVATIONS[_activation(config)](linear(x, layer.inner, inner), out=inner)
        x = join(x, linear(active, layer.outer), layer.norm, use=3, dropout=hidden)
    return x[:real]


def linear(x: Tensor, part: Part, out: Tensor | None = None) -> Tensor:
    weight, bias = part
    return torch.addmm(bias.to(x.dtype), x, weight.to(x.dtype).T, out=out)


def _first_attention(x: Tensor, packed: Packed, rows: Tensor, layer: Layer, heads: int) -> Tensor:
    """What the first tokens alone read, without a key or a value of any other: (K x + b) q is x (K^T q) and the same
    for all x, and the sum of p (V x + b) is V (sum of p x) + b."""
    key, value = (weight.to(x.dtype).view(heads, -1, x.shape[1]) for weight, _ in (layer.key, layer.value))
    query = linear(x[rows], layer.query).view(len(rows), heads, -1)
    asked = torch.einsum("nhe,hed->nhd", query, key).split([count for _, count in packed.groups])
    seen = []
    for (length, count), part, those in zip(packed.groups, x.split([n * count for n, count in packed.groups]), asked):
        states = part.view(count, 1, length, -1)
        scale = query.shape[-1] ** -0.5
        seen.append(F.scaled_dot_product_attention(those[:, None], states, states, scale=scale).squeeze(1))
    return torch.einsum("nhd,hed->nhe", torch.cat(seen), value).flatten(1) + layer.value[1].to(x.dtype)


def _add_and_norm(x: Tensor, change: Tensor, part: Part, seed: Tensor, use: int, dropout: float, eps: float) -> Tensor:
    """The residual connection."""
    if kernels and x.is_cuda and x.dtype != torch.float64:
        return kernels.add_and_norm(x, change, part, seed, use, dropout, eps)
    return _norm(x + F.dropout(change, dropout, dropout > 0), part, eps)


def _norm(x: Tensor, part: Part, eps: float) -> Tensor:
    """Layer normalisation, in float32 inside where the stream is narrower."""
    wide, (weight, bias) = widened(x), part
    return F.layer_norm(wide, weight.shape, weight.to(wide.dtype), bias.to(wide.dtype), eps).to(x.dtype)


def _embed(transformer: Any, packed: Packed, dtype: torch.dtype, dropout: float) -> Tensor:
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


def stack_of(transformer: Any) -> Any:
    """The part of a transformer that holds its layers."""
    return transformer.transformer if transformer.config.model_type == "distilbert" else transformer.encoder


def _layer(module: nn.Module) -> Layer:
    """The parts of a layer of the transformer, DistilBERT's or the others'."""
    names = DISTILBERT if hasattr(module, "ffn") else BERT
    return Layer(*map(part_of, attrgetter(*names.split())(module)))


def part_of(module: Any) -> Part:
    return module.weight, module.bias


def _dropouts(transformer: Any) -> tuple[float, float, float]:
    """Of attention's probabilities, of its output, and of everything else: none outside training."""
    config = transformer.config
    if not transformer.training:
        return 0.0, 0.0, 0.0
    if config.model_type == "distilbert":
        return config.attention_dropout, 0.0, config.dropout
    return config.attention_probs_dropout_prob, config.hidden_dropout_prob, config.hidden_dropout_prob


def _activation(config) -> str:
    return config.activation if config.model_type == "distilbert" else config.hidden_act
