"""The grid of a notebook: models that are trained, tasks that are asked of each, rows that come out.

>>> models = {"BERT": Model(), "DSE": Model("DSE", data=dialogues)}                             # doctest: +SKIP
>>> models["warmer"] = Model("DSE", data=dialogues, options={"temperature": 0.1})               # doctest: +SKIP
>>> trained = run.train(models)                                                                 # doctest: +SKIP
>>> run.evaluate(trained, [Task("T2", evaluate_prototypes, "intents", ("limit", "shots", "seeds"))])  # doctest: +SKIP
>>> run.table("T2")                                                                             # doctest: +SKIP

Every training and every question is a stage, kept under the hash of what it depends on: after a change only what
changed is made again. They are submitted, and waited for when a table, a figure or a claim asks for what they give.
Training seeds are a dimension of the grid: each model is trained once for each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pandas import DataFrame

from dialnb.data import Dataset
from dialnb.evaluation.metrics import stacked
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.examples.readings import Reading
from dialnb.files import Fields, Values
from dialnb.models.encoder import Encoder
from dialnb.runs.scheduler import Job, Stage
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import PretrainingRecipe
from dialnb.training.recipes import Recipe, get_recipe, scaled
from dialnb.training.stage import Result, Watch, make_encoder, train_model

SHARED = ("batch_size", "max_steps", "precision", "chunk")
"""Settings of a profile that hold for every training of it."""

TRAIN_SEED, LAYERS = object(), object()
"""As a setting of a task: the seed of the training that is asked, for functions that draw random numbers themselves;
and the layers that were trained on top of its encoder."""

Submit = Callable[..., Stage]
"""`Scheduler.submit`."""


# --- what is trained --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A row of the tables: what it starts from, and how it is trained.

    - ``recipe``: a name of `dialnb.training.recipes.RECIPES`, a `Recipe` of your own, a `PretrainingRecipe` for an
      encoder from scratch, or nothing for an encoder as it is;
    - ``start``: another model, or an encoder (bundled name, folder, hub id); empty: that of the run;
    - ``data``: what the recipe reads (`dialnb.examples.readings`);
    - ``settings``: of the training, where they differ from recipe and profile; ``options``: of the loss and examples;
    - ``as_in``: the paper whose profile trains it (empty: that of the run), ``row``: what that says in `train` of some
      of the models of a recipe;
    - ``labels``: further columns of its rows; ``seeds``: of its trainings (empty: those of the run).
    """

    recipe: str | Recipe | PretrainingRecipe = ""
    start: str = ""
    data: Reading | None = None
    settings: Fields = field(default_factory=dict)
    options: Fields = field(default_factory=dict)
    watch: Watch | None = None
    labels: Fields = field(default_factory=dict)
    pooling: str = ""
    seeds: Sequence[int] = ()
    report: int = 0  # the epoch that the rows are about, where all were kept; 0: the last
    as_in: str = ""
    row: str = ""

    @property
    def printed(self) -> TrainingSettings:
        """The settings of the paper, of a model that is trained."""
        recipe = self.recipe
        return recipe.settings if isinstance(recipe, PretrainingRecipe) else get_recipe(recipe).settings

    def within(self, profile: Fields) -> Model:
        """The model with what a profile says of its training: to all, to those of its recipe, to those of its row."""
        if not self.recipe or isinstance(self.recipe, PretrainingRecipe):
            return self
        recipe, rows = get_recipe(self.recipe), profile.get("train", {})
        settings = {key: profile[key] for key in SHARED if key in profile}
        settings |= rows.get(recipe.family or recipe.name, {}) | rows.get(self.row, {})
        return replace(self, settings=settings | dict(self.settings))


Models = Mapping[str, Model]
"""Models by the names of their rows."""


Training = tuple[str, int]
"""The name of a model, and the seed that it is trained with."""


