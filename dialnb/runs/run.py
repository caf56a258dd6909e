"""A run: one notebook at one size, with its settings, cached stages, tidy results, tables, figures and provenance.

>>> run = start("dse", profile="smoke")                                              # doctest: +SKIP
>>> rows = run.stage("intents", evaluate_prototypes, encoder=encoder, ...)           # doctest: +SKIP
>>> run.add(rows, model="DSE", table="T2").table("T2")                               # doctest: +SKIP
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from dialnb.claims.papers import PACKAGED
from dialnb.errors import DialnbError, in_words
from dialnb.files import ITEMS, LOCK, make_folder, say, write_json, write_table
from dialnb.models.places import encoder_name
from dialnb.runs.fingerprints import fingerprint, hashed_once
from dialnb.runs.planning import check_encoders
from dialnb.runs.profiles import Settings, load_profiles, project
from dialnb.runs.provenance import data_facts, determinism, encoder_facts, provenance
from dialnb.runs.stages import StageCache, StageRecord, default_stages, fresh_since, peak_memory
from dialnb.runs.workers import Jobs, Workers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

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
        if not self._told:
            say(f"stage {name}")
        given = [part for v in inputs.values() for part in (v if isinstance(v, list | tuple) else [v])]
        self._data += [_used(value) for value in given if hasattr(value, "licence")]
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
        self.items = pd.concat([self.items, rows.assign(**labels)], ignore_index=True).drop_duplicates(
            [name for name in (*rows.columns, *labels) if name != "value"], keep="last", ignore_index=True
        )
        return self

    def not_run(self, table: str, *, reason: str, **labels: str) -> Run:
        """Say that part of a table (a `model`, a `column`, or all of it) did not run, and why."""
        entry = {"table": table, **labels, "reason": reason}
        self.missing = [e for e in self.missing if {**e, "reason": ""} != {**entry, "reason": ""}] + [entry]
        return self

    def table(self, table: str) -> Any:
        """The published table with ours beside it, to be shown; written to `tables/` when the run finishes."""
        from dialnb.claims.papers import compare_table

        if not (self.root / "papers" / self.slug / "cells.yaml").is_file():
            shown = self.results[self.results.table == table] if "table" in self.results else self.results
        else:
            shown = compare_table(self.slug, table, self.results, self.missing)
        self._tables[table] = shown
        return shown

    def keep(self, name: str, shown: pd.DataFrame) -> pd.DataFrame:
        """A table that no paper prints, to be shown; written to `tables/` when the run finishes."""
        self._tables[name] = shown
        return shown

    def figure(
        self, name: str, figure: Callable | Figure, *, data: pd.DataFrame, caption: str, alt: str, **arguments: Any
    ) -> Figure:
        """Save a figure with the data it was drawn from. Give a function of `dialnb.plots` to be called with `data` and
        `arguments`: such a figure can be drawn again in another style or format (`dialnb figures`).
        """
        from dialnb.runs.figures import save_figure

        return save_figure(self.folder / "figures", name, figure, data, caption, alt, arguments)

    def claims(self) -> Any:
        """The paper's claims, judged on the results so far."""
        from dialnb.claims import judge_claims, training_shares

        items = None if self.items.empty else self.items
        shares = training_shares(self._tables.get("training-times"))
        self.judged = judge_claims(self.slug, self.results, self.missing, items, shares)
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
