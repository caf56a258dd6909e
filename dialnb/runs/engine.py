"""Notebooks through papermill, one after the other: progress as lines, errors with their cell, and a record that is
there in any case."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from filelock import FileLock, Timeout
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from papermill import PapermillExecutionError, execute_notebook
from papermill.engines import NBClientEngine, papermill_engines

from dialnb.errors import DataError, DialnbError, in_words, shown
from dialnb.files import LOCK, Fields, Values, as_list, make_folder, read_record, say, time_of, write_json, write_whole
from dialnb.models.places import encoder_name
from dialnb.runs.profiles import load_profiles, run_name
from dialnb.runs.provenance import provenance

BUNDLED_PROFILES = ("smoke", "quick")
"""Profiles that need nothing but what is in the repository: they run with the network switched off."""

OFFLINE = {"DIALNB_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
GUIDE = "guide.md"
"""What a run writes where it has something to recommend; it is shown when the run ends."""
HEARTBEAT_SECONDS = 20.0
SAVED_EVERY = 5.0
"""Seconds between two writes of a notebook that runs; papermill would write it at the start and end of every cell."""
TRACEBACK_LINES = 15
RESERVE, RESERVED = ".reserve", 2**18
"""A file, and its bytes, that makes room for the record of a run that filled the disk."""


@dataclass(frozen=True)
class Request:
    """What to run: a paper, its size, and whatever is set by hand; checked by `check`."""

    slug: str
    profile: str = "quick"
    seed: int = 1
    encoder: str = ""
    overrides: Fields = field(default_factory=dict)
    out: Path = Path("runs")
    fresh: float = 0.0  # stages that were made before this time are made again
    executor: str = ""  # the address of workers that make the stages

    @property
    def folder(self) -> Path:
        return (self.out / run_name(self.slug, self.profile, self.seed, self.encoder, self.overrides)).absolute()

    @property
    def parameters(self) -> Values:
        """What is injected into the notebook's cell of parameters."""
        given = {"profile": self.profile, "seed": self.seed, "out": str(self.folder)}
        if self.encoder:
            given["encoder"] = self.encoder
        if self.overrides:
            given["overrides"] = {n: list(v) if isinstance(v, tuple) else v for n, v in self.overrides.items()}
        return given


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
    profiles = load_profiles(request.slug, root)
    settings = profiles.resolve(request.profile, request.seed, request.encoder, request.overrides)
    return profiles.encoders(settings, by_hand=True)


def run_all(requests: Sequence[Request], root: Path, notebooks: Path | None = None) -> list[NotebookRun]:
    """Run the notebooks, say what became of each, and return it; one that fails does not stop the others."""
    runs = []
    for request in requests:
        make_folder(request.out)
    for number, request in enumerate(requests, 1):
        say(f"[{number}/{len(requests)}] {request.slug}  {request.profile}, seed {request.seed}")
        run = execute(request, root, notebooks)
        say(f"    {run.status}: {run.reason}" if run.reason else f"    ran in {run.seconds:.0f} s: {run.notebook}")
        runs.append(run)
        if run.status == "ran" and (guide := request.folder / GUIDE).is_file():
            say(f"\n{guide.read_text(encoding='utf-8')}")
    width = max(len(run.slug) for run in runs)
    for run in runs:
        say(f"  {run.slug:<{width}}  {run.status:<8}  {run.seconds:6.0f} s  {run.reason or run.notebook}")
    statuses = [run.status for run in runs]
    say(", ".join(f"{statuses.count(status)} {status}" for status in ("ran", "failed", "left out")))
    return runs


def execute(request: Request, root: Path, notebooks: Path | None = None) -> NotebookRun:
    """Execute the notebook of a paper into its run folder; an error is shown, recorded and returned, not raised."""
    source = (notebooks or root / "notebooks") / f"{request.slug}.ipynb"
    if not source.is_file():
        return NotebookRun(request.slug, "left out", f"notebooks/{source.name} does not exist yet")
    folder, began = request.folder, time.time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=1), Voice((folder / "log.txt").open("w", encoding="utf-8")) as voice:
            (folder / RESERVE).write_bytes(os.urandom(RESERVED))
            reason = "interrupted"
            try:
                reason = _in_a_thread(lambda: _papermill(request, root, source, voice))
            finally:
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


