"""How fast the data layer is: read all of SGD, open it again from the cache, walk through it; with peak memory.

    python -m benchmarks.data

The source files come from the mirror (DIALNB_MIRROR) or from upstream into a temporary cache, so every figure is that
of a first use, and every step runs in a process of its own. The exit code is 1 if a limit is missed.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory

from dialnb.data import load
from dialnb.data.store import Store

LIMITS = {"build": 60.0, "open": 2.0, "memory": 2.0}  # seconds, seconds, gigabytes


def main() -> int:
    """Run the steps, print one table."""
    with TemporaryDirectory() as folder:
        fetched = _measure("fetch", folder)
        built = _measure("build", folder)
        opened = _measure("open", folder)
    memory = max(step["memory"] for step in (fetched, built, opened))
    rows = [
        ("unpack and verify the 181 files", fetched["seconds"], "s", None),
        (f"build {built['dialogues']:,} dialogues, {built['utterances']:,} utterances", built["seconds"], "s", "build"),
        ("open from the cache", opened["seconds"], "s", "open"),
        ("make every record once", opened["walk"], "s", None),
        ("all texts as a list", opened["texts"], "s", None),
        ("peak memory", memory, "GB", "memory"),
    ]
    print(f"{'SGD':48}{'measured':>12}{'limit':>12}")
    for what, value, unit, limit in rows:
        print(f"{what:48}{value:>10.2f} {unit:2}{f'{LIMITS[limit]:.0f} {unit}' if limit else '':>11}")
    return int(any(limit and value > LIMITS[limit] for _, value, _, limit in rows))


def _measure(step: str, folder: str) -> dict[str, float]:
    """Run one step in a process of its own, so that its memory is its own too."""
    command = [sys.executable, "-m", "benchmarks.data", step, folder]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def _step(step: str, cache: Path) -> dict[str, float]:
    store = Store(cache=cache)
    start = time.perf_counter()
    if step == "fetch":
        store.paths("SGD", "*/dialogues_*.json")
        found: dict[str, float] = {"seconds": time.perf_counter() - start}
    else:
        dataset = load("SGD", store=store)
        found = {"seconds": time.perf_counter() - start, "dialogues": len(dataset)}
        start = time.perf_counter()
        found["utterances"] = len(dataset.texts())
        found["texts"] = time.perf_counter() - start
        start = time.perf_counter()
        deque(dataset, maxlen=0)
        found["walk"] = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024
    return found | {"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9}


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(_step(sys.argv[1], Path(sys.argv[2]))))
    else:
        sys.exit(main())
