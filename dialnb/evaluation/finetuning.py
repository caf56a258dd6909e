"""Few-shot fine-tuning as DSE's code does it: one loop with early stopping for intents, actions and responses.

AdamW without weight decay, linear decay after 5 % warm-up over the nominal number of epochs. Validation runs every
``max(eval_steps, steps per epoch)`` steps, the first time before any update; training stops at the end of an epoch
once more than ``patience`` validations in a row brought nothing. Only the weights that were best on validation are
scored on the test set. The encoder that comes in is never changed: each run trains a clone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional
from transformers import get_linear_schedule_with_warmup

from dialnb.errors import TrainingError
from dialnb.evaluation.metrics import Score
from dialnb.evaluation.sampling import few_shot_splits
from dialnb.models.encoder import Encoder
from dialnb.models.graphs import Graphs, can_replay, clear_gradients, going_first
from dialnb.models.packed import small_products
from dialnb.seeding import seeded
from dialnb.tokens import Tokens


@dataclass(frozen=True)
class FineTuning:
    """The settings of one fine-tuning task."""

    learning_rate: float
    batch_size: int
    epochs: int
    patience: int
    eval_steps: int
    max_length: int
    dropout: float = 0.0
    narrow: bool = False
    """Whether a GPU computes in bfloat16 (weights in float32), which pays for large batches, or in TF32."""

    def times(self, rate: float) -> FineTuning:
        """The same at a multiple of the learning rate: what suits BERT-base hardly moves a small encoder."""
        return replace(self, learning_rate=rate * self.learning_rate)


INTENTS = FineTuning(3e-5, batch_size=16, epochs=50, patience=5, eval_steps=10, max_length=64, dropout=0.1)
RESPONSES = FineTuning(3e-5, batch_size=100, epochs=50, patience=3, eval_steps=50, max_length=128, narrow=True)
ACTIONS = FineTuning(5e-5, batch_size=32, epochs=100, patience=3, eval_steps=30, max_length=32, dropout=0.2)
WARMUP = 0.05
"""The share of the steps in which the rate rises."""
TRAINING_SEED = 24
"""Seed of initialisation, order and dropout, the same for every split as in the authors' code."""


