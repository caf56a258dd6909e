"""A run: one notebook at one size, with its settings, cached stages, tidy results, tables, figures and provenance.

>>> run = start("dse", profile="smoke")                                              # doctest: +SKIP
>>> rows = run.stage("intents", evaluate_prototypes, encoder=encoder, ...)           # doctest: +SKIP
>>> run.add(rows, model="DSE", table="T2").table("T2")                               # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, fields, is_dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from weakref import finalize

from filelock import FileLock, Timeout
from matplotlib.figure import Figure
from pandas import DataFrame

from dialnb.claims import judge_claims, load_claims, training_shares
from dialnb.claims.comparison import compare_table
from dialnb.claims.papers import select
from dialnb.data import Dataset, Found, collection, load, named_data
from dialnb.errors import DialnbError, in_words
from dialnb.examples.readings import Dialogues
from dialnb.files import (
    ITEMS,
    LOCK,
    MEASURED,
    PACKAGED,
    Fields,
    Values,
    as_list,
    make_folder,
    project_root,
    say,
    time_of,
    write_json,
    write_table,
)
from dialnb.models.encoder import Encoder, load_encoder
from dialnb.models.places import encoder_name
from dialnb.runs.figures import save_figure
from dialnb.runs.fingerprints import hashed_once
from dialnb.runs.grid import Answer, Grid, Model, Models, Question, RawStart, Task, Trained, job_of, joined, questions
from dialnb.runs.planning import check_encoders, data_facts, encoder_facts
from dialnb.runs.profiles import PROFILES, Settings, load_profiles, run_name
from dialnb.runs.provenance import determinism, provenance, watch_gpus
from dialnb.runs.stages import Jobs, StageRecord, Workers, default_cache, peak_memory
from dialnb.training.pretrain import PretrainingRecipe

AS_IT_COMES = "as it comes"


def start(
    slug: str,
    profile: str = "quick",
    seed: int = 1,
    encoder: str = "",
    overrides: Fields | None = None,
    out: str | Path = "",
) -> Run:
    """Check the parameters and open the run's folder; `run.json` stands there from now on, whatever happens."""
    root = project_root()
    profiles = load_profiles(slug, root)
    settings = profiles.resolve(profile, seed, encoder, overrides)
    check_encoders(profiles, settings)
    home = Path.cwd() if root == PACKAGED else root
    folder = Path(out) if out else home / "runs" / run_name(slug, profile, seed, encoder, overrides)
    run = Run(slug, profile, settings, folder.expanduser().absolute(), root)
    _prepare_notebook(run)
    return run


class Sentence(str):
    """Text that a notebook shows as text, without the quotes of a string."""

    def _repr_markdown_(self) -> str:
        return self


