"""A run: one notebook at one size, with its settings, cached stages, tidy results, tables, figures and provenance.

>>> run = start("dse", profile="smoke")                                              # doctest: +SKIP
>>> rows = run.stage("intents", evaluate_prototypes, encoder=encoder, ...)           # doctest: +SKIP
>>> run.add(rows, model="DSE", table="T2").table("T2")                               # doctest: +SKIP
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import yaml
from filelock import FileLock, Timeout

from dialnb.claims.papers import PACKAGED
from dialnb.errors import DialnbError, UnknownName, in_words
from dialnb.files import ITEMS, LOCK, make_folder, say, write_json, write_table
from dialnb.models.places import encoder_name
from dialnb.runs.fingerprints import fingerprint, hashed_once
from dialnb.runs.planning import check_encoders
from dialnb.runs.profiles import PROFILES, Settings, load_profiles, project
from dialnb.runs.provenance import data_facts, determinism, encoder_facts, provenance
from dialnb.runs.stages import StageCache, StageRecord, default_stages, fresh_since, peak_memory
from dialnb.runs.workers import Jobs, Workers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from dialnb.data import Dataset
    from dialnb.models.encoder import Encoder
    from dialnb.runs.grid import Answer, Model, Task, Trained

MEASURED = ("value", "n")


def start(
    slug: str,
    profile: str = "quick",
    seed: int = 1,
    encoder: str = "",
    overrides: Mapping[str, Any] | None = None,
    out: str | Path = "",
) -> Run:
    """Check the parameters and open the run's folder; `run.json` stands there from now on, whatever happens."""
    root = project()
    profiles = load_profiles(slug, root)
    settings = profiles.resolve(profile, seed, encoder, overrides)
    check_encoders(profiles, settings)
    home = Path.cwd() if root == PACKAGED else root
    folder = Path(out) if out else home / "runs" / run_name(slug, profile, seed, encoder, overrides)
    run = Run(slug, profile, settings, folder.expanduser().absolute(), root)
    _watch_cells(run)
    _quiet_libraries()
    return run


def run_name(slug: str, profile: str, seed: int = 1, encoder: str = "", overrides: Mapping | None = None) -> str:
    """The folder of a run: paper, profile and seed, and whatever else was set by hand.

    >>> run_name("dse", "quick", 2, "org/bert")
    'dse-quick-seed2-org-bert'
    """
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", encoder_name(encoder) if encoder else "").strip("-")
    mark = (
        fingerprint({k: list(v) if isinstance(v, tuple) else v for k, v in overrides.items()})[:8] if overrides else ""
    )
    return "-".join(part for part in (slug, profile, f"seed{seed}", plain, mark) if part)


