"""Real processes that begin with everything imported: forked from one that has done nothing else."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PRELOADED = ("accelerate", "ipykernel.kernelapp", "sklearn.manifold", "transformers.models.bert.modeling_bert")
OURS = ("dialnb.explore.sentences", "dialnb.models.encoder", "dialnb.studies.matrix")

BESIDE = (Path(__file__).parent, Path(__file__).parent.parent / "workflow")
"""What only tests import."""


def context():
    """What starts processes from a server that has imported the library; the server starts with the first of them."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([*PRELOADED, *OURS])
    return found


class Process:
    """A function in a process of its own; what it says goes to a file, so that it can be killed at any time."""

    stdin = stdout = stderr = None

    def __init__(self, words: Path, function: Callable, *arguments: object, **variables: object) -> None:
        self.words = words
        self._process = context().Process(target=_begin, args=(words, variables, function, arguments))
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float = 900) -> int | None:
        """Its exit code: what it was killed by, below zero."""
        self._process.join(seconds)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def said(self) -> str:
        return self.words.read_text(encoding="utf-8")


def kernel(command: list[str], *, env: dict[str, str], cwd: str | None = None, **_: object) -> Process:
    """A real Jupyter kernel, as `jupyter_client.launcher.launch_kernel` gives it, but for the time of the imports."""
    arguments = command[command.index("ipykernel_launcher") :]
    words = Path(arguments[arguments.index("-f") + 1]).with_suffix(".log")
    found = Process(words, _run_kernel, arguments, cwd or Path.cwd(), env)
    while found.poll() is None and os.getpgid(found.pid) != found.pid:  # signals go to its group
        time.sleep(0.01)
    return found


def _run_kernel(arguments: list[str], folder: str | Path, variables: dict[str, str]) -> None:
    import matplotlib
    import torch
    from ipykernel.kernelapp import launch_new_instance

    os.setsid()
    torch.set_num_threads(int(variables.get("OMP_NUM_THREADS") or torch.get_num_threads()))  # the server read it before
    matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"  # named to those that import it later
    os.chdir(folder)
    os.environ.clear()
    os.environ |= variables
    named = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*named, *(place for place in sys.path if Path(place) not in BESIDE)]
    sys.argv = [*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]
    launch_new_instance()


def _begin(words: Path, variables: dict[str, object], function: Callable, arguments: tuple) -> None:
    with words.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.environ |= {name: str(value) for name, value in variables.items()}
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # as in conftest.py
    function(*arguments)
