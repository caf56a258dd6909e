"""A run: one notebook at one size, with its settings, cached stages, tidy results, tables, figures and provenance.

>>> run = start("dse", profile="smoke")                                              # doctest: +SKIP
>>> run.evaluate(run.train({"BERT": Model()}), [Task("T2", ...)])                    # doctest: +SKIP
>>> run.table("T2")                                                                  # doctest: +SKIP

What is trained and evaluated is submitted, and waited for when its results are asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakMethod

from pandas import DataFrame

from dialnb.data import Dataset, Found, collection, load, named_data
from dialnb.errors import DialnbError, first_sentence, in_words
from dialnb.examples.readings import Dialogues, Lacking
from dialnb.files import (
    ITEMS,
    PACKAGED,
    Fields,
    Values,
    project_root,
    say,
    write_json,
    write_table,
)
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.runs.answers import Answers, Question, questions
from dialnb.runs.findings import AS_IT_COMES, Evaluation, Findings
from dialnb.runs.grid import Model, Models, Task, Trained, job_of, joined, reported, trainings
from dialnb.runs.planning import check_encoders, data_facts, encoder_facts
from dialnb.runs.profiles import Settings, load_profiles, run_name
from dialnb.runs.scheduler import Job, Scheduler, Stage, connected
from dialnb.runs.stages import default_cache
from dialnb.training.pretrain import PretrainingRecipe
from dialnb.training.stage import Result


def start(
    slug: str,
    profile: str = "quick",
    seed: int = 1,
    encoder: str = "",
    overrides: Fields | None = None,
    out: str | Path = "",
    executor: Executor | None = None,
) -> Run:
    """Check the parameters and open the run's folder; `run.json` stands there from now on, whatever happens.

    Stages are made by the ``executor``, if there is one: any `concurrent.futures.Executor` that shares the cache. The
    setting ``workers`` says how many workers it has.
    """
    root = project_root()
    profiles = load_profiles(slug, root)
    settings = profiles.resolve(profile, seed, encoder, overrides)
    check_encoders(profiles, settings)
    home = Path.cwd() if root == PACKAGED else root
    folder = Path(out) if out else home / "runs" / run_name(slug, profile, seed, encoder, overrides)
    run = Run(slug, profile, settings, folder.expanduser().absolute(), root, executor)
    _prepare_notebook(run)
    return run


class Run(Findings):
    """What the cells of a notebook talk to; made by `start`."""

    def __init__(
        self, slug: str, profile: str, settings: Settings, folder: Path, root: Path, executor: Executor | None = None
    ) -> None:
        super().__init__(slug, profile, settings, folder, root)
        self._opened: dict[tuple[str, str], Found] = {}  # data by paper and name, with what of them is lacking
        self._elsewhere: dict[str, Settings] = {}
        self._starts: dict[str, Stage] = {}  # what models begin from that start from no other, by name
        workers, address = settings.get("workers", 1), os.environ.get("DIALNB_EXECUTOR")
        if address and executor is None:  # of `dialnb run --executor`
            executor, workers = connected(address)
        self._scheduler = Scheduler(default_cache(), workers, executor, _without_holding(self.note_stage))
        self._scheduler.warm_up()
        say(f"run {folder.name}")

    # --- stages ---------------------------------------------------------------------------------------------------

    def stage(self, name: str, function: Callable, /, **inputs: Any) -> Any:
        """`function(**inputs)`, or its stored result if inputs and code are the same as before; made in this process.

        A function with a parameter `folder` gets a folder that outlives a killed run, for its checkpoints.
        """
        result = self._scheduler.make(str(name), Job(function, inputs))
        self.save_news()
        return result

    def submit(self, name: str, function: Callable, /, **inputs: Any) -> Stage:
        """The same, but made by the workers, while other cells run; its `result()` waits."""
        return self._scheduler.submit(str(name), lambda: Job(function, inputs))

    def wait(self) -> None:
        """Wait for everything that was submitted, so that nothing else runs."""
        self._scheduler.wait()
        self.save_news()

    # --- models and tasks -----------------------------------------------------------------------------------------

    @property
    def train_seeds(self) -> tuple[int, ...]:
        """The seeds that every model is trained with."""
        return tuple(self.settings.get("train_seeds") or (self.settings["seed"],))

    def train(self, models: Models) -> Trained:
        """Submit the models that the profile asks for, to be trained once for every training seed; the others say why
        not."""
        reasons: dict[str, str] = {}
        for name, model in models.items():
            try:
                self._check(name, model, models, reasons)
            except DialnbError as error:
                reasons[name] = first_sentence(error)
        for reason in dict.fromkeys(reasons.values()):
            names = [name for name, why in reasons.items() if why == reason]
            self.note_absent(reason, model=[dict(models[name].labels).get("model", name) for name in names])
        taken = {name: self.trained_as(model) for name, model in models.items() if name not in reasons}
        begun = trainings(taken, self.profile_of, self.train_seeds, self._encoder, self._scheduler.submit)
        stages = {key: stage.then(partial(self._reported, key[0], taken[key[0]])) for key, stage in begun.items()}
        return Trained(taken, stages)

    def _check(self, name: str, model: Model, models: Models, reasons: Mapping[str, str]) -> None:
        """Raise the reason why a model is left out: the profile does not take a row of this name, or its data or start
        are not available. What the row is made of is not the profile's business: whoever adds a row gets it."""
        if not self.wants(name):
            raise DialnbError(self.left_out(name))
        if isinstance(model.data, Lacking):
            raise DialnbError(model.data.reason)
        if model.start in reasons:
            raise DialnbError(reasons[model.start])
        if model.start and model.start not in models:
            self._encoder(model.start, self.settings["seed"])

    def _reported(self, name: str, model: Model, result: Result) -> Result:
        """The model that the rows are about; of a training that failed, the reason is noted."""
        if result.failed:
            self.note_absent(result.failed, model=name)
        return reported(model, result)

    def answers(self, trained: Trained, tasks: Sequence[Task], floors: str | Encoder = "") -> Answers:
        """Ask every task of every model and, with a model (or an encoder) that lends its word pieces, of the floors.

        A function may give a dictionary with ``rows`` and whatever else; ``items`` in it are what each test item
        scored.
        """
        pieces = None
        if isinstance(floors, Encoder):
            pieces = self._scheduler.submit("", lambda: Result(floors))
        elif floors:
            pieces = next(stage for (name, _), stage in trained.stages.items() if name == floors)
        asked = [(task, self.datasets(task)) for task in tasks]
        stages = questions(asked, trained, self.settings, self.train_seeds, pieces, self._scheduler.submit)
        return Answers(stages, trained.models, self._origin)

    def ask(self, trained: Trained, tasks: Sequence[Task]) -> DataFrame:
        """Ask and give the rows back, model by model, without keeping them: coordinates of a figure, for example."""
        answers, order = self.answers(trained, tasks), list(trained.models)
        parts = sorted(answers, key=lambda answer: order.index(answer.question.model))
        self.add_items(answers.items)
        return joined([answer.rows.assign(train_seed=answer.question.seed) for answer in parts])

    def evaluate(
        self,
        trained: Trained,
        tasks: Iterable[Task],
        floors: str | Encoder = "",
        keep: Callable[[DataFrame], DataFrame] | None = None,
    ) -> Answers:
        """Ask what the profile takes of the tasks. The rows, or what ``keep`` makes of them, join the results when
        somebody looks at these. Of the other tables, say why they are empty."""
        wanted = []
        for task in tasks:
            if self.wants(task.table, table=task.table):
                wanted.append(task)
        answers = self.answers(trained, wanted, floors)
        tables = None if keep else {task.table for task in wanted}
        self._evaluations.append(Evaluation(answers, tables, keep or (lambda rows: rows)))
        return answers

    def _origin(self, question: Question, models: Models) -> Values:
        """What tells trainings of a row apart: their seed, the encoder that they go back to and, where that is the raw
        start of the run, the seed which that was made with."""
        origin: Values = {"train_seed": question.seed, "encoder": self._start_of(question.model, models)}
        if self.settings.get("raw_start", AS_IT_COMES) != AS_IT_COMES and origin["encoder"] == self.start:
            origin["start_seed"] = question.seed if self.settings.get("raw_start_per_seed") else 1
        return origin

    def _start_of(self, name: str, models: Models) -> str:
        """The encoder that a model goes back to, as rows name it; that of a floor is "none"."""
        if name not in models:
            return "none"
        model = models[name]
        while models.get(model.start, model) is not model:  # an encoder may be a model of its own name
            model = models[model.start]
        name = (isinstance(model.recipe, PretrainingRecipe) and model.recipe.name) or model.start or self.start
        return f"{name}, {model.recipe}" if model.recipe == self.settings.get("raw_start") else name

    def corpus(self, settings: Settings | None = None) -> list[Dataset]:
        """The dialogue corpora of the profile (or of another one): what is bundled, or a collection of sources."""
        name = (settings or self.settings)["corpus"]
        if name == "bundled":
            return [load("bundled/dialogues")]
        return [load(part.dataset, part.variant) for part in collection(name) if part.paired]

    def encoder(self, seed: int | None = None) -> Encoder:
        """The encoder that the models of this run start from, after its raw start, if it has one: that of a training
        seed, or of the first; a copy."""
        seed = self.train_seeds[0] if seed is None else seed
        return self._encoder("", seed).result().model.clone()

    def _encoder(self, name: str, seed: int) -> Stage:
        """What a model starts from: an encoder as it comes or, without a name, that of the run."""
        recipe = self.settings.get("raw_start", AS_IT_COMES)
        begun = name or self.settings["encoder"]
        if name or recipe == AS_IT_COMES:
            if begun not in self._starts:
                encoder = load_encoder(begun)
                self._starts[begun] = self._scheduler.submit("", lambda: Result(encoder))
            return self._starts[begun]
        per_seed = self.settings.get("raw_start_per_seed")
        stage = f"raw start: {recipe}" + (f", seed {seed}" if per_seed else "")
        if stage not in self._starts:
            s, model = self.raw_start()
            plan = partial(job_of, s, model, load_encoder(begun), seed if per_seed else 1)
            self._starts[stage] = self._scheduler.submit(stage, plan).then(_sound)
        return self._starts[stage]

    def raw_start(self) -> tuple[Fields, Model]:
        """The model in which the encoder of the run becomes a language model again, by the setting ``raw_start`` and
        what ``train`` says of that recipe; and the settings of the profile that hold for it.

        It reads the dialogues of this run once, or those of DSE's notebook where a run has none of its own. One of seed
        1 serves the runs of all seeds, which then differ in their trainings and not in where these begin, as those from
        a published checkpoint do. With ``raw_start_per_seed`` each has one of its own seed.
        """
        s = self.settings if "dialogues" in self.settings else self.elsewhere("dse")
        recipe = self.settings["raw_start"]
        settings = {"max_steps": None} | self.settings.get("train", {}).get(recipe, {})
        return s, Model(recipe, data=Dialogues(self.corpus(s), s["dialogues"]), settings=settings)

    def elsewhere(self, slug: str) -> Settings:
        """The settings that another notebook has in this profile, from this run's encoder and seed."""
        if slug not in self._elsewhere:
            other = load_profiles(slug, self.root)
            self._elsewhere[slug] = other.resolve(self.profile, self.settings["seed"], self.settings["encoder"])
        return self._elsewhere[slug]

    def profile_of(self, model: Model) -> Settings:
        """The settings that say how a model is trained: those of this run, or of the notebook that it is from."""
        return self.elsewhere(model.as_in) if model.as_in else self.settings

    def trained_as(self, model: Model) -> Model:
        """The model with all that the profile says of its training."""
        return model.within(self.profile_of(model))

    def datasets(self, task: Task) -> dict[str, Dataset]:
        """The datasets of a task; those that cannot be had are noted in its table."""
        if not isinstance(task.data, str):
            return dict(task.data)
        for dataset, reason in self.lacking(task.data).items():
            self.note_absent(reason, task.table, dataset=dataset)
        return self.data(task.data)

    def data(self, name: str, slug: str = "") -> dict[str, Dataset]:
        """What `papers/<slug>/data.yaml` (of this paper, or another) calls ``name``, at the run's level of data."""
        return dict(self._named_data(name, slug)[0])

    def lacking(self, name: str, slug: str = "") -> dict[str, str]:
        """Why some of these data cannot be had, by dataset."""
        return self._named_data(name, slug)[1]

    def _named_data(self, name: str, slug: str) -> Found:
        if (slug, name) not in self._opened:
            self._opened[slug, name] = named_data(slug or self.slug, name, self.settings["data"], self.root)
        return self._opened[slug, name]

    # --- the folder -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write results, tables, claims, and hashes and licences of the data and encoders; the run is done."""
        self._scheduler.wait()
        self.results.to_csv(self.folder / "results.csv", index=False)
        if not self.items.empty:
            self.items.to_csv(self.folder / ITEMS, index=False)
        for name, shown in self._tables.items():
            write_table(shown, self.folder / "tables" / name)
        if self.judged is not None:
            write_json(self.folder / "claims.json", self.judged.to_dict())
        names, encoder_names = self._profiles.needed(self.profile, self.settings)
        used = self.data_read + [data_facts(*name.partition(":")[::2]) for name in names]
        data = list({(entry["name"], entry["variant"]): entry for entry in used}.values())
        encoders = [encoder_facts(name) for name in encoder_names]
        licences = sorted({entry["licence"] for entry in [*data, *encoders]})
        self.note(data=data, encoders=encoders, licences=licences)
        self._scheduler.close(wait=True)
        self._end("done")
        say(f"run {self.folder.name}: done in {time.time() - self.began:.0f} s")


