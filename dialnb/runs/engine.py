"""One notebook through papermill: progress as lines, errors with their cell, and a record that is there in any case."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from filelock import FileLock, Timeout
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from jupyter_core.paths import jupyter_runtime_dir
from papermill import PapermillExecutionError, execute_notebook
from papermill.engines import NBClientEngine, papermill_engines

from dialnb.errors import DialnbError, in_words
from dialnb.files import LOCK, read_json, write_json, write_whole
from dialnb.models.places import encoder_name
from dialnb.runs.crate import write_crate
from dialnb.runs.profiles import known_papers, load_profiles
from dialnb.runs.provenance import provenance
from dialnb.runs.run import run_name

BUNDLED_PROFILES = ("smoke", "quick")
"""Profiles that need nothing but what is in the repository: they run with the network switched off."""

OFFLINE = {"DIALNB_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
HEARTBEAT_SECONDS = 20.0
TRACEBACK_LINES = 15
RESERVE, RESERVED = ".reserve", 2**18
"""A file, and its bytes, that makes room for the record of a run that filled the disk."""


@dataclass(frozen=True)
class Request:
    """What to run: a paper, its size, and whatever is set by hand; made and checked by `check`."""

    slug: str
    profile: str = "quick"
    seed: int = 1
    encoder: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    out: Path = Path("runs")

    @property
    def folder(self) -> Path:
        return (self.out / run_name(self.slug, self.profile, self.seed, self.encoder, self.overrides)).absolute()

    @property
    def parameters(self) -> dict[str, Any]:
        """What is injected into the notebook's cell of parameters."""
        given = {"profile": self.profile, "seed": self.seed, "out": str(self.folder)}
        given |= {"encoder": self.encoder} if self.encoder else {}
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in self.overrides.items()}
        return given | ({"overrides": plain} if plain else {})


@dataclass(frozen=True)
class NotebookRun:
    """What became of one notebook: its status is "ran", "failed" or "left out", and `reason` says why not "ran"."""

    slug: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    notebook: Path | None = None


def check(request: Request, root: Path) -> list[str]:
    """Refuse unknown papers and bad parameters before a kernel starts; the encoders that are set by hand."""
    if request.slug in known_papers(root) and not (root / "papers" / request.slug / "profiles.yaml").is_file():
        return [request.encoder] if request.encoder else []
    profiles = load_profiles(request.slug, root)
    settings = profiles.resolve(request.profile, request.seed, request.encoder, request.overrides)
    return profiles.encoders(settings, by_hand=True)


def notebook_path(request: Request, root: Path, notebooks: Path | None = None) -> Path:
    return (notebooks or root / "notebooks") / f"{request.slug}.ipynb"


def not_written(request: Request, root: Path, notebooks: Path | None = None) -> NotebookRun | None:
    """What to report of a paper whose notebook does not exist."""
    if notebook_path(request, root, notebooks).is_file():
        return None
    return NotebookRun(request.slug, "left out", f"notebooks/{request.slug}.ipynb does not exist yet")


def execute(request: Request, root: Path, notebooks: Path | None = None) -> NotebookRun:
    """Execute the notebook of a paper into its run folder; an error is shown, recorded and returned, not raised."""
    if missing := not_written(request, root, notebooks):
        return missing
    source, folder, began = notebook_path(request, root, notebooks), request.folder, time.time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=1), _open_log(folder) as log, tempfile.TemporaryDirectory() as runtime:
            (folder / RESERVE).write_bytes(os.urandom(RESERVED))
            with environment(_variables(request, root, runtime)):
                try:
                    reason = _beside(lambda: _papermill(request, source, Voice(log)))
                except KeyboardInterrupt:
                    _record(request, "interrupted", began)
                    raise
            reason = _record(request, reason, began)
        for name in ("notebook.ipynb", "log.txt", "run.json"):
            _without_places(folder / name, root, request)
    except Timeout:
        reason = f"another run is using {folder}; wait for it, or choose another --out"
        return NotebookRun(request.slug, "failed", reason)
    except OSError as error:
        reason = in_words(error)
        with contextlib.suppress(OSError):
            _record(request, reason, began)
    status = "failed" if reason else "ran"
    return NotebookRun(request.slug, status, reason, time.time() - began, folder / "notebook.ipynb")