class Sentence(str):
    """Text that a notebook shows as text, without the quotes of a string."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return self


class Run:
    """What the cells of a notebook talk to; made by `start`."""

    def __init__(self, slug: str, profile: str, settings: Settings, folder: Path, root: Path) -> None:
        import pandas as pd

        self.slug, self.profile, self.settings, self.folder, self.root = slug, profile, settings, folder, root
        self.results, self.items = pd.DataFrame(), pd.DataFrame()
        self.missing: list[dict[str, str]] = []
        self.stages: list[StageRecord] = []
        self.facts: dict[str, Any] = {}
        self.judged: Any = None
        self._tables: dict[str, Any] = {}
        self._profiles = load_profiles(slug, root)
        self._data: list[dict[str, Any]] = []
        self._cache = StageCache(default_stages(), fresh_since(), say)
        self._workers: Workers | None = None
        self._made: set[str] = set()  # keys of stages that workers of this run made
        self._told = False  # have the workers said which stages they make?
        self._began, self._inside = time.time(), False
        self._lock = FileLock(make_folder(folder) / LOCK, is_singleton=True)  # a cell may open the run again
        with suppress(Timeout):  # `dialnb run` holds it for its kernel
            self._lock.acquire(timeout=0)
        self._state = {"status": "running", "reason": ""}
        self._provenance = provenance()
        self.save()
        say(f"run {folder.name}")

    # --- stages ---------------------------------------------------------------------------------------------------

    def stage(self, name: str, function: Callable, /, *, code: Iterable[ModuleType] = (), **inputs: Any) -> Any:
        """`function(**inputs)`, or its stored result if inputs and code are the same as before.

        A function with a parameter `folder` gets a folder that outlives a killed run, for its checkpoints. `code` names
        further modules that the result depends on, beyond those that the function's own code reaches.
        """
        name = str(name)
        if not self._told:
            say(f"stage {name}")
        self._data += [_used(dataset) for dataset in _datasets_in(list(inputs.values()))]
        began = time.perf_counter()
        self._inside = True
        try:
            result, record = self._cache.run(name, function, inputs, code)
        finally:
            self._inside = False
        took = time.perf_counter() - began
        if record.key in self._made:  # by a worker, a moment ago, which said so
            record.cached = False
            if not self._told:
                say(f"stage {name}: made above")
        else:
            cached = f"from the cache, made {record.made[:16]}"
            say(f"stage {name}: {cached if record.cached else f'done in {took:.1f} s'}")
        self.stages = [kept for kept in self.stages if (kept.name, kept.key) != (name, record.key)] + [record]
        self.save()
        return result

    @hashed_once()
    def stage_each(self, jobs: Jobs, follow: Callable[[str, Any], Jobs] | None = None) -> dict[str, Any]:
        """Several stages that do not depend on each other, `{name: (function, inputs)}`, and their results by name.

        `follow(name, result)` names the stages that waited for one of them. With the setting `workers` above one all
        are made side by side, each in a process of its own, as soon as what they wait for is there.
        """
        count, every, results = self.settings.get("workers", 1), dict(jobs), {}

        def begin(name: str) -> Jobs:
            more = follow(name, self._cache.run(name, *every[name])[0])
            every.update(more)
            return more

        if count > 1 and (len(jobs) > 1 or follow):
            self._workers = self._workers or Workers(count, self._cache)
            self._made |= self._workers.make(jobs, begin if follow else None)
            self._told = True
        try:
            while left := [name for name in every if name not in results]:
                for name in left:
                    function, inputs = every[name]
                    results[name] = self.stage(name, function, **inputs)
                    every.update(follow(name, results[name]) if follow else {})
            return results
        finally:
            self._told = False

    def note(self, **facts: Any) -> None:
        """Record facts of the stage that is running, or of the run itself, in `run.json`."""
        (self._cache.facts if self._inside else self.facts).update(facts)

    # --- models and tasks -----------------------------------------------------------------------------------------

    def train(self, models: Mapping[str, Model], ahead: Iterable[Task] = ()) -> Trained:
        """Train the models that the profile asks for, once for every training seed; the others say why not.

        With several workers the tasks ``ahead`` are asked of each model as soon as it is there.
        """
        from dialnb.runs.grid import Grid

        return Grid(self, models, ahead).train()

    def evaluate(
        self, trained: Trained, tasks: Iterable[Task], floors: Any = None, keep: Callable | None = None
    ) -> pd.DataFrame:
        """Ask every model every question and, with an encoder for them, every floor; the rows that ``keep`` lets pass
        (default: all) join the results."""
        from dialnb.runs.grid import evaluate

        return evaluate(self, trained, tasks, floors, keep)

    def answers(self, trained: Trained, tasks: Iterable[Task], floors: Any = None) -> list[Answer]:
        """Ask as `evaluate` does, but give everything back, question by question, without keeping it."""
        from dialnb.runs.grid import answers

        return answers(self, trained, tasks, floors)

    def ask(self, trained: Trained, tasks: Iterable[Task]) -> pd.DataFrame:
        """Ask as `evaluate` does, but give the rows back without keeping them: coordinates of a figure, for example."""
        from dialnb.runs.grid import ask

        return ask(self, trained, tasks)

    def corpus(self, settings: Settings | None = None) -> list[Dataset]:
        """The dialogue corpora of the profile (or of another one): what is bundled, or a collection of sources."""
        from dialnb.data import load
        from dialnb.data.corpora import collection

        name = (settings or self.settings)["corpus"]
        if name == "bundled":
            return [load("bundled/dialogues")]
        return [load(part.dataset, part.variant) for part in collection(name) if part.paired]

    def encoder(self) -> Encoder:
        """The encoder that the models of this run start from."""
        from dialnb.models.encoder import load_encoder

        return load_encoder(self.settings["encoder"])

    def elsewhere(self, slug: str) -> Settings:
        """The settings that another notebook has in this profile, from this run's encoder and seed."""
        other = load_profiles(slug, self.root)
        return other.resolve(self.profile, self.settings["seed"], self.settings["encoder"])

    def wants(self, name: str) -> bool:
        """Whether the profile takes a model or a table: those that a list of its parameters offers must be in it."""
        return self._wanted(name, self.settings)

    def _wanted(self, name: str, settings: Mapping[str, Any]) -> bool:
        offering = [p for p in self._profiles.parameters.values() if name in self._profiles.offered(p)]
        chosen = [settings[p.name] if p.is_list else [settings[p.name]] for p in offering]
        return not offering or any(name in values for values in chosen)

    def left_out(self, name: str = "") -> str:
        """The reason of what the profile leaves out, with the smallest larger one that has it."""
        larger = PROFILES[max(PROFILES.index(self.profile) + 1, 0 if name else 2) :]
        having = [each for each in larger if each in self._profiles.profiles]
        having = [each for each in having if self._wanted(name, self._profiles.resolve(each))]
        where = f"; it runs with '{having[0]}'" if having else ""
        return f"left out of the {self.profile} profile to keep its time{where}"

    def note_absent(self, reason: str, table: str = "", **labels: str) -> None:
        """Say why rows are missing: those of a ``model``, a ``dataset`` or a ``column``, in one table or in all."""
        self.not_run(table, reason=reason, **labels)

    def datasets(self, task: Task) -> dict[str, Dataset]:
        """The datasets of a task; those that cannot be had are noted in its table."""
        if not isinstance(task.data, str):
            return dict(task.data)
        found, lacking = self._named_data(task.data)
        for dataset, reason in lacking.items():
            self.note_absent(reason, task.table, dataset=dataset)
        return found

    def data(self, name: str, slug: str = "") -> dict[str, Dataset]:
        """What `papers/<slug>/data.yaml` (of this paper, or another) calls ``name``, at the run's level of data."""
        return self._named_data(name, slug)[0]

    def lacking(self, name: str, slug: str = "") -> dict[str, str]:
        """Why some of these data cannot be had, by dataset."""
        return self._named_data(name, slug)[1]

    def _named_data(self, name: str, slug: str = "") -> tuple[dict[str, Dataset], dict[str, str]]:
        from dialnb.runs.grid import choose_datasets

        path = self.root / "papers" / (slug or self.slug) / "data.yaml"
        known = yaml.safe_load(path.read_text(encoding="utf-8"))
        if name not in known:
            raise UnknownName(f"data in {path.name} of {path.parent.name}", name, known)
        return choose_datasets(known[name], self.settings["data"])

    # --- results --------------------------------------------------------------------------------------------------

    def add(self, rows: pd.DataFrame, **labels: Any) -> Run:
        """Keep tidy rows, with `labels` (model, table ...) as further columns; the run's encoder and the seed of its
        trainings unless they are named.

        A measurement that is there already is replaced, so that a cell can be run twice.
        """
        import pandas as pd

        if "value" not in rows:
            raise DialnbError(f"results are tidy rows with a column 'value', not {', '.join(map(str, rows.columns))}")
        defaults = {"encoder": self.settings["encoder"]} if "encoder" in self.settings else {}
        defaults["train_seed"] = self.settings["seed"]
        labels = {name: v for name, v in defaults.items() if name not in rows} | labels
        rows = rows.assign(**labels)
        if "encoder" in rows:
            rows["encoder"] = rows["encoder"].map(encoder_name, na_action="ignore")
        joined = pd.concat([self.results, rows], ignore_index=True)
        identity = [name for name in joined if name not in MEASURED]
        same = joined[identity].astype("object").where(joined[identity].notna(), None).map(str)
        self.results = joined[~same.duplicated(keep="last")].reset_index(drop=True)
        return self

    def add_items(self, rows: pd.DataFrame, **labels: Any) -> Run:
        """Keep what each test item scored (tidy rows with a column `item`), for comparisons paired over items."""
        import pandas as pd

        labels = {"train_seed": self.settings["seed"]} | labels
        joined = pd.concat([self.items, rows.assign(**labels)], ignore_index=True)
        identity = [name for name in joined if name != "value"]
        self.items = joined.drop_duplicates(identity, keep="last", ignore_index=True)
        return self

    def not_run(self, table: str, *, reason: str, **labels: str) -> Run:
        """Say that part of a table (a `model`, a `column`, or all of it) did not run, and why."""
        entry = {"table": table, **labels, "reason": reason}
        self.missing = [e for e in self.missing if {**e, "reason": ""} != {**entry, "reason": ""}] + [entry]
        return self

    def rows(self, table: str) -> pd.DataFrame:
        """The tidy rows of one table so far."""
        return self.results[self.results["table"] == table] if "table" in self.results else self.results

    def summary(
        self, table: str, index: list[str], columns: list[str], digits: int = 2, **where: Any
    ) -> pd.DataFrame | Sentence:
        """Means over seeds of a table's rows by ``index`` and ``columns``, for what the paper does not print; without
        rows, the sentence that says why."""
        from dialnb.claims.papers import select

        rows = select(self.rows(table), where)
        if rows.empty:
            reasons = [entry["reason"] for entry in self.missing if entry["table"] == table]
            return Sentence(f"Not run: {(reasons or [self.left_out()])[0]}.")
        rows = rows.assign(**rows[[*index, *columns]].convert_dtypes())  # shots and candidates are whole numbers
        return rows.pivot_table("value", index, columns, sort=False).round(digits)

    def times(self, trained: Trained, shown: int = 8) -> pd.DataFrame:
        """What the trainings took; the whole table goes to `tables/`, the first lines are shown."""
        times = self.keep("training-times", trained.times())
        if len(times) > shown:
            say(f"the first {shown} of {len(times)} trainings; tables/training-times.csv has all of them")
        return times.head(shown)

    def table(self, table: str) -> Any:
        """The published table with ours beside it, to be shown; written to `tables/` when the run finishes."""
        from dialnb.claims.papers import compare_table

        if not (self.root / "papers" / self.slug / "cells.yaml").is_file():
            shown = self.results[self.results.table == table] if "table" in self.results else self.results
        else:
            rest = {"table": table, "reason": self.left_out()}  # for cells that nothing else explains
            shown = compare_table(self.slug, table, self.results, [*self.missing, rest])
            shown = replace(shown, command=self.command(table))
        self._tables[table] = shown
        return shown

    def command(self, table: str) -> str:
        """The one command that makes a table of this run."""
        parts = ["dialnb run", self.slug, f"--profile {self.profile}", f"--seed {self.settings['seed']}"]
        parts += (
            [f"--encoder {encoder_name(self.settings['encoder'])}"]
            if self.settings.origin.get("encoder") == "set by hand"
            else []
        )
        if table in getattr(self._profiles.parameters.get("tables"), "choices", ()):
            parts.append(f"--set tables={table}")
        return " ".join(parts)

    def keep(self, name: str, shown: pd.DataFrame) -> pd.DataFrame:
        """A table that no paper prints, to be shown; written to `tables/` when the run finishes."""
        self._tables[name] = shown
        return shown

    def figure(
        self,
        name: str,
        figure: Callable | Figure,
        *,
        data: pd.DataFrame,
        caption: str,
        alt: str,
        otherwise: str = "",
        **arguments: Any,
    ) -> Figure | Sentence:
        """Save a figure with the data it was drawn from. Give a function of `dialnb.plots` to be called with `data` and
        `arguments`: such a figure can be drawn again in another style or format (`dialnb figures`).

        Without data it is not drawn: the reason, ``otherwise``, is noted and stands in its place.
        """
        from dialnb.runs.figures import save_figure

        if data.empty:
            self.not_run(name, reason=otherwise or self.left_out(name))
            return Sentence(f"Not drawn: {otherwise or self.left_out(name)}.")

        return save_figure(self.folder / "figures", name, figure, data, caption, alt, arguments)

    def claims(self) -> Any:
        """The paper's claims, judged on the results so far."""
        from dialnb.claims import judge_claims, load_claims, training_shares

        items = None if self.items.empty else self.items
        shares = training_shares(self._tables.get("training-times"))
        filled = set(self.results["table"]) if "table" in self.results else set()
        rest = []
        for claim in load_claims(self.slug):
            asked = (claim.published or claim.rows).get("table", [])
            lacking = set([asked] if isinstance(asked, str) else asked) - filled
            rest += [{"table": table, "reason": self.left_out()} for table in lacking]
        self.judged = judge_claims(self.slug, self.results, [*self.missing, *rest], items, shares)
        return self.judged

    # --- the folder -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write results, tables and claims; the run is done."""
        self.results.to_csv(self.folder / "results.csv", index=False)
        if not self.items.empty:
            self.items.to_csv(self.folder / ITEMS, index=False)
        for name, shown in self._tables.items():
            write_table(shown, self.folder / "tables" / name)
        if self.judged is not None:
            write_json(self.folder / "claims.json", self.judged.to_dict("records"))
        self.facts |= self._inputs()
        self._state = {"status": "done", "reason": ""}
        self.save()
        if self._workers is not None:
            self._workers.close(wait=True)
        self._lock.release(force=True)
        say(f"run {self.folder.name}: done in {time.time() - self._began:.0f} s")

    def fail(self, reason: str) -> None:
        """Write down that the run stopped and why."""
        self._state = {"status": "failed", "reason": reason}
        self.save()
        self._lock.release(force=True)

    def save(self) -> None:
        """Write `run.json` as things stand."""
        record = {
            "slug": self.slug,
            "profile": self.profile,
            **self._state,
            "parameters": _shown(self.settings),
            "set_by_hand": {
                k: shown for k, shown in _shown(self.settings).items() if self.settings.origin.get(k) == "set by hand"
            },
            "started": _time(self._began),
            "updated": _time(time.time()),
            "seconds": round(time.time() - self._began, 3),
            "seeds": self._seeds(),
            "determinism": determinism(),
            **self._provenance,
            "stages": [asdict(stage) for stage in self.stages],
            "not_run": self.missing,
            **peak_memory(),
            **self.facts,
        }
        write_json(self.folder / "run.json", record)

    def _seeds(self) -> list[int]:
        seeds = {self.settings["seed"], *self.settings.get("seeds", ())}
        measured = self.results["seed"].dropna() if "seed" in self.results else ()
        return sorted(seeds | {int(seed) for seed in measured})

    def _inputs(self) -> dict[str, Any]:
        """Hashes and licences of the data and encoders that the profile needs."""
        needs = load_profiles(self.slug, self.root).needs.get(self.profile) or {}
        declared = [data_facts(*name.partition(":")[::2]) for name in needs.get("data", ())]
        data = list({(entry["name"], entry["variant"]): entry for entry in [*self._data, *declared]}.values())
        named = dict.fromkeys([*needs.get("encoders", ()), *filter(None, [self.settings.get("encoder")])])
        encoders = [encoder_facts(name) for name in named]
        licences = sorted({entry["licence"] for entry in [*data, *encoders]})
        return {"data": data, "encoders": encoders, "licences": licences}