@small_products
def finetune(
    model: nn.Module,
    n: int,
    batch_loss: Callable[[ndarray], Tensor],
    validate: Callable[[], float],
    recipe: FineTuning,
) -> None:
    """Train ``model`` on n examples and leave it, in evaluation mode, with its best validation weights.

    ``batch_loss`` receives row numbers of the training examples; ``validate`` scores the model as it is (higher is
    better). A score must exceed 0 and every earlier one to count as an improvement.
    """
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.0, fused=True)
    total = max(1, n * recipe.epochs // recipe.batch_size)
    schedule = get_linear_schedule_with_warmup(optimiser, int(total * WARMUP), total)
    generator = np.random.default_rng(TRAINING_SEED)
    interval = max(recipe.eval_steps, -(-n // recipe.batch_size))
    best = 0.0
    fruitless = 0
    step = 0
    best_state = _copy_state(model)
    encoder: Any = getattr(model, "encoder", model)
    with seeded(TRAINING_SEED), going_first(encoder), _fast_on_gpu(encoder, recipe.narrow) as graphs:
        model.train()
        for _ in range(recipe.epochs):
            order = generator.permutation(n)
            for start in range(0, n, recipe.batch_size):
                if step % interval == 0:
                    model.eval()
                    with torch.no_grad():
                        score = validate()
                    if score > best:
                        best = score
                        fruitless = 0
                        best_state = _copy_state(model)
                    else:
                        fruitless += 1
                    model.train()
                loss = batch_loss(order[start : start + recipe.batch_size])
                clear_gradients(optimiser, graphs)
                loss.backward()
                optimiser.step()
                schedule.step()
                step += 1
            if not torch.isfinite(loss):  # weights that are not numbers stay so: a look per epoch keeps a GPU busy
                raise TrainingError(f"the fine-tuning loss became {loss.item()} by step {step}; lower the rate")
            if fruitless > recipe.patience:
                break
    model.load_state_dict(best_state)
    model.eval()


@contextmanager
def _fast_on_gpu(encoder: Encoder, narrow: bool) -> Iterator[Graphs | None]:
    """Where there is a GPU, replay the encoder's passes, in bfloat16 or in float32 with TF32 in matrix products."""
    if not can_replay(encoder):
        yield None
        return
    before = encoder.dtype, torch.get_float32_matmul_precision()
    encoder.dtype, encoder.graphs = torch.bfloat16 if narrow else None, Graphs(encoder)
    torch.set_float32_matmul_precision("high")
    try:
        yield encoder.graphs
    finally:
        encoder.dtype, encoder.graphs = before[0], None
        torch.set_float32_matmul_precision(before[1])


class Classifier(nn.Module):
    """Dropout and a linear layer on the mean-pooled output of a clone of the encoder."""

    def __init__(self, encoder: Encoder, classes: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder.clone()
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.dim, classes, device=encoder.device)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, tokens: Tokens) -> Tensor:
        return self.output(self.dropout(self.encoder.embed(tokens, pooling="mean")))


def fit_classifier(
    encoder: Encoder,
    train: tuple[Tokens, ndarray],
    validation: tuple[Tokens, ndarray],
    score: Score,
    recipe: FineTuning,
) -> Classifier:
    """Fine-tune on (tokens, targets): class numbers [n], or a 0/1 matrix [n, classes] for several labels each.

    ``score(logits, targets)`` is the validation metric. The number of classes is the width of the matrix, or one more
    than the largest class number of either part.
    """
    (tokens, targets), (held_out, held_out_targets) = train, validation
    several = targets.ndim == 2
    classes = targets.shape[1] if several else 1 + int(max(targets.max(), held_out_targets.max(initial=0)))
    with seeded(TRAINING_SEED):
        model = Classifier(encoder, classes, recipe.dropout)
    wanted = torch.as_tensor(targets.astype(np.float32) if several else targets, device=encoder.device)
    loss_of = functional.binary_cross_entropy_with_logits if several else functional.cross_entropy
    finetune(
        model,
        len(tokens),
        lambda rows: loss_of(model(tokens[rows]).float(), wanted[rows]),
        lambda: score(in_batches(model, held_out), held_out_targets),
        recipe,
    )
    return model


def few_shot_logits(
    encoder: Encoder,
    train: tuple[Sequence[str], ndarray],
    labels: Sequence[Hashable],
    test: Sequence[str],
    score: Score,
    draws: tuple[Iterable[int], Iterable[int]],
    recipe: FineTuning,
) -> Iterator[tuple[ndarray, dict[str, Any]]]:
    """Fine-tune on every draw (shots, seeds) of a few examples: the logits of the test texts, and what made them.

    ``train`` are texts and targets; the ``labels`` tell how many examples of each are drawn.
    """
    texts, targets = train
    tokens, asked = (encoder.tokenize(part, recipe.max_length) for part in (texts, test))
    for (k, seed), split in few_shot_splits(labels, *draws).items():
        learned, held_out = ((tokens[part], targets[part]) for part in (split.train, split.validation))
        logits = in_batches(fit_classifier(encoder, learned, held_out, score, recipe), asked)
        settings = {"protocol": "code", "n": len(test), "method": "fine-tuning", "seed": seed, "shots": k}
        yield logits, {**settings, "train_size": len(split.train)}


@small_products
@torch.no_grad()
def in_batches(function: Callable[[Tokens], Tensor], tokens: Tokens, batch_size: int = 256) -> ndarray:
    """``function`` over all tokens, in batches of similar length, as one array in the given order."""
    order = np.argsort(-tokens.lengths, kind="stable")
    parts = []
    for start in range(0, len(tokens), batch_size):
        batch = tokens[order[start : start + batch_size]]
        parts.append(function(batch).float().cpu().numpy())
    return np.concatenate(parts)[np.argsort(order)]


def _copy_state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