def _variables(request: Request, root: Path, runtime: str) -> dict[str, str]:
    """Environment of the kernel; without the network where nothing but bundled files is asked for."""
    found = {"JUPYTER_RUNTIME_DIR": runtime, "DIALNB_PROJECT": str(root)}
    found |= {"PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS") or "ignore:IProgress not found"}
    return found | (OFFLINE if request.profile in BUNDLED_PROFILES and not check(request, root) else {})


@contextlib.contextmanager
def _open_log(folder: Path) -> Iterator[TextIO]:
    """The log of a run; a disk that fills up takes the rest of it, not the run's record."""
    log = (folder / "log.txt").open("w", encoding="utf-8")
    try:
        yield log
    finally:
        with contextlib.suppress(OSError):
            log.close()


def _without_places(path: Path, root: Path, request: Request) -> None:
    """Runs are shared: what was written names files from the project and the home folder on, and encoders by the names
    of their folders, not where those lie."""
    if path.is_file():
        text = before = path.read_text(encoding="utf-8")
        said = [v for part in request.overrides.values() for v in (part if isinstance(part, list | tuple) else [part])]
        for value in [v for v in (request.encoder, *said) if isinstance(v, str) and len(Path(v).parts) > 1]:
            text = text.replace(value, encoder_name(value))
        for place, name in ((root, "."), (root.resolve(), "."), (Path.cwd(), "."), (Path.home(), "~")):
            text = text.replace(f"{place}{os.sep}", f"{name}{os.sep}") if len(place.parts) > 1 else text
        if text != before:
            write_whole(path, text)


def _papermill(request: Request, source: Path, voice: Voice) -> str:
    """Run the notebook; returns why it failed, or nothing."""
    try:
        execute_notebook(
            source,
            request.folder / "notebook.ipynb",
            parameters=request.parameters,
            kernel_name="python3",
            engine_name=LineEngine.name,
            progress_bar=False,
            start_timeout=300,
            stdout_file=voice,
            stderr_file=voice,
        )
    except PapermillExecutionError as error:
        cell = f"cell {error.cell_index + 1}"
        if foreseen := _sentence(error.ename, error.evalue):
            return f"{cell}: {foreseen}"
        lines = "\n".join(error.traceback).splitlines()[-TRACEBACK_LINES:]
        voice.say(f"\n--- {cell} ---\n{error.source}\n--- error ---\n" + "\n".join(lines))
        return f"{cell} raised {error.ename}: {error.evalue}"
    except Exception as error:  # a kernel that dies must not stop the other notebooks
        died = type(error).__name__ == "DeadKernelError"
        reason = "its kernel died (killed, or out of memory?)" if died else in_words(error)
        reason += f" ({request.folder})" if isinstance(error, OSError) and not error.filename else ""
        voice.say(f"the notebook could not be executed: {reason}")
        return reason
    return ""


def _sentence(kind: str, words: str) -> str:
    """What an error of a cell says, where it is one that was foreseen or one of the system; else nothing."""
    known, ours = [DialnbError], {DialnbError.__name__}
    while known:
        known = [below for above in known for below in above.__subclasses__()]
        ours |= {below.__name__ for below in known}
    if kind in ours:
        return words
    return words.partition("] ")[2] if words.startswith("[Errno ") else ""


def _beside(work: Callable[[], str]) -> str:
    """Do the work in a thread, so that Ctrl-C and SIGTERM end the command, and its kernel with it, not just a cell."""
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(work()), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    return said[0] if said else "papermill ended without a word"


