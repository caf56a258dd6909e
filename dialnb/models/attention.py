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


def has_kernel(device: torch.device, dtype: torch.dtype, block: int) -> bool:
    """Whether a GPU kernel serves sequences of up to ``block`` tokens."""
    if device.type != "cuda":
        return False
    if block <= SHORT:
        return attention_kernel is not None and dtype != torch.float64
    return dtype in (torch.bfloat16, torch.float16)


def block_size(longest: int, limit: int = 512) -> int:
    """The smallest power of two from 16 that holds the longest sequence; beyond ``SHORT`` always ``limit``, the most
    that the encoder takes: flash attention skips what is not there, and a compiled stack need not be made again."""
    return max(16, 1 << (longest - 1).bit_length()) if longest <= SHORT else max(limit, longest)


def kernel_attention(qkv, starts: torch.Tensor, seed: torch.Tensor, block: int, dropout: float) -> torch.Tensor:
    """The kernel for sequences of at most ``block`` tokens."""
    if block <= SHORT:
        return attention_kernel.short_attention(qkv, starts, seed, block, dropout)
    return flash_attention(qkv, starts, block, dropout)


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
