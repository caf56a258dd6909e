"""One model from start to end: trained, watched, and back with all that tests of it need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pandas import DataFrame
from torch import Tensor

from dialnb.data import default_store
from dialnb.errors import TrainingError, first_sentence
from dialnb.examples.readings import Reading
from dialnb.files import Fields, Values, read_json, write_json
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.selector import Selector
from dialnb.training.loop import TrainingResult
from dialnb.training.pretrain import PretrainingRecipe, pretrain
from dialnb.training.recipes import Fitted, Recipe, fit, get_recipe
from dialnb.training.settings import TrainingSettings

Layers = dict[str, dict[str, Tensor]]
"""Weights of the layers on top of an encoder, by layer and name."""


@dataclass(frozen=True)
class Watch:
    """What is looked at after every epoch of a training (or every ``evaluate_every`` steps of it).

    ``evaluate(model, **inputs)`` gives tidy rows, as the function of a task does, and they are kept; with ``best``, a
    metric among them, the model comes back as it was when that was highest. ``keep`` keeps the encoder of every epoch;
    ``last`` looks at the end as well, where a training may stop in the midst of an epoch.
    """

    evaluate: Callable[..., Any] | None = None
    inputs: Fields = field(default_factory=dict)
    best: str = ""
    keep: bool = False
    last: bool = False


@dataclass
class Result:
    """What a training gave: the model, the facts and the curve of its training, what was watched, the encoders that
    were kept after every epoch, the layers that were trained on top of it. Or the sentence that says why it failed."""

    model: Any = None  # an encoder, or a selector
    training: TrainingResult | None = None
    watched: DataFrame | None = None
    epochs: dict[int, Encoder] = field(default_factory=dict)
    layers: Layers = field(default_factory=dict)
    failed: str = ""


def train_model(
    recipe: str | Recipe,
    encoder: Encoder,
    data: Reading,
    settings: TrainingSettings,
    options: Values,
    watch: Watch | None,
    folder: Path,
) -> Result:
    """Train a model and give all that tests need: the stage behind every row of every table."""
    look = partial(_look, watch, folder) if watch else None
    try:
        made = fit(recipe, encoder, data.read(), settings, folder, default_store().tokens, options, look)
    except TrainingError as error:  # a loss that left all bounds is a result, too
        return Result(failed=first_sentence(error))
    if watch and watch.last:
        seen = [row["epoch"] for row in read_json(folder / "watched.json") or []]
        _look(watch, folder, max(seen, default=0) + 1, made.model)
    model = made.model
    if (folder / "best").is_dir():
        load = Selector.load if isinstance(model, Selector) else load_encoder
        device: Any = getattr(model, "encoder", model).device
        model = load(folder / "best", device=device)
    getattr(model, "encoder", model).name = recipe if isinstance(recipe, str) else recipe.name
    rows = read_json(folder / "watched.json")  # none where no epoch came to its end
    epochs = {}
    if watch and watch.keep:
        places = sorted((folder / "epochs").glob("[0-9]*"), key=lambda path: int(path.name))
        epochs = {int(path.name): load_encoder(path) for path in places}
    watched = DataFrame(rows) if rows else None
    return Result(model.eval(), made.result, watched, epochs, _kept_layers(made, get_recipe(recipe).kept_heads))


def _kept_layers(made: Fitted, names: Any) -> Layers:
    """The weights of the heads of an objective that tests ask for."""
    kept = {}
    for name in names:
        layer = getattr(made.objective, name, None)
        if layer is not None and len(list(layer.children())):
            weights = layer[0].state_dict().items()
            kept[name] = {key: tensor.detach().float().cpu() for key, tensor in weights}
    return kept


def _look(watch: Watch, folder: Path, epoch: int, model: Encoder | Selector) -> None:
    """Look at a model during its training. What was seen is on disk, so that a training that was interrupted goes on
    comparing with it."""
    if watch.keep:
        model.save(folder / "epochs" / str(epoch))
    if watch.evaluate is None:
        return
    path = folder / "watched.json"
    before = [row for row in read_json(path) or [] if row["epoch"] < epoch]
    seen = watch.evaluate(model, **watch.inputs)
    rows = (seen["rows"] if isinstance(seen, dict) else seen).assign(epoch=epoch)
    if watch.best:
        value = rows.loc[rows["metric"] == watch.best, "value"].fillna(-100.0).max()
        if all(value > row["value"] for row in before if row["metric"] == watch.best):
            model.save(folder / "best")
    write_json(path, before + rows.to_dict("records"))


def make_encoder(recipe: PretrainingRecipe, encoder: Encoder | None, data: Reading, folder: Path) -> Result:
    """Pretrain an encoder, with the vocabulary of ``encoder`` if any, and its weights if the recipe says so."""
    name = recipe.name or recipe.shape
    made, result = pretrain(data.read(), recipe, folder, name=name, start=encoder, cache=default_store().tokens)
    return Result(made, result)
