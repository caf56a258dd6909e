"""The grid of a notebook: models that are trained, tasks that are asked of each, rows that come out.

>>> models = {"BERT": Model(), "DSE": Model("DSE", data=dialogues)}                             # doctest: +SKIP
>>> models["warmer"] = Model("DSE", data=dialogues, options={"temperature": 0.1})               # doctest: +SKIP
>>> trained = run.train(models)                                                                 # doctest: +SKIP
>>> run.evaluate(trained, [Task("T2", intents_of, "intents", ("limit", "shots", "seeds"))])     # doctest: +SKIP

Every training and every question is a stage, kept under the hash of what it depends on: after a change only what
changed is made again. Training seeds are a dimension of the grid: each model is trained once for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from dialnb.data import Dataset
from dialnb.data.levels import find
from dialnb.data.store import default_store
from dialnb.errors import DialnbError, Offline, TrainingError
from dialnb.evaluation.floors import WEIGHTINGS, Lexical
from dialnb.evaluation.similarity import evaluate_similarity
from dialnb.examples.readings import Lacking, Reading
from dialnb.files import read_json, write_json
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.selector import Selector
from dialnb.training import TrainingSettings
from dialnb.training.pretrain import PretrainingRecipe, pretrain
from dialnb.training.recipes import Recipe, fit, get_recipe, scaled

if TYPE_CHECKING:
    from dialnb.runs.run import Run

Job = tuple[Callable[..., Any], dict[str, Any]]
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

    evaluate: Callable[..., pd.DataFrame] | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
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
    - ``labels``: further columns of its rows.
    """

    recipe: str | Recipe | PretrainingRecipe = ""
    start: str = ""
    data: Reading | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    watch: Watch | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    pooling: str = ""
    report: int = 0  # the epoch that the rows are about, where all were kept; 0: the last

    @property
    def printed(self) -> TrainingSettings | None:
        """The settings of the paper; None where nothing is trained."""
        if not self.recipe:
            return None
        return (get_recipe(self.recipe) if isinstance(self.recipe, str) else self.recipe).settings


class Trained(Mapping):
    """What training gave, by the name of the model: ``trained["DSE"]`` is its encoder, that of the first seed.

    ``results`` has everything by name and seed: ``encoder`` (or ``selector``), ``curve``, ``training``, and what was
    watched or kept.
    """

    def __init__(self, models: Mapping[str, Model], results: Mapping[tuple[str, int], dict[str, Any]]) -> None:
        self.models, self.results = dict(models), dict(results)

    def __getitem__(self, name: str) -> Encoder | Selector:
        for (model, _), result in self.results.items():
            if model == name:
                return model_of(result)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self.results))

    def __len__(self) -> int:
        return len(list(iter(self)))

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
                labels = dict(self.models[name].labels) | {"model": name, "epoch": epoch}
                models[f"{name} after {epoch}"] = replace(self.models[name], labels=labels)
                results[f"{name} after {epoch}", seed] = {"encoder": encoder}
        return Trained(models, results)

    def times(self) -> pd.DataFrame:
        """What each training took and, where it was cut short, how long all printed epochs would take."""
        rows = []
        for name in self:
            facts, model = next(iter(self.of_seed(name).values())).get("training"), self.models[name]
            if facts is None or isinstance(model.recipe, PretrainingRecipe):
                continue
            last = facts.curve.iloc[-1]
            epochs = max(model.printed.epochs, model.settings.get("epochs") or 0)
            steps = max(facts.steps, round(epochs * last["step"] / last["epoch"]))
            seconds = facts.seconds / max(1, facts.steps - facts.resumed_at)
            took = {"model": name, "steps": facts.steps, "minutes": facts.seconds / 60}
            took |= {"GPU memory (GB)": facts.peak_memory_gb, "printed steps": steps}
            rows.append(took | {"projected hours": steps * seconds / 3600})
        return pd.DataFrame(rows).round(3)

    def of_seed(self, name: str) -> dict[int, dict[str, Any]]:
        """The results of one model by seed."""
        return {seed: result for (model, seed), result in self.results.items() if model == name}

    @property
    def curves(self) -> pd.DataFrame:
        """Loss curves: step, epoch, loss, rate, model; those of the first seed where there are several."""
        parts = []
        for name in self:
            first = next(iter(self.of_seed(name).values()))
            if "curve" in first:
                parts.append(first["curve"].assign(model=name))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"model": []})

    @property
    def watched(self) -> pd.DataFrame:
        """What was seen after every epoch, with the column ``epoch`` and the labels of each model."""
        parts = []
        for (name, seed), result in self.results.items():
            if "watched" in result:
                labels = {"model": name, "train_seed": seed} | dict(self.models[name].labels)
                parts.append(result["watched"].assign(**labels))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"value": []})


