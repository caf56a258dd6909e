"""The kernels against torch's own operations: on a GPU, else by Triton's interpreter, which takes the place of its
compiler if that is said before the kernels are read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton", reason="Triton is not installed; it comes with torch where there is a GPU")

WIDTHS = [(48, 7, torch.float32), (384, 33, torch.float32), (48, 9, torch.bfloat16), (768, 5, torch.bfloat16)]
CLOSE = {torch.bfloat16: {"rtol": 0.02, "atol": 0.06}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}


def same(found, inputs, known, gradient) -> None:
    gradients = torch.autograd.grad(found, inputs, gradient)
    expected = torch.autograd.grad(known, inputs, gradient.to(known.dtype))
    for one, other in zip((found, *gradients), (known, *expected), strict=True):
        torch.testing.assert_close(one.float(), other.float(), **CLOSE[found.dtype])


def the_residual_connection(width: int, rows: int, dtype: torch.dtype, device: str) -> None:
    from dialnb.models import kernels

    kernels.PROGRAMS = 4
    x, change = (torch.randn(rows, width, device=device).to(dtype).requires_grad_() for _ in range(2))
    part = tuple(torch.randn(width, device=device, requires_grad=True) for _ in range(2))
    seed = torch.zeros(1, dtype=torch.int64, device=device)
    found = kernels.add_and_norm(x, change, part, seed, 1, 0.0, 1e-5)
    known = F.layer_norm(x.float() + change.float(), (width,), *part, 1e-5)
    same(found, (x, change, *part), known, torch.randn(rows, width, device=device).to(dtype))


def attention(dtype: torch.dtype, device: str) -> None:
    from dialnb.models import kernels
    from dialnb.models.attention import grouped_attention

    groups = ((3, 2), (16, 1), (17, 2))
    starts = torch.tensor([0, 3, 6, 22, 39, 56], dtype=torch.int32, device=device)
    qkv = torch.randn(56, 3, 2, 16, device=device).to(dtype).requires_grad_()
    found = kernels.short_attention(qkv, starts, torch.zeros(1, dtype=torch.int64, device=device), 32, 0.0)
    same(found, (qkv,), grouped_attention(qkv, groups), torch.randn(56, 2, 16, device=device).to(dtype))


def dropout(device: str) -> None:
    """The mask is seen in the gradients: what is dropped there must have been dropped on the way here."""
    from dialnb.models import kernels

    x, change = (torch.randn(60, 48, device=device, requires_grad=True) for _ in range(2))
    part = torch.ones(48, device=device), torch.zeros(48, device=device)
    masks = []
    for number, use in ((7, 2), (7, 3), (8, 2), (7, 2)):
        seed = torch.tensor([number], device=device)
        found = kernels.add_and_norm(x, change, part, seed, use, 0.3, 1e-5)
        whole, kept = torch.autograd.grad(found, (x, change), torch.randn_like(found))
        mask = kept / whole
        assert torch.equal(mask > 0.5, mask.round(decimals=3) == round(1 / 0.7, 3))
        torch.testing.assert_close(found, F.layer_norm(x + mask * change, (48,), *part, 1e-5), rtol=1e-3, atol=1e-4)
        masks.append((mask < 0.5).double().flatten())
        assert 0.27 < masks[-1].mean() < 0.33
    assert torch.equal(masks[0], masks[3])
    among = torch.corrcoef(torch.stack([*masks[:3], masks[0].roll(1), masks[0].roll(48), masks[0].roll(64)]))
    assert (among - torch.eye(6, device=device)).abs().max() < 0.09, "masks of other seeds, uses and places are others"


def dropped_attention(device: str) -> None:
    """Expectation and variance of attention whose probabilities are dropped, over many equal sequences."""
    from dialnb.models import kernels

    copies, length, p = 400, 5, 0.3
    one = torch.randn(length, 3, 2, 16, device=device)
    starts = torch.arange(0, copies * length + 1, length, dtype=torch.int32, device=device)
    seed = torch.tensor([3], device=device)
    dropped = kernels.short_attention(one.repeat(copies, 1, 1, 1), starts, seed, 16, p).view(copies, length, 2, 16)
    q, k, v = one.permute(1, 2, 0, 3)
    weights = (q @ k.mT / 4).softmax(-1)
    variance = (weights.square() @ v.square() * p / (1 - p)).transpose(0, 1)
    error = (dropped.mean(0) - (weights @ v).transpose(0, 1)) / (variance / copies).sqrt()
    assert error.abs().max() < 4.5
    assert 0.9 < (dropped.var(0) / variance).mean() < 1.1


def everything(device: str) -> None:
    torch.manual_seed(0)
    for case in WIDTHS:
        the_residual_connection(*case, device)
    for dtype in CLOSE if device == "cuda" else [torch.float32]:  # the interpreter takes no products of bfloat16
        attention(dtype, device)
    dropout(device)
    dropped_attention(device)


def test_the_kernels_do_what_torch_does():
    if torch.cuda.is_available():
        return everything("cuda")
    root = Path(__file__).parent.parent
    paths = os.pathsep.join([str(root), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, __file__], env=environment, check=True, timeout=300, cwd=root)


if __name__ == "__main__":
    everything("cpu")
