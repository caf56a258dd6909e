"""Run the papers' notebooks one after the other through papermill, and say all the while where it stands.

A notebook that does not exist yet is left out with a line that says so; one that fails is kept as far as it got, and
the others still run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papermill import PapermillExecutionError, execute_notebook
from papermill.engines import NBClientEngine, papermill_engines

from dialnb.papers import SLUGS, load_paper, project_root

BUNDLED_PROFILES = ("smoke", "quick")
"""Profiles that need nothing but what is in the repository: they run with the network switched off."""

OFFLINE = {"DIALNB_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
HEARTBEAT_SECONDS = 20.0


@dataclass(frozen=True)
class NotebookRun:
    """What became of one notebook: its status is "ran", "failed" or "left out", and `reason` says why not "ran"."""

    slug: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    notebook: Path | None = None


def reproduce(
    profile: str = "quick",
    slugs: Sequence[str] = SLUGS,
    out: Path = Path("runs"),
    notebooks: Path | None = None,
) -> list[NotebookRun]:
    """Execute the notebooks of `slugs` with one profile; executed copies go to `out/<profile>/<slug>/<slug>.ipynb`."""
    papers = [load_paper(slug) for slug in slugs]
    folder = notebooks or project_root() / "notebooks"
    runs = []
    for number, paper in enumerate(papers, start=1):
        _say(f"[{number}/{len(papers)}] {paper.slug}  {paper.title}")
        source, target = folder / f"{paper.slug}.ipynb", out / profile / paper.slug / f"{paper.slug}.ipynb"
        run = _run(paper.slug, profile, source, target.absolute()) if source.is_file() else _missing(paper.slug)
        _say(f"    {run.status}: {run.reason}" if run.reason else f"    {run.status} in {run.seconds:.0f} s")
        runs.append(run)
    return runs


def _missing(slug: str) -> NotebookRun:
    return NotebookRun(slug, "left out", f"notebooks/{slug}.ipynb does not exist yet")


def _run(slug: str, profile: str, source: Path, target: Path) -> NotebookRun:
    target.parent.mkdir(parents=True, exist_ok=True)
    settings = {"JUPYTER_PREFER_ENV_PATH": "1", **(OFFLINE if profile in BUNDLED_PROFILES else {})}
    start, reason = time.monotonic(), ""
    with _environment(settings):
        try:
            execute_notebook(
                source,
                target,
                parameters={"profile": profile},
                kernel_name="python3",
                engine_name=LineEngine.name,
                progress_bar=False,
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
                cwd=project_root(),
            )
        except PapermillExecutionError as error:
            reason = f"cell {error.cell_index + 1} raised {error.ename}: {error.evalue}"
            _say(f"\n{error.source}\n\n" + "\n".join(error.traceback[-2:]))
        except Exception as error:  # a kernel that dies must not stop the other notebooks
            reason = f"{type(error).__name__}: {error}"
    return NotebookRun(slug, "failed" if reason else "ran", reason, time.monotonic() - start, target)


class LineEngine(NBClientEngine):
    """papermill's own engine, with one line per cell in place of a bar: it reads well in a log and in a terminal."""

    name = "dialnb-lines"

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **settings: Any) -> Any:
        """Execute the notebook; announce each code cell by the heading above it, and report while a long one runs."""
        begin, total, heading = nb_man.cell_start, len(nb_man.nb.cells), ""
        with Heartbeat() as heartbeat:

            def cell_start(cell: Any, cell_index: int, **extra: Any) -> None:
                nonlocal heading
                if cell.cell_type == "markdown" and cell.source.startswith("#"):
                    heading = cell.source.splitlines()[0].lstrip("# ")
                if cell.cell_type == "code":
                    heartbeat.announce(f"    cell {cell_index + 1}/{total}  {heading}")
                begin(cell, cell_index, **extra)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **settings)


papermill_engines.register(LineEngine.name, LineEngine)


class Heartbeat:
    """Repeats the last announced line, with its age, every `HEARTBEAT_SECONDS` until the next one comes."""

    def __init__(self) -> None:
        self._stop, self._line, self._since = threading.Event(), "", time.monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def announce(self, line: str) -> None:
        """Print a line and start counting its age."""
        self._line, self._since = line, time.monotonic()
        _say(line)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            age = time.monotonic() - self._since
            if self._line and age >= HEARTBEAT_SECONDS:
                _say(f"{self._line} ... {age:.0f} s")


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the kernel that is started inside the block, and put the old ones back."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _say(line: str) -> None:
    print(line, flush=True)