def _in_a_thread(work: Callable[[], str]) -> str:
    """Do the work in a thread, so that Ctrl-C and SIGTERM end the command, and its kernel with it, not just a cell."""
    reasons = []
    thread = threading.Thread(target=lambda: reasons.append(work()), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    return reasons[0] if reasons else "papermill ended without a word"


def _papermill(request: Request, root: Path, source: Path, voice: Voice) -> str:
    """Run the notebook; returns why it failed, or nothing."""
    variables = {"DIALNB_PROJECT": str(root)}
    if request.fresh:
        variables["DIALNB_FRESH"] = str(request.fresh)
    if request.executor:
        variables["DIALNB_EXECUTOR"] = request.executor
    variables["PYTHONWARNINGS"] = os.environ.get("PYTHONWARNINGS") or "ignore:IProgress not found"
    papermill_engines.register(LineEngine.name, LineEngine)
    try:
        if request.profile in BUNDLED_PROFILES and not check(request, root):
            variables |= OFFLINE
        with tempfile.TemporaryDirectory() as runtime:
            execute_notebook(
                source,
                request.folder / "notebook.ipynb",
                parameters=request.parameters,
                kernel_name="python3",
                language="python",
                engine_name=LineEngine.name,
                progress_bar=False,
                start_timeout=300,
                stdout_file=voice,
                stderr_file=voice,
                variables=variables | {"JUPYTER_RUNTIME_DIR": runtime},
            )
    except PapermillExecutionError as error:
        cell = f"cell {error.cell_index + 1}"
        if error.ename in _family(DialnbError):
            return f"{cell}: {error.evalue}"
        if error.evalue.startswith("[Errno "):
            return f"{cell}: {error.evalue.partition('] ')[2]}"
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


def _family(kind: type) -> set[str]:
    """The names of a class and of all that derive from it: errors that were foreseen need no traceback."""
    return {kind.__name__}.union(*map(_family, kind.__subclasses__()))


def _record(request: Request, reason: str, began: float) -> str:
    """Complete `run.json`: a failure is written down even if the notebook never came to open its run; why it failed."""
    (request.folder / RESERVE).unlink(missing_ok=True)
    path = request.folder / "run.json"
    try:
        record = read_record(path, "run")
        is_of_this_run = datetime.fromisoformat(record["updated"]).timestamp() >= int(began)
    except (DataError, LookupError, ValueError):  # there is none, or what was left by an earlier run is damaged
        is_of_this_run = False
    if not is_of_this_run:
        record = {"slug": request.slug, "profile": request.profile, "parameters": request.parameters}
        record |= {"started": time_of(began), **provenance(), "stages": [], "status": "done", "reason": ""}
    if record["status"] == "running" and not reason:
        reason = "the notebook ended before its run was finished, so its results were not written"
    if reason:
        record |= {"status": "failed", "reason": reason}
    write_json(path, record | {"updated": time_of(time.time())})
    return reason


def _without_places(path: Path, root: Path, request: Request) -> None:
    """Runs are shared: what was written names files from the project and the home folder on, and encoders by the names
    of their folders, not where those lie."""
    if not path.is_file():
        return
    text = before = path.read_text("utf-8")
    given = [request.encoder]
    for value in request.overrides.values():
        given += as_list(value)
    for value in given:
        if "/" in str(value):
            text = text.replace(value, encoder_name(value))
    for place, name in ((root, "."), (root.resolve(), "."), (Path.cwd(), "."), (Path.home(), "~")):
        if len(place.parts) > 1:
            text = text.replace(f"{place}{os.sep}", f"{name}{os.sep}")
    if text != before:
        write_whole(path, text)


class OwnKernel(AsyncKernelManager):
    """A kernel of this very interpreter, over file sockets where the system has them: no races for ports. Processes
    that its notebook started and left behind end with it, or with this process if that is interrupted."""

    variables: Mapping[str, str] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        runtime = self.variables["JUPYTER_RUNTIME_DIR"]
        self.connection_file = str(Path(runtime, "kernel.json"))
        if sys.platform != "win32":
            self.transport, self.ip = "ipc", str(Path(runtime, "kernel"))

    @property
    def kernel_spec(self) -> KernelSpec:
        # Imports and records are millions of objects without cycles: looking for some less often saves seconds.
        rarely = "--IPKernelApp.exec_lines=import gc; gc.set_threshold(10_000)"
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", rarely]
        return KernelSpec(argv=argv, display_name="Python 3", language="python", env=dict(self.variables))

    async def start_kernel(self, **settings: Any) -> None:  # type: ignore[override]  # its own methods are async, too
        await super().start_kernel(**settings)
        atexit.register(self.end_group)

    async def shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:  # type: ignore[override]  # as above
        """Ask the kernel to end, and end it where it does not. The interrupt that usually comes before is an error to a
        kernel that has answered its last message but not put its own handler of interrupts back."""
        await self.request_shutdown(restart)
        await self.finish_shutdown(restart=restart)
        await self.cleanup_resources(restart=restart)

    async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]  # as above
        self.end_group()
        await super().cleanup_resources(restart=restart)

    def end_group(self) -> None:
        """End what is left of the processes of the kernel."""
        atexit.unregister(self.end_group)
        provisioner: Any = self.provisioner
        group = getattr(provisioner, "pgid", None)
        if group:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
            provisioner.pgid = None  # the number may be given to others


