"""Stage functions for the tests of workers; other processes import them from here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_info

from dialnb.errors import Offline, UnknownName
from dialnb.runs.stages import StageCache


def where_and_what(encoder, records, number: int) -> pd.DataFrame:
    vectors = encoder.encode([record.text for record in records])
    threads = max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
    return pd.DataFrame(
        {"process": [os.getpid()], "threads": [threads], "value": [float(np.abs(vectors).sum()) * number]}
    )


def fails(number: int) -> None:
    raise ValueError(f"no luck with {number}")


def refuses(kind: str) -> None:
    raise Offline("no network. Try again") if kind == "Offline" else UnknownName("recipe", "DSX", ["DSE"])


def dies(number: int, parent: int) -> int:
    if os.getpid() != parent:
        os._exit(9)
    return number


def lacks_memory(number: int, parent: int) -> int:
    if os.getpid() != parent:
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
    return number


def takes_memory(seen: str) -> int:
    while not Path(seen).exists():
        time.sleep(0.05)
    time.sleep(2)  # the other one is refused meanwhile
    return 1


def waits_for(seen: str) -> bool:
    """Whether another stage was made meanwhile."""
    until = time.time() + 15
    while not Path(seen).exists() and time.time() < until:
        time.sleep(0.05)
    return Path(seen).exists()


def shows(seen: str) -> str:
    Path(seen).touch()
    return seen


def lacks_memory_once(seen: str) -> int:
    if not Path(seen).exists():
        Path(seen).touch()
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    return os.getpid()


def variable(name: str) -> str | None:
    return os.environ.get(name)


def length(encoder, texts: list[str], power: int) -> float:
    return float((encoder.encode(texts) ** power).sum())


def length_when_changed(encoder, texts: list[str]) -> float:
    with torch.no_grad():
        next(encoder.parameters()).mul_(2)
    return length(encoder, texts, 2)


def plus_one(number: int) -> int:
    return number + 1


def slowly(log: str) -> int:
    """Say that it was begun, and take a second."""
    with Path(log).open("a") as file:
        file.write("made ")
    time.sleep(1)
    return 1


def make_slowly(folder: Path) -> None:
    """Ask the cache of a folder for a stage that takes a second."""
    StageCache(folder / "stages").run("slow", slowly, {"log": str(folder / "log")})


def length_of_rows(rows: pd.DataFrame) -> int:
    return len(rows)
