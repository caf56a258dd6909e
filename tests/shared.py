"""What several files of tests look at, made once for all of them and for all workers."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import processes
import pytest
import tiny
from filelock import FileLock
from papermill.cli import papermill as papermill_command

from dialnb import cli


def from_notebook(slug: str, folder: Path, *names: str) -> SimpleNamespace:
    """Functions that a notebook defines in its cells, beside what it imports; nothing else of it is executed."""
    path = Path(__file__).resolve().parent.parent / "notebooks" / f"{slug}.ipynb"
    kept = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for part in ast.parse("".join(cell["source"])).body if cell["cell_type"] == "code" else ():
            if isinstance(part, ast.Import | ast.ImportFrom) or getattr(part, "name", None) in names:
                kept.append(part)
    module = folder / f"{slug}.py"
    module.write_text(ast.unparse(ast.Module(kept, [])), encoding="utf-8")
    return SimpleNamespace(**runpy.run_path(str(module)))


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of the whole test session, which its workers share."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder that is filled by whoever asks for it first; others wait for it."""
    done = folder.with_name(f"{folder.name}.done")
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not done.exists():
            make(folder)
            done.touch()
    return folder


def small_encoder(factory: pytest.TempPathFactory) -> Path:
    """The folder of an encoder of one layer that knows nothing, and the word pieces of the bundled one."""
    return made_once(session_folder(factory) / "tiny", lambda folder: tiny.one_layer().save(folder))


def smoke_cache(factory: pytest.TempPathFactory) -> Path:
    """One cache for the smoke runs of all notebooks: empty for the first, as in a clone that runs them in turn."""
    return session_folder(factory) / "smoke-cache"


def dialnb(*arguments: object, **variables: object) -> tuple[int, str]:
    """Exit code and words of a command that runs in this process; its kernels are real ones, and see the variables."""
    with surroundings(**variables) as words:
        code = cli.main([str(argument) for argument in arguments])
    return code, words.getvalue()


def papermill(notebook: Path, output: Path, *arguments: str, **variables: object) -> None:
    """A notebook run by the command of papermill, in the folder of its output."""
    with surroundings(**variables), contextlib.chdir(output.parent):
        command = [str(notebook), str(output), "--no-progress-bar", *arguments]
        papermill_command.main(command, standalone_mode=False)


@contextlib.contextmanager
def surroundings(**variables: object) -> Iterator[io.StringIO]:
    """What a user's command finds: these settings and no others. Gives what it says."""
    words = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
        patch.setattr("jupyter_client.provisioning.local_provisioner.launch_kernel", processes.kernel)
        for name in [name for name in os.environ if name.startswith("DIALNB_")]:
            patch.delenv(name)
        for name, value in ({"OMP_NUM_THREADS": 1, "HF_HUB_OFFLINE": 1} | variables).items():
            patch.setenv(name, str(value))
        yield words


def are_stripped(*notebooks: Path) -> bool:
    """Whether the tool that strips notebooks would leave these as they are."""
    command = [sys.executable, "-m", "nbstripout", "--keep-id", "--verify", *map(str, notebooks)]
    return subprocess.run(command, capture_output=True, timeout=900).returncode == 0
