"""What a training run is made of, apart from data and objective; and the learning-rate schedules of the papers."""

from __future__ import annotations  # the command line reads types as they are written

import math
from dataclasses import dataclass

from dialnb.errors import BadParameter, check_known
from dialnb.files import read_yaml

CHOICES = {
    "schedule": ("constant", "linear", "onecycle"),
    "optimiser": ("adam", "adamw"),
    "precision": ("float32", "bfloat16", "float64"),
}
LEAST = {"weight_decay": "0 or above", "freeze": "0 or above"}
POSITIVE = ("batch_size", "epochs", "steps", "max_steps", "learning_rate", "head_learning_rate", "clip", "chunk")
LEAST |= dict.fromkeys((*POSITIVE, "checkpoint_every", "evaluate_every"), "above 0")


@dataclass(frozen=True)
class TrainingSettings:
    """Hyperparameters of one run; ``epochs`` may be a fraction, ``max_steps`` cuts it short.

    With ``steps`` there are exactly so many, however many epochs these are: trainings on data of unequal size compare.

    ``chunk`` bounds how many examples a process holds activations for: a larger batch goes through a gradient cache
    with the same gradient. ``freeze`` counts frozen bottom layers (embeddings freeze with the first). The last batch
    of an epoch may be smaller than the others; ``drop_last`` leaves it out. Whoever watches a training looks at its
    encoder every ``evaluate_every`` steps (None: after whole epochs).
    """

    batch_size: int = 1024
    epochs: float = 1.0
    steps: int | None = None
    max_steps: int | None = None
    learning_rate: float = 3e-6
    head_learning_rate: float | None = None
    schedule: str = "constant"
    warmup: float = 0.0
    optimiser: str = "adam"
    weight_decay: float = 0.0
    clip: float | None = None
    precision: str = "float32"
    attention_dropout: bool = True
    freeze: int = 0
    chunk: int | None = None
    drop_last: bool = False
    seed: int = 1
    checkpoint_every: int = 500
    evaluate_every: int | None = None

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            check_known(name, getattr(self, name), known)
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and not (0 <= value < math.inf and (value or least != "above 0")):
                raise BadParameter(f"{name} must be {least} and finite, but is {value}")
        if not 0 <= self.seed < 2**31:
            raise BadParameter(f"seed must be a whole number from 0 to {2**31 - 1}, but is {self.seed}")
        if not 0 <= self.warmup < 1:
            raise BadParameter(f"warmup is a share of all steps, from 0 to below 1, but is {self.warmup}")

    def total_steps(self, steps_per_epoch: int) -> int:
        if self.steps is not None:
            return self.steps
        steps = max(1, math.ceil(self.epochs * steps_per_epoch - 1e-9))  # 0.07 of 100 steps are 7, whatever floats say
        return min(steps, self.max_steps) if self.max_steps is not None else steps

    def rate_factor(self, step: int, total: int) -> float:
        """Multiplier of the learning rate at 0-based ``step``; warm-up starts from 0, as Hugging Face's does."""
        if self.schedule == "onecycle":
            return _one_cycle(step, total, 1 / 25, 1, 1 / 25e4)
        warm = round(self.warmup * total)
        if step < warm:
            return step / warm
        if self.schedule == "linear":
            return max(0.0, (total - step) / max(1, total - warm))
        return 1.0

    def momentum(self, step: int, total: int) -> float:
        """Adam's first beta: 0.9, or PyTorch's one-cycle partner of the rate (0.95 down to 0.85 and back)."""
        return _one_cycle(step, total, 0.95, 0.85, 0.95) if self.schedule == "onecycle" else 0.9


def _one_cycle(step: int, total: int, start: float, top: float, end: float) -> float:
    """PyTorch's OneCycleLR with its defaults: a cosine up to the top in the first 30 % of the steps, then one down."""
    turn = 0.3 * total - 1
    if step <= turn:
        before, after, place = start, top, step / turn
    else:
        before, after, place = top, end, (step - turn) / (total - 1 - turn)
    return after + (before - after) / 2 * (1 + math.cos(math.pi * place))


PRINTED = {name: TrainingSettings(**given) for name, given in read_yaml(__file__, "settings.yaml").items()}
"""What the papers print, by recipe or paper."""
