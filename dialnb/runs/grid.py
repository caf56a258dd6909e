"""The grid of a notebook: models that are trained, tasks that are asked of each, rows that come out.

>>> models = {"BERT": Model(), "DSE": Model("DSE", data=dialogues)}                             # doctest: +SKIP
>>> models["warmer"] = Model("DSE", data=dialogues, options={"temperature": 0.1})               # doctest: +SKIP
>>> trained = run.train(models)                                                                 # doctest: +SKIP
>>> run.evaluate(trained, [Task("T2", evaluate_prototypes, "intents", ("limit", "shots", "seeds"))])  # doctest: +SKIP

Every training and every question is a stage, kept under the hash of what it depends on: after a change only what
changed is made again. Training seeds are a dimension of the grid: each model is trained once for each.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pandas import DataFrame

from dialnb.data import Dataset, default_store
from dialnb.errors import DialnbError, TrainingError, first_sentence
from dialnb.evaluation.floors import WEIGHTINGS, Lexical
from dialnb.evaluation.metrics import stacked
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.examples.readings import Lacking, Reading
from dialnb.files import Fields, Values, read_json, write_json
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.selector import Selector
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import PretrainingRecipe, pretrain
from dialnb.training.recipes import Recipe, fit, get_recipe, scaled

if TYPE_CHECKING:
    from dialnb.runs.run import Run

Job = tuple[Callable[..., Any], Values]
"""A stage to be made: its function and inputs."""

SHARED = ("batch_size", "max_steps", "precision", "chunk")
"""Settings of a profile that hold for every training of it."""

TRAIN_SEED = object()
"""As a setting of a task: the seed of the training that is asked, for functions that draw random numbers themselves."""


# --- what is trained --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watch:
    """What is looked at after every epoch of a training (or every ``evaluate_every`` steps of it).

    ``evaluate(model, **inputs)`` gives tidy rows, as the function of a task does, and they are kept; with ``best``, a
    metric among them, the model comes back as it was when that was highest. ``keep`` keeps the encoder of every epoch;
    ``last`` looks at the end as well, where a training may stop in the midst of an epoch.
    """

    evaluate: Callable[..., DataFrame] | None = None
    inputs: Fields = field(default_factory=dict)
    best: str = ""
    keep: bool = False
    last: bool = False


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


class Trained(UserDict):
    """What training gave, by the name of the model: ``trained["DSE"]`` is its encoder, that of the first seed.

    ``results`` has everything by name and seed: ``encoder`` (or ``selector``), ``curve``, ``training``, and what was
    watched or kept.
    """

    def __init__(self, models: Models, results: Mapping[tuple[str, int], Values]) -> None:
        self.models, self.results = dict(models), dict(results)
        self.firsts: dict[str, Values] = {}
        for (name, _), result in self.results.items():
            self.firsts.setdefault(name, result)
        super().__init__({name: model_of(result) for name, result in self.firsts.items()})

    def only(self, *names: str) -> Trained:
        """Pick some of the models."""
        chosen = {key: result for key, result in self.results.items() if key[0] in names}
        return Trained({name: self.models[name] for name in self.models if name in names}, chosen)

    @property
    def first(self) -> Trained:
        """Pick what was trained with the first seed."""
        seed = next((seed for _, seed in self.results), None)
        return Trained(self.models, {key: result for key, result in self.results.items() if key[1] == seed})

    @property
    def epochs(self) -> Trained:
        """The encoders that were kept after every epoch, each as a model of its own with the column ``epoch``."""
        models, results = {}, {}
        for (name, seed), result in self.results.items():
            for epoch, encoder in result.get("epochs", {}).items():
                labels = {"model": name, **self.models[name].labels, "epoch": epoch}
                models[f"{name} after {epoch}"] = replace(self.models[name], labels=labels)
                results[f"{name} after {epoch}", seed] = {"encoder": encoder}
        return Trained(models, results)

    def times(self) -> DataFrame:
        """What each training took and, where it was cut short, how long all printed epochs would take."""
        rows = []
        for name, result in self.firsts.items():
            facts, model = result.get("training"), self.models[name]
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

    def of_seed(self, name: str) -> dict[int, Values]:
        """The results of one model by seed."""
        return {seed: result for (model, seed), result in self.results.items() if model == name}

    @property
    def curves(self) -> DataFrame:
        """Loss curves: step, epoch, loss, rate, model; those of the first seed where there are several."""
        parts = [result["curve"].assign(model=name) for name, result in self.firsts.items() if "curve" in result]
        return joined(parts, "model")

    @property
    def watched(self) -> DataFrame:
        """What was seen after every epoch, with the column ``epoch`` and the labels of each model."""
        parts = []
        for (name, seed), result in self.results.items():
            if "watched" in result:
                labels = {"model": name, "train_seed": seed} | dict(self.models[name].labels)
                parts.append(result["watched"].assign(**labels))
        return joined(parts, "value")


def joined(parts: Sequence[DataFrame], *columns: str) -> DataFrame:
    """Data frames one below the other; of none, an empty one with the ``columns`` that readers ask for."""
    return stacked(parts) if parts else DataFrame(columns=list(columns), dtype=object)


def model_of(result: Fields) -> Encoder | Selector:
    """The model within what a training stage gave."""
    return result.get("selector") or result["encoder"]


def train_model(
    recipe: str | Recipe,
    encoder: Encoder,
    data: Reading,
    settings: TrainingSettings,
    options: Values,
    watch: Watch | None,
    folder: Path,
) -> Values:
    """Train a model and give all that tests need: the stage behind every row of every table."""
    look = partial(_look, watch, folder) if watch else None
    try:
        made = fit(recipe, encoder, data.read(), settings, folder, default_store().tokens, options, look)
    except TrainingError as error:  # a loss that left all bounds is a result, too
        return {"failed": first_sentence(error)}
    if watch and watch.last:
        seen = [row["epoch"] for row in read_json(folder / "watched.json") or []]
        _look(watch, folder, max(seen, default=0) + 1, made.model)
    model = made.model
    kept: Values = {"curve": made.result.curve, "training": made.result}
    if (folder / "best").is_dir():
        load = Selector.load if isinstance(model, Selector) else load_encoder
        device: Any = getattr(model, "encoder", model).device
        model = load(folder / "best", device=device)
    getattr(model, "encoder", model).name = recipe if isinstance(recipe, str) else recipe.name
    kept["selector" if isinstance(model, Selector) else "encoder"] = model.eval()
    if watch and watch.keep:
        places = sorted((folder / "epochs").glob("[0-9]*"), key=lambda path: int(path.name))
        kept["epochs"] = {int(path.name): load_encoder(path) for path in places}
    if rows := read_json(folder / "watched.json"):  # none where no epoch came to its end
        kept["watched"] = DataFrame(rows)
    if heads := get_recipe(recipe).kept_heads:
        kept["layers"] = {}
        for name in heads:
            layer = getattr(made.objective, name, None)
            if layer is not None and len(list(layer.children())):
                weights = layer[0].state_dict().items()
                kept["layers"][name] = {key: tensor.detach().float().cpu() for key, tensor in weights}
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


def make_encoder(recipe: PretrainingRecipe, encoder: Encoder | None, data: Reading, folder: Path) -> Values:
    """Pretrain an encoder, with the vocabulary of ``encoder`` if any, and its weights if the recipe says so."""
    name = recipe.name or recipe.shape
    made, result = pretrain(data.read(), recipe, folder, name=name, start=encoder, cache=default_store().tokens)
    return {"encoder": made, "curve": result.curve, "training": result}


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


class Question(NamedTuple):
    """One stage of the grid: a model and a seed and, but for its training, the dataset and the task it is asked."""

    model: str
    seed: int
    dataset: str = ""
    task: Task | None = None

    def __str__(self) -> str:
        what = f"{self.task.title}: {self.model} on {self.dataset}" if self.task else f"train {self.model}"
        return f"{what}, seed {self.seed}"


class RawStart(NamedTuple):
    """The stage that makes the encoder of a run a language model again: for one training seed, or (None) for all."""

    recipe: str
    seed: int | None = None

    def __str__(self) -> str:
        return f"raw start: {self.recipe}" + ("" if self.seed is None else f", seed {self.seed}")


Questions = dict[Question, Job]
"""Questions with the stages that answer them."""


class Answer(NamedTuple):
    """What one question gave: rows with their labels and, where the function gave more than rows, all of that."""

    question: Question
    rows: DataFrame
    more: Fields


class Grid:
    """The models of one call of `Run.train`, as stages that wait for each other."""

    def __init__(self, run: Run, models: Models, ahead: Iterable[Task], beside: Models) -> None:
        self.run, self.ahead = run, [task for task in ahead if run.wants(task.table)]
        self.beside, every = beside, {**models, **beside}
        self.models: dict[str, Model] = {}
        self.reasons: dict[str, str] = {}  # of the models that are left out
        for name, model in every.items():
            try:
                self._check(name, model, every)
                self.models[name] = run.trained_as(model)
            except DialnbError as error:
                self.reasons[name] = first_sentence(error)
        for reason in dict.fromkeys(self.reasons.values()):
            names = [name for name, why in self.reasons.items() if why == reason]
            run.note_absent(reason, model=[dict(every[name].labels).get("model", name) for name in names])
        own = [seed for model in self.models.values() for seed in model.seeds]
        self.seeds = list(dict.fromkeys([*run.train_seeds, *own]))
        self.results: dict[tuple[str, int], Values] = {}
        self.held: list[str] = []  # the models that wait for the encoder of the run

    def _check(self, name: str, model: Model, models: Models) -> None:
        """Raise the reason why a model is left out: the profile does not take a row of this name, or its data or start
        cannot be had. What the row is made of is not the profile's business: whoever adds a row gets it."""
        if not self.run.wants(name):
            raise DialnbError(self.run.left_out(name))
        if isinstance(model.data, Lacking):
            raise DialnbError(model.data.reason)
        if model.start in self.reasons:
            raise DialnbError(self.reasons[model.start])
        if model.start and model.start not in models:
            load_encoder(model.start)

    def train(self) -> Trained:
        """Make every model as soon as what it starts from is there, and answer the questions ahead of time. Where the
        encoder of the run is made first, what starts from other encoders does not wait for it."""
        first = [name for name, model in self.models.items() if not (model.recipe and model.start in self.models)]
        jobs = self.run.raw_starts(self.seeds)
        if jobs:
            self.held = [name for name in first if not self.models[name].start]
            first = [name for name in first if name not in self.held]
        there = [seed for seed in self.seeds if self.run.raw_start(seed) not in jobs]
        jobs |= self._begin(first, self.seeds) | self._begin(self.held, there)
        for key, result in self.run.stage_each(jobs, self._follow).items():
            if not isinstance(key, Question) or key.task:
                continue
            if "failed" in result:
                self.run.note_absent(result["failed"], model=key.model)
            else:
                self.results[key.model, key.seed] = self._reported(key.model, result)
        order = [(name, seed) for name in self.models for seed in self.seeds]
        made = Trained(self.models, {key: self.results[key] for key in order if key in self.results})
        return made.only(*self.models.keys() - self.beside.keys())

    def _begin(self, names: Sequence[str], seeds: Sequence[int]) -> Questions:
        """The trainings of models that start from an encoder, then the questions to those that are one."""
        jobs: Questions = {}
        asked: Questions = {}
        for name in names:
            model = self.models[name]
            starts = dict.fromkeys("" if model.start else self.run.raw_start(seed) for seed in seeds)
            for start in starts:
                alike = [seed for seed in seeds if model.start or self.run.raw_start(seed) == start]
                encoder = load_encoder(model.start) if model.start else self.run.encoder(alike[0])
                if model.recipe:
                    jobs |= self._trainings(name, encoder, alike)
                    continue
                encoder.pooling = model.pooling or encoder.pooling
                for seed in alike:  # its rows stand beside those of every training
                    self.results[name, seed] = {"encoder": encoder}
                asked |= self._waiting(name, {"encoder": encoder}, alike)
        return jobs | asked

    def _follow(self, key: Any, result: Any) -> Questions:
        if isinstance(key, RawStart):
            self.run.open_raw(key, result)
            return self._begin(self.held, [seed for seed in self.seeds if self.run.raw_start(seed) == key])
        if key.task or "failed" in result:
            return {}
        return self._waiting(key.model, result, (key.seed,))

    def _trainings(self, name: str, encoder: Any, seeds: Iterable[int]) -> Questions:
        model = self.models[name]
        wanted = sorted({*(model.seeds or self.run.train_seeds)}.intersection(seeds))
        return {Question(name, seed): job_of(self.run.profile_of(model), model, encoder, seed) for seed in wanted}

    def _waiting(self, start: str, result: Values, seeds: Sequence[int]) -> Questions:
        """What waited for a model: those that start from it and, with several workers, the questions to it."""
        jobs: Questions = {}
        for name, model in self.models.items():
            if model.recipe and model.start == start:
                jobs |= self._trainings(name, model_of(result), seeds)
        if self.run.settings.get("workers", 1) > 1:
            ahead = [task for task in self.ahead if start not in self.beside or start in task.only]
            reported = self._reported(start, result)
            jobs |= questions(self.run, ahead, {(start, seed): reported for seed in seeds})
        return jobs

    def _reported(self, name: str, result: Values) -> Values:
        """The model that the rows are about, read as its row asks."""
        model = self.models[name]
        if model.report and result.get("epochs"):
            result = {**result, "encoder": result["epochs"][model.report]}
        if model.pooling:
            model_of(result).pooling = model.pooling
        return result


