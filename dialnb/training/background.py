"""What happens beside the loop: batches built ahead of time, and a Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from dialnb.examples.batches import Batch

DEPTH = 4  # batches that are ready, or being built


class Ahead:
    """Builds the next batches in a thread while the device computes; an error there surfaces here.

    Python hands the interpreter from thread to thread every 5 ms; a step of a small encoder takes less, so the main
    thread would starve behind the builder. Meanwhile the hand-over is quicker.
    """

    def __init__(self, build: Callable[[int], list[Batch]], first: int, total: int) -> None:
        self._build, self._steps = build, iter(range(first, total))
        self._pool = ThreadPoolExecutor(1)
        self._batches: deque[Future[list[Batch]]] = deque()

    def get(self) -> list[Batch]:
        """The chunks of the next step."""
        for step in islice(self._steps, DEPTH - len(self._batches)):
            self._batches.append(self._pool.submit(self._build, step))
        return self._batches.popleft().result()

    def __enter__(self) -> Ahead:
        self._pace = sys.getswitchinterval()
        sys.setswitchinterval(2e-4)
        return self

    def __exit__(self, *_) -> None:
        self._pool.shutdown(cancel_futures=True)
        sys.setswitchinterval(self._pace)


class Interrupts:
    """Ctrl-C waits for the end of the step, so that no update is half done; a second one does not wait."""

    def __init__(self) -> None:
        self.seen = False
        self._main = threading.current_thread() is threading.main_thread()

    def _notice(self, number, frame) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True

    def __enter__(self) -> Interrupts:
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._notice)
        return self

    def __exit__(self, *_) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)