class Trained(Mapping):
    """What was submitted to be trained, by the name of the model: ``trained["DSE"]`` waits for the encoder of the first
    seed. A training that failed is not in it.

    ``results`` waits for all: a `Result` by name and seed.
    """

    def __init__(self, models: Models, stages: Mapping[Training, Stage]) -> None:
        self.models, self.stages = dict(models), dict(stages)

    def __getitem__(self, name: str) -> Any:
        for _, result in self._results(name):
            return result.model
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.models if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __or__(self, other: Trained) -> Trained:
        """These models and others."""
        return Trained(self.models | other.models, self.stages | other.stages)

    def _results(self, name: str) -> Iterator[tuple[int, Result]]:
        for (model, seed), stage in self.stages.items():
            if model == name and not stage.result().failed:
                yield seed, stage.result()

    def of_seed(self, name: str) -> dict[int, Result]:
        """The results of one model by seed."""
        return dict(self._results(name))

    @property
    def results(self) -> dict[Training, Result]:
        return {key: stage.result() for key, stage in self.stages.items() if not stage.result().failed}

    @property
    def firsts(self) -> dict[str, Result]:
        """The results of the first seeds by model."""
        found: dict[str, Result] = {}
        for (name, _), result in self.results.items():
            found.setdefault(name, result)
        return found

    def only(self, *names: str) -> Trained:
        """Pick some of the models."""
        chosen = {key: stage for key, stage in self.stages.items() if key[0] in names}
        return Trained({name: self.models[name] for name in self.models if name in names}, chosen)

    @property
    def first(self) -> Trained:
        """Pick what is trained with the first seed."""
        first = next((seed for _, seed in self.stages), None)
        return Trained(self.models, {key: stage for key, stage in self.stages.items() if key[1] == first})

    @property
    def epochs(self) -> Trained:
        """The encoders that were kept after every epoch, each as a model of its own with the column ``epoch``."""
        models, stages = {}, {}
        for (name, seed), stage in self.stages.items():
            watch = self.models[name].watch
            for epoch in stage.result().epochs if watch and watch.keep else ():
                labels = {"model": name, **self.models[name].labels, "epoch": epoch}
                models[f"{name} after {epoch}"] = replace(self.models[name], labels=labels)
                stages[f"{name} after {epoch}", seed] = stage.then(partial(_after, epoch))
        return Trained(models, stages)

    def times(self) -> DataFrame:
        """What each training took and, where it was cut short, how long all printed epochs would take."""
        rows = []
        for name, result in self.firsts.items():
            facts, model = result.training, self.models[name]
            if facts is None or isinstance(model.recipe, PretrainingRecipe):
                continue
            last = facts.curve.iloc[-1]
            epochs = max(model.printed.epochs, model.settings.get("epochs") or 0)
            steps = max(facts.steps, round(epochs * last["step"] / last["epoch"]))
            seconds = facts.seconds / (facts.steps - facts.resumed_at or float("nan"))  # since it was interrupted
            rows.append(
                {
                    "model": name,
                    "steps": facts.steps,
                    "minutes": facts.steps * seconds / 60,
                    "GPU memory (GB)": facts.peak_memory_gb,
                    "printed steps": steps,
                    "projected hours": steps * seconds / 3600,
                }
            )
        return DataFrame(rows).round(3)

    @property
    def curves(self) -> DataFrame:
        """Loss curves: step, epoch, loss, rate, model; those of the first seed where there are several."""
        trained = [(name, result.training) for name, result in self.firsts.items()]
        return joined([facts.curve.assign(model=name) for name, facts in trained if facts], "model")

    @property
    def watched(self) -> DataFrame:
        """What was seen after every epoch, with the column ``epoch`` and the labels of each model."""
        parts = []
        for (name, seed), result in self.results.items():
            if result.watched is not None:
                labels = {"model": name, "train_seed": seed} | dict(self.models[name].labels)
                parts.append(result.watched.assign(**labels))
        return joined(parts, "value")


def joined(parts: Sequence[DataFrame], *columns: str) -> DataFrame:
    """Data frames one below the other; of none, an empty one with the ``columns`` that readers ask for."""
    return stacked(parts) if parts else DataFrame(columns=list(columns), dtype=object)


def with_labels(rows: DataFrame, labels: Fields) -> DataFrame:
    """Rows with further columns, where they do not have them."""
    return rows.assign(**{name: value for name, value in labels.items() if name not in rows})


def read_as(pooling: str, result: Result) -> Result:
    """A model with another pooling, where one is named; the weights are shared."""
    if not pooling or result.failed:
        return result
    model = copy.copy(result.model)
    model.pooling = pooling
    return replace(result, model=model)


def _after(epoch: int, result: Result) -> Result:
    return Result(result.epochs[epoch])


def reported(model: Model, result: Result) -> Result:
    """The model that the rows are about, read as its row asks."""
    if model.report and result.epochs:
        result = replace(result, model=result.epochs[model.report])
    return read_as(model.pooling, result)


