"""The objectives of UMS and DialogueCSE: cross-encoding with utterance manipulation, and matching-guided embeddings."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dialnb import losses
from dialnb.errors import check_known
from dialnb.examples.batches import Batch
from dialnb.tokens import Packed
from dialnb.training.objective import Objective, Tensors

AGGREGATIONS = ("I1", "I2")


class ManipulationObjective(Objective):
    """UMS: ``L = L_rs + weight (L_INS + L_DEL + L_SRCH)`` over one forward pass of all inputs of the batch.

    ``heads`` are those of a :class:`dialnb.models.selector.Selector`. Which tasks there are is decided by the examples;
    each term is a mean over its own rows, so that chunks and processes add up to the whole batch.
    """

    def __init__(self, heads: nn.ModuleDict, tasks: Sequence[str], weight: float = 1.0) -> None:
        super().__init__()
        for task in tasks:
            check_known("task", task, set(heads) - {"selection"})
        self.heads = nn.ModuleDict({name: heads[name] for name in ("selection", *tasks)})
        self.tasks, self.weight, self.names = tuple(tasks), weight, {"tasks": list(tasks), "weight": weight}

    def terms(self, encoder, batch: Batch) -> Tensors:
        states, packed = encoder.hidden(batch.tokens["inputs"])
        first = encoder.pool(states, packed, "cls")[: batch.size]
        labels = batch.tensor("labels", states.device)
        terms = {"selection": losses.manipulation_loss(self.heads["selection"](first).squeeze(-1), labels, {})}
        for task in self.tasks:
            if batch.counts[task]:
                sequence, position, mask, target = (
                    batch.tensor(f"{task}_{name}", states.device) for name in ("sequence", "position", "mask", "target")
                )
                vectors = states[packed.places(sequence, position)].to(first.dtype)
                logits = self.heads[task](vectors).squeeze(-1)
                terms[task] = self.weight * losses.manipulation_task_loss(logits, mask, target)
        return terms


class MatchingGuidedObjective(Objective):
    """DialogueCSE: each candidate against its own context-aware version (Eq. 8), turns averaged (I2) or weighed (I1).

    All texts of the batch go through the encoder once and together; a context serves every candidate of its group. A
    turn enters the matching as the mean of its tokens alone (see :func:`dialnb.losses.matching_guided_embedding`).
    """

    def __init__(self, dim: int, aggregation: str = "I2", temperature: float = 0.1) -> None:
        super().__init__()
        check_known("turn aggregation", aggregation, AGGREGATIONS)
        self.temperature, self.names = temperature, {"aggregation": aggregation, "temperature": temperature}
        self.attention = _layers(dim, 1) if aggregation == "I1" else None

    def terms(self, encoder, batch: Batch) -> Tensors:
        states, packed = encoder.hidden(batch.tokens["texts"])
        means = encoder.pool(states, packed, "mean")
        turns, candidates = (batch.tensor(name, states.device) for name in ("turns", "candidates"))
        tokens, mask = _padded(states, packed, candidates)
        loss = losses.matching_guided_loss(
            means[turns][:, :, None], (turns >= 0)[..., None], tokens, mask, **self.names, attention=self.attention
        )
        return {"matching": loss}


class SiameseObjective(Objective):
    """The SiameseBERT baselines, whose network the paper does not describe: context through Linear-ReLU-Linear, dot
    product with every candidate of its group; or, on ``both`` sides, that network on [c; r; |c - r|].

    "-s" and "-m" differ in the examples: a context of one turn, or several flattened into one sequence.
    """

    def __init__(self, dim: int, both: bool = False) -> None:
        super().__init__()
        self.both, self.names = both, {"both": both}
        self.matching = _layers(3 * dim, 1, dim) if both else _layers(dim, dim)

    def terms(self, encoder, batch: Batch) -> Tensors:
        vectors = encoder.embed(batch.tokens["texts"], "mean")
        turns, candidates = (batch.tensor(name, vectors.device) for name in ("turns", "candidates"))
        context, replies = vectors[turns[:, 0]], vectors[candidates]
        if not self.both:
            return {"matching": losses.siamese_matching_loss(self.matching(context), replies)}
        context = context[:, None].expand_as(replies)
        scores = self.matching(torch.cat([context, replies, (context - replies).abs()], -1))
        return {"matching": losses.siamese_matching_loss(scores.new_ones(len(scores), 1), scores)}


def _layers(dim: int, out: int, hidden: int = 0) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, hidden or dim), nn.ReLU(), nn.Linear(hidden or dim, out))


def _padded(states: Tensor, packed: Packed, sequences: Tensor) -> tuple[Tensor, Tensor]:
    """Token vectors ``[..., n, d]`` and mask ``[..., n]`` of the given sequences of a packed batch."""
    lengths = packed.lengths[packed.rank[sequences]]
    positions = torch.arange(packed.max_length, device=states.device)
    mask = positions < lengths[..., None]
    places = packed.places(sequences[..., None], torch.where(mask, positions, 0))
    return states[places], mask
