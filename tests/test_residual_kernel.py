"""The candidate kernel for the residual connection against torch's own operations: on a GPU, else by Triton's
interpreter, which takes the place of its compiler if that is said before the kernels are read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton", reason="Triton is not installed; it comes with torch where there is a GPU")

CASES = [(48, 7, torch.float32), (384, 33, torch.float32), (48, 9, torch.bfloat16), (768, 5, torch.bfloat16)]


def agrees(width: int, rows: int, dtype: torch.dtype, device: str) -> None:
    from benchmarks import residual

    residual.PROGRAMS = 4
    torch.manual_seed(0)
    x, change = (torch.randn(rows, width, device=device).to(dtype).requires_grad_() for _ in range(2))
    part = tuple(torch.randn(width, device=device, requires_grad=True) for _ in range(2))
    gradient, inputs = torch.randn(rows, width, device=device).to(dtype), (x, change, *part)
    found = residual.add_and_norm(x, change, 0.0, part, 1e-5)
    gradients = torch.autograd.grad(found, inputs, gradient)
    known = F.layer_norm(x.float() + change.float(), (width,), *part, 1e-5)
    expected = torch.autograd.grad(known, inputs, gradient.float())
    close = {"rtol": 0.02, "atol": 0.06} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found.float(), known, **close)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one.float(), other.float(), **close)


def drops(device: str) -> None:
    """The mask is seen in the gradients: what is dropped there must have been dropped on the way here."""
    from benchmarks import residual

    torch.manual_seed(0)
    x, change = (torch.randn(60, 48, device=device, requires_grad=True) for _ in range(2))
    part = torch.ones(48, device=device), torch.zeros(48, device=device)
    found = residual.add_and_norm(x, change, 0.3, part, 1e-5)
    whole, kept = torch.autograd.grad(found, (x, change), torch.randn_like(found))
    mask = kept / whole
    assert torch.equal(mask > 0.5, mask.round(decimals=3) == round(1 / 0.7, 3))
    assert 0.25 < (mask < 0.5).float().mean() < 0.35
    torch.testing.assert_close(found, F.layer_norm(x + mask * change, (48,), *part, 1e-5), rtol=1e-3, atol=1e-4)
    assert not torch.equal(found, residual.add_and_norm(x, change, 0.3, part, 1e-5)), "another mask every time"


def test_the_kernel_does_what_torch_does():
    if torch.cuda.is_available():
        for case in CASES:
            agrees(*case, "cuda")
        drops("cuda")
        return
    root = Path(__file__).parent.parent
    paths = os.pathsep.join([str(root), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, __file__], env=environment, check=True, timeout=300, cwd=root)


if __name__ == "__main__":
    for case in CASES:
        agrees(*case, "cpu")
    drops("cpu")
