"""Progress that reads well everywhere: a bar on a terminal, and elsewhere a line every ten seconds."""

import io
import sys
from typing import Any

from tqdm.std import tqdm

SECONDS_BETWEEN_LINES = 10.0


class Bar(tqdm):
    """tqdm, but where no terminal would redraw a bar (logs, notebooks, papermill) it prints lines.

    >>> for _ in Bar(range(3), desc="train", mininterval=0): pass
        train  1/3  0:00 left
        train  2/3  0:00 left
        train  3/3  done in 0:00
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.lines = not getattr(sys.stderr, "isatty", bool)()
        if self.lines:
            settings["mininterval"] = SECONDS_BETWEEN_LINES if settings.get("mininterval") != 0 else 0
            settings["file"], settings["leave"] = io.StringIO(), True
        self.said = settings.get("initial", 0)
        super().__init__(*arguments, **settings)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Draw the bar, or print the line that stands for it."""
        if not self.lines:
            return super().display(msg, pos)
        if self.n == self.said:
            return True
        self.said, now = self.n, self.format_dict
        left = (self.total - self.n) / now["rate"] if self.total and now["rate"] else 0.0
        share = f"{self.n:,}/{self.total:,}" if self.total else f"{self.n:,}"
        done = self.total is not None and self.n >= self.total
        clock = self.format_interval
        time = f"done in {clock(now['elapsed'])}" if done else f"{clock(left)} left" if self.total else ""
        unit = "" if self.unit == "it" else f" {self.unit}s"
        parts = (self.desc.removesuffix(": "), share + unit, self.postfix or "", time)
        print("    " + "  ".join(part for part in parts if part), flush=True)
        return True