def trainings(
    models: Models,
    profile_of: Callable[[Model], Fields],
    seeds: Sequence[int],
    encoder: Callable[[str, int], Stage],
    submit: Submit,
) -> dict[Training, Stage]:
    """Submit every model for every seed, each after what it starts from; ``encoder(name, seed)`` is what those start
    from that start from no model. A model that is not trained stands there for every seed that another has."""
    own = [seed for model in models.values() for seed in model.seeds]
    every = list(dict.fromkeys([*seeds, *own]))
    begun: dict[Training, Stage | None] = {}

    def begin(name: str, seed: int) -> Stage | None:
        """Submit a training after its start; None: the model, or what it starts from, has no such seed."""
        if (name, seed) not in begun:
            model, begun[name, seed] = models[name], None
            if not model.recipe:
                begun[name, seed] = encoder(model.start, seed).then(partial(read_as, model.pooling))
            elif seed in (model.seeds or seeds):
                from_model = model.start in models
                start = begin(model.start, seed) if from_model else encoder(model.start, seed)
                plan = partial(_train, profile_of(model), model, seed)
                begun[name, seed] = start and submit(f"train {name}, seed {seed}", plan, [start])
        return begun[name, seed]

    for name in models:
        for seed in every:
            begin(name, seed)
    order = [(name, seed) for name in models for seed in every]
    return {key: stage for key in order if (stage := begun[key])}


def _train(profile: Fields, model: Model, seed: int, start: Result) -> Job | Result:
    return start if start.failed else job_of(profile, model, start.model, seed)


def job_of(profile: Fields, model: Model, encoder: Encoder, seed: int) -> Job:
    """The stage that trains a model from an encoder; equal models of several notebooks are the same stage."""
    if isinstance(model.recipe, PretrainingRecipe):
        recipe = replace(model.recipe, settings=scaled(model.recipe.settings, **{"seed": seed} | dict(model.settings)))
        start = None if recipe.own_words else encoder
        return Job(make_encoder, {"recipe": recipe, "encoder": start, "data": model.data})
    model = model.within(profile)
    settings = scaled(model.printed, **{"seed": seed} | dict(model.settings))
    watch = model.watch
    if watch and watch.keep and not watch.evaluate and settings.epochs <= 1:
        watch = None
    given: Values = {"recipe": model.recipe, "encoder": encoder, "data": model.data, "settings": settings}
    return Job(train_model, given | {"options": dict(model.options), "watch": watch})


def agreement(encoder: Encoder, pairs: Sequence, **encoding: Any) -> DataFrame:
    """Spearman's correlation of cosines with the scores of ``pairs``: what development sets choose by."""
    return evaluate_similarity(encoder, pairs, dataset="dev", **encoding)


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)  # two tasks are never the same, so that they can be keys
class Task:
    """A question to every model: ``evaluate(encoder, records, dataset, **settings)`` gives tidy rows.

    - ``table``: where its rows go; ``name``: how its stages are called (by default the function);
    - ``data``: datasets by name, or what `papers/<slug>/data.yaml` calls them;
    - ``settings``: parameters of the profile that the function takes, or values by name;
    - ``only``: the models that are asked (default: all), or these with the labels of their rows;
    - ``floors``: what is reached without training, each with the function that asks it (None: the task's own);
    - ``items``: whether what each test item scored is kept, where the function says it.
    """

    table: str
    evaluate: Callable[..., Any]
    data: str | Mapping[str, Dataset]
    settings: Sequence[str] | Fields = ()
    name: str = ""
    only: Sequence[str] | Mapping[str, Fields] = ()
    floors: Mapping[str, Callable[..., DataFrame] | None] = field(default_factory=dict)
    labels: Fields = field(default_factory=dict)
    items: bool = True

    @property
    def title(self) -> str:
        return self.name or self.evaluate.__name__.removesuffix("_of").replace("_", " ")

    def values(self, settings: Fields) -> Values:
        """What the function is called with besides encoder and records."""
        if isinstance(self.settings, Mapping):
            return dict(self.settings)
        return {name: settings[name] for name in self.settings}

    def labels_of(self, name: str, model: Model | None) -> Values:
        """Further columns of the rows of a model, or of a floor (None)."""
        labels = {"model": name, "table": self.table, **self.labels}
        labels |= {"model": name} if model is None else model.labels
        if isinstance(self.only, Mapping):
            labels |= self.only.get(name, {})
        return {column: value for column, value in labels.items() if column != "table" or value}
