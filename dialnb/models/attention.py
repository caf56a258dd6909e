"""Self-attention over packed sequences: every token attends to the tokens of its own sequence, nothing is padded.

Three ways, one meaning (softmax(q k^T / sqrt(head)) v with dropout on the probabilities):

- ``grouped``: sequences of equal length are contiguous, so each group is a dense view for PyTorch's own attention.
  Exact, any device and precision; the reference.
- ``short`` (CUDA, at most 128 tokens): one Triton program per sequence and head holds the whole score matrix.
- ``flash`` (CUDA, longer): PyTorch's variable-length flash kernel.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

try:
    from dialnb.models import attention_kernel
except ImportError:  # no Triton on this machine
    attention_kernel = None

SHORT = 128


def packed_attention(
    qkv: torch.Tensor,
    groups: tuple[tuple[int, int], ...],
    starts: torch.Tensor,
    seed: torch.Tensor,
    dropout: float,
) -> torch.Tensor:
    """Attention for ``[tokens, 3, heads, size]``; ``seed`` (one int64 on the device) fixes the short kernel's mask."""
    longest = groups[-1][0]
    if has_short_kernel(qkv.device, longest):
        return attention_kernel.short_attention(qkv, starts, seed, block_size(longest), dropout)
    if qkv.is_cuda and qkv.dtype in (torch.bfloat16, torch.float16):
        return flash_attention(qkv, starts, longest, dropout)
    return grouped_attention(qkv, groups, dropout)


def has_short_kernel(device: torch.device, longest: int) -> bool:
    return device.type == "cuda" and attention_kernel is not None and longest <= SHORT


def block_size(longest: int) -> int:
    """The smallest power of two from 16 that holds the longest sequence."""
    return max(16, 1 << (longest - 1).bit_length())


def grouped_attention(qkv: torch.Tensor, groups: tuple[tuple[int, int], ...], dropout: float = 0.0) -> torch.Tensor:
    """The reference: one dense attention per group of equally long sequences."""
    outputs = []
    for (length, count), part in zip(groups, qkv.split([n * count for n, count in groups]), strict=True):
        q, k, v = part.view(count, length, *part.shape[1:]).permute(2, 0, 3, 1, 4)
        outputs.append(F.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)


def flash_attention(qkv: torch.Tensor, starts: torch.Tensor, longest: int, dropout: float) -> torch.Tensor:
    """PyTorch's variable-length flash kernel; its dropout mask comes from the device's generator."""
    q, k, v = qkv.unbind(1)
    size = q.shape[-1]
    return torch.ops.aten._flash_attention_forward(
        q, k, v, starts, starts, longest, longest, dropout, False, False, scale=size**-0.5
    )[0]
