"""Real processes that begin with everything imported: forked from one that has done nothing else."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

PRELOADED = ("accelerate", "sklearn.linear_model", "transformers.models.bert.modeling_bert")
OURS = ("dialnb.models.encoder", "dialnb.training", "dialnb.runs.stages", "dialnb.data")


def context():
    """What starts processes from a server that has imported the library; the server starts with the first of them."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([*PRELOADED, *OURS])
    return found


class Process:
    """A function in a process of its own; what it says goes to a file, so that it can be killed at any time."""

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

    def said(self) -> str:
        return self.words.read_text(encoding="utf-8")


def _begin(words: Path, variables: dict[str, object], function: Callable, arguments: tuple) -> None:
    with words.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.environ |= {name: str(value) for name, value in variables.items()}
    function(*arguments)