def _sound(result: Result) -> Result:
    """A raw start, from which all models would start, has to be one."""
    if result.failed:
        raise DialnbError(f"the raw start failed: {result.failed}")
    return result


def _without_holding(method: Callable[..., None]) -> Callable[..., None]:
    """The method while its run is there: a run that a cell opens again goes at once, with its watch over the GPUs."""
    held = WeakMethod(method)

    def call(*given: Any) -> None:
        if bound := held():
            bound(*given)

    return call


def _prepare_notebook(run: Run) -> None:
    """In a notebook: a cell that raises writes its error into `run.json`, whoever executes the notebook; figures that a
    cell returns are shown as pictures, and no bars of other libraries stand between the lines of a run."""
    from IPython import get_ipython
    from IPython.core.pylabtools import select_figure_formats
    from transformers.utils import logging

    logging.disable_progress_bar()
    shell = get_ipython()
    if shell is None:
        return

    def after(result: Any) -> None:
        error = result.error_in_exec or result.error_before_exec
        with suppress(OSError):  # the disk may be full
            if error is None:
                run.save_news()
            else:
                run.fail(in_words(error))

    select_figure_formats(shell, {"png"}, bbox_inches=None)
    for old in [f for f in shell.events.callbacks["post_run_cell"] if getattr(f, "__module__", "") == __name__]:
        shell.events.unregister("post_run_cell", old)
    shell.events.register("post_run_cell", after)