def job_of(profile: Fields, model: Model, encoder: Encoder, seed: int) -> Job:
    """The stage that trains a model from an encoder; equal models of several notebooks are the same stage."""
    if isinstance(model.recipe, PretrainingRecipe):
        recipe = replace(model.recipe, settings=scaled(model.recipe.settings, **{"seed": seed} | dict(model.settings)))
        return make_encoder, {"recipe": recipe, "encoder": None if recipe.own_words else encoder, "data": model.data}
    model = model.within(profile)
    settings = scaled(model.printed, **{"seed": seed} | dict(model.settings))
    watch = model.watch
    if watch and watch.keep and not watch.evaluate and settings.epochs <= 1:
        watch = None
    given: Values = {"recipe": model.recipe, "encoder": encoder, "data": model.data, "settings": settings}
    return train_model, given | {"options": dict(model.options), "watch": watch}


# --- evaluation -------------------------------------------------------------------------------------------------------


def questions(
    run: Run,
    tasks: Iterable[Task],
    results: Mapping[tuple[str, int], Fields],
    pieces: Encoder | None = None,
) -> Questions:
    """The stages of every task, dataset and model, then of the floors, whose words are the ``pieces`` of an encoder, as
    far as models see them. Data that are not there become a reason in the task's table."""
    models, floors = {}, {}
    for task in tasks:
        values = task.values(run.settings)
        for dataset, records in run.datasets(task).items():
            for (name, seed), result in results.items():
                if not task.only or name in task.only:
                    given = {"encoder": model_of(result), "records": records, **values}
                    offered = {"dataset": dataset, **result}
                    models[Question(name, seed, dataset, task)] = _job(task.evaluate, given, offered, seed)
            for floor, function in task.floors.items() if pieces is not None else ():
                words = Lexical(pieces, records, floor if floor in WEIGHTINGS else WEIGHTINGS[0])
                for seed in dict.fromkeys([*run.train_seeds, *(seed for _, seed in results)]):
                    given = {"encoder": words, "records": records, **values}
                    job = _job(function or task.evaluate, given, {"dataset": dataset}, seed)
                    floors[Question(floor, seed, dataset, task)] = job
    return models | floors


def _job(evaluate: Callable, given: Values, offered: Values, seed: int) -> Job:
    """The call of a function: what it is ``given``, and of what is ``offered`` (the dataset's name, whatever else a
    training kept) as much as it names as a parameter."""
    taken = signature(evaluate).parameters
    inputs = {name: value for name, value in offered.items() if name in taken} | given
    return evaluate, {name: seed if value is TRAIN_SEED else value for name, value in inputs.items()}