class LineEngine(NBClientEngine):
    """papermill's own engine, with one line per cell in place of a bar: it reads well in a log and in a terminal."""

    name = "dialnb-lines"

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, variables: Mapping, **settings: Any) -> Any:
        """Execute the notebook; announce each code cell by the heading above it, and report while a long one runs."""
        begin, total, heading = nb_man.cell_start, len(nb_man.nb.cells), "Parameters"
        save = nb_man.save

        def cell_start(cell: Any, cell_index: int, **extra: Any) -> None:
            nonlocal heading
            if cell.cell_type == "markdown" and cell.source.startswith("#"):
                heading = cell.source.splitlines()[0].lstrip("# ")
            if cell.cell_type == "code":
                settings["stdout_file"].announce(f"    cell {cell_index + 1}/{total}  {heading}")
            begin(cell, cell_index, **extra)

        def save_at_times(**extra: Any) -> None:
            if (nb_man.now() - nb_man.last_save_time).total_seconds() > SAVED_EVERY:
                save(**extra)

        nb_man.cell_start, nb_man.save = cell_start, save_at_times
        kernel = type("Kernel", (OwnKernel,), {"variables": variables})
        try:
            return super().execute_managed_notebook(nb_man, kernel_name, kernel_manager_class=kernel, **settings)
        finally:
            nb_man.save = save


class Voice:
    """Everything a run says, on screen and in its log; while nothing is said for long, the last cell and its age.

    A disk that fills up takes the rest of the log, not the run.
    """

    def __init__(self, log: TextIO) -> None:
        self.log, self._cell, self._mid_line = log, "", False
        self._since = self._heard = time.monotonic()
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def write(self, text: str) -> int:
        """Pass on text of the kernel; colours reach a terminal only, and a bar that redraws itself becomes lines."""
        plain = shown(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", "\n"))
        with self._lock:
            self._heard, self._mid_line = time.monotonic(), not text.endswith("\n")
            with contextlib.suppress(OSError):
                self.log.write(plain)
            parts = enumerate(re.split(r"(\x1b\[[0-9;]*m|\r)", text))
            coloured = "".join(part if place % 2 else shown(part) for place, part in parts)
            sys.stdout.write(coloured if sys.stdout.isatty() else plain)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.log.flush()
        sys.stdout.flush()

    def say(self, line: str) -> None:
        """A line of our own, on a line of its own."""
        self.write("\n" * self._mid_line + f"{line}\n")
        self.flush()

    def announce(self, cell: str) -> None:
        """Say which cell begins, and count its age."""
        self._cell, self._since = cell, time.monotonic()
        self.say(cell)

    def __enter__(self) -> Voice:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.log.close()

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS / 4):
            if self._cell and time.monotonic() - self._heard >= HEARTBEAT_SECONDS:
                self.say(f"{self._cell} ... {time.monotonic() - self._since:.0f} s")