def _record(request: Request, reason: str, began: float) -> str:
    """Complete `run.json`: a failure is written down even if the notebook never came to open its run; why it failed."""
    path = request.folder / "run.json"
    record = read_json(path)
    if record is None or datetime.fromisoformat(record["updated"]).timestamp() < int(began):
        record = {"slug": request.slug, "profile": request.profile, "parameters": request.parameters}
        record |= {"started": _time(began), **provenance(), "stages": [], "status": "done", "reason": ""}
    if record["status"] == "running" and not reason:
        reason = "the notebook ended before its run was finished, so its results were not written"
    (request.folder / RESERVE).unlink(missing_ok=True)
    try:
        write_json(path, record | _state(reason or record["reason"]))
        write_crate(request.folder)
    except OSError as error:
        reason = reason or in_words(error)
        write_json(path, record | _state(reason))
    return reason


def _state(reason: str) -> dict[str, str]:
    return {"updated": _time(time.time())} | ({"status": "failed", "reason": reason} if reason else {})


def _time(stamp: float) -> str:
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="seconds")


class OwnKernel(AsyncKernelManager):
    """A kernel of this very interpreter, over file sockets where the system has them: no races for ports."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if sys.platform != "win32":
            self.transport, self.ip = "ipc", str(Path(jupyter_runtime_dir()) / "kernel")

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


class LineEngine(NBClientEngine):
    """papermill's own engine, with one line per cell in place of a bar: it reads well in a log and in a terminal."""

    name = "dialnb-lines"

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **settings: Any) -> Any:
        """Execute the notebook; announce each code cell by the heading above it, and report while a long one runs."""
        begin, total, heading = nb_man.cell_start, len(nb_man.nb.cells), "Parameters"
        voice = settings["stdout_file"]

        def cell_start(cell: Any, cell_index: int, **extra: Any) -> None:
            nonlocal heading
            if cell.cell_type == "markdown" and cell.source.startswith("#"):
                heading = cell.source.splitlines()[0].lstrip("# ")
            if cell.cell_type == "code":
                voice.announce(f"    cell {cell_index + 1}/{total}  {heading}")
            begin(cell, cell_index, **extra)

        nb_man.cell_start = cell_start
        with voice:
            return super().execute_managed_notebook(nb_man, kernel_name, kernel_manager_class=OwnKernel, **settings)


papermill_engines.register(LineEngine.name, LineEngine)


class Voice:
    """Everything a run says, on screen and in its log; while nothing is said for long, the last cell and its age."""

    def __init__(self, log: TextIO, screen: TextIO | None = None) -> None:
        self.log, self.screen = log, screen or sys.stdout
        self._cell, self._since, self._heard = "", time.monotonic(), time.monotonic()
        self._open = False
        self._stop, self._lock = threading.Event(), threading.Lock()

    def write(self, text: str) -> int:
        """Pass on text of the kernel; colours reach a terminal only, and a bar that redraws itself becomes lines."""
        plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", "\n")
        with self._lock:
            self._heard, self._open = time.monotonic(), not text.endswith("\n")
            with contextlib.suppress(OSError):  # a full disk
                self.log.write(plain)
            self.screen.write(text if self.screen.isatty() else plain)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.log.flush()
        self.screen.flush()

    def say(self, line: str) -> None:
        """A line of our own, on a line of its own."""
        self.write("\n" * self._open + f"{line}\n")
        self.flush()

    def announce(self, cell: str) -> None:
        """Say which cell begins, and count its age."""
        self._cell, self._since = cell, time.monotonic()
        self.say(cell)

    def __enter__(self) -> Voice:
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS / 4):
            if self._cell and time.monotonic() - self._heard >= HEARTBEAT_SECONDS:
                self.say(f"{self._cell} ... {time.monotonic() - self._since:.0f} s")


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for what is started inside the block, and put the old ones back."""
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
