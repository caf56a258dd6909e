"""What a training run is made of, apart from data and objective; and the learning-rate schedules of the papers."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, get_type_hints

from pydantic import Field

from dialnb.files import read_yaml
from dialnb.typed import LARGEST, Above0, Count, Parameter, Rate


@dataclass(frozen=True)
class TrainingSettings:
    """Hyperparameters of one run; ``epochs`` may be a fraction, ``max_steps`` cuts it short.

    With ``steps`` there are exactly so many, however many epochs these are: trainings on data of unequal size compare.

    ``chunk`` bounds how many examples a process holds activations for: a larger batch goes through a gradient cache
    with the same gradient. ``freeze`` counts frozen bottom layers, or is "half" of them (embeddings freeze with the
    first). The last batch of an epoch may be smaller than the others; ``drop_last`` leaves it out. Whoever watches a
    training looks at its encoder every ``evaluate_every`` steps (None: after whole epochs).
    """

    batch_size: Count = 1024
    epochs: Above0 = 1.0
    steps: Count | None = None
    max_steps: Count | None = None
    learning_rate: Rate = 3e-6
    head_learning_rate: Rate | None = None
    schedule: Literal["constant", "linear", "onecycle"] = "constant"
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: Annotated[float, Field(ge=0, le=LARGEST)] = 0.0
    clip: Above0 | None = None
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    attention_dropout: bool = True
    freeze: Annotated[int, Field(ge=0, le=LARGEST)] | Literal["half"] = 0
    chunk: Count | None = None
    drop_last: bool = False
    seed: Annotated[int, Field(ge=0, le=LARGEST)] = 1
    checkpoint_every: Count = 500
    evaluate_every: Count | None = None

    def __post_init__(self) -> None:
        for name, parameter in FIELDS.items():
            parameter.check(getattr(self, name))

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


FIELDS = {name: Parameter(name, kind) for name, kind in get_type_hints(TrainingSettings, include_extras=True).items()}
"""What each of the settings takes."""

PRINTED = {name: TrainingSettings(**given) for name, given in read_yaml(__file__, "settings.yaml").items()}
"""What the papers print, by recipe or paper."""