def model_of(result: Mapping[str, Any]) -> Encoder | Selector:
    """The model within what a training stage gave."""
    return result.get("selector") or result["encoder"]


def train_model(
    recipe: str | Recipe,
    encoder: Encoder,
    data: Reading,
    settings: TrainingSettings,
    options: dict[str, Any],
    watch: Watch | None,
    folder: Path,
) -> dict[str, Any]:
    """Train a model and give all that tests need: the stage behind every row of every table."""
    look = partial(_look, watch, folder) if watch else None
    try:
        made = fit(recipe, encoder, data.read(), settings, folder, default_store().tokens, options, look)
    except TrainingError as error:  # a loss that left all bounds is a result, too
        return {"failed": first_sentence(error)}
    if watch and watch.last:
        seen = [row["epoch"] for row in read_json(folder / "watched.json") or []]
        _look(watch, folder, max(seen, default=0) + 1, made.model)
    model, kept = made.model, {"curve": made.result.curve, "training": made.result}
    if (folder / "best").is_dir():
        model = _load(folder / "best", model)
    getattr(model, "encoder", model).name = recipe if isinstance(recipe, str) else recipe.name
    kept["selector" if isinstance(model, Selector) else "encoder"] = model.eval()
    if watch and watch.keep:
        places = sorted((folder / "epochs").glob("[0-9]*"), key=lambda path: int(path.name))
        kept["epochs"] = {int(path.name): load_encoder(path) for path in places}
    if watch and watch.evaluate:
        rows = read_json(folder / "watched.json") or []
        kept["watched"] = pd.DataFrame(rows)
    heads = (get_recipe(recipe) if isinstance(recipe, str) else recipe).kept_heads
    if heads:
        kept["layers"] = _head_weights(made.objective, heads)
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


def _load(folder: Path, like: Encoder | Selector) -> Encoder | Selector:
    if isinstance(like, Selector):
        return Selector.load(folder, like.encoder.device)
    return load_encoder(folder, device=like.device)


