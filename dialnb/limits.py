"""All limits on files that somebody else wrote: what kind they are of, how large they are, how long they take."""

import lzma
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dialnb.errors import DataError

MEGABYTE = 2**20
SIZES = {".json": 16, ".ipynb": 64, ".txt": 64, ".md": 1, ".svg": 32, ".png": 32, ".csv": 512, ".xz": 512}
"""Megabytes of a file by its suffix; those of a packed one also count when it is unpacked."""
ENTRIES = 5_000
"""Of a list in a record: stages, reasons, data."""
COLUMNS, HEADER = 500, 2**16
"""Of a table; and the letters within which their names stand."""
FIGURES = 200
ELEMENTS, DEPTH = 500_000, 100
"""Of a drawing, and how deep they may lie in each other."""
PIECE = 2**16
"""Letters of HTML that are cleaned at once; more of them take a process of their own."""
LETTERS = 600
"""Of a reason on a page or in a terminal."""
POOLS = 50
"""Ways to leave out odd runs of a setting that are tried."""
FILE_SECONDS, PAGE_SECONDS = 60, 900
"""To read, draw or clean one file; and for the page of the runs of one setting."""


def regular(path: Path) -> Path:
    """The path, if a regular file of no more than its size stands there: no device, no pipe, no loop of links."""
    try:
        about = path.stat()
    except (OSError, RuntimeError) as error:
        raise DataError(f"{path.name} cannot be opened: {error}") from error
    if not stat.S_ISREG(about.st_mode):
        raise DataError(f"{path.name} is no regular file, but a folder, a pipe or a device")
    if about.st_size > SIZES[path.suffix] * MEGABYTE:
        raise DataError(f"{path.name} has {about.st_size:,} bytes; at most {SIZES[path.suffix]} MB are read")
    return path


def content(path: Path) -> bytes:
    """The bytes of a regular file, unpacked if need be, and not too many of them."""
    if regular(path).suffix != ".xz":
        return path.read_bytes()
    with lzma.open(path) as file:
        unpacked = file.read(SIZES[".xz"] * MEGABYTE + 1)
    if len(unpacked) > SIZES[".xz"] * MEGABYTE:
        raise DataError(f"{path.name} unpacks to more than {SIZES['.xz']} MB")
    return unpacked


def shortened(text: object) -> str:
    """A reason in one line, of a length that people read."""
    line = " ".join(f"{text}".split())
    return line[:LETTERS] + " …" * (len(line) > LETTERS)


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Refuse work that takes longer; where the system cannot interrupt it (Windows, other threads) it may."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise DataError(f"{what} took more than {seconds:g} s")

    began, before = time.monotonic(), signal.signal(signal.SIGALRM, ring)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds, 1)  # again: somebody may have caught the first
    try:
        yield
    finally:
        left = left and max(left - (time.monotonic() - began), 0.01)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, again)
