"""Self-attention over packed sequences: every token attends to the tokens of its own sequence.

Four ways, one meaning (softmax(q k^T / sqrt(head)) v with dropout on the probabilities):

- ``grouped``: sequences of equal length are contiguous, so each group is a dense view for PyTorch's own attention.
  Exact, any device and precision; the reference.
- ``short`` (CUDA, at most 128 tokens): one Triton program per sequence and head holds the whole score matrix.
- ``flash`` (CUDA, longer): PyTorch's variable-length flash kernel.
- ``padded`` (CUDA, what has no kernel): one dense attention with a mask. That is also how full precision reads more
  than 32 tokens: fine-tuning at 128 kept the host busy for minutes and the GPU idle, most likely compiling ``short``.
"""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dialnb.tokens import Packed

kernels: Any = None
with suppress(ImportError):  # no Triton on this machine
    from dialnb.models import kernels

NARROW = (torch.bfloat16, torch.float16)
SHORT = 128
SHORT_EXACT = 32
"""As ``SHORT``, in full precision."""


def has_kernel(device: torch.device, dtype: torch.dtype, block: int) -> bool:
    """Whether a GPU kernel serves sequences of up to ``block`` tokens."""
    if device.type != "cuda":
        return False
    narrow = dtype in NARROW
    if block <= (SHORT if narrow else SHORT_EXACT):
        return kernels is not None and dtype != torch.float64
    return narrow


def widened(x: Tensor) -> Tensor:
    """In float32 what is narrower."""
    return x.float() if x.dtype in NARROW else x


def block_size(longest: int, limit: int = 512) -> int:
    """The smallest power of two from 16 that holds the longest sequence; beyond ``SHORT`` always ``limit``, the most
    that the encoder takes: flash attention skips what is not there."""
    return max(16, 1 << (longest - 1).bit_length()) if longest <= SHORT else max(limit, longest)


def reach(longest: int, limit: int, device: torch.device, dtype: torch.dtype) -> int:
    """For what length attention on a GPU is made: batches in which that is equal may differ in their longest."""
    block = block_size(longest, limit)
    return block if has_kernel(device, dtype, block) else aligned(longest)


def aligned(longest: int) -> int:
    """The width to which sequences are padded, as the memory-efficient kernel wants a mask."""
    return -(-longest // 16) * 16


def attend(qkv: Tensor, packed: Packed, seed: Tensor, limit: int, dropout: float) -> Tensor:
    """The way that serves this device, precision and length best."""
    if not qkv.is_cuda:
        return grouped_attention(qkv, packed.groups, dropout)
    block = block_size(packed.max_length, limit)
    if not has_kernel(qkv.device, qkv.dtype, block):
        return padded_attention(qkv, packed.starts, packed.max_length, dropout)
    if block <= SHORT:
        return kernels.short_attention(qkv, packed.starts, seed, block, dropout)
    return flash_attention(qkv, packed.starts, block, dropout)


def grouped_attention(qkv: Tensor, groups: tuple[tuple[int, int], ...], dropout: float = 0.0) -> Tensor:
    """The reference: one dense attention per group of equally long sequences."""
    outputs = []
    for (length, count), part in zip(groups, qkv.split([n * count for n, count in groups]), strict=True):
        q, k, v = part.view(count, length, *part.shape[1:]).permute(2, 0, 3, 1, 4)
        outputs.append(F.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)


def padded_attention(qkv: Tensor, starts: Tensor, longest: int, dropout: float = 0.0) -> Tensor:
    """One dense attention over all sequences, each padded to the longest; the device is not waited for."""
    lengths, tokens, width = starts.diff(), len(qkv), aligned(longest)
    shift = torch.arange(len(lengths), device=qkv.device) * width - starts[:-1]
    rows = torch.repeat_interleave(shift, lengths, output_size=tokens) + torch.arange(tokens, device=qkv.device)
    dense = qkv.new_zeros(len(lengths) * width, *qkv.shape[1:]).index_copy(0, rows, qkv)
    q, k, v = dense.view(len(lengths), width, *qkv.shape[1:]).permute(2, 0, 3, 1, 4)
    inside = torch.arange(width, device=qkv.device) < lengths[:, None]
    context = F.scaled_dot_product_attention(q, k, v, attn_mask=inside[:, None, None], dropout_p=dropout)
    return context.transpose(1, 2).flatten(0, 1).index_select(0, rows)


def flash_attention(qkv: Tensor, starts: Tensor, longest: int, dropout: float) -> Tensor:
    """PyTorch's variable-length flash kernel; its dropout mask comes from the device's generator."""
    q, k, v = qkv.unbind(1)
    return torch.ops.aten._flash_attention_forward(
        q, k, v, starts, starts, longest, longest, dropout, False, False, scale=q.shape[-1] ** -0.5
    )[0]