class Run:
    """What the cells of a notebook talk to; made by `start`."""

    def __init__(self, slug: str, profile: str, settings: Settings, folder: Path, root: Path) -> None:
        self.slug, self.profile, self.settings, self.folder, self.root = slug, profile, settings, folder, root
        self.results, self.items = DataFrame(), DataFrame()
        self.missing: list[dict[str, str]] = []
        self.stages: list[StageRecord] = []
        self.facts: Values = {}
        self.judged = None
        self._tables: dict[str, DataFrame] = {}
        self._profiles = load_profiles(slug, root)
        self._data: list[Values] = []
        self._opened: dict[Any, Any] = {}  # what a run opens once: data with what of them is lacking, and its raw start
        self._cache = default_cache()
        self._workers = Workers(settings.get("workers", 1), self._cache)
        self._made: set[str] | None = None  # keys of stages that workers of this run made, once they were asked
        self._began = time.time()
        self._lock = FileLock(make_folder(folder) / LOCK, is_singleton=True)  # a cell may open the run again
        with suppress(Timeout):  # `dialnb run` holds it for its kernel
            self._lock.acquire(timeout=0)
        self._state = {"status": "running", "reason": ""}
        self._provenance = provenance()
        self._watched = finalize(self, watch_gpus(folder / "gpu.csv"))  # a cell that opens the run again ends it, too
        self.save()
        self._workers.warm_up()
        say(f"run {folder.name}")

    # --- stages ---------------------------------------------------------------------------------------------------

    def stage(self, name: str, function: Callable, /, **inputs: Any) -> Any:
        """`function(**inputs)`, or its stored result if inputs and code are the same as before.

        A function with a parameter `folder` gets a folder that outlives a killed run, for its checkpoints.
        """
        if self._made is None:
            say(f"stage {name}")
        result, record = self._cache.run(str(name), function, inputs)
        self._note(record, inputs)
        self.save()
        return result

    def _note(self, record: StageRecord, inputs: Values) -> None:
        """Keep that a stage is there, and which data it read."""
        for dataset in _datasets_in(list(inputs.values())):
            facts = {"name": dataset.name, "variant": dataset.variant, "licence": dataset.licence}
            self._data.append(facts | {"fingerprint": dataset.fingerprint[:16]})
        if record.key in (self._made or ()):  # by a worker, which said so
            record.cached = False
        elif record.cached:
            say(f"stage {record.name}: from the cache, made {record.made[:16]}")
        else:
            say(f"stage {record.name}: done in {record.seconds:.1f} s")
        same = record.name, record.key
        self.stages = [kept for kept in self.stages if (kept.name, kept.key) != same] + [record]

    @hashed_once()
    def stage_each(self, jobs: Jobs, follow: Callable[[Any, Any], Jobs] | None = None) -> dict[Any, Any]:
        """Several stages that do not depend on each other, `{name: (function, inputs)}`, and their results by name.

        `follow(name, result)` names the stages that waited for one of them. With the setting `workers` above one all
        are made side by side, each in a process of its own, as soon as what they wait for is there.
        """
        every, results, read = dict(jobs), {}, {}

        def begin(name: Any) -> Jobs:
            read[name] = self._cache.run(str(name), *every[name])
            more = follow(name, read[name][0]) if follow else {}
            every.update(more)
            return more

        if self._workers.count > 1:
            self._made = self._workers.make(jobs, begin).union(self._made or ())
        while left := [name for name in every if name not in results]:
            for name in left:
                if name in read:  # as soon as a worker had made it
                    results[name], record = read[name]
                    self._note(record, every[name][1])
                    continue
                function, inputs = every[name]
                results[name] = self.stage(name, function, **inputs)
                every.update(follow(name, results[name]) if follow else {})
        self.save()
        return results

    def note(self, **facts: Any) -> None:
        """Record facts of the run in `run.json`."""
        self.facts.update(facts)

    # --- models and tasks -----------------------------------------------------------------------------------------

    @property
    def train_seeds(self) -> tuple[int, ...]:
        """The seeds that every model is trained with."""
        return tuple(self.settings.get("train_seeds") or (self.settings["seed"],))

    def train(self, models: Models, ahead: Iterable[Task] = (), beside: Mapping[str, Model] = {}) -> Trained:
        """Train the models that the profile asks for, once for every training seed; the others say why not.

        Models that later cells train are made ``beside`` these. With several workers no one waits for another, and the
        tasks ``ahead`` are asked of each model as soon as it is there (of those beside: tasks that are for them only).
        """
        return Grid(self, models, ahead, beside).train()

    def answers(self, trained: Trained, tasks: Sequence[Task], floors: Encoder | None = None) -> list[Answer]:
        """Ask every task of every model and, with an encoder for them, of the floors, all at once, so that no worker
        waits for a table to be full; what each question gave.

        A function may give a dictionary with ``rows`` and whatever else; ``items`` in it are what each test item
        scored.
        """
        answers, items = [], []
        for question, answer in self.stage_each(questions(self, tasks, trained.results, floors)).items():
            labels = question.task.labels_of(question.model, trained.models.get(question.model))
            more = answer if isinstance(answer, dict) else {"rows": answer}
            if "items" in more and question.task.table and question.task.items:
                own = self._origin(question, trained.models)
                items.append(_with_labels(more["items"], own | labels))
            answers.append(Answer(question, _with_labels(more["rows"], labels), more))
        if items:
            self.add_items(joined(items))
        return answers

    def ask(self, trained: Trained, tasks: Sequence[Task]) -> DataFrame:
        """Ask and give the rows back, model by model, without keeping them: coordinates of a figure, for example."""
        order = list(trained)
        parts = sorted(self.answers(trained, tasks), key=lambda answer: order.index(answer.question.model))
        return joined([answer.rows.assign(train_seed=answer.question.seed) for answer in parts])

    def evaluate(
        self,
        trained: Trained,
        tasks: Iterable[Task],
        floors: Encoder | None = None,
        keep: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> DataFrame:
        """Ask what the profile takes of the tasks; the rows that ``keep`` lets pass join the results. Of the other
        tables, say why they are empty."""
        wanted = []
        for task in tasks:
            if self.wants(task.table, table=task.table):
                wanted.append(task)
        parts = []
        for question, rows, _ in self.answers(trained, wanted, floors):
            parts.append(_with_labels(rows, self._origin(question, trained.models)))
        rows = joined(parts, "value", "table", "model", "protocol")
        if parts:
            self.add(keep(rows))
        return rows

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

    @property
    def start(self) -> str:
        """How rows name the encoder that the models of this run start from."""
        again = self.settings.get("raw_start", AS_IT_COMES)
        return self.settings["encoder"] if again == AS_IT_COMES else f"{self.settings['encoder']}, {again}"

    def encoder(self, seed: int | None = None) -> Encoder:
        """The encoder that the models of this run start from, after its raw start, if it has one: that of a training
        seed, or of the first."""
        seed = self.train_seeds[0] if seed is None else seed
        for raw, (function, inputs) in self.raw_starts([seed]).items():
            self.open_raw(raw, self.stage(str(raw), function, **inputs))
        if (raw := self.raw_start(seed)) in self._opened:
            return deepcopy(self._opened[raw])  # a row may read it with another pooling
        return load_encoder(self.settings["encoder"])

    def raw_start(self, seed: int) -> RawStart:
        """What the trainings of a seed start from, with the setting ``raw_start``.

        One of seed 1 serves the runs of all seeds, which then differ in their trainings and not in where these begin,
        as those from a published checkpoint do. With ``raw_start_per_seed`` each has one of its own seed.
        """
        recipe = self.settings.get("raw_start", AS_IT_COMES)
        return RawStart(recipe, seed if self.settings.get("raw_start_per_seed") else None)

    def raw_starts(self, seeds: Iterable[int]) -> Jobs:
        """The stages that are asked for and not made yet, in which a sentence encoder becomes a language model again.

        The recipe reads the dialogues of this run once, or those of DSE's notebook where a run has none of its own.
        """
        wanted = [raw for raw in dict.fromkeys(map(self.raw_start, seeds)) if raw not in self._opened]
        if not wanted or wanted[0].recipe == AS_IT_COMES:
            return {}
        s = self.settings if "dialogues" in self.settings else self.elsewhere("dse")
        data, encoder = Dialogues(self.corpus(s), s["dialogues"]), load_encoder(self.settings["encoder"])
        own = self.settings.get("train", {}).get(wanted[0].recipe, {})
        model = Model(wanted[0].recipe, data=data, settings={"max_steps": None} | own)
        return {raw: job_of(s, model, encoder, 1 if raw.seed is None else raw.seed) for raw in wanted}

    def open_raw(self, raw: RawStart, result: Fields) -> None:
        """Start from what a stage of :meth:`raw_starts` gave."""
        if "failed" in result:
            raise DialnbError(f"the raw start failed: {result['failed']}")
        self._opened[raw] = result["encoder"]

    def elsewhere(self, slug: str) -> Settings:
        """The settings that another notebook has in this profile, from this run's encoder and seed."""
        if slug not in self._opened:
            other = load_profiles(slug, self.root)
            self._opened[slug] = other.resolve(self.profile, self.settings["seed"], self.settings["encoder"])
        return self._opened[slug]

    def profile_of(self, model: Model) -> Settings:
        """The settings that say how a model is trained: those of this run, or of the notebook that it is from."""
        return self.elsewhere(model.as_in) if model.as_in else self.settings

    def trained_as(self, model: Model) -> Model:
        """The model with all that the profile says of its training."""
        return model.within(self.profile_of(model))

    def wants(self, name: str, **rows: Any) -> bool:
        """Whether the profile takes a model or a table: those that a list of its parameters offers must be in it. If
        not, the reason is noted for the ``rows`` (as in `note_absent`), where these are named."""
        takes = self._profiles.takes(name, self.settings)
        if rows and not takes:
            self.note_absent(self.left_out(name), **rows)
        return takes

    def left_out(self, name: str = "") -> str:
        """The reason of what the profile leaves out, with the smallest larger one that has it."""
        larger = PROFILES[max(PROFILES.index(self.profile) + 1, 0 if name else 2) :]
        for each in larger:
            if each in self._profiles.profiles and self._profiles.takes(name, self._profiles.resolve(each)):
                return f"left out of the {self.profile} profile to keep its time; it runs with '{each}'"
        return f"left out of the {self.profile} profile to keep its time"

    def note_absent(self, reason: str, table: str = "", **labels: str | Sequence[str]) -> None:
        """Say why rows are missing, in the log and under the table: those of a ``model``, a ``dataset`` or a ``column``
        (or of several of them), in one table or in all."""
        rows = product(*map(as_list, labels.values()))
        entries = [{"table": table, **dict(zip(labels, names)), "reason": reason} for names in rows]
        if new := [entry for entry in entries if entry not in self.missing]:
            names = dict.fromkeys(", ".join(entry[label] for label in labels) for entry in new)
            say(f"not run: {'; '.join(names) or table}{f' in {table}' if labels and table else ''}: {reason}")
        for entry in entries:
            self.missing = [other for other in self.missing if other | {"reason": reason} != entry] + [entry]

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

    # --- results --------------------------------------------------------------------------------------------------

    def add(self, rows: DataFrame, **labels: Any) -> Run:
        """Keep tidy rows, with `labels` (model, table ...) as further columns; the run's encoder and the seed of its
        trainings unless they are named.

        A measurement that is there already is replaced, so that a cell can be run twice.
        """
        if "value" not in rows:
            raise DialnbError(f"results are tidy rows with a column 'value', not {', '.join(map(str, rows.columns))}")
        usual = {"encoder": self.start} if "encoder" in self.settings else {}
        rows = _with_labels(rows.assign(**labels), usual | {"train_seed": self.settings["seed"]})
        if "encoder" in rows:
            rows["encoder"] = rows["encoder"].map(encoder_name, na_action="ignore")
        self.results = _latest([self.results, rows], MEASURED)
        return self

    def add_items(self, rows: DataFrame, **labels: Any) -> Run:
        """Keep what each test item scored (tidy rows with a column `item`), for comparisons paired over items."""
        rows = _with_labels(rows.assign(**labels), {"train_seed": self.settings["seed"]})
        if "encoder" in rows:
            rows["encoder"] = rows["encoder"].map(encoder_name, na_action="ignore")
        self.items = _latest([self.items, rows], ("value",))
        return self

    def rows(self, table: str) -> DataFrame:
        """The tidy rows of one table so far."""
        return self.results[self.results["table"] == table] if "table" in self.results else self.results

    def summary(
        self, table: str, index: list[str], columns: list[str], digits: int = 2, **where: Any
    ) -> DataFrame | Sentence:
        """Means over seeds of a table's rows by ``index`` and ``columns``, for what the paper does not print; without
        rows, the sentence that says why."""
        rows = select(self.rows(table), where)
        if rows.empty:
            reasons = [entry["reason"] for entry in self.missing if entry["table"] == table]
            return Sentence(f"Not run: {(reasons or [self.left_out()])[0]}.")
        rows = rows.assign(**rows[[*index, *columns]].convert_dtypes())  # shots and candidates are whole numbers
        return rows.pivot_table("value", index, columns, sort=False).round(digits)

    def times(self, trained: Trained) -> DataFrame:
        """What the trainings took; the whole table goes to `tables/`, the first lines are shown."""
        times = self._tables["training-times"] = trained.times()
        if len(times) > 8:
            say(f"the first 8 of {len(times)} trainings; tables/training-times.csv has all of them")
        return times.head(8)

    def table(self, table: str) -> Any:
        """The published table with ours beside it, to be shown; written to `tables/` when the run finishes."""
        shown = self.rows(table)
        if (self.root / "papers" / self.slug / "cells.yaml").is_file():
            rest = {"table": table, "reason": self.left_out()}  # for cells that nothing else explains
            shown = compare_table(self.slug, table, self.results, [*self.missing, rest])
            shown = replace(shown, command=self.command(table))
        self._tables[table] = shown
        return shown

    def command(self, table: str) -> str:
        """The one command that makes a table of this run."""
        command = f"dialnb run {self.slug} --profile {self.profile} --seed {self.settings['seed']}"
        if "encoder" in self.settings.by_hand:
            command += f" --encoder {encoder_name(self.settings['encoder'])}"
        if table in getattr(self._profiles.parameters.get("tables"), "choices", ()):
            command += f" --set tables={table}"
        return command

    def figure(
        self,
        name: str,
        figure: Callable | Figure,
        *,
        data: DataFrame,
        caption: str,
        alt: str,
        otherwise: str = "",
        **arguments: Any,
    ) -> Figure | Sentence:
        """Save a figure with the data it was drawn from. Give a function of `dialnb.plots` to be called with `data` and
        `arguments`: such a figure can be drawn again in another style or format (`dialnb figures`).

        Without data it is not drawn: the reason, ``otherwise``, is noted and stands in its place.
        """
        if data.empty:
            reason = otherwise or self.left_out(name)
            self.note_absent(reason, name)
            return Sentence(f"Not drawn: {reason}.")
        return save_figure(self.folder / "figures", name, figure, data, caption, alt, arguments)

    def claims(self) -> Any:
        """The paper's claims, judged on the results so far."""
        items = None if self.items.empty else self.items
        shares = training_shares(self._tables.get("training-times"), self.slug, self.settings)
        tables = [table for claim in load_claims(self.slug) for table in claim.tables if self.rows(table).empty]
        reasons = [{"table": table, "reason": self.left_out()} for table in tables]
        self.judged = judge_claims(self.slug, self.results, self.missing + reasons, items, shares)
        return self.judged

    # --- the folder -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write results, tables, claims, and hashes and licences of the data and encoders; the run is done."""
        self.results.to_csv(self.folder / "results.csv", index=False)
        if not self.items.empty:
            self.items.to_csv(self.folder / ITEMS, index=False)
        for name, shown in self._tables.items():
            write_table(shown, self.folder / "tables" / name)
        if self.judged is not None:
            write_json(self.folder / "claims.json", self.judged.to_dict())
        names, encoder_names = self._profiles.needed(self.profile, self.settings)
        used = self._data + [data_facts(*name.partition(":")[::2]) for name in names]
        data = list({(entry["name"], entry["variant"]): entry for entry in used}.values())
        encoders = [encoder_facts(name) for name in encoder_names]
        licences = sorted({entry["licence"] for entry in [*data, *encoders]})
        self.note(data=data, encoders=encoders, licences=licences)
        self._workers.close(wait=True)
        self._end("done")
        say(f"run {self.folder.name}: done in {time.time() - self._began:.0f} s")

    def fail(self, reason: str) -> None:
        """Write down that the run stopped and why, unless it is done."""
        if self._state["status"] != "done":
            self._end("failed", reason)

    def _end(self, status: str, reason: str = "") -> None:
        self._state = {"status": status, "reason": reason}
        self.facts |= self._watched() or {}
        self.save()
        self._lock.release(force=True)

    def save(self) -> None:
        """Write `run.json` as things stand."""
        record = {
            "slug": self.slug,
            "profile": self.profile,
            **self._state,
            "parameters": _shown(self.settings),
            "set_by_hand": {name: _shown(self.settings[name]) for name in self.settings.by_hand},
            "started": time_of(self._began),
            "updated": time_of(time.time()),
            "seconds": round(time.time() - self._began, 3),
            "determinism": determinism(),
            **self._provenance,
            "stages": [asdict(stage) for stage in self.stages],
            "not_run": self.missing,
            **peak_memory(),
            **self.facts,
        }
        write_json(self.folder / "run.json", record)


def _with_labels(rows: DataFrame, labels: Fields) -> DataFrame:
    """Rows with further columns, where they do not have them."""
    return rows.assign(**{name: value for name, value in labels.items() if name not in rows})


def _latest(parts: Sequence[DataFrame], measured: Iterable[str]) -> DataFrame:
    """Rows one below the other; of those that differ in nothing but what was measured, the last."""
    rows = joined(parts)
    identity = [name for name in rows if name not in measured]
    return rows.drop_duplicates(identity, keep="last", ignore_index=True)


def _shown(value: Any) -> Any:
    """A setting as a record keeps it: runs are shared, so that folders of encoders stand there by their names."""
    if isinstance(value, tuple | list):
        return [_shown(part) for part in value]
    if isinstance(value, Mapping):
        return {name: _shown(part) for name, part in value.items()}
    return encoder_name(value) if isinstance(value, str) and value else value


def _datasets_in(value: Any) -> Iterator[Any]:
    """Every dataset within the inputs of a stage."""
    if hasattr(value, "licence"):
        yield value
        return
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, part.name) for part in fields(value)]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _datasets_in(part)


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
        if error is not None:
            with suppress(OSError):  # the disk may be full
                run.fail(in_words(error))

    select_figure_formats(shell, {"png"}, bbox_inches=None)
    for old in [f for f in shell.events.callbacks["post_run_cell"] if getattr(f, "__module__", "") == __name__]:
        shell.events.unregister("post_run_cell", old)
    shell.events.register("post_run_cell", after)
