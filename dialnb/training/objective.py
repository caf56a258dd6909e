"""What the loop asks of a method: an objective that turns a batch into a loss."""

from typing import Any

from torch import Tensor, nn

from dialnb.examples.batches import Batch
from dialnb.files import Values

Tensors = dict[str, Tensor]


class Objective(nn.Module):
    """A method: it owns its heads and nothing else. Two kinds of loss, either may be left out:

    - in-batch: ``embed`` gives per-example tensors of the local rows (heads applied), the loop gathers them over all
      processes and chunks, ``loss`` sees the whole batch;
    - averaged: ``terms`` gives mean losses over ``batch.counts[name]`` items; the loop weighs them by the counts of
      all processes and chunks, so that the sum is the mean over the whole batch.

    ``names`` are what it was configured with.
    """

    names: Values = {}  # noqa: RUF012 -- of an objective without a choice

    def embed(self, encoder: Any, batch: Batch) -> Tensors:
        return {}

    def loss(self, vectors: Tensors) -> Tensor:
        raise TypeError(f"{type(self).__name__} embeds but defines no loss")

    def terms(self, encoder: Any, batch: Batch) -> Tensors:
        return {}

    def describe(self) -> Values:
        """Configuration for provenance."""
        return {"objective": type(self).__name__, **self.names}


class Sum(Objective):
    """Several objectives at once, their losses added (TOD-BERT: response contrast plus masked language model)."""

    def __init__(self, **parts: Objective) -> None:
        super().__init__()
        self.parts: Any = nn.ModuleDict(parts)

    def embed(self, encoder: Any, batch: Batch) -> Tensors:
        return {f"{n}.{k}": v for n, part in self.parts.items() for k, v in part.embed(encoder, batch).items()}

    def loss(self, vectors: Tensors) -> Any:
        total = 0.0
        for name, part in self.parts.items():
            own = {k.removeprefix(f"{name}."): v for k, v in vectors.items() if k.startswith(f"{name}.")}
            if own:
                total = total + part.loss(own)
        return total

    def terms(self, encoder: Any, batch: Batch) -> Tensors:
        return {k: v for part in self.parts.values() for k, v in part.terms(encoder, batch).items()}

    def describe(self) -> Values:
        return {name: part.describe() for name, part in self.parts.items()}
