"""An encoder's passes as CUDA graphs: recorded once for each of a few shapes, then started as a whole.

A step on 64 short texts is some hundred kernels of a few microseconds each; starting them one by one takes the host
ten times as long as the GPU takes for them. A graph starts them all at once. It needs equal shapes, so batches are
filled up with short sequences that nobody reads, to one of a few numbers of tokens.
"""

import gc
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from dialnb.models.attention import reach
from dialnb.tokens import Packed

SMALL = 20_000  # tokens of a step
LATER = 500  # passes until a recording that failed is tried again: there may be memory then


def can_replay(encoder: Any) -> bool:
    """Whether there is a GPU, and an encoder of packed tokens on it."""
    return getattr(encoder, "packed", False) and encoder.device.type == "cuda"


@contextmanager
def going_first(encoder: nn.Module) -> Iterator[None]:
    """Start kernels of small steps before those of large ones that other processes have on the same GPU: a small step
    is hundreds of short kernels, each of which would wait behind a long one."""
    if not can_replay(encoder):
        yield
        return
    before, stream = torch.cuda.current_stream(), torch.cuda.Stream(priority=-1)
    stream.wait_stream(before)
    with torch.cuda.stream(stream):
        yield
    before.wait_stream(stream)


def filled(batch: Packed) -> Packed:
    """The same batch and, after it, sequences of at most 16 tokens, so that few numbers of tokens are left."""
    tokens = len(batch.ids)
    unit = max(64, 1 << tokens.bit_length() >> 5)
    fillers = unit // 15 + 1
    total = -(-(tokens + fillers) // unit) * unit
    ends = torch.from_numpy(np.linspace(tokens, total, fillers + 1)[1:].astype(np.int32))
    ends = ends.to(batch.starts.device, non_blocking=True)
    longer: dict[str, Any] = {
        name: F.pad(row, (0, total - tokens))
        for name in ("ids", "positions", "types")
        if (row := getattr(batch, name)) is not None
    }
    return replace(batch, starts=torch.cat([batch.starts, ends]), **longer)


@dataclass
class Recorded:
    """Both passes over batches of one shape, and the tensors that they read and write."""

    batch: Packed
    states: Tensor
    gradient: Tensor | None
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph

    def read(self, batch: Packed) -> None:
        for name in ("ids", "positions", "types", "starts"):
            if getattr(batch, name) is not None:
                getattr(self.batch, name).copy_(getattr(batch, name))
        self.forward.replay()


class Graphs:
    """``encoder.states`` for batches of shapes that come again and again.

    Gradients are added to ``.grad`` where the parameters have one, in place: it must not be replaced or removed. What
    is recorded shares memory, so of passes that wait for their way back each takes a *place* with memory of its own.
    """

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        self.parameters = {name: p for name, p in encoder.named_parameters() if p.requires_grad}
        self.anchor = torch.zeros((), device=encoder.device, requires_grad=True)
        self.seen: Counter[tuple] = Counter()
        self.recorded: dict[tuple, Recorded] = {}
        self.taken: set[int] = set()
        self.pools: dict[int, Any] = {}
        self.stream: torch.cuda.Stream | None = None  # of all recordings: along a stream alone they share memory

    def __call__(self, batch: Packed, first_only: bool) -> Tensor:
        full = filled(batch)
        real = len(batch.lengths) if first_only else len(batch.ids)
        learning = torch.is_grad_enabled()
        place = next(number for number in count() if number not in self.taken) if learning else -1
        dtype = self.encoder.dtype or next(self.encoder.parameters()).dtype
        key = (
            place,
            first_only,
            self.encoder.training,
            len(full.ids),
            len(full.starts),
            batch.types is None,
            reach(batch.max_length, self.encoder.transformer.config.max_position_embeddings, full.ids.device, dtype),
        )
        self.seen[key] += 1  # the first pass is as it is: kernels are chosen, gradients are laid out
        found = self.recorded.get(key)
        if not found and self.seen[key] > 1 and (self.gradients() or not learning):
            pool = self.pools.setdefault(place, torch.cuda.graph_pool_handle())
            try:
                self.recorded[key] = found = self._record(full, first_only, learning, pool)
            except RuntimeError as error:
                self.seen[key] = -LATER
                generator = torch.cuda.default_generators[torch.cuda.current_device()]
                generator.graphsafe_set_state(generator.clone_state())  # the old state waits for the recording's end
                if not isinstance(error, torch.OutOfMemoryError):
                    warnings.warn(f"some passes go on without CUDA graphs: {error}", stacklevel=2)
        if not found:
            return self.encoder.forward(full, first_only)[:real]
        found.read(full)
        if learning:
            return _Replayed.apply(self.anchor, found, _Place(self.taken, place), real)
        return found.states[:real].clone()

    def gradients(self) -> dict[str, Tensor]:
        return {name: p.grad for name, p in self.parameters.items() if p.grad is not None}

    def _record(self, batch: Packed, first_only: bool, learning: bool, pool: Any) -> Recorded:
        forward, backward, gradient = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), None
        # Leaves of its own: gradients go to a parameter by the stream of whatever pass still waits for its way back.
        leaves = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.stream = self.stream or torch.cuda.Stream(priority=torch.cuda.current_stream().priority)
        with torch.cuda.stream(self.stream):
            with _capturing(forward, pool):
                states = functional_call(self.encoder, leaves, (batch, first_only))
            if learning:
                gradient = torch.empty_like(states)
                sums = self.gradients()
                with _capturing(backward, pool):
                    learned = [leaves[name] for name in sums]
                    found = torch.autograd.grad(states, learned, gradient, materialize_grads=True)
                    torch._foreach_add_(list(sums.values()), found)
        return Recorded(batch, states.detach(), gradient, forward, backward)


def clear_gradients(optimiser: torch.optim.Optimizer, graphs: Graphs | None) -> None:
    """Make ready for the next step: gradients that graphs add to are cleared in place. All others are taken away, or
    the optimiser would move a head that the next step does not use."""
    parameters = graphs.parameters.values() if graphs else ()
    kept = [(p, p.grad) for p in parameters if p.grad is not None]
    optimiser.zero_grad()
    for parameter, gradient in kept:
        parameter.grad = gradient
    if kept:  # none where the heads learn alone
        torch._foreach_zero_([gradient for _, gradient in kept])


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Like torch.cuda.graph, which collects garbage first: seconds, over all shapes of many short trainings. Memory
    that is given back during a recording would spoil it, so garbage waits."""
    gc.disable()
    graph.capture_begin(pool, capture_error_mode="thread_local")
    try:
        yield
    finally:
        gc.enable()
        graph.capture_end()


class _Place:
    """Held by a pass from its way there to its way back, or until it is forgotten."""

    def __init__(self, taken: set[int], number: int) -> None:
        self.taken, self.number = taken, number
        taken.add(number)

    def __del__(self) -> None:
        self.taken.discard(self.number)


class _Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor: Tensor, found: Recorded, place: _Place, real: int) -> Tensor:
        ctx.found, ctx.place = found, place
        return found.states[:real].detach()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[None, ...]:
        whole = ctx.found.gradient
        whole[: len(gradient)].copy_(gradient)
        whole[len(gradient) :].zero_()
        ctx.found.backward.replay()
        ctx.place = None
        return None, None, None, None