def _head_weights(objective: Any, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Weights of the named layers of an objective, as far as it has them."""
    weights = {}
    for name in names:
        layer = getattr(objective, name, None)
        if layer is not None and len(list(layer.children())):
            weights[name] = {key: tensor.detach().float().cpu() for key, tensor in layer[0].state_dict().items()}
    return weights


def make_encoder(
    recipe: PretrainingRecipe, encoder: Encoder | None, data: Reading, name: str, warm: bool, folder: Path
) -> dict[str, Any]:
    """Pretrain an encoder from scratch, with the vocabulary of ``encoder`` if any, ``warm`` with its weights."""
    words = encoder.tokenizer if encoder else None
    cache, start = default_store().tokens, encoder if warm else None
    made, result = pretrain(data.read(), recipe, folder, name=name, tokenizer=words, cache=cache, start=start)
    return {"encoder": made, "curve": result.curve, "training": result}


def agreement(encoder: Encoder, pairs: Sequence, **encoding: Any) -> pd.DataFrame:
    """Spearman's correlation of cosines with the scores of ``pairs``: what development sets choose by."""
    return evaluate_similarity(encoder, pairs, dataset="dev", **encoding)


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A question to every model: ``evaluate(encoder, records, dataset, **settings)`` gives tidy rows.

    - ``table``: where its rows go; ``name``: how its stages are called (by default the function);
    - ``data``: datasets by name, or what `papers/<slug>/data.yaml` calls them;
    - ``settings``: parameters of the profile that the function takes, or values by name;
    - ``only``: the models that are asked (default: all), or these with the labels of their rows;
    - ``floors``: what is reached without training, each with the function that asks it (None: the task's own).
    """

    table: str
    evaluate: Callable[..., Any]
    data: str | Mapping[str, Dataset]
    settings: Sequence[str] | Mapping[str, Any] = ()
    name: str = ""
    only: Sequence[str] | Mapping[str, Mapping[str, Any]] = ()
    floors: Mapping[str, Callable[..., pd.DataFrame] | None] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.name or self.evaluate.__name__.removesuffix("_of").replace("_", " ")

    def values(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What the function is called with besides encoder and records."""
        if isinstance(self.settings, Mapping):
            return dict(self.settings)
        return {name: settings[name] for name in self.settings}

    def labels_of(self, name: str, model: Model | None) -> dict[str, Any]:
        """Further columns of the rows of a model, or of a floor (None)."""
        labels = {"model": name} | ({"table": self.table} if self.table else {}) | dict(self.labels)
        labels |= {"model": name} if model is None else model.labels
        if isinstance(self.only, Mapping):
            labels |= self.only.get(name, {})
        return labels


@dataclass(frozen=True)
class Question:
    """One stage of an evaluation: a task, a dataset, and who is asked."""

    table: str
    title: str
    dataset: str
    model: str
    seed: int
    task: Task = field(compare=False)
    said: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.title}: {self.model} on {self.dataset}{self.said}"


@dataclass(frozen=True)
class Training:
    """One stage of a training: a model and a seed."""

    model: str
    seed: int
    said: str = ""

    def __str__(self) -> str:
        return f"train {self.model}{self.said}"


class Grid:
    """The models of one call of `Run.train`, as stages that wait for each other."""

    def __init__(self, run: Run, models: Mapping[str, Model], ahead: Iterable[Task] = ()) -> None:
        self.run, self.ahead = run, [task for task in ahead if run.wants(task.table)]
        self.models: dict[str, Model] = {}
        self.reasons: dict[str, str] = {}  # of the models that are left out
        for name, model in models.items():
            if self._can_be_had(name, model, models):
                self.models[name] = model
        self.seeds = training_seeds(run)
        self.results: dict[tuple[str, int], dict[str, Any]] = {}

    def _can_be_had(self, name: str, model: Model, models: Mapping[str, Model]) -> bool:
        """Whether the profile takes a model and its start is there; else the reason is noted."""
        try:
            recipe = model.recipe if isinstance(model.recipe, str) else ""
            for each in (name, recipe, model.start):
                if not self.run.wants(each):
                    raise DialnbError(self.run.left_out(each))
            if isinstance(model.data, Lacking):
                raise DialnbError(model.data.reason)
            if model.start in self.reasons:
                raise DialnbError(self.reasons[model.start])
            if model.start and model.start not in models:
                load_encoder(model.start)
        except DialnbError as error:
            self.reasons[name] = first_sentence(error)
            self.run.note_absent(self.reasons[name], model=dict(model.labels).get("model", name))
            return False
        return True

    def train(self) -> Trained:
        """Make every model as soon as what it starts from is there, and answer the questions ahead of time."""
        jobs = {}
        for name, model in self.models.items():
            if not model.recipe:
                encoder = load_encoder(model.start or self.run.settings["encoder"], model.pooling or None)
                for seed in self.seeds:  # its rows stand beside those of every training
                    self.results[name, seed] = {"encoder": encoder}
        for name, model in self.models.items():
            if model.recipe and model.start not in self.models:
                jobs |= self._trainings(name, None)
            elif model.recipe and not self.models[model.start].recipe:
                jobs |= self._trainings(name, self.results[model.start, self.seeds[0]])
        questions = {}
        for (name, seed), result in self.results.items():
            questions |= self._questions(name, seed, result)
        made = self.run.stage_each(jobs | questions, self._follow)
        for key, result in made.items():
            if isinstance(key, Training) and "failed" in result:
                self.run.note_absent(result["failed"], model=key.model)
            elif isinstance(key, Training):
                self.results[key.model, key.seed] = self._reported(key.model, result)
        order = {name: place for place, name in enumerate(self.models)}
        ordered = sorted(self.results, key=lambda key: (order[key[0]], self.seeds.index(key[1])))
        return Trained(self.models, {key: self.results[key] for key in ordered})

    def _trainings(self, name: str, start: Mapping[str, Any] | None, seeds: Sequence[int] = ()) -> dict[Training, Job]:
        """The stages of a model, one for each seed."""
        model = self.models[name]
        encoder = model_of(start) if start else load_encoder(model.start or self.run.settings["encoder"])
        jobs = {}
        for seed in seeds or self.seeds:
            said = f", seed {seed}" if len(self.seeds) > 1 else ""
            jobs[Training(name, seed, said)] = job_of(self.run.settings, model, encoder, seed, name)
        return jobs

    def _follow(self, key: Any, result: dict[str, Any]) -> dict[Any, Job]:
        """What waited for a training: models that start from it, and, with several workers, the questions to it."""
        if not isinstance(key, Training) or "failed" in result:
            return {}
        jobs: dict[Any, Job] = {}
        for name, model in self.models.items():
            if model.recipe and model.start == key.model:
                jobs |= self._trainings(name, result, (key.seed,))
        if self.run.settings.get("workers", 1) > 1:
            jobs |= self._questions(key.model, key.seed, self._reported(key.model, result))
        return jobs

    def _questions(self, name: str, seed: int, result: Mapping[str, Any]) -> dict[Question, Job]:
        if self.run.settings.get("workers", 1) == 1:
            return {}
        return questions(self.run, self.ahead, {(name, seed): result})

    def _reported(self, name: str, result: dict[str, Any]) -> dict[str, Any]:
        """The model that the rows are about, read as its row asks."""
        model = self.models[name]
        if model.report and result.get("epochs"):
            result = result | {"encoder": result["epochs"][model.report]}
        if model.pooling:
            model_of(result).pooling = model.pooling
        return result


def job_of(profile: Mapping[str, Any], model: Model, encoder: Encoder, seed: int, name: str = "") -> Job:
    """The stage that trains a model from an encoder; equal models of several notebooks are the same stage."""
    if isinstance(model.recipe, PretrainingRecipe):
        recipe = replace(model.recipe, settings=scaled(model.recipe.settings, **{"seed": seed} | dict(model.settings)))
        start = encoder if model.options.get("vocabulary", True) else None
        given = {"recipe": recipe, "encoder": start, "data": model.data, "warm": model.options.get("warm", False)}
        return make_encoder, given | {"name": model.options.get("name", recipe.shape)}
    own = {key: profile[key] for key in SHARED if key in profile}
    changes = own | {"seed": seed} | dict(model.settings)
    if changes.get("freeze", 0) < 0:  # that share of the layers, counted from below
        changes["freeze"] = encoder.transformer.config.num_hidden_layers // -changes["freeze"]
    settings = scaled(model.printed, **changes)
    watch = model.watch
    if watch and watch.keep and not watch.evaluate and settings.epochs <= 1:
        watch = None
    given = {"recipe": model.recipe, "encoder": encoder, "data": model.data, "settings": settings}
    return train_model, given | {"options": dict(model.options), "watch": watch}


# --- data -------------------------------------------------------------------------------------------------------------


CHOICE = re.compile(
    r"(?:(?P<level>bundled|sources|official) )?(?P<name>[^:\[]+?)(?::(?P<variant>[^\[]+?))?(?:\[::(?P<step>\d+)\])?"
    r"(?: as (?P<label>.+))?"
)


def choose_datasets(entries: Iterable[str | list[str]], level: str) -> tuple[dict[str, Dataset], dict[str, str]]:
    """Load what an entry of `data.yaml` names, and say of what cannot be had why not.

    Each entry is a dataset, or several of which the first is taken that the ``level`` admits and that is there. One is
    written as ``[LEVEL] NAME[:VARIANT][[::STEP]] [as LABEL]``; without a level it is ``bundled`` or, of other sources,
    ``sources``; every STEP-th record is taken; rows carry the label.
    """
    found, lacking = {}, {}
    for entry in entries:
        choices = {}
        for text in [entry] if isinstance(entry, str) else entry:
            parts = CHOICE.fullmatch(text).groupdict()
            usual = "bundled" if parts["name"].startswith("bundled/") else "sources"
            choices[parts["level"] or usual, parts["name"], parts["variant"]] = parts
        label = next(iter(choices.values()))
        try:
            dataset = find(level, *choices)
            label = next(parts for (_, name, _), parts in choices.items() if name == dataset.name)
            step = int(label["step"] or 1)
            found[_label(label)] = dataset[::step] if step > 1 else dataset
        except Offline as error:
            lacking[_label(label)] = first_sentence(error)
    return found, lacking


def _label(parts: Mapping[str, str | None]) -> str:
    return parts["label"] or parts["name"].removeprefix("bundled/")


# --- evaluation -------------------------------------------------------------------------------------------------------


def questions(
    run: Run, tasks: Iterable[Task], results: Mapping[tuple[str, int], Mapping[str, Any]]
) -> dict[Question, Job]:
    """The stages of every task, dataset and model. Data that are not there become a reason in the task's table."""
    jobs = {}
    for task in tasks:
        values = task.values(run.settings)
        for dataset, records in run.datasets(task).items():
            for (name, seed), result in results.items():
                if not task.only or name in task.only:
                    given = _given(task.evaluate, result) | {"records": records, **_with_seed(values, seed)}
                    given |= {"dataset": dataset} if "dataset" in signature(task.evaluate).parameters else {}
                    said = f", seed {seed}" if sum(each == name for each, _ in results) > 1 else ""
                    jobs[Question(task.table, task.title, dataset, name, seed, task, said)] = task.evaluate, given
    return jobs


def _with_seed(values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return {name: seed if value is TRAIN_SEED else value for name, value in values.items()}


def training_seeds(run: Run) -> tuple[int, ...]:
    """The seeds that every model of a run is trained with."""
    return tuple(run.settings.get("train_seeds", (run.settings["seed"],)))


def _given(evaluate: Callable, result: Mapping[str, Any]) -> dict[str, Any]:
    """What a function takes of a training: the model, and whatever else was kept that it names as a parameter."""
    extra = [name for name in signature(evaluate).parameters if name in result and name not in ("encoder", "selector")]
    return {"encoder": model_of(result)} | {name: result[name] for name in extra}


def floor_questions(run: Run, tasks: Iterable[Task], pieces: Encoder) -> dict[Question, Job]:
    """The stages of the floors of every task; words are the ``pieces`` of an encoder, as far as models see them."""
    jobs = {}
    for task in tasks:
        values = task.values(run.settings)
        for floor, function in task.floors.items():
            for dataset, records in run.datasets(task).items():
                words = Lexical(pieces, records, floor if floor in WEIGHTINGS else WEIGHTINGS[0])
                for seed in training_seeds(run):
                    given = {"encoder": words, "records": records, "dataset": dataset, **_with_seed(values, seed)}
                    question = Question(task.table, task.title, dataset, floor, seed, task)
                    jobs[question] = function or task.evaluate, given
    return jobs


class Answer(NamedTuple):
    """What one question gave: rows with their labels and, where the function gave more than rows, all of that."""

    question: Question
    rows: pd.DataFrame
    more: Mapping[str, Any]


def answers(run: Run, trained: Trained, tasks: Iterable[Task], floors: Encoder | None = None) -> list[Answer]:
    """Ask every task of every model and of the floors, all at once, so that no worker waits for a table to be full.

    A function may give a dictionary with ``rows`` and whatever else; ``items`` in it are what each test item scored.
    """
    tasks = list(tasks)
    jobs = questions(run, tasks, trained.results)
    if floors is not None:
        jobs |= floor_questions(run, tasks, floors)
    given = []
    for question, answer in run.stage_each(jobs).items():
        labels = question.task.labels_of(question.model, trained.models.get(question.model))
        more = answer if isinstance(answer, dict) else {"rows": answer}
        if "items" in more and question.table:
            run.add_items(more["items"], **labels, train_seed=question.seed)
        rows = more["rows"]
        rows = rows.assign(**{name: value for name, value in labels.items() if name not in rows})
        given.append(Answer(question, rows, more))
    return given


def ask(run: Run, trained: Trained, tasks: Iterable[Task]) -> pd.DataFrame:
    """Put the answers into one table, model by model; nothing is kept."""
    order = list(trained)
    parts = sorted(answers(run, trained, tasks), key=lambda answer: order.index(answer.question.model))
    return pd.concat([answer.rows for answer in parts], ignore_index=True) if parts else pd.DataFrame()


def evaluate(
    run: Run,
    trained: Trained,
    tasks: Iterable[Task],
    floors: Encoder | None = None,
    keep: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """Ask what the profile takes of the tasks and keep the rows; of the other tables, say why they are empty."""
    wanted = []
    for task in tasks:
        if run.wants(task.table):
            wanted.append(task)
        else:
            run.note_absent(run.left_out(task.table), table=task.table)
    parts = []
    for question, rows, _ in answers(run, trained, wanted, floors):
        start = start_name(run, trained.models, question.model)
        labels = {"train_seed": question.seed, "encoder": start}
        parts.append(rows.assign(**{name: value for name, value in labels.items() if name not in rows}))
    if not parts:
        return pd.DataFrame({"value": [], "table": [], "model": [], "protocol": []})
    joined = pd.concat(parts, ignore_index=True)
    run.add(keep(joined) if keep else joined)
    return joined


def start_name(run: Run, models: Mapping[str, Model], name: str) -> str:
    """The encoder that a model goes back to, as rows name it; that of a floor is "none"."""
    if name not in models:
        return "none"
    model = models[name]
    while model.start in models:
        model = models[model.start]
    return model.options.get("name") or model.start or run.settings["encoder"]


def first_sentence(error: Exception) -> str:
    """The first sentence of an error, as a reason in a table."""
    return str(error).splitlines()[0].split(". ")[0]
