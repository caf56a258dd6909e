"""What happens beside the loop: batches built ahead of time, and a Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Callable

from dialnb.examples.batches import Batch


class Ahead:
    """Builds the next batches in a thread while the device computes; an error there surfaces here.

    Python hands the interpreter from thread to thread every 5 ms; a step of a small encoder takes less, so the main
    thread would starve behind the builder. Meanwhile the hand-over is quicker.
    """

    def __init__(self, build: Callable[[int], list[Batch]], first: int, total: int, depth: int = 3) -> None:
        self._queue: queue.Queue = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(build, first, total), daemon=True)

    def _work(self, build, first: int, total: int) -> None:
        for step in range(first, total):
            try:
                item = build(step)
            except BaseException as error:  # handed to the main thread
                item = error
            while not self._stop.is_set():
                try:
                    self._queue.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self._stop.is_set() or isinstance(item, BaseException):
                return

    def get(self) -> list[Batch]:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def __enter__(self) -> Ahead:
        self._pace = sys.getswitchinterval()
        sys.setswitchinterval(2e-4)
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()
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
