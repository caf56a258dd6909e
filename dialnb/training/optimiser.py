"""What is trained, and how fast: frozen layers, parameter groups, Adam."""

from typing import Any, Literal

import torch

from dialnb.errors import TrainingError
from dialnb.models.packed import stack_of
from dialnb.training.objective import Objective
from dialnb.training.settings import TrainingSettings


def freeze_bottom_layers(transformer: Any, frozen: int | Literal["half"]) -> None:
    """Freeze the embeddings and the lowest ``frozen`` layers (0: nothing)."""
    count: int = transformer.config.num_hidden_layers // 2 if isinstance(frozen, str) else frozen
    if count == 0:
        return
    stack = stack_of(transformer)
    layers = getattr(stack, "layer", None) or getattr(stack, "block", None)
    if layers is None or count > len(layers):
        raise TrainingError(f"cannot freeze {count} layers of {type(transformer).__name__}")
    modules = [transformer.get_input_embeddings(), *layers[:count]]
    modules += [module for name, module in transformer.named_children() if name.startswith("embeddings")]
    for module in modules:
        module.requires_grad_(False)


def make_optimiser(encoder, objective: Objective, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Adam or AdamW (fused), with a rate of its own for the heads; only matrices decay."""
    groups, seen = [], set()
    head_rate = settings.head_learning_rate or settings.learning_rate
    for module, rate in ((encoder, settings.learning_rate), (objective, head_rate)):
        trained = [p for p in module.parameters() if p.requires_grad and id(p) not in seen]
        seen |= {id(p) for p in trained}
        for decayed in (True, False):
            part = [p for p in trained if (p.dim() > 1) == decayed]
            if part:
                decay = settings.weight_decay if decayed else 0.0
                groups.append({"params": part, "lr": rate, "base": rate, "weight_decay": decay})
    kind = torch.optim.Adam if settings.optimiser == "adam" else torch.optim.AdamW
    return kind(groups, fused=True)
