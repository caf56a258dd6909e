"""Small steps on a GPU, recorded once for each shape of batch and then replayed as a whole.

A step on 16 short texts is some hundred kernels of a few microseconds each; starting them one by one keeps the host
busy for ten times as long as the GPU. A CUDA graph starts them all at once. It needs equal shapes, so every batch is
filled up with short sequences that nobody reads, to one of a few numbers of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from dialnb.tokens import Tokens, offsets_of, unpack

WARM_UP = 2  # steps of a shape as they are, in which kernels are chosen and memory is found


def filled(tokens: Tokens) -> Tokens:
    """The same sequences and, after them, some of at most 16 tokens, so that few sizes of batches are left."""
    total = len(tokens.ids)
    unit = max(64, 1 << total.bit_length() >> 3)
    fillers = unit // 15 + 1
    spare = fillers + -(total + fillers) % unit
    lengths = spare // fillers + (np.arange(fillers) < spare % fillers)
    ids = np.concatenate([tokens.ids, np.full(spare, tokens.ids[0])])
    return Tokens(ids, offsets_of([*tokens.lengths, *lengths]))


class Replay:
    """Calls ``step(*batches, rows)`` for lists of token ids and the numbers of their rows.

    Where ``able``, the step sees filled batches that are packed already: what it makes of sequences beyond those of
    ``rows`` counts for nothing. What it gives back lasts until the next call, and it must not wait for the GPU.
    """

    def __init__(self, step: Callable[..., Tensor], encoder: nn.Module) -> None:
        self.step, self.device = step, encoder.device
        self.able = self.device.type == "cuda" and getattr(encoder, "packed", False)
        self.graphs: dict[tuple, tuple[torch.cuda.CUDAGraph, Tensor, list[Tensor]]] = {}
        self.seen: Counter[tuple] = Counter()
        self.pool = torch.cuda.graph_pool_handle() if self.able else None

    def __call__(self, batches: Sequence[Sequence], rows: np.ndarray) -> Tensor:
        rows = torch.from_numpy(rows)
        if not self.able:
            return self.step(*batches, rows.to(self.device))
        layouts = [filled(Tokens.from_lists(batch)).layout for batch in batches]
        key = tuple((*sizes, -(-groups[-1][0] // 16)) for _, sizes, groups in layouts)
        given = [*(flat for flat, *_ in layouts), rows.pin_memory()]
        if key not in self.graphs:
            inputs = [tensor.to(self.device, non_blocking=True) for tensor in given]

            def step() -> Tensor:
                packed = (unpack(flat, *rest) for flat, (_, *rest) in zip(inputs, layouts, strict=False))
                return self.step(*packed, inputs[-1])

            self.seen[key] += 1
            if self.seen[key] <= WARM_UP:
                return step()
            self.graphs[key] = *self._recorded(step), inputs
        graph, result, inputs = self.graphs[key]
        for place, tensor in zip(inputs, given, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.replay()
        return result

    def _recorded(self, step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """The step as a graph, and where its result will be; nothing is computed."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        with torch.cuda.stream(torch.cuda.Stream()):
            graph.capture_begin(self.pool, capture_error_mode="thread_local")
            try:
                result = step()
            finally:
                graph.capture_end()
        return graph, result


def replayed(function: Callable[[Sequence], Tensor], encoder: nn.Module) -> Callable[[Sequence], Tensor]:
    """A function from token ids to rows that is asked for the same batches again and again."""
    replay = Replay(lambda batch, rows: function(batch)[: len(rows)], encoder)
    return lambda batch: replay([batch], np.arange(len(batch)))