def _shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a record keeps them: runs are shared, so that folders of encoders stand there by their names."""

    def shown(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [shown(part) for part in value]
        return encoder_name(value) if isinstance(value, str) and value else value

    return {name: shown(value) for name, value in settings.items()}


def _datasets_in(value: Any) -> Iterator[Any]:
    """Every dataset within the inputs of a stage."""
    if hasattr(value, "licence"):
        yield value
    elif isinstance(value, Mapping):
        yield from _datasets_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _datasets_in(part)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _datasets_in([getattr(value, part.name) for part in fields(value)])


def _used(dataset: Any) -> dict[str, Any]:
    """A dataset that was handed to a stage, as the provenance shows it."""
    said = {name: getattr(dataset, name, "") for name in ("name", "variant", "licence")}
    return said | {"fingerprint": str(getattr(dataset, "fingerprint", ""))[:16]}


def _watch_cells(run: Run) -> None:
    """In a notebook: a cell that raises writes its error into `run.json`, whoever executes the notebook."""
    try:
        from IPython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is None:
        return

    def after(result: Any) -> None:
        error = result.error_in_exec or result.error_before_exec
        if error is not None and run._state["status"] != "done":
            with suppress(OSError):  # the disk may be full
                run.fail(in_words(error))

    _show_figures(shell)
    for old in [f for f in shell.events.callbacks["post_run_cell"] if getattr(f, "_dialnb", False)]:
        shell.events.unregister("post_run_cell", old)
    after._dialnb = True
    shell.events.register("post_run_cell", after)


def _show_figures(shell: Any) -> None:
    """Figures that a cell returns are shown as pictures, also where no plotting backend was chosen."""
    from IPython.core.pylabtools import select_figure_formats

    select_figure_formats(shell, {"png"}, bbox_inches=None)


def _quiet_libraries() -> None:
    """No bars of other libraries between the lines of a run."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _time(stamp: float) -> str:
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="seconds")
